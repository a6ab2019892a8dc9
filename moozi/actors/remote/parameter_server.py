"""The parameter server: a thin wrapper of `learning.learner` (the thesis §4.3.15)."""

import functools
from typing import Any

from moozi.actors.remote import process
from moozi.actors.remote.learner_hosts import LearnerHosts, start_hosts
from moozi.core.config import Config
from moozi.core.histogram import Histogram
from moozi.core.spec import EnvSpec
from moozi.io import jax_process
from moozi.replay.shards import DrawnRows, join


class ParameterServer(process.Actor):
  """Holds the central copy of the parameters and updates it.

  Args:
    config, setup: as in `process.Actor`.
    spec: the environment's specification.
    state: a TrainingState to continue from; None starts with new parameters.
    learner_step: the learner step from which a restarted server continues; 0 for the first server of a run.
    group: the placement group of a learner on several hosts; the server is on its first host. None: one host.
  """

  def __init__(
    self,
    config: Config,
    spec: EnvSpec,
    state: Any,
    learner_step: int = 0,
    *,
    setup: process.Setup,
    group: Any = None,
  ) -> None:
    if group is None:
      super().__init__(config, setup)
      jax_process.set_up()
      self._hosts = LearnerHosts()
    else:
      # The base class waits for the hosts.
      self._hosts, place = start_hosts(config, spec, state, learner_step, group, setup)
      super().__init__(config, setup._replace(join=functools.partial(jax_process.join, place)))
    from moozi.agent.devices import devices_of
    from moozi.run import build

    devices_of(config.learner).connect()
    self._config = config
    self._learner = (self._parts or build).build_learner(config, spec)
    self._learner.start_from(state, learner_step)
    self._log.info("ready at learner step %d", self._learner.learner_step)

  def warm_up(self) -> None:
    """Compiles the updates."""
    with self._work.doing("compile"), self._hosts.calling("warm_up"):
      self._learner.warm_up()
    self._log.info("compiled the update")

  def update(self, discount: float, time_share: float, *drawn: Any) -> tuple[Any, dict[str, float]]:
    """Makes U updates; returns (priorities for replay, metrics) as two Ray objects.

    Args:
      discount: that of the targets.
      time_share: `Session.time_share`.
      drawn: the targets, a TrainTarget [U, B, …]; or the DrawnRows of each shard of replay.
    """
    with self._work.doing("update"):
      self._learner.set_discount(discount)
      self._learner.set_time_share(time_share)
      targets = drawn[0]
      if isinstance(targets, DrawnRows):
        normalizes = self._config.replay.normalize_importance
        targets = join(drawn, self._config.learner.batch_size, normalizes)
      with self._hosts.calling("update", discount, time_share, batch=targets) as own:
        return self._learner.update(targets, own)

  def parameters(self, network: str) -> tuple[Any, int]:
    """Returns (variables, version) of the network `online` or `target`."""
    with self._work.doing("publish"):
      return self._learner.parameters(network)

  def get_state(self) -> Any:
    """Returns the whole TrainingState."""
    self._log.info("state taken at learner step %d", self._learner.learner_step)
    with self._work.doing("checkpoint"):
      return self._learner.get_state()

  def roll_back(self, state: Any) -> None:
    """Continues from an older TrainingState, as in `Learner.roll_back`."""
    with self._hosts.calling("roll_back", state):
      self._learner.roll_back(state)
    self._log.warning("restored older parameters; the learner step is %d", self._learner.learner_step)

  def histograms(self) -> dict[str, Histogram]:
    """Returns histograms of the parameters by name."""
    with self._work.doing("histograms"):
      return self._learner.histograms()

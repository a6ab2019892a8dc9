"""The parameter server: a thin wrapper of `learning.learner` (the thesis §4.3.15)."""

from typing import Any

import numpy as np

from moozi.actors.remote import process
from moozi.core.config import Config
from moozi.core.histogram import Histogram
from moozi.core.pytree import replace
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
  """

  def __init__(
    self,
    config: Config,
    spec: EnvSpec,
    state: Any,
    learner_step: int = 0,
    *,
    setup: process.Setup,
  ) -> None:
    super().__init__(config, setup)
    jax_process.set_up()
    from moozi.run import build

    self._config = config
    self._learner = (self._parts or build).build_learner(config, spec)
    if state is not None:
      self._learner.set_state(state)
    if learner_step:
      older = self._learner.get_state()
      self._learner.roll_back(replace(older, learner_step=np.int32(learner_step)))
    self._log.info("ready at learner step %d", self._learner.learner_step)

  def warm_up(self) -> None:
    """Compiles the updates."""
    with self._work.doing("compile"):
      self._learner.warm_up()
    self._log.info("compiled the update")

  def update(self, discount: float, *drawn: Any) -> tuple[Any, dict[str, float]]:
    """Makes U updates; returns (priorities for replay, metrics) as two Ray objects.

    Args:
      discount: that of the targets.
      drawn: the targets, a TrainTarget [U, B, …]; or the DrawnRows of each shard of replay.
    """
    with self._work.doing("update"):
      self._learner.set_discount(discount)
      targets = drawn[0]
      if isinstance(targets, DrawnRows):
        normalizes = self._config.replay.normalize_importance
        targets = join(drawn, self._config.learner.batch_size, normalizes)
      return self._learner.update(targets)

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
    self._learner.roll_back(state)
    self._log.warning("restored older parameters; the learner step is %d", self._learner.learner_step)

  def histograms(self) -> dict[str, Histogram]:
    """Returns histograms of the parameters by name."""
    with self._work.doing("histograms"):
      return self._learner.histograms()

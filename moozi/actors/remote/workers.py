"""The workers: thin wrappers of `acting.collector`, `acting.reanalyzer` and `evaluation.evaluator`.

A worker runs only when it is called. A call of `run` passes a reference to parameters in Ray's object store,
so workers that use the same parameters read one object. A training worker gets no parameters if an inference
server decides. Source: the thesis §4.3.11 to §4.3.13.
"""

from typing import Any

from moozi.actors.remote import process
from moozi.actors.remote.inference_client import RemoteInference
from moozi.core.actor_report import INFERENCE_SERVER, ActorId
from moozi.core.config import Config
from moozi.core.errors import EnvError, UserError
from moozi.core.records import num_roots
from moozi.core.spec import EnvSpec
from moozi.io import jax_process
from moozi.io.logs import log_stream
from moozi.replay.frame_rows import packed


class TrainingWorker(process.Actor):
  """Makes segments of trajectories by acting in its own environments.

  Args:
    config, setup: as in `process.Actor`.
    spec: the environment's specification.
    index: the worker's index.
    began_at: part of the worker's seeds (`At.seed_step`).
  """

  def __init__(
    self,
    config: Config,
    spec: EnvSpec,
    index: int,
    began_at: int,
    setup: process.Setup,
  ) -> None:
    super().__init__(config, setup)
    jax_process.set_up()
    from moozi.envs.guard import allow_exit

    # Lets the guard end this process if an environment hangs in C; the driver then restarts the worker.
    allow_exit(log_stream())
    self._collector = self._build_collector(config, spec, index, began_at)
    self._config, self._spec = config, spec
    self._log.info("ready: %d environments of %s", config.worker_envs, spec.name)

  def _build_collector(self, config: Config, spec: EnvSpec, index: int, began_at: int) -> Any:
    from moozi.run.build import build_collector

    client = None
    if config.num_inference_servers:
      client = RemoteInference(str(ActorId(INFERENCE_SERVER, index % config.num_inference_servers)))
    return build_collector(config, spec, index, began_at, client)

  def warm_up(self) -> None:
    """Compiles acting; needs no parameters."""
    from moozi.run.build import variables_template

    with self._work.doing("compile"):
      self._collector.warm_up(variables_template(self._config, self._spec))
    self._log.info("compiled acting")

  def run(
    self, parameters: tuple[Any, int] | None, env_steps: int, past: tuple[Any, int] | None = None
  ) -> tuple[Any, Any]:
    """Acts for one segment; returns (TrajectorySample [T, B, …], ActingResult) as two Ray objects.

    The segment is `packed`.

    Args:
      parameters: (variables, version) of the current agent; None if an inference server decides.
      env_steps: environment steps of the run so far.
      past: (variables, version) of a past self, if there is one.
    """
    from moozi.acting.past_selves import PastCollector

    with self._work.doing("segment"):
      if past is not None:
        assert isinstance(self._collector, PastCollector)
        self._collector.set_opponent(*past)
      if parameters is not None:
        self._collector.set_parameters(*parameters)
      segment, acted = self._collector.run(env_steps)
      return packed(segment, self._spec), acted

  def reset(self) -> None:
    """Resets all environments, after steps were lost that replay needs to continue their episodes."""
    with self._work.doing("new games"):
      self._collector.reset()
    self._log.info("reset all environments")

  def close(self) -> None:
    """Closes the environments."""
    self._collector.close()


class ReanalyzeWorker(process.Actor):
  """Searches stored positions again with the target network. The arguments are as in `TrainingWorker`."""

  def __init__(
    self,
    config: Config,
    spec: EnvSpec,
    index: int,
    began_at: int,
    setup: process.Setup,
  ) -> None:
    super().__init__(config, setup)
    jax_process.set_up()
    from moozi.run.build import build_reanalyzer

    self._reanalyzer = build_reanalyzer(config, spec, index, began_at)
    self._log.info("ready: %d positions per call, %s", config.reanalyze.batch_size, config.reanalyze.mode)

  def run(self, parameters: tuple[Any, int], positions: Any) -> tuple[Any, tuple[int, dict[str, float]]]:
    """Searches positions; returns (SearchedRoots, (number of positions, metrics)) as two Ray objects.

    Without positions, returns (None, (0, {})).

    Args:
      parameters: (variables, version) of the target network.
      positions: the result of replay's `positions`.
    """
    if not num_roots(positions):
      return None, (0, {})
    with self._work.doing("reanalyze"):
      self._reanalyzer.set_parameters(*parameters)
      searched, metrics = self._reanalyzer.run(positions)
    return searched, (searched.slot.size, metrics)


class TestingWorker(process.Actor):
  """Plays evaluation episodes."""

  def __init__(self, config: Config, spec: EnvSpec, *, setup: process.Setup) -> None:
    super().__init__(config, setup)
    jax_process.set_up()
    from moozi.envs.guard import allow_exit
    from moozi.run import build

    # An environment that hangs in C never returns. If this process could not exit, the run would wait for the
    # evaluation forever.
    allow_exit(log_stream())
    self._evaluator = (self._parts or build).build_evaluator(config, spec)
    self._record = config.evaluation.gif
    self._log.info("ready: %s", spec.name)

  def run(self, parameters: tuple[Any, int], env_steps: int, num_episodes: int, *rivals: Any) -> Any:
    """Evaluates these parameters; returns an EvaluationResult, or an EnvError if the environment failed.

    Args:
      rivals: for the gate, the (variables, version) of the newest parameters and of those that act.
    """
    variables, version = parameters
    try:
      with self._work.doing("evaluation"):
        result = self._evaluator.run(
          variables,
          num_episodes=num_episodes,
          version=version,
          env_steps=env_steps,
          record=self._record,
          rates=True,
          rivals=(rivals[0][0], rivals[1][0]) if rivals else None,
        )
    except UserError as error:  # of an environment, or of a function that creates players
      # The error is returned, not raised, so that the run continues without this evaluation.
      return EnvError(str(error))
    assert result is not None, "no stop was requested"
    self._log.info("env steps %d, version %d: %s", env_steps, version, result.summary())
    return result

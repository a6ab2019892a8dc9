"""The actors of an on-policy run: thin wrappers of the functions of a round in `run.on_policy`."""

from typing import Any

from moozi.actors.remote.parameter_server import ParameterServer
from moozi.actors.remote.workers import TrainingWorker
from moozi.core.config import Config
from moozi.core.spec import EnvSpec


class RolloutWorker(TrainingWorker):
  """Collects a worker's segment of each round. The arguments are as in `TrainingWorker`."""

  def _build_collector(self, config: Config, spec: EnvSpec, index: int, began_at: int) -> Any:
    return self.parts.build_collector(config, spec, index, began_at)

  def run(
    self, parameters: tuple[Any, int] | None, env_steps: int, past: tuple[Any, int] | None = None
  ) -> tuple[Any, Any]:
    """Acts for one segment; returns (Rollout [T, B, …], Part) as two Ray objects.

    Args:
      parameters, past: (variables, version) of the current agent and of a past self.
      env_steps: environment steps before the round.
    """
    from moozi.run.on_policy import collect

    assert parameters is not None, "no inference server decides in an on-policy run"
    with self._work.doing("segment"):
      return collect(self._config, self._collector, parameters, env_steps, past)


class OnPolicyServer(ParameterServer):
  """Holds the central copy of the parameters, and updates it from rounds."""

  def learn(self, env_steps: int, time_share: float, *rollouts: Any) -> tuple[int, int, dict[str, float]]:
    """Makes the updates of a round; returns the number of samples, the new learner step, and metrics.

    Args:
      env_steps: environment steps before the round.
      time_share: `Session.time_share`.
      rollouts: the Rollouts of all workers, in the order of workers.
    """
    from moozi.run.on_policy import learn

    with self._work.doing("update"):
      num_samples, metrics = learn(self.parts, self._config, self._learner, rollouts, env_steps, time_share)
    return num_samples, self._learner.learner_step, metrics

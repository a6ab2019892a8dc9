"""Evaluations as the driver sees them: `run.evaluation_schedule`, and the one under way."""

import functools
from collections.abc import Callable
from typing import Any

from moozi.actors.calls import Calls
from moozi.actors.pool import ActorPool
from moozi.core.actor_report import TESTER
from moozi.core.config import EvaluationConfig
from moozi.core.flat_state import State
from moozi.run.evaluation_schedule import Evaluations
from moozi.run.events import Event


class Testing:
  """Asks the testing worker for evaluations, one at a time.

  Args:
    ray: the module, connected.
    crew: the actors.
    calls: the driver's.
    config: of evaluations.
    counters: what every event says.
    progress: of the run's state; empty where the run begins.

  Attributes:
    is_final_due: the evaluation at the run's end has not been asked for, or was lost.
  """

  def __init__(
    self,
    ray: Any,
    pool: ActorPool,
    calls: Calls,
    config: EvaluationConfig,
    counters: Callable[[], dict[str, Any]],
    progress: State,
  ) -> None:
    self._ray, self._pool, self._calls, self._config = ray, pool, calls, config
    self._evaluations = Evaluations(config, counters, progress)
    self._under_way: Any = None
    self.is_final_due = False

  def ask_due(self, parameters: Any, env_steps: int) -> None:
    """Asks for an evaluation of these parameters where its time has come."""
    if self._under_way is None and self._evaluations.is_due(env_steps):
      self._ask(parameters, env_steps, self._config.episodes, is_final=False)

  def ask_final(self, parameters: Any, env_steps: int) -> None:
    """Asks for the one at the run's end, where it is due."""
    if self.is_final_due:
      self.is_final_due = False
      self._ask(parameters, env_steps, self._config.final_episodes, is_final=True)

  def reason_at_end(self, reason: str) -> str:
    """Why the run is over, after the one at its end."""
    return self._evaluations.reason_at_end(reason)

  def forget(self) -> None:
    """Waits no more for the one under way; a resumed run makes it again."""
    self._calls.forget(self._under_way)

  def get_state(self) -> State:
    """What a resumed run goes on from; the one under way is made again."""
    return self._evaluations.get_state(is_pending=self._under_way is not None)

  def _ask(self, parameters: Any, env_steps: int, num_episodes: int, is_final: bool) -> None:
    self._under_way = self._pool.tester.run.remote(parameters, env_steps, num_episodes)
    # Should the parameters turn out to be the best: the state now, up to a publication's updates after them.
    state = self._pool.server.get_state.remote()
    self._calls.expect(
      self._under_way,
      TESTER,
      functools.partial(self._on_evaluated, state, is_final),
      lambda _: self._on_lost(is_final),
    )

  def _on_evaluated(self, state: Any, is_final: bool, result: Any) -> list[Event]:
    self._under_way = None
    return self._evaluations.record(result, is_final, functools.partial(self._training, state))

  def _training(self, state: Any) -> Any:
    try:
      return self._ray.get(state)
    except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError):
      # The server died meanwhile, or the state's node; the call that finds it out deals with it.
      return None

  def _on_lost(self, is_final: bool) -> list[Event]:
    self._under_way = None
    if is_final:
      self.is_final_due = True
    else:
      self._evaluations.repeat()
    return []

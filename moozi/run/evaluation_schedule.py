"""A run's evaluations: which are due, the best so far, and what to tell of each; `evaluation` plays them."""

import math
from collections.abc import Callable
from typing import Any

from moozi.core.config import EvaluationConfig
from moozi.core.errors import EnvError
from moozi.core.flat_state import State, part, prefixed
from moozi.evaluation.evaluator import EvaluationResult
from moozi.run.events import Evaluated, Event, Faulted, StateReady
from moozi.run.schedules import Every
from moozi.run.state import RunState


class Evaluations:
  """Holds the schedule and the best mean return.

  Args:
    config: of evaluations.
    counters: what every event says.
    progress: of the run's state; empty where the run begins.
  """

  def __init__(
    self, config: EvaluationConfig, counters: Callable[[], dict[str, Any]], progress: State
  ) -> None:
    self._due, self._best = Every(config.period_env_steps), Best()
    self._counters = counters
    self._has_final = False
    if progress:
      self._due.set_state(part(progress, "evaluations"))
      self._best.set_state(part(progress, "best"))

  def is_due(self, env_steps: int) -> bool:
    """True once for each time that one is due."""
    return self._due.is_due(env_steps)

  def repeat(self) -> None:
    """The one that was due last was not made: it is due again at once."""
    self._due.repeat()

  def tell(
    self,
    outcome: EvaluationResult | EnvError | None,
    is_final: bool,
    get_training: Callable[[], Any],
  ) -> list[Event]:
    """The events of an evaluation.

    Args:
      outcome: what it came to; None: it was stopped, and a resumed run makes it.
      is_final: it was that.
      get_training: the training state, in NumPy, to keep where what it came to is the best so far: of the
        parameters that played, or with Ray of a few updates later. None: it is lost, and the best stays what
        it was.
    """
    if outcome is None:
      if not is_final:
        self.repeat()
      return []
    self._has_final = self._has_final or is_final
    if isinstance(outcome, EnvError):
      message = f"testing_worker: no evaluation: {outcome}"
      return [Faulted(**self._counters(), counts={"env_errors": 1}, message=message)]
    events: list[Event] = [Evaluated(**self._counters(), result=outcome, is_final=is_final)]
    if self._best.is_beaten_by(outcome) and (training := get_training()) is not None:
      self._best.take(outcome)
      best = RunState(training=training)
      learner_steps = int(training.learner_step)
      events.append(
        StateReady(env_steps=outcome.env_steps, learner_steps=learner_steps, state=best, is_best=True)
      )
    return events

  def reason_at_end(self, reason: str) -> str:
    """Why a run is over, after its evaluation at the end: one that was stopped meanwhile is not done."""
    return reason if self._has_final else "stopped"

  def get_state(self, is_under_way: bool = False) -> State:
    """What a resumed run goes on from.

    Args:
      is_under_way: one was asked for and has not come; a resumed run makes it again.
    """
    state = prefixed("evaluations", self._due.get_state()) | prefixed("best", self._best.get_state())
    return state | {"evaluations/next": 0.0} if is_under_way else state


class Best:
  """The best mean return of the evaluations so far."""

  def __init__(self) -> None:
    self._mean = -math.inf

  def is_beaten_by(self, result: EvaluationResult) -> bool:
    """Whether a result is better."""
    return float(result.returns.mean()) > self._mean

  def take(self, result: EvaluationResult) -> None:
    """It is the best from now on."""
    self._mean = float(result.returns.mean())

  def get_state(self) -> State:
    """The mean."""
    return {"mean": self._mean}

  def set_state(self, state: State) -> None:
    """Takes the mean."""
    self._mean = float(state["mean"])

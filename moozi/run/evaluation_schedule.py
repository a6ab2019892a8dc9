"""Schedules a run's evaluations, tracks the best result, and returns the events of each result."""

import math
from collections.abc import Callable
from typing import Any

from moozi.core.config import Config
from moozi.core.errors import EnvError
from moozi.core.flat_state import State, part, prefixed
from moozi.evaluation.evaluator import EvaluationResult
from moozi.run.events import Evaluated, Event, Faulted, StateReady
from moozi.run.schedules import Every
from moozi.run.state import RunState

BEST_BOUND = "best/bound"
"""Key of the best lower bound in `RunState.progress`."""
LAST_MEAN = "evaluations/mean"
"""Key of the mean return of the last evaluation before the final one; only with `evaluation.stop_value`."""


def has_reached(config: Config, progress: State) -> bool:
  """Returns whether `evaluation.stop_value` was reached in the last evaluation that the state includes.

  The final evaluation of a run does not count.
  """
  value = config.evaluation.stop_value
  return value is not None and float(progress.get(LAST_MEAN, -math.inf)) >= value


class Evaluations:
  """The schedule of evaluations and the best lower bound of the mean return.

  Args:
    counters: returns the fields of `Event`: env_steps and learner_steps.
    progress: `RunState.progress` of the state to resume from; empty in a new run.
  """

  def __init__(self, config: Config, counters: Callable[[], dict[str, Any]], progress: State) -> None:
    self._counters, self._keeps_best = counters, config.checkpoint.keep_best
    self._max_env_steps, self._stop_value = config.max_env_steps, config.evaluation.stop_value
    env_steps = RunState(training=None, progress=progress).env_steps
    self._schedule, self._best_bound = Every(config.evaluation.period_env_steps, env_steps), -math.inf
    self._has_final = self._has_noted_pictures = False
    self._last_mean = float(progress.get(LAST_MEAN, -math.inf))
    if progress:
      self._schedule.set_state(part(progress, "evaluations"))
      self._best_bound = float(progress[BEST_BOUND])

  def is_due(self, env_steps: int) -> bool:
    """Returns whether an evaluation is due; never at the last step, which has the final evaluation."""
    return self._schedule.is_due(env_steps) and env_steps < self._max_env_steps

  @property
  def is_reached(self) -> bool:
    """Whether the last evaluation, except the final one, has reached `evaluation.stop_value`."""
    return self._stop_value is not None and self._last_mean >= self._stop_value

  def repeat(self) -> None:
    """Makes the last evaluation due again, because it was lost or stopped."""
    self._schedule.repeat()

  def record(
    self, outcome: EvaluationResult | EnvError | None, is_final: bool, get_training: Callable[[], Any]
  ) -> list[Event]:
    """Records an evaluation and returns its events.

    Args:
      outcome: the result; an error if the environment failed; None if the evaluation was stopped. A stopped
        evaluation becomes due again, unless it is the final one.
      is_final: whether the evaluation is the one at the end of the run.
      get_training: returns the training state with the evaluated parameters in NumPy. Called if the lower
        bound of the mean return is the highest so far, unless `checkpoint.keep_best` is false. With the mean
        itself, a few lucky episodes could decide the best checkpoint. If the function returns None, the state
        is lost, and the best result is unchanged.
    """
    if outcome is None:
      if not is_final:
        self.repeat()
      return []
    self._has_final = self._has_final or is_final
    if isinstance(outcome, EnvError):
      message = f"testing_worker: no evaluation: {outcome}"
      return [Faulted(**self._counters(), counts={"env_errors": 1}, message=message)]
    if not is_final:
      self._last_mean = float(outcome.returns.mean())
    events: list[Event] = [Evaluated(**self._counters(), result=outcome, is_final=is_final)]
    if outcome.picture_fault and not self._has_noted_pictures:
      self._has_noted_pictures = True
      message = f"testing_worker: {outcome.picture_fault}; its frames are drawn instead"
      events.append(Faulted(**self._counters(), counts={}, message=message))
    if outcome.gate_fault:
      message = f"testing_worker: no games for the gate: {outcome.gate_fault}"
      events.append(Faulted(**self._counters(), counts={"env_errors": 1}, message=message))
    bound = outcome.lower_bound
    if self._keeps_best and bound > self._best_bound and (training := get_training()) is not None:
      self._best_bound = bound
      best = RunState(training=training)
      env_steps, learner_steps = outcome.env_steps, best.learner_steps
      events.append(
        StateReady(env_steps=env_steps, learner_steps=learner_steps, state=best, best_bound=bound)
      )
    return events

  def reason_at_end(self, reason: str) -> str:
    """Returns "stopped" if the final evaluation was stopped, else `reason`."""
    return reason if self._has_final else "stopped"

  def get_state(self, is_pending: bool = False) -> State:
    """Returns the state of the schedule, the best lower bound and, with a stop value, the last mean.

    Args:
      is_pending: whether an evaluation has started but is not recorded yet; a resumed run repeats it.
    """
    state = prefixed("evaluations", self._schedule.get_state()) | {BEST_BOUND: self._best_bound}
    if self._stop_value is not None:
      state[LAST_MEAN] = self._last_mean
    return state | {"evaluations/next": 0.0} if is_pending else state

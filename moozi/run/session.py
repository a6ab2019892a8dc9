"""The parts of a run that all algorithms share: clock, counters, schedules, evaluations, rollback, end.

An algorithm in one process is a `Trainer`, and `Session.run(trainer)` is its loop. The loop evaluates and
saves when due, and calls `trainer.step()` until there is a reason to end. Then it yields the final state.
Unless the run was stopped, it makes the final evaluation and yields the state again. The last event is
`Finished`. `run.local` and `run.on_policy` use this loop.

The Ray driver has its own loop with futures, and uses other methods of Session.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from moozi.core.actor_report import ActorReport
from moozi.core.config import Config
from moozi.core.errors import EnvError, NotFiniteError, UserError
from moozi.core.flat_state import State
from moozi.core.pytree import replace
from moozi.core.spec import EnvSpec
from moozi.evaluation.evaluator import EvaluationResult, Evaluator
from moozi.replay.mixture import StoredTrajectories
from moozi.run.evaluation_schedule import Evaluations
from moozi.run.events import ActorReports, Event, Finished, Started, StateReady
from moozi.run.rollback import Rollback
from moozi.run.schedules import CheckpointSchedule, reason_to_end
from moozi.run.state import RunState


@dataclasses.dataclass(frozen=True)
class RunInputs:
  """The inputs of a run.

  Attributes:
    config: the run's configuration.
    spec: the environment's specification.
    should_stop: called between steps and during evaluations; true ends the run with a last checkpoint.
    state: the state to resume from; if its progress is empty, a new run starts with its training state.
    saved_blocks: returns the generations of the replay blocks that are already saved. The next StateReady
      leaves out these blocks.
    latest: returns the newest saved state, or None if there is none; its replay only with `with_replay=True`.
    stored: stored trajectories to learn from (`offline.trajectories`); None if there are none.
    log_dir: absolute path of the folder for one log file per actor.
    on_phase: called with a line of text about the start of the run, such as "compiling acting"; with Ray also
      about training workers that join or leave.
  """

  config: Config
  spec: EnvSpec
  should_stop: Callable[[], bool] = lambda: False
  state: RunState | None = None
  saved_blocks: Callable[[], np.ndarray | None] = lambda: None
  latest: Callable[..., RunState | None] = lambda with_replay=False: None
  stored: StoredTrajectories | None = None
  log_dir: str | None = None
  on_phase: Callable[[str], None] = lambda text: None

  @property
  def progress(self) -> State:
    return {} if self.state is None else self.state.progress

  @property
  def env_steps(self) -> int:
    return 0 if self.state is None else self.state.env_steps

  @property
  def learner_steps(self) -> int:
    return 0 if self.state is None else self.state.learner_steps


class Counts(Protocol):
  """The current counters of a run."""

  @property
  def env_steps(self) -> int:
    """Environment steps received so far."""

  @property
  def learner_steps(self) -> int:
    """As in `Event`."""


class Trainer(Counts, Protocol):
  """An algorithm that runs in one process; `Session.run` calls its methods."""

  @property
  def message(self) -> str:
    """Message of the `Started` event."""

  @property
  def is_complete(self) -> bool:
    """Whether all environment steps are taken, learned from and reanalyzed."""

  @property
  def sample_reuse(self) -> float:
    """Samples learned from / steps added to replay, since training started; on-policy: number of epochs."""

  def step(self) -> Iterator[Event]:
    """Makes one round of acting and learning; yields its events."""

  def evaluate(self, num_episodes: int) -> EvaluationResult | None:
    """Returns the result of evaluation episodes with the current parameters; None if the run was stopped."""

  def state(self, has_envs: bool = True) -> RunState:
    """Returns the run's state without the Session's progress; `has_envs=False` leaves out `collectors`."""

  def training_state(self) -> Any:
    """Returns the training state as NumPy arrays."""

  def reports(self) -> Mapping[str, ActorReport]:
    """Returns reports of the work since the last call, by actor; empty if the trainer keeps none."""


class Session:
  """The parts of a run that do not depend on the algorithm. The run's clock starts on construction.

  Attributes:
    inputs: the inputs of the run.
    evaluations: the schedule of evaluations and the best result so far.
    rollback: has the training state to restore after non-finite updates; once per start or resume.
  """

  def __init__(self, inputs: RunInputs, counts: Counts) -> None:
    self._start = time.monotonic() - (0.0 if inputs.state is None else inputs.state.wall_s)
    self.inputs, self._counts = inputs, counts
    self.evaluations = Evaluations(inputs.config, self.counters, inputs.progress)
    self.rollback = Rollback(inputs.latest)
    self._checkpoints = CheckpointSchedule(inputs.config.checkpoint, self.wall_s(), inputs.env_steps)
    self._phases: set[str] = set()

  def phase(self, text: str) -> None:
    """Reports a phase of the start, such as "compiling the update"; each phase only once."""
    if text not in self._phases:
      self._phases.add(text)
      self.inputs.on_phase(text)

  def counters(self) -> dict[str, Any]:
    """Returns `env_steps` and `learner_steps`, the fields of every event."""
    return {"env_steps": self._counts.env_steps, "learner_steps": self._counts.learner_steps}

  def wall_s(self) -> float:
    """Returns the duration of the run in seconds, including that until the state that it was resumed from."""
    return time.monotonic() - self._start

  def time_share(self) -> float:
    """Returns the share of max_wall_s that has passed, at most 1; 0 if the run has no such limit."""
    limit = self.inputs.config.max_wall_s
    return 0.0 if limit is None else min(1.0, self.wall_s() / limit)

  def is_checkpoint_due(self) -> bool:
    """Returns whether a checkpoint is due (`CheckpointSchedule.is_due`)."""
    return self._checkpoints.is_due(self.wall_s(), self._counts.env_steps)

  def reason_to_end(self, is_complete: bool) -> str | None:
    """Returns the reason why the run is over, or None.

    Args:
      is_complete: as `Trainer.is_complete`.
    """
    inputs = self.inputs
    limit, is_reached = inputs.config.max_wall_s, self.evaluations.is_reached
    return reason_to_end(is_complete, inputs.should_stop(), self.wall_s(), limit, is_reached)

  def progress(self, is_evaluation_pending: bool = False) -> State:
    """Returns the wall time and the state of the evaluations, for `RunState.progress`.

    With `is_evaluation_pending`, a resumed run repeats the evaluation that has started but is not recorded.
    """
    return {"wall_s": self.wall_s()} | self.evaluations.get_state(is_evaluation_pending)

  def play(
    self,
    evaluator: Evaluator,
    parameters: tuple[Any, int],
    num_episodes: int,
    rivals: tuple[Any, Any] | None = None,
  ) -> Any:
    """Plays evaluation episodes with `parameters`, which are (variables, version).

    Args:
      rivals: as in `Evaluator.run`.

    Returns: the EvaluationResult; None if the run was stopped during the evaluation.
    Raises: EnvError: the environment failed.
    """
    variables, version = parameters
    return evaluator.run(
      variables,
      num_episodes=num_episodes,
      version=version,
      env_steps=self._counts.env_steps,
      record=self.inputs.config.evaluation.gif,
      should_stop=self.inputs.should_stop,
      rates=True,
      rivals=rivals,
    )

  def run(self, trainer: Trainer) -> Iterator[Event]:
    """Trains, and yields the run's events; the last is Finished."""
    evaluation = self.inputs.config.evaluation
    yield Started(**self.counters(), message=trainer.message)
    # A step follows every evaluation, so that no evaluation is at the step of the final one.
    while (reason := self.reason_to_end(trainer.is_complete)) is None:
      if self.evaluations.is_due(trainer.env_steps):
        yield from self._evaluate(trainer, evaluation.episodes, is_final=False)
        if self.inputs.should_stop():
          continue  # a resumed run repeats an evaluation that was stopped, at this step
      if self.is_checkpoint_due():
        yield self.state_ready(trainer)
        if self.inputs.should_stop():
          continue  # a run that is stopped while it saves ends at this step
      yield from trainer.step()
      yield from self._reports(trainer)

    yield self.state_ready(trainer, is_final=True)
    if reason != "stopped":
      yield from self._evaluate(trainer, evaluation.final_episodes, is_final=True)
      reason = self.evaluations.reason_at_end(reason)
      if reason != "stopped":
        # A run that is resumed from this state keeps the final evaluation.
        yield self.state_ready(trainer)
      yield from self._reports(trainer)
    yield Finished(**self.counters(), reason=reason, sample_reuse=trainer.sample_reuse)

  def state_ready(self, trainer: Trainer, is_final: bool = False, has_envs: bool = True) -> StateReady:
    """Returns an event with the trainer's state and the session's progress.

    With `has_envs` false, as after a lost segment, the state has no environments. A resumed run then resets
    them.
    """
    state = trainer.state(has_envs)
    state = replace(state, progress=self.progress() | state.progress)
    return StateReady(**self.counters(), state=state, is_final=is_final)

  def roll_back(
    self, trainer: Trainer, error: NotFiniteError, restore: Callable[[Any], None]
  ) -> Iterator[Event]:
    """Restores the saved training state with `restore`, and yields the event.

    Raises: NotFiniteError: as `Rollback.take`. A final state is yielded first; its parameters are finite,
      because skipped updates do not change them.
    """
    try:
      rollback = self.rollback.take(error, trainer.learner_steps)
    except NotFiniteError:
      yield self.state_ready(trainer, is_final=True)
      raise
    restore(rollback.training)
    yield rollback.fault(self.counters(), trainer.learner_steps - rollback.found)

  def _evaluate(self, trainer: Trainer, num_episodes: int, is_final: bool) -> Iterator[Event]:
    outcome: EvaluationResult | EnvError | None
    try:
      outcome = trainer.evaluate(num_episodes)
    except UserError as error:  # of an environment, or of a function that creates players
      outcome = EnvError(str(error))
    except Exception:  # such as an error of a user's search
      yield self.state_ready(trainer, is_final=True)
      raise
    yield from self.evaluations.record(outcome, is_final, trainer.training_state)

  def _reports(self, trainer: Trainer) -> Iterator[Event]:
    if reports := trainer.reports():
      yield ActorReports(**self.counters(), reports=reports)

"""The run's state as the driver gathers it: from the parameter server, from replay, and its own counters."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from moozi.actors.calls import Calls
from moozi.actors.pool import ActorPool
from moozi.core.actor_report import REPLAY, SERVER
from moozi.core.config import Config
from moozi.core.flat_state import State
from moozi.run.events import Event, StateReady
from moozi.run.state import RunState


class States:
  """Asks for states, one at a time, and puts their parts together.

  Args:
    crew: the actors.
    calls: the driver's.
    config: the run's configuration.
    saved_blocks: generations of the blocks of replay that need not come.
    progress: counters and schedules, now.
    first: tells what must be told before a state, since the state holds it.
    state: what the run begins with.

  Attributes:
    is_asked: one is under way.
    has_final: the last one has come.
    not_added: steps that replay has ever added, less the run's environment steps.
  """

  def __init__(
    self,
    pool: ActorPool,
    calls: Calls,
    config: Config,
    saved_blocks: Callable[[], Any],
    progress: Callable[[], State],
    first: Callable[[], Iterator[Event]],
    state: RunState | None,
  ) -> None:
    self._pool, self._calls, self._config = pool, calls, config
    self._saved_blocks, self._progress, self._first = saved_blocks, progress, first
    begins = {} if state is None else state.progress
    env_steps = int(begins.get("pacer/env_steps", 0))
    added = 0 if state is None or state.replay is None else state.replay.num_added
    self.not_added = added - env_steps
    self._learner_steps = 0 if state is None else int(state.training.learner_step)
    self._samples = int(begins.get("pacer/samples_done", 0))
    self.is_asked, self.has_final = False, False
    self._num_asked = 0

  def skip_versions(self, count: int) -> None:
    """The learner step was moved on by so many; no samples went into these."""
    self._learner_steps += count

  def ask(self, is_final: bool) -> None:
    """Asks for the parts as they are when all that was asked before is done."""
    self.is_asked = True
    self._num_asked += 1
    number, progress = self._num_asked, self._progress()
    training, replay = self.parts()
    # Two objects that come at different moments; the later one takes both.
    came: dict[str, Any] = {}

    def on_part(name: str, value: Any) -> list[Event]:
      came[name] = value
      is_whole = len(came) == 2 and number == self._num_asked
      return [*self._first(), self.ready(progress, is_final, **came)] if is_whole else []

    def on_lost(_: Any) -> list[Event]:
      if number == self._num_asked:
        self.forget()
      return []

    self._calls.expect(training, SERVER, functools.partial(on_part, "training"), on_lost)
    self._calls.expect(replay, REPLAY, functools.partial(on_part, "replay"), on_lost)

  def forget(self) -> None:
    """Leaves out what was asked for and has not come: its counters would not be those of now."""
    self._num_asked += 1
    self.is_asked = False

  def parts(self) -> tuple[Any, Any]:
    """References to the training state and to replay's snapshot."""
    return self._pool.server.get_state.remote(), self._pool.replay.snapshot.remote(self._saved_blocks())

  def ready(self, progress: State, is_final: bool, training: Any, replay: Any) -> StateReady:
    """The parts as one. Its counters are their own: what completed while they travelled is not in it."""
    self.is_asked, self.has_final = False, is_final
    learner_steps, env_steps = int(training.learner_step), replay.num_added - self.not_added
    if not self._config.num_acting_workers:
      env_steps = int(progress["pacer/env_steps"])
    samples = self._samples + (learner_steps - self._learner_steps) * self._config.learner.batch_size
    progress |= {"pacer/env_steps": env_steps, "pacer/samples_done": samples}
    state = RunState(training=training, progress=progress, replay=replay)
    return StateReady(env_steps=env_steps, learner_steps=learner_steps, state=state, is_final=is_final)

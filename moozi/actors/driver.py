"""The driver: the thesis's Algorithm 3 without its barrier.

It says who works when, on what, and where the result goes; nobody else does. Every call returns a
future; the driver keeps a bounded number of them at each actor and reacts as they complete.
`runtime.loop` is the same algorithm in one process.
"""

import functools
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from moozi.actors import cluster
from moozi.actors.parameter_server import ParameterServer
from moozi.actors.replay_buffer import ReplayActor
from moozi.actors.workers import TestingWorker, TrainingWorker
from moozi.core.config import Config
from moozi.core.flat_state import State, part, prefixed
from moozi.core.spec import EnvSpec
from moozi.runtime.events import Acted, Evaluated, Event, Finished, Started, StateReady, Updated
from moozi.runtime.pacing import Best, CheckpointSchedule, Every, Pacer
from moozi.runtime.run_state import RunState

_SALVAGE_TIMEOUT_S = 30.0
_CLOSE_TIMEOUT_S = 10.0


def run(
  config: Config,
  spec: EnvSpec,
  log_dir: str | None,
  should_stop: Callable[[], bool] = lambda: False,
  state: RunState | None = None,
  saved_blocks: Callable[[], Any] = lambda: None,
) -> Generator[Event, None, None]:
  """Trains with Ray actors, and yields what happened: the same events as `runtime.loop.run`.

  Args:
    config: the run's configuration.
    spec: the world's facts.
    log_dir: absolute path of the folder for one log file per actor.
    should_stop: asked between reactions; true ends the run with a last checkpoint.
    state: go on from here, with new games; without its progress a new run begins with its training state.
    saved_blocks: generations of the blocks of replay that need not come with the next StateReady.

  Raises:
    UserError: the actors ask for more than the cluster has, or no cluster answers.
  """
  start = time.monotonic() - (0.0 if state is None else state.wall_s)
  with cluster.connected(config) as ray:
    yield from _Driver(ray, config, spec, log_dir, should_stop, state, saved_blocks, start).run()


class _Driver:
  """The actors, the futures in flight, and what to do when each completes."""

  def __init__(
    self,
    ray: Any,
    config: Config,
    spec: EnvSpec,
    log_dir: str | None,
    should_stop: Callable[[], bool],
    state: RunState | None,
    saved_blocks: Callable[[], Any],
    start: float,
  ) -> None:
    self._ray, self._config, self._should_stop, self._start = ray, config, should_stop, start
    self._saved_blocks = saved_blocks
    progress = {} if state is None else state.progress
    env_steps = int(progress.get("pacer/env_steps", 0))

    def actor(cls: type, resources: Any, *args: Any) -> Any:
      return ray.remote(**cluster.options(resources))(cls).remote(config, spec, *args, log_dir)

    self._server = actor(ParameterServer, config.ray.learner, None if state is None else state.training)
    self._replay = actor(ReplayActor, config.ray.replay, None if state is None else state.replay)
    # Workers keep their worlds to themselves: those of a resumed run begin new games.
    self._workers = [
      actor(TrainingWorker, config.workers.resources, index, env_steps)
      for index in range(config.workers.num_workers)
    ]
    self._tester = actor(TestingWorker, config.evaluation.resources)

    self._segment_steps = config.workers.num_envs * config.workers.segment_length
    self._pacer = Pacer(config, slack_steps=self._slack_steps())
    self._evaluations, self._best = Every(config.evaluation.period_env_steps), Best()
    if progress:
      self._pacer.set_state(part(progress, "pacer"))
      self._evaluations.set_state(part(progress, "evaluations"))
      self._best.set_state(part(progress, "best"))
    self._learner_steps = 0 if state is None else int(state.training.learner_step)
    self._publications = Every(config.ray.publish_period_updates, start=self._learner_steps)
    self._checkpoints = CheckpointSchedule(config.checkpoint, self._wall_s(), env_steps)
    self._can_sample = False
    self._replay_stats: dict[str, float] = {}
    self._is_saving = False
    # What a state's own counters are reckoned from.
    self._learner_steps_at_start, self._samples_at_start = self._learner_steps, self._pacer.samples_done
    replay_added = 0 if state is None or state.replay is None else state.replay.num_added
    self._not_added = replay_added - env_steps
    self._parameters: Any = None
    self._publishing = False
    self._evaluation: Any = None
    self._segments_at = [0] * config.workers.num_workers
    self._batches_in_flight = 0
    # future -> the reaction to its value, which returns the events to tell
    self._reactions: dict[Any, Callable[[Any], list[Event]]] = {}

  def run(self) -> Iterator[Event]:
    self._parameters = self._server.parameters.remote()
    while not self._should_stop():
      if self._ray.wait([self._parameters], timeout=0.5)[0]:
        break
    self._can_sample, told = self._ray.get(self._replay.ready.remote())
    yield Started(**self._counters(), message=f"{len(self._workers)} training workers{told}")
    reason = None
    try:
      while reason is None:
        self._ask()
        yield from self._react(timeout=1.0)
        self._ask_due()
        reason = self._reason_to_end()
      yield from self._finish(reason)
    except self._ray.exceptions.RayError:
      yield from self._salvage()
      raise

  # --- asking -------------------------------------------------------------------------------------

  def _ask(self) -> None:
    """Gives every actor as much work as it may have in flight."""
    config, pacer = self._config, self._pacer
    while self._batches_in_flight < config.ray.batches_in_flight and pacer.may_learn(self._can_sample):
      pacer.ask_learn()
      self._batches_in_flight += 1
      targets = self._replay.sample.remote()
      priorities, metrics = self._server.update.options(num_returns=2).remote(targets)
      self._reactions[metrics] = functools.partial(self._on_updated, priorities)
    # The emptiest queue first, so that no worker waits while another has two segments to make.
    for index in sorted(range(len(self._workers)), key=self._segments_at.__getitem__):
      while self._segments_at[index] < config.ray.segments_in_flight and pacer.may_act(self._can_sample):
        self._ask_segment(index)

  def _ask_segment(self, index: int) -> None:
    # What goes to replay is sent when it is there: an actor takes its calls in order, and one that waits
    # for its argument would hold up all the sampling behind it.
    self._pacer.ask_act(self._segment_steps)
    self._segments_at[index] += 1
    worker = self._workers[index]
    segment, acted = worker.run.options(num_returns=2).remote(self._parameters, self._pacer.env_steps)
    self._reactions[acted] = functools.partial(self._on_acted, index, segment)

  def _publish(self) -> None:
    """Takes the newest parameters as one object, however many workers will read it."""
    if not self._publishing:
      self._publishing = True
      reference = self._server.parameters.remote()
      self._reactions[reference] = lambda _: self._on_published(reference)

  def _evaluate(self, num_episodes: int, is_final: bool) -> None:
    self._evaluation = self._tester.run.remote(self._parameters, self._pacer.env_steps, num_episodes)
    # The state beside the parameters that are played with, should they turn out to be the best.
    state = self._server.get_state.remote()
    self._reactions[self._evaluation] = lambda value: self._on_evaluated(state, value, is_final)

  # --- reacting -----------------------------------------------------------------------------------

  def _react(self, timeout: float) -> Iterator[Event]:
    """Waits for some futures and tells what they brought."""
    if not self._reactions:
      time.sleep(0.01)
      return
    ready, _ = self._ray.wait(list(self._reactions), num_returns=1, timeout=timeout)
    if ready:
      done, _ = self._ray.wait(list(self._reactions), num_returns=len(self._reactions), timeout=0)
      ready = [reference for reference in self._reactions if reference in {*ready, *done}]
    for reference in ready:
      reaction = self._reactions.pop(reference)
      yield from reaction(self._ray.get(reference))

  def _on_acted(self, index: int, segment: Any, acted: Any) -> list[Event]:
    self._segments_at[index] -= 1
    stored = self._replay.add.remote(segment, index * self._config.workers.num_envs)
    self._reactions[stored] = self._on_stored
    return [
      Acted(
        **self._counters(),
        metrics=acted.metrics,
        episode_returns=acted.episode_returns,
        episode_lengths=acted.episode_lengths,
        staleness=self._learner_steps - acted.version,
      )
    ]

  def _on_stored(self, value: tuple[bool, dict[str, float]]) -> list[Event]:
    self._can_sample, self._replay_stats = value
    self._pacer.done_act(self._segment_steps)
    return []

  def _on_updated(self, priorities: Any, metrics: dict[str, float]) -> list[Event]:
    learner = self._config.learner
    if self._config.replay.refreshes_priorities:
      self._reactions[self._replay.update_priorities.remote(priorities)] = lambda _: []
    self._batches_in_flight -= 1
    self._pacer.done_learn()
    self._learner_steps += learner.updates_per_call
    if self._publications.is_due(self._learner_steps):
      self._publish()
    return [
      Updated(
        **self._counters(),
        metrics=metrics | self._replay_stats,
        num_samples=learner.batch_size * learner.updates_per_call,
        sample_reuse=self._pacer.sample_reuse,
      )
    ]

  def _on_published(self, reference: Any) -> list[Event]:
    self._parameters, self._publishing = reference, False
    return []

  def _on_evaluated(self, state: Any, result: Any, is_final: bool) -> list[Event]:
    self._evaluation = None
    out: list[Event] = [Evaluated(**self._counters(), result=result, is_final=is_final)]
    if self._best.is_beaten_by(result):
      training = self._ray.get(state)
      counters = {"env_steps": result.env_steps, "learner_steps": int(training.learner_step)}
      out.append(StateReady(**counters, state=RunState(training=training), is_best=True))
    return out

  # --- what is due --------------------------------------------------------------------------------

  def _ask_due(self) -> None:
    """Asks for a checkpoint and an evaluation where their time has come."""
    if not self._is_saving and self._checkpoints.is_due(self._wall_s(), self._pacer.env_steps):
      self._is_saving = True
      self._ask_state(functools.partial(self._state_ready, is_final=False))
    if self._evaluation is None and self._evaluations.is_due(self._pacer.env_steps):
      self._evaluate(self._config.evaluation.episodes, is_final=False)

  def _reason_to_end(self) -> str | None:
    if self._should_stop():
      return "stopped"
    if self._config.max_wall_s is not None and self._wall_s() >= self._config.max_wall_s:
      return "max_wall_s"
    return "max_env_steps" if self._pacer.is_complete else None

  def _finish(self, reason: str) -> Iterator[Event]:
    """Lets the work in flight arrive, takes the last state, and evaluates it.

    Whoever was told to stop waits for no evaluation: the checkpoint comes first.
    """
    if reason == "stopped":
      self._reactions.pop(self._evaluation, None)
    while self._reactions:
      yield from self._react(timeout=10.0)
    closing = [worker.close.remote() for worker in self._workers]
    self._ask_state(functools.partial(self._state_ready, is_final=True))
    while self._reactions:
      yield from self._react(timeout=10.0)
    if reason != "stopped":
      self._parameters = self._server.parameters.remote()
      self._evaluate(self._config.evaluation.final_episodes, is_final=True)
      while self._reactions and not self._should_stop():
        yield from self._react(timeout=0.5)
    # What a world holds outside its process ends well; one that does not end holds nobody up.
    self._ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_TIMEOUT_S)
    yield Finished(**self._counters(), reason=reason, sample_reuse=self._pacer.sample_reuse)

  def _salvage(self) -> Iterator[Event]:
    """After an actor's failure: a last checkpoint, if the parameter server still answers."""
    try:
      state = self._ray.get(self._server.get_state.remote(), timeout=_SALVAGE_TIMEOUT_S)
    except self._ray.exceptions.RayError:
      return
    learner_steps = int(state.learner_step)
    yield StateReady(
      env_steps=self._pacer.env_steps,
      learner_steps=learner_steps,
      state=RunState(training=state),
      is_final=True,
    )

  def _ask_state(self, reaction: Callable[[Any, Any, State], list[Event]]) -> None:
    """Asks for the training state and replay's content as they are when all that was asked before is done."""
    progress = prefixed("pacer", self._pacer.get_state()) | prefixed(
      "evaluations", self._evaluations.get_state()
    )
    if self._evaluation is not None:
      progress |= {"evaluations/next": 0.0}  # the one under way is made again
    progress |= prefixed("best", self._best.get_state())
    progress |= {"worlds_began_at": 0, "wall_s": self._wall_s()}
    training = self._server.get_state.remote()
    replay = self._replay.snapshot.remote(self._saved_blocks())
    # Two objects that come at different moments; the later one takes both.
    parts: dict[str, Any] = {}

    def on_part(name: str, value: Any) -> list[Event]:
      parts[name] = value
      return reaction(parts["training"], parts["replay"], progress) if len(parts) == 2 else []

    self._reactions[training] = functools.partial(on_part, "training")
    self._reactions[replay] = functools.partial(on_part, "replay")

  def _state_ready(self, training: Any, replay: Any, progress: State, is_final: bool) -> list[Event]:
    """The counters are the state's own: what completed while it travelled is not in it."""
    self._is_saving = False
    learner_steps, env_steps = int(training.learner_step), replay.num_added - self._not_added
    ahead = (learner_steps - self._learner_steps_at_start) * self._config.learner.batch_size
    progress |= {"pacer/env_steps": env_steps, "pacer/samples_done": self._samples_at_start + ahead}
    state = RunState(training=training, progress=progress, replay=replay)
    return [StateReady(env_steps=env_steps, learner_steps=learner_steps, state=state, is_final=is_final)]

  # --- small things -------------------------------------------------------------------------------

  def _counters(self) -> dict[str, Any]:
    return {"env_steps": self._pacer.env_steps, "learner_steps": self._learner_steps}

  def _wall_s(self) -> float:
    return time.monotonic() - self._start

  def _slack_steps(self) -> int:
    """Steps that keep every queue full: the workers' and, in steps, the learner's."""
    config = self._config
    acting = config.workers.num_workers * config.ray.segments_in_flight * self._segment_steps
    call_samples = config.learner.batch_size * config.learner.updates_per_call
    learning = config.ray.batches_in_flight * call_samples / config.learner.samples_per_step
    return int(acting + learning)

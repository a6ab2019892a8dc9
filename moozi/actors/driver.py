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
from moozi.core.spec import EnvSpec
from moozi.runtime.events import Acted, Evaluated, Event, Finished, Started, StateReady, Updated
from moozi.runtime.pacing import CheckpointSchedule, Every, Pacer

_SALVAGE_TIMEOUT_S = 30.0


def run(
  config: Config,
  spec: EnvSpec,
  log_dir: str | None,
  should_stop: Callable[[], bool] = lambda: False,
  state: Any = None,
) -> Generator[Event, None, None]:
  """Trains with Ray actors, and yields what happened: the same events as `runtime.loop.run`.

  Args:
    config: the run's configuration.
    spec: the world's facts.
    log_dir: absolute path of the folder for one log file per actor.
    should_stop: asked between reactions; true ends the run with a last checkpoint.
    state: begin with this TrainingState (in NumPy) instead of a fresh one.

  Raises:
    UserError: the actors ask for more than the cluster has, or no cluster answers.
  """
  start = time.monotonic()
  with cluster.connected(config) as ray:
    yield from _Driver(ray, config, spec, log_dir, should_stop, state, start).run()


class _Driver:
  """The actors, the futures in flight, and what to do when each completes."""

  def __init__(
    self,
    ray: Any,
    config: Config,
    spec: EnvSpec,
    log_dir: str | None,
    should_stop: Callable[[], bool],
    state: Any,
    start: float,
  ) -> None:
    self._ray, self._config, self._should_stop, self._start = ray, config, should_stop, start

    def actor(cls: type, resources: Any, *args: Any) -> Any:
      return ray.remote(**cluster.options(resources))(cls).remote(config, spec, *args, log_dir)

    self._server = actor(ParameterServer, config.ray.learner, state)
    self._replay = actor(ReplayActor, config.ray.replay)
    self._workers = [
      actor(TrainingWorker, config.workers.resources, index) for index in range(config.workers.num_workers)
    ]
    self._tester = actor(TestingWorker, config.evaluation.resources)

    self._segment_steps = config.workers.num_envs * config.workers.segment_length
    self._pacer = Pacer(config, slack_steps=self._slack_steps())
    self._evaluations = Every(config.evaluation.period_env_steps)
    self._learner_steps = 0 if state is None else int(state.learner_step)
    self._publications = Every(config.ray.publish_period_updates, start=self._learner_steps)
    self._checkpoints = CheckpointSchedule(config.checkpoint)
    self._can_sample = False
    self._replay_stats: dict[str, float] = {}
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
    yield Started(**self._counters(), message=f"{len(self._workers)} training workers")
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
    self._reactions[self._evaluation] = lambda value: self._on_evaluated(value, is_final)

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

  def _on_evaluated(self, result: Any, is_final: bool) -> list[Event]:
    self._evaluation = None
    return [Evaluated(**self._counters(), result=result, is_final=is_final)]

  # --- what is due --------------------------------------------------------------------------------

  def _ask_due(self) -> None:
    """Asks for a checkpoint and an evaluation where their time has come."""
    if self._checkpoints.is_due(self._wall_s(), self._pacer.env_steps):
      env_steps = self._pacer.env_steps
      self._reactions[self._server.get_state.remote()] = lambda state: [
        self._state_ready(state, env_steps, is_final=False)
      ]
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
    state = self._ray.get(self._server.get_state.remote())
    yield self._state_ready(state, self._pacer.env_steps, is_final=True)
    if reason != "stopped":
      self._parameters = self._server.parameters.remote()
      self._evaluate(self._config.evaluation.final_episodes, is_final=True)
      while self._reactions and not self._should_stop():
        yield from self._react(timeout=0.5)
    yield Finished(**self._counters(), reason=reason, sample_reuse=self._pacer.sample_reuse)

  def _salvage(self) -> Iterator[Event]:
    """After an actor's failure: a last checkpoint, if the parameter server still answers."""
    try:
      state = self._ray.get(self._server.get_state.remote(), timeout=_SALVAGE_TIMEOUT_S)
    except self._ray.exceptions.RayError:
      return
    yield self._state_ready(state, self._pacer.env_steps, is_final=True)

  def _state_ready(self, state: Any, env_steps: int, is_final: bool) -> StateReady:
    """The counters are the state's own: what completed while it travelled is not in it."""
    learner_steps = int(state.learner_step)
    return StateReady(env_steps=env_steps, learner_steps=learner_steps, state=state, is_final=is_final)

  # --- small things -------------------------------------------------------------------------------

  def _counters(self) -> dict[str, int]:
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

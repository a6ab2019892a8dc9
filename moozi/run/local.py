"""MuZero and AlphaZero in one process: act, reanalyze, learn.

This module is the runtime without Ray, and an executable description of the algorithm. Tests use it as a
deterministic integration test. `actors.driver` runs the same algorithm with Ray. Another algorithm that
learns from replay can use this loop with its own `Parts`, as Q-learning does.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from moozi.acting.past_selves import PastCollector
from moozi.core.actor_report import REANALYZE_WORKER, REPLAY, SERVER, TESTING_WORKER, WORKER, ActorReport
from moozi.core.config import Config
from moozi.core.errors import EnvError, NotFiniteError
from moozi.core.flat_state import State, part, prefixed
from moozi.core.pytree import fields_of
from moozi.core.records import num_roots
from moozi.core.spec import EnvSpec
from moozi.evaluation.evaluator import EvaluationResult, Evaluator
from moozi.learning.learner import Learner
from moozi.ops.schedules import discount_at
from moozi.replay.protocol import Replay
from moozi.run import build
from moozi.run.events import Acted, Collected, Event, Faulted, Histograms, Reanalyzed, Updated
from moozi.run.gate import GATE, make_gate
from moozi.run.pacing import Pacer
from moozi.run.past_selves import PastSelves
from moozi.run.schedules import Every
from moozi.run.session import RunInputs, Session
from moozi.run.state import RunState
from moozi.run.work_log import LocalWork


@dataclasses.dataclass(frozen=True)
class Parts:
  """The parts of an algorithm that learns from replay; the defaults are MuZero's.

  Attributes:
    message: the start of the message of the `Started` event.
    build_learner, build_collectors, build_evaluator: as in `run.build`. A collector has the methods of
      `TrajectoryCollector`.
    sample: draws U batches of B from replay, as targets for the learner.
  """

  message: str = "one process"
  build_learner: Callable[[Config, EnvSpec], Learner] = build.build_learner
  build_collectors: Callable[[Config, EnvSpec, RunState | None], build.Collectors[Any]] = (
    build.build_collectors
  )
  build_evaluator: Callable[[Config, EnvSpec], Evaluator] = build.build_evaluator
  sample: Callable[[Replay, int, int], Any] = lambda replay, *sizes: replay.sample_many(*sizes)


def run(inputs: RunInputs, parts: Parts | None = None) -> Generator[Event, None, None]:
  """Trains in one process, and yields the run's events; the last is Finished.

  Of the section `ray` it uses `replay_shards` only.

  Args:
    parts: the parts of the algorithm; None: MuZero's.
  """
  with contextlib.closing(ReplayTrainer(inputs, parts or Parts())) as trainer:
    yield from trainer.session.run(trainer)


class ReplayTrainer:
  """A `Trainer` that learns from replay; its parts are those that the Ray runtime distributes over actors."""

  def __init__(self, inputs: RunInputs, parts: Parts) -> None:
    self._parts = parts
    self.session = Session(inputs, self)
    self.session.phase("building the network and the environments")
    config, spec, state = inputs.config, inputs.spec, inputs.state
    self._config, self._saved_blocks = config, inputs.saved_blocks
    self._pacer = Pacer(config, slack_steps=0)
    self._learner = parts.build_learner(config, spec)
    self._replay = build.build_replay(config, spec, inputs.stored)
    self._reanalyzer = build.build_reanalyzer(config, spec, 0) if config.reanalyze.ratio else None
    self._evaluator = parts.build_evaluator(config, spec)
    self._past = PastSelves(config) if config.num_past_lanes else None
    self._gate = make_gate(config, state)
    self._work = LocalWork(config)
    lost = self._restore(state) if state is not None else 0
    self._histograms = Every(config.logging.histogram_period, start=self.learner_steps)
    self._collectors = parts.build_collectors(config, spec, state)
    self.message = f"{parts.message}{self._collectors.message}{config.past_selves_text}"
    if state is not None and state.replay is not None:
      self.message += f"; replay holds {self._replay.num_steps:,} steps"
      self.message += f", {lost:,} fewer than before" if lost else ""

  def _restore(self, state: RunState) -> int:
    """Restores a state, and returns how many of its replay steps no longer fit."""
    self._learner.set_state(state.training)
    if state.progress:
      self._pacer.set_state(part(state.progress, "pacer"))
      if self._past is not None:
        self._past.set_state(part(state.progress, "past_selves"), state.training.variables)
      if self._reanalyzer is not None:
        self._reanalyzer.set_state(part(state.progress, "reanalyze"))
    if state.replay is None:
      return 0
    lost = self._replay.restore(state.replay)
    state.replay.blocks.clear()  # they would stay in memory until the run ends
    return lost

  def close(self) -> None:
    self._collectors.close()

  @property
  def env_steps(self) -> int:
    return self._pacer.env_steps

  @property
  def learner_steps(self) -> int:
    return self._learner.learner_step

  @property
  def is_complete(self) -> bool:
    return self._pacer.is_complete

  @property
  def sample_reuse(self) -> float:
    return self._pacer.sample_reuse

  def step(self) -> Iterator[Event]:
    """Runs one round: a segment per worker, then the reanalyze and learner calls that pacing allows."""
    # A resumed run that was started with Ray may have taken all its environment steps, but have updates left.
    if not (self._pacer.has_all_steps and self._can_sample):
      yield from self._act()
    # Does not change until new segments are added.
    can_sample = self._can_sample
    targets = self._config.targets
    discount = discount_at(targets.discount, targets.discount_schedule, self.env_steps)
    self._replay.set_discount(discount)
    self._learner.set_discount(discount)
    if not self._collectors.workers:
      self._pacer.count_offline_steps(can_sample)
    yield from self._reanalyze(can_sample)
    yield from self._learn(can_sample)

  @property
  def _can_sample(self) -> bool:
    return self._replay.can_sample(self._config.learner.batch_size)

  def _act(self) -> Iterator[Event]:
    """Acts one segment per training worker, and adds the segments to replay."""
    with self._work.doing(SERVER, "publish"):
      parameters = self._learner.parameters(self._config.workers.network)
    if self._gate is not None:
      parameters = self._gate.begin(parameters)
    if self._past is not None:
      self._past.offer(*parameters)
    num_envs = self._config.workers.num_envs
    for index, worker in enumerate(self._collectors.workers):
      self.session.phase("compiling acting")
      if self._past is not None and isinstance(worker, PastCollector):
        past = self._past.opponent(index)
        worker.set_opponent(past.variables, past.version)
      worker.set_parameters(*parameters)
      try:
        with self._work.doing(f"{WORKER}_{index}", "segment"):
          segment, acted = worker.run(self.env_steps)
        with self._work.doing(REPLAY, "add"):
          added = self._replay.add_or_refuse(segment, index * num_envs, num_envs, acted.num_steps)
      except Exception:
        # The segment is lost, so the environments must not be saved. A resumed run resets them.
        if self.env_steps:
          yield self.session.state_ready(self, is_final=True, has_envs=False)
        raise
      self._pacer.request_act(acted.num_steps)
      self._pacer.done_act(acted.num_steps, added.num_lost)
      metrics = acted.metrics
      if self._past is not None and acted.past is not None:
        metrics = metrics | self._past.record(index, acted.past, self.learner_steps)
      yield Acted(
        **self.session.counters(),
        metrics=metrics,
        episode_returns=acted.episode_returns,
        episode_lengths=acted.episode_lengths,
        staleness=self.learner_steps - acted.version,
      )
      if added.num_lost:
        try:
          # Replay drops steps until an episode starts, and a good agent's episode may never end.
          worker.reset()
        except EnvError:
          yield self.session.state_ready(self, is_final=True, has_envs=False)
          raise
        yield Faulted(**self.session.counters(), counts=added.faults, message=added.describe(index))
      elif self._config.trajectories.save:
        # After a lost segment the worker was reset, so the next one begins with first steps.
        yield Collected(**self.session.counters(), segment=segment, first_lane=index * num_envs, follows=True)

  def _reanalyze(self, can_sample: bool) -> Iterator[Event]:
    """Searches stored positions with the target network, and writes the results back to replay."""
    reanalyzer = self._reanalyzer
    while reanalyzer is not None and can_sample and self._pacer.may_reanalyze():
      self._pacer.reanalyze.request()
      # With averages of norms always, so that a resumed run searches with the same ones.
      if reanalyzer.version != self._learner.target_version or self._learner.has_averages:
        reanalyzer.set_parameters(*self._learner.parameters("target"))
      with self._work.doing(REPLAY, "positions"):
        positions = self._replay.positions(self._config.reanalyze, reanalyzer.version)
      if not num_roots(positions):
        self._pacer.reanalyze.waive()
        continue
      self.session.phase("compiling reanalyze")
      try:
        with self._work.doing(f"{REANALYZE_WORKER}_0", "reanalyze"):
          searched, metrics = reanalyzer.run(positions)
      except Exception:  # such as an error of a user's search
        self._pacer.reanalyze.undo()
        yield self.session.state_ready(self, is_final=True)
        raise
      with self._work.doing(REPLAY, "write back"):
        self._replay.write_back(**fields_of(searched))
      num_positions = searched.slot.size
      self._pacer.reanalyze.finish(num_positions)
      ratio = self._pacer.reanalyze_ratio
      yield Reanalyzed(**self.session.counters(), metrics=metrics, num_positions=num_positions, ratio=ratio)

  def _learn(self, can_sample: bool) -> Iterator[Event]:
    """Trains on batches from replay, and writes new priorities back if `replay.refreshes_priorities`."""
    config = self._config
    while self._pacer.may_learn(can_sample):
      self._pacer.learn.request()
      with self._work.doing(REPLAY, "sample"):
        targets = self._parts.sample(self._replay, config.learner.updates_per_call, config.learner.batch_size)
      self.session.phase("compiling the update")
      self._learner.set_time_share(self.session.time_share())
      try:
        with self._work.doing(SERVER, "update"):
          priorities, metrics = self._learner.update(targets)
      except NotFiniteError as error:
        self._pacer.learn.undo()
        yield from self.session.roll_back(self, error, self._learner.roll_back)
        continue
      if config.replay.refreshes_priorities:
        with self._work.doing(REPLAY, "priorities"):
          self._replay.update_priorities(priorities.slot, priorities.sequence, priorities.delta)
      self._work.begin_window()
      self._pacer.learn.finish()
      yield Updated(
        **self.session.counters(),
        metrics=metrics | self._replay.stats(),
        num_samples=targets.slot.size,
        sample_reuse=self._pacer.sample_reuse,
      )
      if self._histograms.is_due(self.learner_steps):
        histograms = self._replay.histograms() | self._learner.histograms()
        yield Histograms(**self.session.counters(), histograms=histograms)

  def evaluate(self, num_episodes: int) -> EvaluationResult | None:
    with self._work.doing(TESTING_WORKER, "evaluation"):
      parameters = self._learner.parameters(self._config.evaluation.network)
      if self._gate is None:
        return self.session.play(self._evaluator, parameters, num_episodes)
      newest = self._learner.parameters(self._config.workers.network)
      rivals = newest[0], self._gate.begin(newest)[0]
      result: EvaluationResult | None = self.session.play(self._evaluator, parameters, num_episodes, rivals)
      if result is not None and self._gate.admits(result.gate_score):
        self._gate.acting = newest
      return result

  def state(self, has_envs: bool = True) -> RunState:
    progress: State = {"envs_began_at": self._collectors.began_at}
    progress |= prefixed("pacer", self._pacer.get_state())
    if self._past is not None:
      progress |= prefixed("past_selves", self._past.get_state())
    if self._gate is not None:
      progress |= prefixed(GATE, self._gate.get_state())
    if self._reanalyzer is not None:
      progress |= prefixed("reanalyze", self._reanalyzer.get_state())
    with self._work.doing(SERVER, "checkpoint"):
      training = self._learner.get_state()
    with self._work.doing(REPLAY, "checkpoint"):
      snapshot = self._replay.snapshot(self._saved_blocks())
    envs = tuple(worker.get_state() for worker in self._collectors.workers) if has_envs else ()
    return RunState(training=training, progress=progress, replay=snapshot, collectors=envs)

  def training_state(self) -> Any:
    return self._learner.get_state()

  def reports(self) -> Mapping[str, ActorReport]:
    return self._work.reports()

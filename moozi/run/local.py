"""The whole algorithm in one process, on one page.

The executable description, the deterministic integration test, and what runs where Ray is not
installed. `actors.driver` does the same in the same order with futures.
"""

import contextlib
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from moozi.core.actor_report import REANALYZE_WORKER, REPLAY, SERVER, TESTER, WORKER
from moozi.core.config import Config
from moozi.core.errors import EnvError, NotFiniteError
from moozi.core.flat_state import State, part, prefixed
from moozi.core.pytree import fields_of
from moozi.core.spec import EnvSpec
from moozi.evaluation.evaluator import EvaluationResult
from moozi.replay import snapshot as replay_snapshot
from moozi.replay.mixture import StoredTrajectories
from moozi.run import build
from moozi.run.build import Collectors
from moozi.run.evaluation_schedule import Evaluations
from moozi.run.events import (
  Acted,
  ActorReports,
  Collected,
  Event,
  Faulted,
  Finished,
  Histograms,
  Reanalyzed,
  Started,
  StateReady,
  Updated,
)
from moozi.run.pacing import Pacer
from moozi.run.rollback import Rollback
from moozi.run.schedules import CheckpointSchedule, Every, reason_to_end
from moozi.run.state import RunState
from moozi.run.work_log import LocalWork


def run(
  config: Config,
  spec: EnvSpec,
  should_stop: Callable[[], bool] = lambda: False,
  state: RunState | None = None,
  saved_blocks: Callable[[], np.ndarray | None] = lambda: None,
  latest: Callable[[], RunState | None] = lambda: None,
  stored: StoredTrajectories | None = None,
) -> Generator[Event, None, None]:
  """Trains, and yields what happened.

  Args:
    config: the run's configuration. `runtime` and `ray` are not read.
    spec: the environment's facts.
    should_stop: asked between steps; true ends the run with a last checkpoint.
    state: go on from here, to the bit; without its progress a new run begins with its training state.
    saved_blocks: generations of the blocks of replay that need not come with the next StateReady.
    latest: reads the newest whole state that was saved; None: there is none yet.
    stored: trajectories to learn from, as `offline` says.

  Yields:
    Events in order; the last is Finished. What they mean for files and screens is the reader's business.
  """
  start = time.monotonic() - (0.0 if state is None else state.wall_s)
  with contextlib.closing(build.build_collectors(config, spec, state)) as collectors:
    loop = _Loop(config, spec, should_stop, state, saved_blocks, latest, stored, collectors, start)
    yield from loop.run()


class _Loop:
  """What the actors would hold, and the rounds: act, search again, learn."""

  def __init__(
    self,
    config: Config,
    spec: EnvSpec,
    should_stop: Callable[[], bool],
    state: RunState | None,
    saved_blocks: Callable[[], np.ndarray | None],
    latest: Callable[[], RunState | None],
    stored: StoredTrajectories | None,
    collectors: Collectors,
    start: float,
  ) -> None:
    self._config, self._should_stop, self._saved_blocks = config, should_stop, saved_blocks
    self._collectors, self._start, self._told = collectors, start, collectors.told
    self._learner = build.build_learner(config, spec)
    self._replay = build.build_replay(config, spec, stored)
    self._reanalyzer = build.build_reanalyzer(config, spec, 0) if config.reanalyze.ratio else None
    self._evaluator = build.build_evaluator(config, spec)
    self._work = LocalWork(config)
    self._pacer = Pacer(config, slack_steps=0)
    progress = {} if state is None else state.progress
    self._evaluations = Evaluations(config.evaluation, self._counters, progress)
    if state is not None:
      self._restore(state)
    self._checkpoints = CheckpointSchedule(config.checkpoint, self._wall_s(), self._pacer.env_steps)
    self._learner_steps, self._rollback = self._learner.learner_step, Rollback(latest)
    self._spreads = Every(config.logging.histogram_period, start=self._learner_steps)
    self._with_gap: set[int] = set()  # workers whose last segment replay did not take whole

  def _restore(self, state: RunState) -> None:
    self._learner.set_state(state.training)
    if state.progress:
      self._pacer.set_state(part(state.progress, "pacer"))
      if self._reanalyzer is not None:
        self._reanalyzer.set_state(part(state.progress, "reanalyze"))
    if state.replay is not None:
      lost = replay_snapshot.restore(self._replay, state.replay)
      self._told += f"; replay holds {self._replay.num_steps:,} steps"
      self._told += f", {lost:,} fewer than before" if lost else ""

  def run(self) -> Iterator[Event]:
    yield Started(**self._counters(), message=f"one process{self._told}")
    while True:
      if self._evaluations.is_due(self._pacer.env_steps):
        yield from self._evaluate(self._config.evaluation.episodes, is_final=False)
      if self._checkpoints.is_due(self._wall_s(), self._pacer.env_steps):
        yield self._whole_state(is_final=False)
      if (reason := self._reason_to_end()) is not None:
        break
      # A run that comes from Ray may have all its steps, and owe updates.
      if not (self._pacer.has_all_steps and self._replay.can_sample(self._config.learner.batch_size)):
        yield from self._act()
      # Until the next segments come it stays so.
      can_sample = self._replay.can_sample(self._config.learner.batch_size)
      if not self._collectors.workers:
        self._pacer.pass_steps(can_sample)
      yield from self._reanalyze(can_sample)
      yield from self._learn(can_sample)
      yield ActorReports(**self._counters(), reports=self._work.reports())

    yield self._whole_state(is_final=True)
    if reason != "stopped":
      yield from self._evaluate(self._config.evaluation.final_episodes, is_final=True)
      yield ActorReports(**self._counters(), reports=self._work.reports())
      reason = self._evaluations.reason_at_end(reason)
    yield Finished(**self._counters(), reason=reason, sample_reuse=self._pacer.sample_reuse)

  def _act(self) -> Iterator[Event]:
    """TimeStep → StepSample → TrajectorySample → replay: a segment of each training worker."""
    with self._work.doing(SERVER, "publish"):
      params, net_state, version = self._learner.parameters()
    num_envs = self._config.workers.num_envs
    for index, worker in enumerate(self._collectors.workers):
      worker.set_parameters(params, net_state, version)
      try:
        with self._work.doing(f"{WORKER}_{index}", "segment"):
          segment, acted = worker.run(self._pacer.env_steps)
      except Exception:
        # Its environments stand amid a segment that is lost: whoever goes on from here begins new games.
        if self._pacer.env_steps:
          yield self._whole_state(is_final=True, has_envs=False)
        raise
      self._pacer.ask_act(acted.num_steps)
      with self._work.doing(REPLAY, "add"):
        taken = self._replay.take(segment, index * num_envs, num_envs, acted.num_steps)
      self._pacer.done_act(acted.num_steps, taken.num_lost)
      yield Acted(
        **self._counters(),
        metrics=acted.metrics,
        episode_returns=acted.episode_returns,
        episode_lengths=acted.episode_lengths,
        staleness=self._learner_steps - acted.version,
      )
      if taken.refused is not None:
        worker.reset()  # replay waits for an episode's first step, and a good agent's may never end
      if taken.num_lost:
        yield Faulted(**self._counters(), counts=taken.faults, message=taken.describe(index))
      elif self._config.trajectories.save:
        follows = index not in self._with_gap
        yield Collected(**self._counters(), segment=segment, first_lane=index * num_envs, follows=follows)
      self._with_gap = self._with_gap | {index} if taken.num_lost else self._with_gap - {index}

  def _reanalyze(self, can_sample: bool) -> Iterator[Event]:
    """Replay → positions, searched again with the target network → replay."""
    reanalyzer = self._reanalyzer
    while reanalyzer is not None and can_sample and self._pacer.may_reanalyze():
      self._pacer.ask_reanalyze()
      if reanalyzer.version != self._learner.target_version:
        reanalyzer.set_parameters(*self._learner.target_parameters())
      with self._work.doing(REPLAY, "positions"):
        positions = self._replay.positions(self._config.reanalyze, reanalyzer.version)
      with self._work.doing(f"{REANALYZE_WORKER}_0", "reanalyze"):
        searched, metrics = reanalyzer.run(positions)
      with self._work.doing(REPLAY, "write back"):
        self._replay.write_back(**fields_of(searched))
      num_positions = searched.slot.size
      self._pacer.done_reanalyze(num_positions)
      ratio = self._pacer.reanalyze_ratio
      yield Reanalyzed(**self._counters(), metrics=metrics, num_positions=num_positions, ratio=ratio)

  def _learn(self, can_sample: bool) -> Iterator[Event]:
    """Replay → TrainTarget batch → TrainingState, and priorities back to replay."""
    config = self._config
    while self._pacer.may_learn(can_sample):
      self._pacer.ask_learn()
      with self._work.doing(REPLAY, "sample"):
        targets = self._replay.sample_many(config.learner.updates_per_call, config.learner.batch_size)
      try:
        with self._work.doing(SERVER, "update"):
          priorities, metrics = self._learner.update(targets)
      except NotFiniteError as error:
        yield self._go_back(error)
        continue
      if config.replay.refreshes_priorities:
        with self._work.doing(REPLAY, "priorities"):
          self._replay.update_priorities(priorities.slot, priorities.sequence, priorities.delta)
      self._work.begin_window()
      self._pacer.done_learn()
      self._learner_steps += config.learner.updates_per_call
      yield Updated(
        **self._counters(),
        metrics=metrics | self._replay.stats(),
        num_samples=targets.slot.size,
        sample_reuse=self._pacer.sample_reuse,
      )
      if self._spreads.is_due(self._learner_steps):
        histograms = self._replay.histograms() | self._learner.histograms()
        yield Histograms(**self._counters(), histograms=histograms)

  def _go_back(self, error: NotFiniteError) -> Faulted:
    self._pacer.undo_learn()
    back = self._rollback.take(error, self._learner.learner_step)
    self._learner_steps = self._learner.learner_step
    self._learner.set_state(back.training)
    if self._reanalyzer is not None:
      self._reanalyzer.drop_parameters()
    return Faulted(**self._counters(), **back.told(self._learner_steps - back.found))

  def _evaluate(self, num_episodes: int, is_final: bool) -> Iterator[Event]:
    params, net_state, version = self._learner.parameters()
    outcome: EvaluationResult | EnvError | None
    try:
      with self._work.doing(TESTER, "evaluation"):
        outcome = self._evaluator.run(
          params,
          net_state,
          num_episodes=num_episodes,
          version=version,
          env_steps=self._pacer.env_steps,
          record=self._config.evaluation.gif,
          should_stop=self._should_stop,
        )
    except EnvError as error:
      outcome = error
    yield from self._evaluations.tell(outcome, is_final, self._learner.get_state)

  def _whole_state(self, is_final: bool, has_envs: bool = True) -> StateReady:
    progress: State = {"worlds_began_at": self._collectors.began_at, "wall_s": self._wall_s()}
    progress |= prefixed("pacer", self._pacer.get_state())
    progress |= self._evaluations.get_state()
    if self._reanalyzer is not None:
      progress |= prefixed("reanalyze", self._reanalyzer.get_state())
    with self._work.doing(SERVER, "checkpoint"):
      training = self._learner.get_state()
    with self._work.doing(REPLAY, "checkpoint"):
      snapshot = replay_snapshot.take(self._replay, self._saved_blocks())
    envs = tuple(worker.get_state() for worker in self._collectors.workers) if has_envs else ()
    state = RunState(training=training, progress=progress, replay=snapshot, collectors=envs)
    return StateReady(**self._counters(), state=state, is_final=is_final)

  def _reason_to_end(self) -> str | None:
    is_complete = self._pacer.is_complete
    return reason_to_end(is_complete, self._should_stop(), self._wall_s(), self._config.max_wall_s)

  def _counters(self) -> dict[str, Any]:
    return {"env_steps": self._pacer.env_steps, "learner_steps": self._learner_steps}

  def _wall_s(self) -> float:
    return time.monotonic() - self._start

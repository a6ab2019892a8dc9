"""The whole algorithm in one process, on one page.

The executable description, the deterministic integration test, and what runs where Ray is not
installed. `actors.driver` does the same in the same order with futures.
"""

import contextlib
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from moozi.core.config import Config
from moozi.core.errors import NotFiniteError, WorldError
from moozi.core.flat_state import State, part, prefixed
from moozi.core.pytree import fields_of
from moozi.core.spec import EnvSpec
from moozi.core.work import REPLAY, SEARCHER, SERVER, TESTER, WORKER
from moozi.runtime import build, replay_snapshot
from moozi.runtime.build import Collectors
from moozi.runtime.events import (
  Acted,
  Collected,
  Evaluated,
  Event,
  Faulted,
  Finished,
  Reanalyzed,
  Spread,
  Started,
  StateReady,
  Updated,
  Worked,
  failed_evaluation,
)
from moozi.runtime.mixed_replay import StoredTrajectories
from moozi.runtime.pacing import Best, CheckpointSchedule, Every, Pacer
from moozi.runtime.run_state import RunState
from moozi.runtime.skipped import WayBack
from moozi.runtime.work import LocalWork


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
    spec: the world's facts.
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
    yield from _train(config, spec, should_stop, state, saved_blocks, latest, stored, collectors, start)


def _train(
  config: Config,
  spec: EnvSpec,
  should_stop: Callable[[], bool],
  state: RunState | None,
  saved_blocks: Callable[[], np.ndarray | None],
  latest: Callable[[], RunState | None],
  stored: StoredTrajectories | None,
  collectors: Collectors,
  start: float,
) -> Iterator[Event]:
  workers, told = collectors.workers, collectors.told
  learner = build.build_learner(config, spec)
  replay = build.build_replay(config, spec, stored)
  reanalyzer = build.build_reanalyzer(config, spec, 0) if config.reanalyze.ratio else None
  evaluator = build.build_evaluator(config, spec)
  work = LocalWork(config)
  pacer = Pacer(config, slack_steps=0)
  evaluations, best = Every(config.evaluation.period_env_steps), Best()
  if state is not None:
    learner.set_state(state.training)
    if state.progress:
      pacer.set_state(part(state.progress, "pacer"))
      evaluations.set_state(part(state.progress, "evaluations"))
      best.set_state(part(state.progress, "best"))
      if reanalyzer is not None:
        reanalyzer.set_state(part(state.progress, "reanalyze"))
    if state.replay is not None:
      lost = replay_snapshot.restore(replay, state.replay)
      told += f"; replay holds {replay.num_steps:,} steps" + (f", {lost:,} fewer than before" if lost else "")
  checkpoints = CheckpointSchedule(config.checkpoint, time.monotonic() - start, pacer.env_steps)
  learner_steps, way_back = learner.learner_step, WayBack(latest)
  spreads = Every(config.logging.histogram_period, start=learner_steps)
  with_gap: set[int] = set()  # workers whose last segment replay did not take whole

  def counters() -> dict[str, Any]:
    return {"env_steps": pacer.env_steps, "learner_steps": learner_steps}

  def evaluate(num_episodes: int, is_final: bool) -> Iterator[Event]:
    params, net_state, version = learner.parameters()
    try:
      with work.doing(TESTER, "evaluation"):
        result = evaluator.run(
          params,
          net_state,
          num_episodes=num_episodes,
          version=version,
          env_steps=pacer.env_steps,
          record=config.evaluation.gif,
          should_stop=should_stop,
        )
    except WorldError as error:
      yield failed_evaluation(counters(), error)
      return
    if result is not None:
      yield Evaluated(**counters(), result=result, is_final=is_final)
      if best.is_beaten_by(result):
        yield StateReady(**counters(), state=RunState(training=learner.get_state()), is_best=True)
    elif not is_final:
      evaluations.repeat()

  def whole_state(is_final: bool, has_worlds: bool = True) -> StateReady:
    progress: State = {"worlds_began_at": collectors.began_at, "wall_s": time.monotonic() - start}
    progress |= prefixed("pacer", pacer.get_state()) | prefixed("evaluations", evaluations.get_state())
    progress |= prefixed("best", best.get_state())
    if reanalyzer is not None:
      progress |= prefixed("reanalyze", reanalyzer.get_state())
    with work.doing(SERVER, "checkpoint"):
      training = learner.get_state()
    with work.doing(REPLAY, "checkpoint"):
      snapshot = replay_snapshot.take(replay, saved_blocks())
    worlds = tuple(worker.get_state() for worker in workers) if has_worlds else ()
    state = RunState(training=training, progress=progress, replay=snapshot, collectors=worlds)
    return StateReady(**counters(), state=state, is_final=is_final)

  def go_back(error: NotFiniteError) -> Faulted:
    nonlocal learner_steps
    pacer.undo_learn()
    back = way_back.take(error, learner.learner_step)
    learner_steps = learner.learner_step
    learner.set_state(back.training)
    if reanalyzer is not None:
      reanalyzer.drop_parameters()
    return Faulted(**counters(), **back.told(learner_steps - back.found))

  yield Started(**counters(), message=f"one process{told}")
  while True:
    if evaluations.is_due(pacer.env_steps):
      yield from evaluate(config.evaluation.episodes, is_final=False)
    if checkpoints.is_due(time.monotonic() - start, pacer.env_steps):
      yield whole_state(is_final=False)
    if pacer.is_complete:
      reason = "max_env_steps"
      break
    if should_stop():
      reason = "stopped"
      break
    if config.max_wall_s is not None and time.monotonic() - start >= config.max_wall_s:
      reason = "max_wall_s"
      break

    # TimeStep → StepSample → TrajectorySample → replay
    with work.doing(SERVER, "publish"):
      params, net_state, version = learner.parameters()
    for index, worker in enumerate(workers):
      worker.set_parameters(params, net_state, version)
      try:
        with work.doing(f"{WORKER}_{index}", "segment"):
          segment, acted = worker.run(pacer.env_steps)
      except Exception:
        # Its worlds stand amid a segment that is lost: whoever goes on from here begins new games.
        if pacer.env_steps:
          yield whole_state(is_final=True, has_worlds=False)
        raise
      pacer.ask_act(acted.num_steps)
      num_envs = config.workers.num_envs
      with work.doing(REPLAY, "add"):
        taken = replay.take(segment, index * num_envs, num_envs, acted.num_steps)
      pacer.done_act(acted.num_steps, taken.num_lost)
      yield Acted(
        **counters(),
        metrics=acted.metrics,
        episode_returns=acted.episode_returns,
        episode_lengths=acted.episode_lengths,
        staleness=learner_steps - acted.version,
      )
      if taken.refused is not None:
        worker.begin_anew()  # replay waits for an episode's first step, and a good agent's may never end
      if taken.num_lost:
        yield Faulted(**counters(), counts=taken.faults, message=taken.describe(index))
      elif config.trajectories.save:
        follows = index not in with_gap
        yield Collected(**counters(), segment=segment, first_lane=index * num_envs, follows=follows)
      with_gap = with_gap | {index} if taken.num_lost else with_gap - {index}

    # Until the next segments come it stays so.
    can_sample = replay.can_sample(config.learner.batch_size)
    if not workers:
      pacer.pass_steps(can_sample)

    # replay → positions, searched again with the target network → replay
    while reanalyzer is not None and can_sample and pacer.may_reanalyze():
      pacer.ask_reanalyze()
      if reanalyzer.version != learner.target_version:
        reanalyzer.set_parameters(*learner.target_parameters())
      with work.doing(REPLAY, "positions"):
        positions = replay.positions(config.reanalyze, reanalyzer.version)
      with work.doing(f"{SEARCHER}_0", "reanalyze"):
        searched, metrics = reanalyzer.run(positions)
      with work.doing(REPLAY, "write back"):
        replay.write_back(**fields_of(searched))
      pacer.done_reanalyze(searched.slot.size)
      yield Reanalyzed(
        **counters(), metrics=metrics, num_positions=searched.slot.size, ratio=pacer.reanalyze_ratio
      )

    # replay → TrainTarget batch → TrainingState
    while pacer.may_learn(can_sample):
      pacer.ask_learn()
      with work.doing(REPLAY, "sample"):
        targets = replay.sample_many(config.learner.updates_per_call, config.learner.batch_size)
      try:
        with work.doing(SERVER, "update"):
          priorities, metrics = learner.update(targets)
      except NotFiniteError as error:
        yield go_back(error)
        continue
      if config.replay.refreshes_priorities:
        with work.doing(REPLAY, "priorities"):
          replay.update_priorities(priorities.slot, priorities.sequence, priorities.delta)
      work.begin_window()
      pacer.done_learn()
      learner_steps += config.learner.updates_per_call
      yield Updated(
        **counters(),
        metrics=metrics | replay.stats(),
        num_samples=targets.slot.size,
        sample_reuse=pacer.sample_reuse,
      )
      if spreads.is_due(learner_steps):
        yield Spread(**counters(), histograms=replay.histograms() | learner.histograms())
    yield Worked(**counters(), reports=work.reports())

  yield whole_state(is_final=True)
  if reason != "stopped":
    yield from evaluate(config.evaluation.final_episodes, is_final=True)
    yield Worked(**counters(), reports=work.reports())
  yield Finished(**counters(), reason=reason, sample_reuse=pacer.sample_reuse)

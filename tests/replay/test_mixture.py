"""Tests of `MixedReplay`, which samples a run's own steps and those of stored trajectories."""

import numpy as np
import pytest

from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.core.pytree import map_fields, replace
from moozi.core.records import SearchRoots
from moozi.io.config import load_config
from moozi.replay import mixture
from moozi.replay.buffer import ReplayBuffer
from moozi.replay.mixture import MixedReplay, StoredReplay
from tests.replay.replay_lanes import assert_valid, make_spec, random_lanes, segment_of

SPEC = make_spec()
SMALL = (
  "targets.history_length=2",
  "targets.unroll_steps=2",
  "targets.n_step=3",
  "workers.num_envs=2",
  "workers.segment_length=5",
  "replay.capacity=100",
  "replay.min_steps_to_learn=20",
  "learner.batch_size=8",
  "reanalyze.batch_size=8",
)


def config_of(fraction: float, *overrides: str) -> Config:
  offline = ["offline.trajectories=somewhere", f"offline.fraction={fraction}"]
  return load_config(None, [*SMALL, *offline, *overrides])


def make_replay(config: Config, lane_steps: dict[int, int]) -> MixedReplay:
  return mixture.make_replay(config, SPEC, StoredReplay(config, SPEC, lane_steps))


def mixed(fraction: float, *overrides: str, with_acted: bool = True) -> MixedReplay:
  """Returns a replay of two own lanes with 30 steps each, and stored lanes 4 and 9 with 40 and 35 steps."""
  replay = make_replay(config_of(fraction, *overrides), {4: 40, 9: 35})
  whole = segment_of(random_lanes(3, 2, 40, SPEC), 0, 40, SPEC)
  for first in range(0, 40, 5):
    for i, (lane, stop) in enumerate(((4, 40), (9, 35))):
      if first < stop:
        replay._stored.add_stored(lane, map_fields(lambda x, a=first, i=i: x[a : a + 5, i], whole), "whole")
  if with_acted:
    acted = segment_of(random_lanes(8, 2, 30, SPEC), 0, 30, SPEC)
    for first in range(0, 30, 5):
      replay.add(map_fields(lambda x, a=first: x[a : a + 5], acted), 0)
  assert_both_valid(replay)
  return replay


@pytest.mark.parametrize(("fraction", "num_stored"), [(0.25, 2), (0.01, 1), (0.999, 7), (1.0, 8)])
def test_share_of_stored_targets(fraction, num_stored):
  replay = mixed(fraction)
  targets = replay.sample_many(20, 8)
  assert targets.slot.shape == (20, 8)
  assert targets.frames.shape[:3] == (20, 8, 3)
  is_stored = targets.slot >= 100
  assert (is_stored.sum(axis=1) == num_stored).all()
  # Steps of stored trajectories have version -1, because they are from before this run.
  assert (targets.acted_version[is_stored] == -1).all()
  assert (targets.searched_version[is_stored] == -1).all()
  assert (targets.acted_version[~is_stored] >= 0).all()


def test_ratios_of_a_batch_have_one_maximum():
  plain, normalized = (
    mixed(0.5, "replay.sampling=proportional", f"replay.normalize_importance={value}")
    for value in ("false", "true")
  )
  for replay in (plain, normalized):
    slot = replay._stored._buffer.storage.eligible_slots()
    replay._stored.update_priorities(
      slot, replay._stored._buffer.storage.sequence[slot], np.arange(len(slot)) + 1
    )
  expected = plain.sample_many(20, 8).importance_ratio
  expected = expected / expected.max(axis=1, keepdims=True)
  np.testing.assert_allclose(normalized.sample_many(20, 8).importance_ratio, expected, rtol=1e-6)


def test_priorities_of_stored_steps_are_computed_again_for_another_n_step():
  before, after = mixed(0.5), mixed(0.5, "targets.n_step=6", with_acted=False)
  targets = before.sample_many(4, 8)
  before.update_priorities(targets.slot, targets.sequence, np.full(targets.slot.shape, 9.0))
  roots = before.positions(config_of(0.5).reanalyze, 5)
  probs = np.tile(np.array([0, 0.5, 0.5], np.float32), (8, 1))
  before.write_back(roots.slot, roots.sequence, np.full(8, 7.0, np.float32), probs, np.full(8, 5, np.int32))
  after.restore(before.snapshot())
  after.sample_many(1, 8)
  assert_both_valid(after)
  slot = after._stored._buffer.storage.eligible_slots()
  delta = after._stored._buffer.storage.delta[slot].copy()
  after._stored._buffer.storage.refresh_delta(slot)
  np.testing.assert_array_equal(after._stored._buffer.storage.delta[slot], delta)


def test_stored_steps_do_not_count_against_the_capacity():
  replay = mixed(0.5)
  assert replay.num_steps == 75 + 60
  whole = segment_of(random_lanes(3, 2, 40, SPEC), 0, 40, SPEC)
  for i, stop in ((0, 40), (1, 35)):
    lane = replay._stored._buffer.storage.trajectory(i, 0, stop)
    for name in ("frame", "action", "last_reward", "root_value", "action_probs", "is_first", "is_last"):
      np.testing.assert_array_equal(getattr(lane, name), getattr(whole, name)[:stop, i], err_msg=name)


def test_window_is_of_own_steps_only():
  window = ("replay.window_share=0.1", "replay.window_min=18")
  replay = mixed(0.5, *window)
  slots = replay.sample_many(100, 8).slot
  is_stored = slots >= 100
  # K + n = 5 steps follow a start step: of each own lane's newest 9 steps 4 are eligible.
  assert len(set(slots[~is_stored])) == 2 * 4
  assert len(set(slots[is_stored])) == 35 + 30


def test_a_stored_lane_may_begin_within_an_episode():
  replay = make_replay(config_of(1.0), {0: 15})
  steps = map_fields(lambda x: x[5:, 0], segment_of(random_lanes(0, 1, 20, SPEC, 0.0), 0, 20, SPEC))
  assert not steps.is_first[0]
  for part in (slice(0, 7), slice(7, 15)):
    replay._stored.add_stored(0, map_fields(lambda x, p=part: x[p], steps), "part")
  assert replay._stored._buffer.storage.trajectory(0, 0, 15).is_first.tolist() == [True] + [False] * 14


def test_updates_reach_their_part():
  replay = mixed(0.5, "replay.sampling=proportional")
  targets = replay.sample_many(1, 8)
  delta = np.arange(8, dtype=np.float32)[None] + 10
  assert replay.update_priorities(targets.slot, targets.sequence, delta) == 8
  slot = targets.slot[0]
  for place, value in zip(slot, delta[0], strict=True):
    part, at = (replay._stored._buffer, place - 100) if place >= 100 else (replay._acted, place)
    assert part.storage.delta[at] in delta[0][slot == place]
    assert value >= 10
  roots = replay.positions(config_of(0.5).reanalyze, 5)
  assert isinstance(roots, SearchRoots)
  assert (roots.slot >= 100).sum() == 4
  new = np.arange(8, dtype=np.float32)
  probs = np.tile(np.array([0, 0.5, 0.5], np.float32), (8, 1))
  written = replay.write_back(roots.slot, roots.sequence, new, probs, np.full(8, 5, np.int32))
  assert written == 8
  for place, value in zip(roots.slot, new, strict=True):
    part, at = (replay._stored._buffer, place - 100) if place >= 100 else (replay._acted, place)
    assert part.storage.arrays["root_value"][at] == value
    assert part.storage.arrays["searched_version"][at] == 5
  assert_both_valid(replay)
  stats = replay.stats()
  assert stats["replay/rewritten"] == stats["offline/rewritten"] == 4
  assert (stats["replay/steps"], stats["offline/steps"]) == (60, 75)


def test_spans_of_both_parts():
  replay = mixed(0.25)
  spans = replay.positions(config_of(0.25).reanalyze.model_copy(update={"mode": "replayed"}), 5)
  slots = np.concatenate([span.slot for span in spans])
  assert (slots >= 100).sum() == 2
  assert len(slots) == 8


def test_training_waits_for_acted_steps_if_there_will_be_any():
  assert not mixed(0.5, with_acted=False).can_sample(8)
  assert mixed(0.5).can_sample(8)
  replay = mixed(1.0, with_acted=False)
  assert replay.can_sample(8)
  assert replay._acted.num_steps == 0
  assert replay.sample_many(2, 8).slot.min() >= 100
  roots = replay.positions(config_of(1.0).reanalyze, 0)
  assert len(roots.slot) == 8


def test_invalid_stored_steps_are_named():
  replay = make_replay(config_of(1.0), {0: 15})
  steps = map_fields(lambda x: x[:, 0], segment_of(random_lanes(0, 1, 5, SPEC, 0.0), 0, 5, SPEC))
  bad = replace(steps, root_value=np.full(5, np.nan, np.float32))
  with pytest.raises(UserError, match="runs/old: lane 0: root_value"):
    replay._stored.add_stored(0, bad, "runs/old")


def test_too_large_trajectories_are_refused():
  with pytest.raises(UserError, match=r"offline.trajectories=somewhere: do not fit in memory"):
    make_replay(config_of(1.0), {0: 1 << 50, 1: 1 << 50})


def assert_both_valid(replay: MixedReplay) -> None:
  for buffer in (replay._acted, replay._stored._buffer):
    assert_valid(buffer)


def fill_stored(replay: MixedReplay, seed: int = 3) -> MixedReplay:
  """Adds the stored lanes of `mixed` in parts of 20 steps instead of 5; returns the replay."""
  whole = segment_of(random_lanes(seed, 2, 40, SPEC), 0, 40, SPEC)
  for i, (lane, stop) in enumerate(((4, 40), (9, 35))):
    steps = map_fields(lambda x, i=i, stop=stop: x[:stop, i], whole)
    for first in (0, 20):
      replay._stored.add_stored(lane, map_fields(lambda x, a=first: x[a : a + 20], steps), "stored")
  return replay


def work(replay: MixedReplay, version: int) -> list:
  """Samples, updates priorities and writes searches back; returns the targets and the search roots."""
  targets = replay.sample_many(3, 8)
  replay.update_priorities(targets.slot, targets.sequence, np.float32(targets.slot % 7 + version))
  roots = replay.positions(config_of(0.5).reanalyze, version)
  probs = np.tile(np.array([0, 0.25, 0.75], np.float32), (8, 1))
  value = np.arange(8, dtype=np.float32) + version
  replay.write_back(roots.slot, roots.sequence, value, probs, np.full(8, version, np.int32))
  return [targets, roots]


@pytest.mark.parametrize(
  ("sampling", "order"),
  [("uniform", "before"), ("proportional", "after"), ("rank", "before"), ("rank", "after")],
)
def test_resume_of_stored_steps_is_exact_to_the_bit(sampling, order):
  """Resuming is exact whether the snapshot is restored before or after the stored steps are added."""
  options = (f"replay.sampling={sampling}", "replay.rank_refresh_updates=7")
  first = mixed(0.5, *options)
  for version in range(5):
    work(first, version)
  saved = first.snapshot()
  second = make_replay(config_of(0.5, *options), {4: 40, 9: 35})
  if order == "after":
    fill_stored(second)
  assert second.restore(saved) == 0
  if order == "before":
    fill_stored(second)
  assert_both_valid(second)
  assert second.stats() == first.stats()
  for version in range(5, 9):
    for a, b in zip(work(first, version), work(second, version), strict=True):
      map_fields(np.testing.assert_array_equal, a, b)
  assert second.stats() == first.stats()


def test_changed_stored_steps_start_fresh():
  first = mixed(1.0)
  work(first, 3)
  second, fresh = (make_replay(config_of(1.0), {4: 40, 9: 35}) for _ in range(2))
  for replay in (second, fresh):
    fill_stored(replay, seed=11)
  second.restore(first.snapshot())
  assert_both_valid(second)
  assert second.stats()["offline/rewritten"] == 0
  map_fields(np.testing.assert_array_equal, second.sample_many(1, 8), fresh.sample_many(1, 8))


def test_without_stored_trajectories_replay_is_a_plain_buffer():
  replay = mixture.make_replay(load_config(None, list(SMALL)), SPEC, None)
  assert type(replay) is ReplayBuffer

"""Tests of replay in shards: draws, ratios and targets are those of one buffer."""

import dataclasses

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.core.flat_state import Snapshot
from moozi.core.histogram import histogram_of, merged
from moozi.core.pytree import fields_of, map_fields, replace
from moozi.core.records import num_roots
from moozi.core.symmetry import Symmetry
from moozi.io.config import load_config
from moozi.replay.buffer import ReplayBuffer
from moozi.replay.mixture import make_replay
from moozi.replay.protocol import Supply
from moozi.replay.saved_state import check_snapshot
from moozi.replay.shard_snapshots import added_by_shard, divided
from moozi.replay.shards import (
  ReplayShard,
  ShardedReplay,
  choose_shard,
  join,
  lanes_of,
  merged_stats,
  plan_draws,
)
from moozi.replay.snapshot import num_added
from tests.replay.replay_lanes import Disk, assert_valid, make_spec, random_lanes, segment_of

SPEC = make_spec()
NUM_WORKERS, NUM_ENVS = 5, 2
LANES = random_lanes(3, NUM_WORKERS * NUM_ENVS, 130, SPEC, end_probability=0.2)


def config_of(num_shards, *overrides):
  return load_config(
    None,
    [
      *("targets.history_length=2", "targets.unroll_steps=2", "targets.n_step=3", "targets.discount=0.9"),
      *(f"workers.num_workers={NUM_WORKERS}", f"workers.num_envs={NUM_ENVS}", "workers.segment_length=5"),
      *("replay.capacity=400", "replay.min_steps_to_learn=100", "replay.sampling=proportional"),
      *("learner.batch_size=16", f"ray.replay_shards={num_shards}", *overrides),
    ],
  )


def add_steps(replay, stops=(30, 45, 20, 40, 33), begin=0):
  """Adds steps `begin` … of each worker, to another stop for each; at each, searched values change."""
  for worker, stop in enumerate(stops):
    lanes = LANES[worker * NUM_ENVS : (worker + 1) * NUM_ENVS]
    for first in range(begin, stop, 5):
      replay.add(segment_of(lanes, first, min(first + 5, stop), SPEC), worker * NUM_ENVS)


def made(num_shards, *overrides, stops=(30, 45, 20, 40, 33)):
  replay = make_replay(config_of(num_shards, *overrides), SPEC, None)
  add_steps(replay, stops)
  return replay


def buffers(replay):
  return [shard.buffer for shard in replay.shards] if isinstance(replay, ShardedReplay) else [replay]


def set_priorities(replay):
  """Sets the δ of all eligible steps, much larger in the first lanes than in the last ones."""
  slot = make_replay(config_of(1), SPEC, None).storage  # only for its numbering
  for buffer, first in zip(buffers(replay), first_slots(replay), strict=True):
    own = buffer.storage.eligible_slots()
    number = own + first
    lane = number // slot.lane_capacity
    delta = (1 + number % 7) * np.where(lane < 3, 8.0, 0.5)
    assert replay.update_priorities(number, buffer.storage.sequence[own], delta) == len(own)


def first_slots(replay):
  return [shard.first_slot for shard in replay.shards] if isinstance(replay, ShardedReplay) else [0]


def probabilities(buffer: ReplayBuffer):
  """Returns the probability of each slot of one buffer."""
  out = np.zeros(buffer.num_slots)
  slot = buffer.storage.eligible_slots()
  out[slot] = buffer._sampler.probability(slot)
  return out


def draws(replay, num_draws=40_000):
  batch = replay.sample_many(num_draws // 50, 50)
  return batch, np.bincount(batch.slot.ravel(), minlength=replay.num_slots)


def chi_square(counts, probability):
  """Returns Pearson's statistic in units of its standard deviation above its mean."""
  is_possible = probability > 0
  assert not counts[~is_possible].any()
  expected = probability[is_possible] * counts.sum()
  statistic = ((counts[is_possible] - expected) ** 2 / expected).sum()
  degrees = is_possible.sum() - 1
  return (statistic - degrees) / np.sqrt(2 * degrees)


@pytest.mark.parametrize("sampling", ["uniform", "proportional"])
@pytest.mark.parametrize("num_shards", [2, 3, 5])
def test_draws_have_the_distribution_of_one_buffer(num_shards, sampling):
  one, shards = (made(n, f"replay.sampling={sampling}") for n in (1, num_shards))
  for replay in (one, shards):
    set_priorities(replay)
  probability = probabilities(one)
  assert chi_square(draws(shards)[1], probability) < 3
  # The test sees a composite whose parts have equal shares.
  equal = np.concatenate([probabilities(buffer) / num_shards for buffer in buffers(shards)])
  assert chi_square(draws(shards)[1], equal) > 30


def test_rows_of_a_batch_are_independent():
  """Of two rows of one batch, the shards are those of two draws: no row of a batch has a fixed shard."""
  shards = made(2)
  supplies = [shard.supply() for shard in shards.shards]
  requests = plan_draws(supplies, 40_000, np.random.default_rng(0))
  shard_of_row = np.zeros(40_000, int)
  shard_of_row[requests[1].rows] = 1
  pairs = np.bincount(shard_of_row[0::2] * 2 + shard_of_row[1::2], minlength=4)
  share = requests[1].share
  expected = np.array([(1 - share) ** 2, (1 - share) * share, share * (1 - share), share**2])
  assert chi_square(pairs, expected) < 3


@pytest.mark.parametrize("normalizes", ["true", "false"])
@pytest.mark.parametrize("sampling", ["uniform", "proportional"])
def test_targets_and_importance_ratios_are_those_of_one_buffer(sampling, normalizes):
  options = (f"replay.sampling={sampling}", f"replay.normalize_importance={normalizes}")
  options += ("replay.importance_exponent=0.7",)
  one, shards = made(1, *options), made(3, *options)
  for replay in (one, shards):
    set_priorities(replay)
  batch = shards.sample_many(3, 16)
  count = one.supply().num_drawable
  assert shards.supply().num_drawable == count
  assert shards.supply().mass == pytest.approx(one.supply().mass)
  ratio = (count * probabilities(one)[batch.slot]) ** -0.7
  if normalizes == "true":
    ratio /= ratio.max(axis=1, keepdims=True)
  np.testing.assert_allclose(batch.importance_ratio, ratio, rtol=1e-6)
  slot = batch.slot.ravel()
  # The same slots of one buffer have the same targets.
  for name, value in fields_of(one.storage.unroll(slot)).items():
    np.testing.assert_array_equal(getattr(batch, name).reshape(value.shape), value, name)
  frames, actions = one.storage.histories(slot)
  np.testing.assert_array_equal(batch.frames.reshape(frames.shape), frames)
  np.testing.assert_array_equal(batch.history_actions.reshape(actions.shape), actions)
  np.testing.assert_array_equal(batch.sequence.ravel(), one.storage.sequence[slot])
  ours, theirs = shards.transitions(slot), one.transitions(slot)
  map_fields(np.testing.assert_array_equal, ours, theirs)


def test_ranks_within_a_shard_stand_for_ranks_among_all():
  """If the δ of shards are alike, a shard's share is its share of the steps, whatever its size."""
  # The first two workers have the first shard, and the other three the second.
  shards = made(2, "replay.sampling=rank", stops=(12, 12, 40, 40, 40))
  supplies = [shard.supply() for shard in shards.shards]
  share = supplies[0].mass / (supplies[0].mass + supplies[1].mass)
  steps = supplies[0].num_drawable / (supplies[0].num_drawable + supplies[1].num_drawable)
  assert steps < 0.2
  assert share == pytest.approx(steps, rel=0.3)
  batch, counts = draws(shards)
  probability = np.zeros(shards.num_slots)
  for shard, part in zip(shards.shards, (share, 1 - share), strict=True):
    probability[shard.first_slot : shard.first_slot + shard.num_slots] = part * probabilities(shard.buffer)
  assert chi_square(counts, probability) < 3
  count = supplies[0].num_drawable + supplies[1].num_drawable
  np.testing.assert_allclose(batch.importance_ratio, 1 / (count * probability[batch.slot]), rtol=1e-6)


def test_one_ranked_shard_has_the_mass_of_the_ranks():
  """After the removal of ranked steps, the mass is that of the rest, as draws are."""
  shard = made(2, "replay.sampling=rank", "replay.priority_exponent=0.5").shards[1]
  count, mass = shard.supply()[1:]
  assert mass == pytest.approx(sum((count / r) ** 0.5 for r in range(1, count + 1)))
  shard.buffer.sample(4)  # sorts
  sampler = shard.buffer._sampler
  sampler.remove(sampler._order[:2])
  assert shard.supply()[1:] == (count - 2, pytest.approx(mass - count**0.5 - (count / 2) ** 0.5))


def test_ratios_are_of_the_probability_that_was_used():
  """A driver draws the shards by masses that may be a few calls old."""
  shards = made(2).shards
  old = [Supply(100, 90, 3.0), Supply(100, 80, 1.0)]
  requests = plan_draws(old, 64, np.random.default_rng(1))
  assert {i: (r.share, r.num_drawable) for i, r in requests.items()} == {0: (0.75, 170), 1: (0.25, 170)}
  batch = join([shards[i].draw(request) for i, request in requests.items()], 16, normalizes=False)
  for shard, request in zip(shards, requests.values(), strict=True):
    slot, ratio = batch.slot.ravel()[request.rows], batch.importance_ratio.ravel()[request.rows]
    own = probabilities(shard.buffer)[slot - shard.first_slot]
    np.testing.assert_allclose(ratio, 1 / (170 * request.share * own), rtol=1e-6)


def test_shards_are_independent_of_results_for_others():
  shards = made(3)
  batch = shards.sample_many(2, 16)
  before = [shard.stats() for shard in shards.shards]
  assert shards.update_priorities(batch.slot, batch.sequence, np.ones((2, 16))) == 32
  renewed = [shard.stats()["replay/renewed"] for shard in shards.shards]
  assert sum(renewed) == 32
  assert all(renewed)
  probs = np.full((16, SPEC.num_actions), 1 / 3, np.float32)
  assert shards.write_back(batch.slot[0], batch.sequence[0], np.ones(16, np.float32), probs, 10**6) == 16
  after = [shard.stats() for shard in shards.shards]
  assert all(new["replay/stale"] == old["replay/stale"] == 0 for new, old in zip(after, before, strict=True))


def test_lanes_and_slots_are_those_of_one_buffer():
  one, shards = made(1), make_replay(config_of(3), SPEC, None)
  assert [list(lanes) for lanes in lanes_of(config_of(3))] == [[0, 1], [2, 3, 4, 5], [6, 7, 8, 9]]
  add_steps(shards)
  assert shards.num_slots == one.num_slots
  assert shards.num_steps == one.num_steps
  for shard in shards.shards:
    for i, lane in enumerate(shard.lanes):
      begin, own = lane * one.lane_capacity, i * one.lane_capacity
      for name, array in one.storage.arrays.items():
        np.testing.assert_array_equal(
          shard.buffer.storage.arrays[name][own : own + one.lane_capacity],
          array[begin : begin + one.lane_capacity],
        )
  with pytest.raises(ValueError, match="there are lanes 2 … 5"):
    shards.shards[1].add(segment_of(LANES[:2], 0, 5, SPEC), 0)
  with pytest.raises(ValueError, match="must be lanes of one shard"):
    shards.add_or_refuse(segment_of(LANES[:4], 0, 5, SPEC), 0, 4, 20)


@pytest.mark.parametrize(("num_shards", "age"), [(1, 60), (2, 60), (5, 55)])
def test_search_values_replace_returns_at_the_same_age(num_shards, age):
  """Ages are in steps of all lanes."""
  options = ("replay.sampling=uniform", f"targets.search_value_age={age}", "reanalyze.ratio=0.5")
  replay = made(num_shards, *options)
  plain = made(1, "replay.sampling=uniform")
  batch = replay.sample_many(40, 50)
  slot, storage = batch.slot.ravel(), plain.storage
  returns = batch.n_step_returns.reshape(-1, 3)
  newest = storage.newest[slot // plain.lane_capacity]
  is_old = (newest - storage.sequence[slot]) * NUM_WORKERS * NUM_ENVS >= age
  assert 0 < is_old.mean() < 1
  expected = storage.unroll(slot)
  expected = np.where(is_old[:, None], expected.root_values, expected.n_step_returns)
  np.testing.assert_array_equal(returns, expected)


@pytest.mark.parametrize("mode", ["gather", "replayed"])
def test_positions_are_drawn_by_the_number_of_steps(mode):
  shards = made(2, "reanalyze.batch_size=4", f"reanalyze.mode={mode}", stops=(10, 10, 40, 40, 40))
  config, found = config_of(2, "reanalyze.batch_size=4", f"reanalyze.mode={mode}").reanalyze, []
  for _ in range(20):
    positions = shards.positions(config, 10**6)
    assert num_roots(positions) == 4
    spans = positions if mode == "replayed" else [positions]
    slot = np.concatenate([span.slot for span in spans])
    owners = {int(x) for x in slot >= shards.shards[1].first_slot}
    assert len(owners) == 1
    found.append(owners.pop())
  assert 0.6 < np.mean(found) < 1  # 240 of 280 steps
  everything = shards.positions(config.model_copy(update={"batch_size": 1000}), 10**6 + 1)
  terminal = [b.storage.arrays["is_last"] & ~b.storage.arrays["is_truncated"] for b in buffers(shards)]
  assert num_roots(everything) == shards.num_steps - sum(x.sum() for x in terminal)
  counts = np.bincount([choose_shard([0, 3, 1], np.random.default_rng(i)) for i in range(400)], minlength=3)
  assert counts[0] == 0
  assert chi_square(counts, np.array([0, 0.75, 0.25])) < 3


@pytest.mark.parametrize("mode", ["gather", "replayed"])
def test_empty_shards_have_no_positions(mode):
  config = config_of(2, "reanalyze.batch_size=4", f"reanalyze.mode={mode}")
  assert num_roots(make_replay(config, SPEC, None).positions(config.reanalyze, 0)) == 0


def test_windows_are_those_of_one_buffer():
  """K + n = 5 steps follow a start step: of each lane's newest 8 steps 3 are eligible."""
  window = "replay.window_share=0.1", "replay.window_min=80"
  one, shards = made(1, *window), made(3, *window)
  assert one.num_eligible == 3 * NUM_WORKERS * NUM_ENVS
  found = [shard.buffer.storage.eligible_slots() + shard.first_slot for shard in shards.shards]
  np.testing.assert_array_equal(np.concatenate(found), one.storage.eligible_slots())


def test_each_shard_turns_its_targets():
  turn = Symmetry("turn", entries=np.arange(12)[::-1], actions=np.array([1, 0]))
  spec = dataclasses.replace(SPEC, symmetries=(turn,))
  replay = make_replay(config_of(2, "learner.symmetries=true"), spec, None)
  add_steps(replay)
  batch = replay.sample_many(2, 50)
  slot, frames = batch.slot.ravel(), batch.frames.reshape(100, -1)
  for shard in replay.shards:
    is_own = slot // shard.buffer.lane_capacity >= shard.lanes.start
    is_own &= slot // shard.buffer.lane_capacity < shard.lanes.stop
    stored, _ = shard.buffer.storage.histories(slot[is_own] - shard.first_slot)
    is_same = (frames[is_own] == stored.reshape(is_own.sum(), -1)).all(axis=1)
    assert 0.2 < is_same.mean() < 0.8


def test_ranks_are_renewed_as_often_as_in_one_buffer():
  """A call has four batches, and a draw from a shard has its rows of all four."""
  options = "replay.sampling=rank", "replay.rank_refresh_updates=6", "learner.updates_per_call=4"
  for num_shards in (1, 2):
    replay, has_sorted = made(num_shards, *options), []
    for _ in range(5):
      before = [buffer._sampler._order for buffer in buffers(replay)]
      replay.sample_many(4, 16)
      after = [buffer._sampler._order for buffer in buffers(replay)]
      has_sorted.append([new is not old for old, new in zip(before, after, strict=True)])
    assert has_sorted == [[expected] * num_shards for expected in (True, False, True, False, True)]


def test_training_waits_for_the_steps_of_all_shards():
  shards = make_replay(config_of(2), SPEC, None)
  with pytest.raises(ValueError, match="nothing to sample"):
    shards.sample_many(1, 16)
  add_steps(shards, (0, 0, 15, 15, 15))
  assert not shards.can_sample(16)  # 90 steps, of 100
  add_steps(shards, (5, 0, 0, 0, 0))
  assert shards.can_sample(16)
  # The first shard has no eligible step yet.
  assert (shards.sample_many(4, 16).slot >= shards.shards[1].first_slot).all()


def test_stats_are_those_of_one_buffer():
  one, shards = made(1), made(3)
  for replay in (one, shards):
    set_priorities(replay)
  ours, theirs = shards.stats(), one.stats()
  assert ours.keys() == theirs.keys()
  for name, value in theirs.items():
    assert ours[name] == pytest.approx(value, rel=1e-6), name
  assert merged_stats(config_of(1), {0: theirs}) == theirs
  assert shards.histograms().keys() == one.histograms().keys()


def test_histograms_are_added():
  a, b = np.arange(10.0), np.linspace(-4, 30, 100)
  (found,) = merged([{"x": histogram_of(a)}, {"x": histogram_of(b)}]).values()
  assert (found.edges[0], found.edges[-1], found.counts.sum()) == (-4, 30, 110)
  assert found.total == pytest.approx(a.sum() + b.sum())
  assert found.total_of_squares == pytest.approx((a**2).sum() + (b**2).sum())
  assert merged([{"x": histogram_of(a)}, {"y": histogram_of(b)}]).keys() == {"x", "y"}
  assert merged([{"x": histogram_of([2.0])}, {"x": histogram_of([2.0])}])["x"].counts.tolist() == [2]


def steps_of(replay):
  """Returns the stored steps of each lane."""
  out = []
  for buffer in buffers(replay):
    storage = buffer.storage
    for lane in range(storage.num_lanes):
      stop = int(storage.newest[lane]) + 1
      out.append(storage.trajectory(lane, max(0, stop - storage.lane_capacity), stop))
  return out


@pytest.mark.parametrize("sampling", ["uniform", "proportional", "rank"])
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 3), (5, 2)])
def test_restore_into_another_number_of_shards(before, after, sampling):
  first, disk = made(before, f"replay.sampling={sampling}"), Disk()
  disk.save(first)
  first.sample_many(2, 16)
  add_steps(first, (50, 0, 0, 70, 0), begin=40)  # lanes 0, 1 have a gap, and lanes 6, 7 wrap around
  saved = disk.save(first)
  check_snapshot(saved, SPEC)
  config = config_of(after, f"replay.sampling={sampling}")
  second = make_replay(config, SPEC, None)
  lost = second.restore(saved)
  for buffer in buffers(second):
    assert_valid(buffer)
  assert second.num_steps + lost == first.num_steps
  assert num_added(second.snapshot()) == num_added(saved) == first.stats()["replay/added"]
  assert added_by_shard(saved, lanes_of(config)) == [b.num_added for b in buffers(second)]
  assert second.stats()["replay/drawn"] == first.stats()["replay/drawn"] == 32
  for ours, theirs in zip(steps_of(second), steps_of(first), strict=True):
    # A lane starts at its first start of an episode, because earlier steps have no history.
    begin = int(np.flatnonzero(theirs.is_first)[0])
    map_fields(lambda a, b, begin=begin: np.testing.assert_array_equal(a, b[begin:]), ours, theirs)
  check_snapshot(second.snapshot(), SPEC)
  second.sample_many(2, 16)
  # All blocks are written again: those on disk are of other shards.
  assert second.snapshot(disk.known).blocks.keys() == second.snapshot().blocks.keys()
  # Steps that were added before those that are held stay counted, and are divided among the shards.
  config = config_of(before)
  third = make_replay(config, SPEC, None)
  third.restore(second.snapshot())
  added = [buffer.num_added for buffer in buffers(third)]
  assert sum(added) == num_added(saved) > third.num_steps
  assert added_by_shard(second.snapshot(), lanes_of(config)) == added
  for buffer in buffers(third):
    held = int((buffer.storage.newest + 1).sum())
    assert buffer.storage.steps_before == (buffer.num_added - held) // buffer.num_lanes > 0


@pytest.mark.parametrize("num_workers", [3, 7])
def test_restore_with_other_workers(num_workers):
  saved = made(2).snapshot()
  config = config_of(3, f"workers.num_workers={num_workers}", "replay.capacity=600")
  replay = make_replay(config, SPEC, None)
  lost = replay.restore(saved)
  one = make_replay(config_of(1, f"workers.num_workers={num_workers}", "replay.capacity=600"), SPEC, None)
  assert one.restore(made(1).snapshot()) == lost
  for ours, theirs in zip(steps_of(replay), steps_of(one), strict=True):
    map_fields(np.testing.assert_array_equal, ours, theirs)
  assert replay.stats()["replay/added"] == one.stats()["replay/added"]


def test_a_part_of_the_same_shards_is_restored_as_it_was():
  """This is what a restarted replay actor does with its part of the last snapshot."""
  first, disk = made(3), Disk()
  first.sample_many(2, 16)
  saved = disk.save(first)
  shard = ReplayShard(config_of(3, "seed=7"), SPEC, 1)
  assert shard.restore(divided(saved, lanes_of(config_of(3)), 1)) == 0
  ours, theirs = shard.sample_many(2, 16), first.shards[1].sample_many(2, 16)
  map_fields(np.testing.assert_array_equal, ours, theirs)
  add_steps(first, (0, 0, 25, 0, 0), begin=20)
  written = first.snapshot(disk.known).blocks.keys()
  assert written
  assert all(64 * 1 <= number < 64 * 2 for number in written)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (lambda head: head.pop("shard/1/delta"), "replay/shard/1/delta is missing"),
    (lambda head: head.update({"shard/0/waits": np.ones(3, bool)}), "replay/shard/0/waits is bool"),
    (lambda head: head.update({"other": 1}), "replay/other is not expected"),
    (lambda head: head.update({"draws": np.zeros(6, np.uint64)}), "replay/draws is not a state of PCG64"),
    (lambda head: head.update({"draws": np.zeros(2, np.uint64)}), "replay/draws is uint64"),
    (
      lambda head: [head.pop(x) for x in list(head) if x.startswith("shard/0/")],
      "replay/lane_capacity is missing",
    ),
  ],
)
def test_an_altered_snapshot_is_refused(change, message):
  saved = made(2).snapshot()
  head = dict(saved.head)
  change(head)
  with pytest.raises(ValueError, match=message):
    check_snapshot(dataclasses.replace(saved, head=head), SPEC)


def test_a_missing_block_names_its_shard():
  saved = made(2).snapshot()
  blocks = {number: block for number, block in saved.blocks.items() if number != 64}
  with pytest.raises(ValueError, match="replay shard 1, block 0: is missing"):
    check_snapshot(Snapshot(head=saved.head, generations=saved.generations, blocks=blocks), SPEC)


@pytest.mark.parametrize(
  ("overrides", "message"),
  [
    (("ray.replay_shards=6",), "ray.replay_shards=6: must be at most workers.num_workers=5"),
    (("offline.trajectories=x",), "ray.replay_shards=2: must be 1 with offline.trajectories"),
  ],
)
def test_settings_that_shards_do_not_allow(overrides, message):
  with pytest.raises(UserError, match=message):
    config_of(2, *overrides)


def test_refused_segments_name_the_worker():
  shards = made(2, "replay.max_refused_segments=1")
  bad = replace(segment_of(LANES[:2], 0, 5, SPEC), root_value=np.full((5, 2), np.nan, np.float32))
  with pytest.raises(Exception, match="training_worker_4: 1 segments in a row were refused"):
    shards.add_or_refuse(bad, 8, 2, 10)

"""The contract of `Replay`, for one buffer, for shards, and for the composite with stored trajectories."""

from collections.abc import Callable

import numpy as np
import pytest

from moozi.core.pytree import fields_of, map_fields, replace
from moozi.core.records import NStepTransition, num_roots
from moozi.io.config import load_config
from moozi.replay.buffer import ReplayBuffer
from moozi.replay.mixture import StoredReplay, make_replay
from moozi.replay.protocol import Replay, ReplayPart
from moozi.replay.shards import ShardedReplay
from tests.replay.replay_lanes import SAMPLINGS, Disk, assert_valid, make_spec, random_lanes, segment_of, work

SPEC = make_spec(num_players=2)
POSITIONS = load_config(None, ["reanalyze.batch_size=8"]).reanalyze
LANES = random_lanes(4, 2, 110, SPEC)
BAD = replace(segment_of(LANES, 0, 5, SPEC), root_value=np.full((5, 2), np.nan, np.float32))


def make(kind: str, sampling: str = "proportional", seed: int = 0, points: str = "[]") -> Replay:
  """Returns replay without steps of its own, with two lanes of 40 and, if mixed, two of 30 stored steps.

  Of kind "shards", it has one lane in each of two shards.
  """
  num_shards, is_mixed = 2 if kind == "shards" else 1, kind == "mixture"
  config = load_config(
    None,
    [
      *("targets.history_length=2", "targets.unroll_steps=2", "targets.n_step=3", "targets.discount=0.9"),
      *(f"workers.num_workers={num_shards}", f"workers.num_envs={2 // num_shards}", f"seed={seed}"),
      *("workers.segment_length=5", f"ray.replay_shards={num_shards}"),
      *("replay.capacity=80", "replay.min_steps_to_learn=1", "replay.rank_refresh_updates=7"),
      *(f"replay.sampling={sampling}", "learner.batch_size=5", f"targets.discount_schedule={points}"),
      *(("offline.trajectories=somewhere", "offline.fraction=0.5") if is_mixed else ()),
    ],
  )
  if not is_mixed:
    return make_replay(config, SPEC, None)
  stored = StoredReplay(config, SPEC, {0: 30, 1: 30})
  steps = segment_of(random_lanes(9, 2, 30, SPEC), 0, 30, SPEC)
  for lane in range(2):
    stored.add_stored(lane, map_fields(lambda x, lane=lane: x[:, lane], steps), "stored")
  assert isinstance(stored, ReplayPart)
  return make_replay(config, SPEC, stored)


def parts_of(replay: Replay) -> list[ReplayBuffer]:
  if isinstance(replay, ShardedReplay):
    return [shard.buffer for shard in replay.shards]
  return [replay] if isinstance(replay, ReplayBuffer) else [replay._acted, replay._stored._buffer]


def assert_all_valid(replay: Replay) -> None:
  for buffer in parts_of(replay):
    assert_valid(buffer)


@pytest.fixture(params=["buffer", "shards", "mixture"])
def build(request) -> Callable[..., Replay]:
  return lambda *args: make(request.param, *args)


@pytest.fixture
def replay(build) -> Replay:
  """Returns replay with 30 own steps in each of two lanes."""
  out = build()
  work(out, LANES, SPEC, 0, 30)
  return out


def test_satisfies_the_protocol(replay):
  assert isinstance(replay, Replay)


def test_training_waits_for_own_steps(build):
  replay = build()
  assert not replay.can_sample(5)
  with pytest.raises(ValueError, match="nothing to sample"):
    replay.sample_many(1, 5)
  replay.add(segment_of(LANES, 0, 10, SPEC), 0)
  assert replay.can_sample(5)


def test_supply_is_what_can_be_drawn(build):
  replay = build("uniform")
  before = replay.supply()
  assert before.num_steps == replay.num_steps
  replay.add(segment_of(LANES, 0, 10, SPEC), 0)
  # A target needs K + n = 5 steps after its start.
  assert replay.supply() == (before.num_steps + 20, before.num_drawable + 10, before.mass + 10)


def test_counts(build):
  replay = build()
  before = replay.num_steps
  replay.add(segment_of(LANES, 0, 10, SPEC), 0)
  assert replay.num_steps == before + 20 <= replay.num_slots
  assert replay.num_slots == 80 + before


def test_draws_are_targets_of_slots(replay):
  batch = replay.sample_many(4, 5)
  for name, value in fields_of(batch).items():
    assert value.shape[:2] == (4, 5), name
  assert (batch.slot >= 0).all()
  assert (batch.slot < replay.num_slots).all()
  assert replay.update_priorities(batch.slot, batch.sequence, np.ones((4, 5))) == 20


def test_a_transition_is_in_the_place_of_its_slot(replay):
  """Slots of both parts are asked for in any order; the answers keep it."""
  batch = replay.sample_many(4, 5)
  slot = np.random.default_rng(0).permutation(batch.slot.reshape(-1))
  together = replay.transitions(slot)
  for i in range(20):
    alone = replay.transitions(slot[i : i + 1])
    for name, value in fields_of(alone).items():
      np.testing.assert_array_equal(getattr(together, name)[i], value[0], name)
  empty = replay.transitions(slot[:0])
  assert isinstance(empty, NStepTransition)
  assert empty.next_frames.shape == (0, 2, *SPEC.frame_shape)


def test_bootstraps_are_those_of_the_targets(replay):
  """With a root value of 1 at every step, z_i differs from the reward sum by the factor of the bootstrap."""
  found = []
  for value in (0.0, 1.0):
    roots = replay.positions(POSITIONS.model_copy(update={"batch_size": 200}), 10**6)  # every position
    probs = np.full((len(roots.slot), SPEC.num_actions), 1 / SPEC.num_actions, np.float32)
    replay.write_back(roots.slot, roots.sequence, np.full(len(roots.slot), value, np.float32), probs, 10**6)
    batch = replay.sample_many(40, 5)
    at = zip(batch.slot.ravel().tolist(), batch.n_step_returns[..., 0].ravel().tolist(), strict=True)
    found.append(dict(at))
  slot = np.array(sorted(found[0].keys() & found[1].keys()))
  assert len(slot) > 20
  gap = [found[1][i] - found[0][i] for i in slot.tolist()]
  np.testing.assert_allclose(replay.transitions(slot).bootstrap, gap, atol=1e-5)


def test_updates_of_replaced_steps_are_dropped(replay):
  batch = replay.sample_many(1, 5)
  slot, sequence = batch.slot[0], batch.sequence[0]
  stale = np.where(np.arange(5) % 2, sequence, sequence - 1)
  assert replay.update_priorities(slot, stale, np.ones(5)) == 2
  assert replay.update_priorities(slot, sequence, np.array([np.nan, 1, np.inf, 1, 1])) == 3
  probs = np.tile(np.array([0, 0.5, 0.5], np.float32), (5, 1))
  assert replay.write_back(slot, stale, np.ones(5, np.float32), probs, 99) == 2
  assert replay.write_back(slot, sequence, np.ones(5, np.float32), probs, -96) == 0
  for value, weights in ((np.nan, probs), (1.0, np.full_like(probs, np.inf))):
    with pytest.raises(ValueError, match="must be finite"):
      replay.write_back(slot, sequence, np.full(5, value, np.float32), weights, 100)
  assert_all_valid(replay)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_changed_discount_is_that_of_targets_and_priorities(build, sampling):
  """As in replay that had this discount when the steps were added."""
  changed, fresh = build(sampling), build(sampling)
  fresh.set_discount(0.5)
  for each in (changed, fresh):
    each.add(segment_of(LANES, 0, 30, SPEC), 0)
  before = [part.storage.delta.copy() for part in parts_of(changed)]
  changed.set_discount(0.9)  # that of the configuration
  assert all(np.array_equal(a, part.storage.delta) for a, part in zip(before, parts_of(changed), strict=True))
  for each in (changed, fresh):
    slot = np.concatenate([part.storage.eligible_slots() for part in parts_of(each)])
    assert len(slot) > 20
    each.set_discount(0.25)
    each.set_discount(0.5)
  for a, b, old in zip(parts_of(changed), parts_of(fresh), before, strict=True):
    np.testing.assert_array_equal(a.storage.delta, b.storage.delta)
    assert not np.array_equal(a.storage.delta, old)
    slot = a.storage.eligible_slots()
    np.testing.assert_array_equal(
      a.storage.unroll(slot).n_step_returns, b.storage.unroll(slot).n_step_returns
    )
    np.testing.assert_array_equal(a.storage.bootstraps(slot)[1], b.storage.bootstraps(slot)[1])
  assert_all_valid(changed)


def test_restored_replay_has_the_saved_discount(build):
  """The schedule's first values differ from the saved one; without a schedule the configured one counts."""
  for points, expected in (("[{env_steps: 9, discount: 0.5}]", 0.5), ("[]", 0.9)):
    first, second = (build("rank", seed, points) for seed in (0, 1))
    work(first, LANES, SPEC, 0, 30)
    first.set_discount(0.5)
    second.restore(first.snapshot())
    assert [part.storage.discount for part in parts_of(second)] == [expected] * len(parts_of(second))
    pairs = zip(parts_of(first), parts_of(second), strict=True)
    is_same = [np.array_equal(a.storage.delta, b.storage.delta) for a, b in pairs]
    assert all(is_same) == (expected == 0.5)


@pytest.mark.parametrize("mode", ["gather", "replayed"])
def test_positions_can_be_written_back(replay, mode):
  positions = replay.positions(POSITIONS.model_copy(update={"mode": mode}), 500)
  assert num_roots(positions) == 8
  spans = positions if mode == "replayed" else [positions]
  slot, sequence = (np.concatenate([getattr(span, name) for span in spans]) for name in ("slot", "sequence"))
  probs = np.tile(np.array([0, 0.5, 0.5], np.float32), (8, 1))
  assert replay.write_back(slot, sequence, np.ones(8, np.float32), probs, np.full(8, 500, np.int32)) == 8
  assert replay.write_back(slot, sequence, np.ones(8, np.float32), probs, 499) == 0
  assert_all_valid(replay)


def test_a_refused_segment_and_a_gap_change_no_steps(replay):
  before = replay.num_steps
  # A worker has one lane of each shard.
  num_lanes = 1 if isinstance(replay, ShardedReplay) else 2
  bad = map_fields(lambda x: x[:, :num_lanes], BAD)
  assert "root_value" in replay.add_or_refuse(bad, 0, num_lanes, 10).refused
  with pytest.raises(ValueError, match="root_value"):
    replay.add(BAD, 0)
  for first_lane in (-1, 1, 2):
    with pytest.raises(ValueError, match="there are lanes 0 … 1"):
      replay.await_first(first_lane, 2)
    with pytest.raises(ValueError, match="there are lanes 0 … 1"):
      replay.add(segment_of(LANES, 0, 5, SPEC), first_lane)
  assert replay.num_steps == before
  assert replay.stats()["replay/lost_steps"] == 10


def test_stats_are_finite_floats(build):
  empty, replay = build(), build()
  work(replay, LANES, SPEC, 0, 30)
  for each in (empty, replay):
    stats = each.stats()
    assert all(isinstance(value, float) and np.isfinite(value) for value in stats.values())
    assert all(name.startswith(("replay/", "offline/")) for name in stats)
    assert each.histograms().keys() <= {
      f"{part}/{x}" for part in ("replay", "offline") for x in ("delta", "priority")
    }
    assert sum(value for name, value in stats.items() if name.endswith("/steps")) == each.num_steps


@pytest.mark.parametrize(
  ("sampling", "length"),
  [
    *(pytest.param("rank", length, marks=pytest.mark.slow) for length in (0, 3, 20, 90)),
    *(("rank", 60), ("proportional", 80), pytest.param("uniform", 60, marks=pytest.mark.slow)),
  ],
)
def test_restored_replay_continues_to_the_bit(build, sampling, length):
  first, second, disk = build(sampling), build(sampling, 2), Disk()
  for stop in range(0, length, 10):
    work(first, LANES, SPEC, stop, min(stop + 10, length))
    disk.save(first)
  second.add(segment_of(random_lanes(5, 2, 30, SPEC), 0, 30, SPEC), 0)  # is replaced by the snapshot
  batch = second.sample_many(3, 5)
  second.update_priorities(batch.slot, batch.sequence, np.full((3, 5), 9.0))
  assert second.restore(disk.save(first)) == 0
  assert_all_valid(second)
  assert second.snapshot(disk.known).blocks == {}
  assert second.stats() == first.stats()
  theirs, ours = work(first, LANES, SPEC, length, 110), work(second, LANES, SPEC, length, 110)
  assert len(ours) == len(theirs) > 0
  for a, b in zip(ours, theirs, strict=True):
    map_fields(np.testing.assert_array_equal, a, b)
  assert second.stats() == first.stats()


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_snapshot_is_plain_and_a_copy(build, sampling):
  replay = build(sampling)
  work(replay, LANES, SPEC, 0, 30)
  taken = replay.snapshot()
  state = taken.head | {f"{i}/{name}": x for i, block in taken.blocks.items() for name, x in block.items()}
  frozen = {name: np.array(value) for name, value in state.items()}
  for name, value in state.items():
    assert isinstance(value, int | np.ndarray), name
    assert not isinstance(value, np.ndarray) or value.dtype != object, name
  work(replay, LANES, SPEC, 30, 90)
  for name, value in state.items():
    np.testing.assert_array_equal(value, frozen[name], err_msg=name)


def test_a_missing_block_is_refused(replay, build):
  saved = replay.snapshot()
  del saved.blocks[3]
  with pytest.raises(ValueError, match="block 3 is missing"):
    build().restore(saved)

"""Tests of replay's state: exact resumption, seeds and consistency checks."""

import numpy as np
import pytest

from moozi.core.pytree import map_fields
from tests.replay.replay_lanes import (
  SAMPLINGS,
  assert_valid,
  fill,
  filled_buffer,
  make_buffer,
  make_spec,
  random_lanes,
  segment_of,
)


def work(buffer, lanes, spec, first, stop):
  """Adds steps, samples, updates priorities and writes searches back; returns the batches."""
  out = []
  for t in range(first, stop, 5):
    buffer.add(segment_of(lanes, t, min(t + 5, stop), spec), 0)
    if not buffer.can_sample(1):
      continue
    for _ in range(3):
      batch = buffer.sample_many(3, 5)  # odd, so that the generator buffers half of a 64-bit word
      out.append(batch)
      gap = np.abs(batch.root_values[..., 0] - batch.n_step_returns[..., 1])
      buffer.update_priorities(batch.slot, batch.sequence, gap)
    slot, sequence = batch.slot[0], batch.sequence[0]
    buffer.write_back(slot, sequence, batch.n_step_returns[0, :, 0], batch.action_probs[0, :, 0], t)
  return out


@pytest.mark.parametrize(
  ("sampling", "length"),
  [
    *(pytest.param("rank", length, marks=pytest.mark.slow) for length in (3, 20, 90)),
    *(("rank", 0), ("uniform", 90), ("proportional", 90)),
  ],
)
def test_resumed_buffer_continues_to_the_bit(sampling, length):
  spec = make_spec(num_players=2)
  lanes = random_lanes(4, 2, 140, spec)
  options = {"sampling": sampling, "rank_refresh_updates": 7}
  first = make_buffer(spec, **options, seed=1)
  work(first, lanes, spec, 0, length)
  state = first.get_state()
  second = make_buffer(spec, **options, seed=2)
  work(second, random_lanes(5, 2, 60, spec), spec, 0, 60)  # is overwritten by set_state
  second.set_state(state)
  assert_valid(second)
  assert second.stats() == first.stats()
  theirs = work(first, lanes, spec, length, 140)
  ours = work(second, lanes, spec, length, 140)
  assert len(ours) == len(theirs) > 0
  for a, b in zip(ours, theirs, strict=True):
    map_fields(np.testing.assert_array_equal, a, b)
  assert second.stats() == first.stats()


def test_rank_order_is_restored_between_sorts():
  spec = make_spec()
  lanes = random_lanes(0, 2, 410, spec)
  first, second = (
    make_buffer(spec, lane_capacity=400, sampling="rank", rank_refresh_updates=10, seed=seed)
    for seed in (1, 2)
  )
  fill(first, lanes, spec, [200, 400])
  batch = first.sample_many(6, 50)
  first.update_priorities(batch.slot, batch.sequence, np.full(batch.slot.shape, 9.0))
  first.add(segment_of(lanes, 400, 410, spec), 0)
  second.set_state(first.get_state())
  for _ in range(8):  # the ranks are sorted again during these
    map_fields(np.testing.assert_array_equal, first.sample_many(1, 51), second.sample_many(1, 51))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(
  "changed", [{"n_step": 9}, {"n_step": 1}, {"unroll_steps": 5}, {"priority_exponent": 1.0}]
)
def test_priorities_are_computed_again_for_other_settings(sampling, changed):
  """A resumed run may change these settings; the draws must be those of a buffer that had them always."""
  spec = make_spec(num_players=2)
  lanes = random_lanes(4, 2, 140, spec)
  first = make_buffer(spec, sampling=sampling, seed=1)
  work(first, lanes, spec, 0, 140)
  resumed, other = (make_buffer(spec, sampling=sampling, seed=2, **changed) for _ in range(2))
  resumed.set_state(first.get_state())
  for t in range(0, 140, 5):
    other.add(segment_of(lanes, t, t + 5, spec), 0)
  resumed.sample(4)
  assert_valid(resumed)
  slot = other.storage.eligible_slots()
  np.testing.assert_array_equal(resumed.storage.eligible_slots(), slot)
  assert resumed._sampler.probability(slot).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_state_is_plain_and_a_copy(sampling):
  buffer, _lanes, spec = filled_buffer(sampling=sampling)
  buffer.sample(4)
  state = buffer.get_state()
  frozen = {name: np.array(value) for name, value in state.items()}
  for name, value in state.items():
    assert isinstance(value, int | np.ndarray), name
    assert not isinstance(value, np.ndarray) or value.dtype != object, name
  work(buffer, random_lanes(9, 2, 60, spec), spec, 0, 60)
  for name, value in state.items():
    np.testing.assert_array_equal(value, frozen[name], err_msg=name)


def test_a_young_buffer_saves_only_used_slots():
  buffer, _, _ = filled_buffer(length=12, lane_capacity=10_000)
  assert buffer.get_state()["storage/frame"].shape[:2] == (2, 12)


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"lane_capacity": 50}, "lane_capacity is 40: must be 50"),
    ({"sampling": "rank"}, "sampling is 0: must be 2"),
    ({"window_share": 0.5, "window_min": 20}, "window_share, window_min are 1, 0: must be 0.5, 20"),
    ({"lanes": 3}, "has shape"),
    ({"spec": make_spec("uint8")}, "frame has shape"),
  ],
)
def test_state_of_another_buffer_is_refused(options, message):
  state = filled_buffer()[0].get_state()
  other = make_buffer(**options)
  with pytest.raises(ValueError, match=message):
    other.set_state(state)
  assert other.num_steps == 0
  assert_valid(other)


def test_incomplete_state_is_refused():
  state = filled_buffer()[0].get_state()
  del state["storage/root_value"]
  with pytest.raises(ValueError, match="root_value is missing"):
    make_buffer().set_state(state)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_seed_determines_the_draw(sampling):
  spec = make_spec()
  lanes = random_lanes(0, 2, 60, spec)

  def drawn(seed):
    buffer = make_buffer(spec, sampling=sampling, seed=seed, rank_refresh_updates=5)
    return np.concatenate([batch.slot.ravel() for batch in work(buffer, lanes, spec, 0, 60)])

  np.testing.assert_array_equal(drawn(3), drawn(3))
  assert (drawn(3) != drawn(4)).mean() > 0.5


@pytest.mark.parametrize(
  ("sampling", "name", "change", "message"),
  [
    ("uniform", "storage/sequence", lambda x: np.roll(x, 1, axis=1), "sequence"),
    ("uniform", "storage/newest", lambda x: x + 1, "sequence"),
    ("uniform", "storage/root_value", lambda x: x * np.nan, "root_value is not finite"),
    ("uniform", "storage/action_probs", lambda x: x + np.inf, "action_probs is not finite"),
    ("uniform", "storage/is_truncated", np.ones_like, "is_truncated on a step"),
    ("uniform", "storage/action", np.ones_like, "action: an episode's last step"),
    ("uniform", "storage/is_first", np.ones_like, "is_first after a step"),
    ("uniform", "delta", lambda x: x - 1e9, "delta"),
    ("uniform", "delta", lambda x: x * np.nan, "delta"),
    ("proportional", "sampler/weights", np.zeros_like, "sum tree"),
    ("proportional", "sampler/weights", np.ones_like, "sum tree"),
    ("rank", "sampler/rank_of", lambda x: np.arange(len(x)), "rank table: a ranked step"),
    ("rank", "sampler/numbers", lambda x: x - 1, "rank table: a ranked step"),
    ("rank", "sampler/mass", lambda x: x + 1, "rank table: the mass"),
  ],
)
def test_an_inconsistent_state_is_found(sampling, name, change, message):
  """Each check of `assert_valid`, which many tests use, detects its inconsistency."""
  buffer, _, _ = filled_buffer(length=60, sampling=sampling, end_probability=0.2)
  buffer.sample(4)
  assert_valid(buffer)
  state = buffer.get_state()
  buffer.set_state(state | {name: change(state[name])})
  with pytest.raises(AssertionError, match=message):
    assert_valid(buffer)


def test_stats_are_finite_floats():
  empty = make_buffer()
  for buffer in (empty, filled_buffer()[0]):
    stats = buffer.stats()
    assert all(isinstance(value, float) and np.isfinite(value) for value in stats.values())
    assert all(name.startswith("replay/") for name in stats)
  assert empty.stats()["replay/steps"] == 0
  spec = make_spec()
  buffer = make_buffer(spec)
  fill(buffer, random_lanes(0, 2, 20, spec), spec, [20])
  assert buffer.stats()["replay/fill"] == 0.5
  assert buffer.stats()["replay/eligible"] == 30

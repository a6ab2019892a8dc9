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
  work,
)


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
  second.restore(first.snapshot())
  for _ in range(8):  # the ranks are sorted again during these
    map_fields(np.testing.assert_array_equal, first.sample_many(1, 51), second.sample_many(1, 51))


@pytest.mark.parametrize(
  ("sampling", "changed"),
  [
    ("uniform", {"n_step": 9}),
    ("rank", {"n_step": 9}),
    ("rank", {"priority_exponent": 1.0}),
    *(("proportional", x) for x in ({"n_step": 1}, {"unroll_steps": 5}, {"priority_exponent": 1.0})),
  ],
)
def test_priorities_are_computed_again_for_other_settings(sampling, changed):
  """A resumed run may change these settings; the draws must be those of a buffer that had them always."""
  spec = make_spec(num_players=2)
  lanes = random_lanes(4, 2, 140, spec)
  first = make_buffer(spec, sampling=sampling, seed=1)
  work(first, lanes, spec, 0, 140)
  resumed, other = (make_buffer(spec, sampling=sampling, seed=2, **changed) for _ in range(2))
  resumed.restore(first.snapshot())
  for t in range(0, 140, 5):
    other.add(segment_of(lanes, t, t + 5, spec), 0)
  resumed.sample(4)
  assert_valid(resumed)
  slot = other.storage.eligible_slots()
  np.testing.assert_array_equal(resumed.storage.eligible_slots(), slot)
  assert resumed._sampler.probability(slot).sum() == pytest.approx(1.0)


def test_a_young_buffer_saves_only_used_blocks():
  buffer, _, _ = filled_buffer(length=12, lane_capacity=10_000)
  assert buffer.snapshot().blocks.keys() == {0}


def test_state_of_another_environment_is_refused():
  other = make_buffer(make_spec("uint8"))
  with pytest.raises(ValueError, match="frame is"):
    other.restore(filled_buffer(length=60)[0].snapshot())
  assert other.num_steps == 0
  assert_valid(other)


def test_incomplete_state_is_refused():
  saved = filled_buffer(length=60)[0].snapshot()
  del saved.blocks[3]["root_value"]
  with pytest.raises(ValueError, match="replay block 3: root_value is missing"):
    make_buffer().restore(saved)


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
    ("uniform", "storage/sequence", lambda x: x + 1, "sequence"),
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
  saved = buffer.snapshot()
  for state in (saved.head, *saved.blocks.values()):
    if (key := name if state is saved.head else name.removeprefix("storage/")) in state:
      state[key] = change(state[key])
  buffer.storage.set_blocks(saved.head["storage/newest"], saved.blocks)
  buffer.set_state(saved.head)
  with pytest.raises(AssertionError, match=message):
    assert_valid(buffer)


def test_stats_count_the_steps():
  assert make_buffer().stats()["replay/steps"] == 0
  buffer, _, _ = filled_buffer(length=20)
  assert buffer.stats()["replay/fill"] == 0.5
  assert buffer.stats()["replay/eligible"] == 30

"""Tests of priorities: initial values, updates, and the probabilities that follow from them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ops.oracles import oracle_return, oracle_target
from tests.replay.replay_lanes import (
  SAMPLINGS,
  assert_valid,
  drawn_positions,
  fill,
  filled_buffer,
  make_buffer,
  make_spec,
  random_lanes,
  segment_of,
)

PRIORITIZED = ("proportional", "rank")


def priorities(buffer):
  """Returns {(lane, index): δ} of the stored steps."""
  shape = buffer.num_lanes, buffer.lane_capacity
  sequence, delta = buffer.storage.sequence.reshape(shape), buffer.storage.delta.reshape(shape)
  return {
    (lane, int(i)): float(delta[lane, position])
    for lane in range(buffer.num_lanes)
    for position, i in enumerate(sequence[lane])
    if i >= 0
  }


def probabilities(buffer, draws=20_000):
  """Returns {(lane, index): P} of all steps drawn, computed from the importance ratio ρ = 1 / (N P)."""
  batch = buffer.sample(draws)
  ratio = dict(zip(drawn_positions(buffer, batch), batch.importance_ratio.tolist(), strict=True))
  count = len(ratio)
  out = {key: 1 / (count * rho) for key, rho in ratio.items()}
  # If some eligible steps were never drawn, the sum is 1 only if their mean probability is 1 / N.
  assert sum(out.values()) == pytest.approx(1, abs=1e-5)
  return out


def renew(buffer, changes):
  """Updates the δ of some steps; `changes` is {(lane, index): δ}."""
  keys = list(changes)
  slot = np.asarray([lane * buffer.lane_capacity + i % buffer.lane_capacity for lane, i in keys])
  applied = buffer.update_priorities(
    slot, np.asarray([i for _, i in keys]), np.asarray([changes[k] for k in keys])
  )
  assert applied == len(keys)


def expected_probabilities(sampling, delta, exponent, epsilon):
  """Returns {(lane, index): P} by the definitions; all δ must differ."""
  if sampling == "uniform":
    weight = dict.fromkeys(delta, 1.0)
  elif sampling == "proportional":
    weight = {key: (d + epsilon) ** exponent for key, d in delta.items()}
  else:
    ranked = sorted(delta, key=lambda key: -delta[key])
    weight = {key: (1 / rank) ** exponent for rank, key in enumerate(ranked, start=1)}
  total = sum(weight.values())
  return {key: w / total for key, w in weight.items()}


class TestInsertion:
  @settings(max_examples=12)
  @given(seed=st.integers(0, 2**32 - 1), num_players=st.sampled_from([1, 2]), length=st.integers(1, 17))
  def test_delta_is_search_value_minus_return(self, seed, num_players, length):
    spec = make_spec(num_players=num_players)
    lanes = random_lanes(seed, 2, 60, spec, end_probability=0.15)
    buffer = make_buffer(spec)
    fill(buffer, lanes, spec, [*range(length, 60, length), 60])
    delta = priorities(buffer)
    # K + n = 5 and L = 2 in rings of 40: steps 22 … 54 of 60 are eligible.
    for lane in range(2):
      for i in range(22, 55):
        gap = abs(lanes[lane][i].value - oracle_return(lanes[lane], i, 3, 0.9))
        assert delta[lane, i] == pytest.approx(gap, abs=1e-5)


class TestDraw:
  @pytest.mark.parametrize("sampling", SAMPLINGS)
  @pytest.mark.parametrize("exponent", [0.0, 0.6, 1.0])
  def test_probabilities_follow_the_definition(self, sampling, exponent):
    buffer, _, _ = filled_buffer(
      length=60, sampling=sampling, priority_exponent=exponent, priority_epsilon=0.01
    )
    keys = [(lane, i) for lane in range(2) for i in range(22, 55)]
    delta = dict(zip(keys, np.random.default_rng(0).permutation(len(keys)) / 50.0, strict=True))
    renew(buffer, delta)
    expected = expected_probabilities(sampling, delta, exponent, 0.01)
    found = probabilities(buffer)
    assert found.keys() == expected.keys()
    for key, p in expected.items():
      assert found[key] == pytest.approx(p, rel=1e-4)

  @pytest.mark.parametrize("sampling", SAMPLINGS)
  def test_frequencies_equal_probabilities(self, sampling):
    buffer, _, _ = filled_buffer(length=60, sampling=sampling, priority_exponent=0.7)
    found = probabilities(buffer)
    draws = 200_000
    drawn = drawn_positions(buffer, buffer.sample(draws))
    keys = list(found)
    counts = np.bincount([keys.index(key) for key in drawn], minlength=len(keys))
    expected = draws * np.asarray([found[key] for key in keys])
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    # χ² has 65 degrees of freedom, hence mean 65 and standard deviation 11.
    assert chi_square < 65 + 5 * 11

  @pytest.mark.parametrize("sampling", PRIORITIZED)
  @pytest.mark.parametrize("exponent", [0.6, 2.0])
  def test_a_higher_priority_never_lowers_a_probability(self, sampling, exponent):
    rng = np.random.default_rng(1)
    keys = [(lane, i) for lane in range(2) for i in range(25)]
    for _ in range(8):
      # With only six different values, there are ties.
      delta = dict(zip(keys, rng.integers(0, 6, len(keys)).astype(float), strict=True))
      key, raised = keys[rng.integers(len(keys))], float(rng.integers(1, 4))
      found = []
      for extra in (0.0, raised):
        buffer, _, _ = filled_buffer(sampling=sampling, priority_exponent=exponent, priority_epsilon=0.1)
        renew(buffer, delta | {key: delta[key] + extra})
        batch = buffer.sample(6000)
        drawn = drawn_positions(buffer, batch)
        # A step that is never drawn in 6000 draws counts as probability 0.
        ratio = batch.importance_ratio[drawn.index(key)] if key in drawn else np.inf
        found.append(1 / ratio)
      assert found[1] >= found[0] * (1 - 1e-6)

  def test_ranks_are_not_an_argsort(self):
    buffer, _, _ = filled_buffer(sampling="rank", priority_exponent=1.0, lanes=1)
    # For these values, the argsort differs from the ranks.
    values = [3.0, 9.0, 1.0, 7.0, 5.0] + [0.001 * (20 - j) for j in range(20)]
    renew(buffer, {(0, i): value for i, value in enumerate(values)})
    found = probabilities(buffer)
    top = found[0, 1]
    for rank, i in enumerate([1, 3, 4, 0, 2, *range(5, 25)], start=1):
      assert found[0, i] == pytest.approx(top / rank, rel=1e-4)


class TestImportanceRatio:
  @pytest.mark.parametrize("sampling", PRIORITIZED)
  def test_ratio_is_computed_at_each_draw(self, sampling):
    buffer, _, _ = filled_buffer(sampling=sampling, rank_refresh_updates=1)
    keys = [(lane, i) for lane in range(2) for i in range(25)]
    renew(buffer, {key: 1.0 + n for n, key in enumerate(keys)})
    before = probabilities(buffer)
    # All other steps get a higher δ than the last one, which is then drawn less often.
    renew(buffer, {key: 100.0 + n for n, key in enumerate(keys[:-1])})
    after = probabilities(buffer)
    assert after[keys[-1]] < 0.5 * before[keys[-1]]

  def test_ratio_of_uniform_sampling_is_one(self):
    batch = filled_buffer()[0].sample(50)
    assert batch.importance_ratio.tolist() == [1.0] * 50

  @pytest.mark.parametrize("sampling", PRIORITIZED)
  def test_beta_and_normalisation(self, sampling):
    plain = filled_buffer(sampling=sampling)[0].sample_many(3, 20)
    half = filled_buffer(sampling=sampling, importance_exponent=0.5)[0].sample_many(3, 20)
    scaled = filled_buffer(sampling=sampling, normalize_importance=True)[0].sample_many(3, 20)
    np.testing.assert_array_equal(plain.slot, half.slot)
    np.testing.assert_allclose(half.importance_ratio, np.sqrt(plain.importance_ratio), rtol=1e-6)
    np.testing.assert_allclose(
      scaled.importance_ratio,
      plain.importance_ratio / plain.importance_ratio.max(axis=1, keepdims=True),
      rtol=1e-6,
    )
    assert scaled.importance_ratio.max(axis=1).tolist() == [1, 1, 1]

  @pytest.mark.parametrize("sampling", SAMPLINGS)
  def test_weighted_mean_is_the_uniform_mean(self, sampling):
    buffer, lanes, _ = filled_buffer(length=60, sampling=sampling)
    batch = buffer.sample(100_000)
    truth = np.mean([lane[i].value for lane in lanes for i in range(22, 55)])
    assert (batch.importance_ratio * batch.root_values[:, 0]).mean() == pytest.approx(truth, abs=0.02)


class TestUpdates:
  @pytest.mark.parametrize("sampling", SAMPLINGS)
  def test_stale_updates_are_dropped(self, sampling):
    spec = make_spec()
    lanes = random_lanes(0, 2, 75, spec)
    buffer = make_buffer(spec, sampling=sampling)
    fill(buffer, lanes, spec, [16, 32])
    batch = buffer.sample(64)
    index = batch.sequence
    fill_more = segment_of(lanes, 32, 60, spec)
    buffer.add(fill_more, 0)
    before = priorities(buffer)
    # The rings now have steps 20 … 59, of which those from 22 on have a complete history.
    is_fresh = index >= 22
    assert 0 < is_fresh.sum() < 64
    assert buffer.update_priorities(batch.slot, batch.sequence, np.full(64, 1000.0)) == is_fresh.sum()
    after = priorities(buffer)
    touched = {key for key in after if after[key] != before[key]}
    assert touched == {key for key in drawn_positions(buffer, batch) if key[1] >= 22}
    assert all(after[key] == 1000.0 for key in touched)
    assert buffer.stats()["replay/stale"] == (~is_fresh).sum()
    assert_valid(buffer)

  def test_not_finite_deltas_are_dropped(self):
    buffer, _, _ = filled_buffer(sampling="proportional")
    batch = buffer.sample(3)
    before = priorities(buffer)
    delta = np.asarray([np.nan, np.inf, -np.inf])
    assert buffer.update_priorities(batch.slot, batch.sequence, delta) == 0
    assert priorities(buffer) == before
    assert buffer.stats()["replay/refused"] == 3

  def test_the_last_delta_of_a_repeated_step_counts(self):
    buffer, _, _ = filled_buffer(sampling="proportional")
    batch = buffer.sample(1)
    slot, sequence = np.tile(batch.slot, (2, 2)), np.tile(batch.sequence, (2, 2))
    assert buffer.update_priorities(slot, sequence, np.asarray([[4.0, 3.0], [2.0, 7.0]])) == 4
    assert priorities(buffer)[drawn_positions(buffer, batch)[0]] == 7.0
    assert_valid(buffer)

  def test_proportional_updates_immediately_and_rank_at_the_next_sort(self):
    key = (1, 7)
    for sampling, at_once in (("proportional", True), ("rank", False)):
      buffer, _, _ = filled_buffer(sampling=sampling, rank_refresh_updates=3, priority_exponent=1.0)
      buffer.sample(1)
      renew(buffer, {key: 1e6})
      drawn = drawn_positions(buffer, buffer.sample_many(2, 2000))
      assert (drawn.count(key) > 800) == at_once
      drawn = drawn_positions(buffer, buffer.sample(2000))
      assert drawn.count(key) > 400


class TestRankOrderBetweenSorts:
  def sorted_once(self, **options):
    """Returns a buffer with full rings of 400 steps, ranked at step 600; also its lanes and the spec."""
    spec = make_spec()
    lanes = random_lanes(0, 2, 900, spec)
    buffer = make_buffer(spec, lane_capacity=400, sampling="rank", rank_refresh_updates=10**6, **options)
    fill(buffer, lanes, spec, list(range(50, 601, 50)))
    buffer.sample(1)
    return buffer, lanes, spec

  def test_new_steps_wait_and_removed_ones_are_redrawn(self):
    buffer, lanes, spec = self.sorted_once()
    buffer.add(segment_of(lanes, 600, 630, spec), 0)
    found = probabilities(buffer, draws=150_000)
    # Steps 202 … 594 were ranked; those before 232 have since lost their history. Later steps have no rank.
    assert found.keys() == {(lane, i) for lane in range(2) for i in range(232, 595)}
    assert_valid(buffer)

  def test_probabilities_keep_their_proportions(self):
    buffer, lanes, spec = self.sorted_once(priority_exponent=0.4)
    before = probabilities(buffer, draws=150_000)
    buffer.add(segment_of(lanes, 600, 620, spec), 0)
    after = probabilities(buffer, draws=150_000)
    left = sum(before[key] for key in after)
    assert left < 0.99
    for key, p in after.items():
      assert p == pytest.approx(before[key] / left, rel=1e-4)

  def test_many_waiting_steps_cause_an_early_sort(self):
    buffer, lanes, spec = self.sorted_once()
    buffer.add(segment_of(lanes, 600, 650, spec), 0)
    assert max(i for _, i in drawn_positions(buffer, buffer.sample(20_000))) == 644

  def test_sort_period(self):
    spec = make_spec()
    lanes = random_lanes(0, 2, 640, spec)
    buffer = make_buffer(spec, lane_capacity=400, sampling="rank", rank_refresh_updates=8)
    fill(buffer, lanes, spec, list(range(50, 601, 50)))
    buffer.sample_many(4, 10)
    buffer.add(segment_of(lanes, 600, 630, spec), 0)
    assert buffer.sample_many(4, 5000).sequence.max() == 594
    assert buffer.sample_many(4, 5000).sequence.max() == 624
    # The ranks were sorted by the last call; the refresh period starts again.
    buffer.add(segment_of(lanes, 630, 640, spec), 0)
    assert buffer.sample_many(4, 5000).sequence.max() == 624
    assert buffer.sample_many(4, 5000).sequence.max() == 634


class TestWriteBack:
  def key_slot(self, buffer, lane, i):
    return lane * buffer.lane_capacity + i % buffer.lane_capacity

  def write(self, buffer, keys, value=5.0, sequence=None):
    slot = np.asarray([self.key_slot(buffer, *key) for key in keys])
    index = np.asarray([i for _, i in keys]) if sequence is None else sequence
    probs = np.tile(np.float32([0.0, 0.125, 0.875]), (len(keys), 1))
    return buffer.write_back(slot, index, np.full(len(keys), value, np.float32), probs, 77)

  def made(self, end=None, truncated=False, num_players=1, sampling="proportional"):
    """Returns a buffer with a ring of 40, and its lane of 60 steps with an episode end; every δ is 100."""
    spec = make_spec(num_players=num_players)
    lanes = random_lanes(0, 1, 60, spec, end_probability=0.0)
    if end is not None:
      step = lanes[0][end]
      step.is_last, step.is_truncated, step.action = True, truncated, 0
      if not truncated:
        step.value, step.probs = 0.0, [1.0, 0.0, 0.0]
      lanes[0][end + 1].is_first = True
    buffer = make_buffer(spec, lanes=1, sampling=sampling)
    fill(buffer, lanes, spec, [20, 40, 60])
    renew(buffer, {(0, i): 100.0 for i in range(22, 55)})
    return buffer, lanes

  def renewed(self, buffer):
    return {i for (_, i), delta in priorities(buffer).items() if 22 <= i < 55 and delta != 100.0}

  def test_targets_use_new_values_immediately(self):
    buffer, lanes = self.made()
    assert self.write(buffer, [(0, 30)]) == 1
    lanes[0][30].value, lanes[0][30].probs = 5.0, [0.0, 0.125, 0.875]

    batch = buffer.sample(500)
    for row, (_, i) in enumerate(drawn_positions(buffer, batch)):
      expected = oracle_target(lanes[0], i, 2, 3, 0.9)
      for name in ("root_values", "n_step_returns", "action_probs"):
        np.testing.assert_allclose(getattr(batch, name)[row], expected[name], rtol=1e-5, atol=1e-5)
      assert batch.searched_version[row] == (77 if i == 30 else 0)
      assert batch.acted_version[row] == i

  @pytest.mark.parametrize("num_players", [1, 2])
  def test_refreshes_the_step_and_the_one_that_bootstraps_from_it(self, num_players):
    buffer, lanes = self.made(num_players=num_players)
    self.write(buffer, [(0, 30)])
    assert self.renewed(buffer) == {27, 30}
    lanes[0][30].value = 5.0
    for i in (27, 30):
      gap = abs(lanes[0][i].value - oracle_return(lanes[0], i, 3, 0.9))
      assert priorities(buffer)[0, i] == pytest.approx(gap, abs=1e-5)
    assert_valid(buffer)

  def test_probabilities_follow(self):
    buffer, _ = self.made()
    self.write(buffer, [(0, 30)])
    found = probabilities(buffer)
    assert {i for (_, i), p in found.items() if p < 0.9 * max(found.values())} == {27, 30}

  @pytest.mark.parametrize("truncated", [False, True])
  @pytest.mark.parametrize("end", [27, 28, 29])
  def test_refreshes_nothing_across_an_end(self, end, truncated):
    buffer, _ = self.made(end=end, truncated=truncated)
    self.write(buffer, [(0, 30)])
    assert self.renewed(buffer) == {30}

  def test_an_end_before_the_bootstrapping_step_does_not_matter(self):
    buffer, _ = self.made(end=26)
    self.write(buffer, [(0, 30)])
    assert self.renewed(buffer) == {27, 30}

  def test_refreshes_all_steps_that_bootstrap_at_a_truncation(self):
    buffer, lanes = self.made(end=30, truncated=True)
    self.write(buffer, [(0, 30)])
    assert self.renewed(buffer) == {27, 28, 29, 30}
    lanes[0][30].value = 5.0
    for i in (27, 28, 29, 30):
      gap = abs(lanes[0][i].value - oracle_return(lanes[0], i, 3, 0.9))
      assert priorities(buffer)[0, i] == pytest.approx(gap, abs=1e-5)

  def test_a_terminal_frame_keeps_value_zero_and_the_dummy(self):
    buffer, _ = self.made(end=30)
    assert self.write(buffer, [(0, 30)]) == 1
    step = buffer.storage.trajectory(0, 30, 31)
    assert step.root_value.tolist() == [0]
    assert step.action_probs.tolist() == [[1, 0, 0]]
    assert step.searched_version.tolist() == [77]

  def test_steps_at_the_edges_of_the_ring(self):
    # Searches are stored for all steps of the ring, even for the oldest, 20, and the newest, 59.
    buffer, _ = self.made()
    assert self.write(buffer, [(0, 20), (0, 24), (0, 59)]) == 3
    # A search changes the δ of its step and of the step n = 3 earlier. Steps 20 and 21 have lost their
    # history, and steps 56 and 59 are not yet eligible, so only step 24 gets a new δ.
    assert self.renewed(buffer) == {24}
    assert buffer.storage.trajectory(0, 20, 60).root_value[[0, 4, 39]].tolist() == [5.0, 5.0, 5.0]
    assert_valid(buffer)

  @pytest.mark.parametrize("sampling", SAMPLINGS)
  def test_stale_updates_are_dropped(self, sampling):
    buffer, _lanes = self.made(sampling=sampling)
    before = buffer.storage.trajectory(0, 20, 60).root_value
    # Step 15 was overwritten by step 55.
    assert self.write(buffer, [(0, 55), (0, 30)], sequence=np.asarray([15, 30])) == 1
    after = buffer.storage.trajectory(0, 20, 60).root_value
    assert (np.flatnonzero(after != before) + 20).tolist() == [30]
    assert buffer.stats()["replay/stale"] == 1
    assert_valid(buffer)

  def test_not_finite_results_are_refused(self):
    buffer, _ = self.made()
    with pytest.raises(ValueError, match="finite"):
      self.write(buffer, [(0, 30)], value=np.nan)
    assert self.renewed(buffer) == set()

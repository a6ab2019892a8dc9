"""Tests of replay's histograms."""

import numpy as np
import pytest

from tests.replay.replay_lanes import SAMPLINGS, filled_buffer, make_buffer


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_probability_is_that_of_the_draws(sampling):
  buffer, _, _ = filled_buffer(sampling=sampling)
  # The draw comes first, because it sorts the ranks.
  slot, probability, _ = buffer._sampler.draw(np.random.default_rng(0), 4, 16)
  np.testing.assert_allclose(buffer._sampler.probability(slot), probability)
  everything = buffer.storage.eligible_slots()
  assert buffer._sampler.probability(everything).sum() == pytest.approx(1.0)


def test_steps_without_a_rank_have_probability_zero():
  buffer, _, _ = filled_buffer(sampling="rank")
  assert buffer._sampler.probability(buffer.storage.eligible_slots()).tolist() == [0.0] * buffer.num_eligible


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_histograms_are_of_the_eligible_steps(sampling):
  buffer, _, _ = filled_buffer(sampling=sampling)
  buffer.sample(8)
  found = buffer.histograms()
  assert list(found) == ["replay/delta", "replay/priority"]
  for histogram in found.values():
    assert histogram.counts.sum() == buffer.num_eligible
  stats = buffer.stats()
  assert found["replay/delta"].total / buffer.num_eligible == pytest.approx(stats["replay/delta_mean"])
  assert found["replay/delta"].edges[-1] == pytest.approx(stats["replay/delta_max"])
  # Priorities are in multiples of 1/N, so their mean is 1.
  assert found["replay/priority"].total / buffer.num_eligible == pytest.approx(1.0)


def test_an_empty_buffer_has_no_histograms():
  assert make_buffer().histograms() == {}

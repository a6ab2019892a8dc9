"""Tests that seeds and random states equal NumPy's."""

import copy

import numpy as np
import pytest

from moozi.core import seed_streams
from moozi.core.seed_streams import SeededState, SpawnedSeeds

SEEDS = (0, 1, 2**32 - 1, 2**32, 2**63 + 12345, 2**64 - 1, 2**96, 2**128 - 1)


@pytest.fixture(params=["copied", "read by NumPy"])
def states(request, monkeypatch):
  if request.param != "copied":
    monkeypatch.setattr(seed_streams, "_memory_of", lambda bits: None)
  return SeededState()


def assert_equals_numpy(found, seed):
  expected = np.random.RandomState(np.random.MT19937(np.random.SeedSequence(seed)))
  for a, b in zip(found.get_state(), expected.get_state(), strict=True):
    np.testing.assert_array_equal(a, b)
  # More numbers than the words of the state, of several kinds. A normal number too many is kept for later.
  for draw in (lambda x: x.rand(1000), lambda x: x.randint(10, size=1000), lambda x: x.normal(size=9)):
    np.testing.assert_array_equal(draw(found), draw(expected))


def test_random_states_are_those_of_numpy(states):
  for seed in SEEDS:
    assert_equals_numpy(states.seed(seed), seed)


def test_words_are_copied_with_this_numpy():
  assert seed_streams._memory_of(np.random.MT19937(5)) is not None


def test_a_copy_is_seeded_alone(states):
  own = states.seed(1)
  other = copy.deepcopy(states).seed(2)
  assert_equals_numpy(own, 1)
  assert_equals_numpy(other, 2)


def test_a_negative_seed(states):
  with pytest.raises(ValueError, match="non-negative"):
    states.seed(-1)


@pytest.mark.parametrize("entropy", SEEDS)
def test_spawned_seeds_are_those_of_numpy(entropy):
  seeds = SpawnedSeeds(entropy)
  for n in (0, 1, 2, 1000, 2**31, 2**32 - 1):
    expected = np.random.SeedSequence(entropy, spawn_key=(n,)).generate_state(1, np.uint64)
    assert seeds.seed(n) == expected.item()


@pytest.mark.parametrize("entropy", [-1, 2**128])
def test_entropy_outside_the_range(entropy):
  with pytest.raises(ValueError, match=f"entropy={entropy}: must be from 0"):
    SpawnedSeeds(entropy)

"""Child seeds: the seed of a part of a run depends on the run's seed and the part, not on its process."""

from collections.abc import Sequence

import numpy as np

NUM_SEEDS = 2**31
"""A run's seed is from 0 to NUM_SEEDS - 1."""

_ROLES = ("learner", "replay", "training_env", "training_search", "reanalyze", "past_selves")


def are_seeds(numbers: Sequence[int]) -> bool:
  """Returns whether the numbers are different seeds of runs; false if there are none."""
  return bool(numbers) and 0 <= min(numbers) <= max(numbers) < NUM_SEEDS and len(set(numbers)) == len(numbers)


def child_seed(seed: int, role: str, index: int = 0, began_at: int = 0) -> int:
  """Returns a 31-bit seed for one part of a run.

  Args:
    seed: the run's seed.
    role: one of learner, replay, training_env, training_search, reanalyze, past_selves.
    index: index among the parts of this role, such as the worker's.
    began_at: number of environment steps of the run when the part was restarted; 0 for the run's start.

  Raises: ValueError: an unknown role.
  """
  spawn_key = (_ROLES.index(role), index, began_at) if began_at else (_ROLES.index(role), index)
  sequence = np.random.SeedSequence(entropy=seed, spawn_key=spawn_key)
  return int(sequence.generate_state(1, np.uint32)[0] >> 1)

"""One seed a run; every part has its own child of it, by role and index, whatever process it lies in."""

import numpy as np

_ROLES = ("learner", "replay", "training_env", "training_search", "reanalyze")


def child_seed(seed: int, role: str, index: int = 0, began_at: int = 0) -> int:
  """A 31-bit seed for one part of a run.

  Args:
    seed: the run's.
    role: one of learner, replay, training_env, training_search, reanalyze.
    index: which worker.
    began_at: the run's environment steps when the part was made anew; 0 is the run's start.

  Raises:
    ValueError: an unknown role.
  """
  spawn_key = (_ROLES.index(role), index, began_at) if began_at else (_ROLES.index(role), index)
  sequence = np.random.SeedSequence(entropy=seed, spawn_key=spawn_key)
  return int(sequence.generate_state(1, np.uint32)[0] >> 1)

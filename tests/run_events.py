"""Reads the events of a run, compares training states, and replaces the clock of a run."""

import jax
import numpy as np

from moozi.run.events import StateReady


class Clock:
  """Stands in for the module `time` in `moozi.run.session`: the test advances it."""

  now = 1000.0

  def monotonic(self) -> float:
    return self.now


def first_checkpoint(events) -> int:
  """Returns the index of the first saved state that is not that of a best evaluation."""
  return next(i for i, e in enumerate(events) if isinstance(e, StateReady) and not e.is_best)


def final_state(events):
  """Returns the state of the run's last checkpoint."""
  return next(e.state for e in events if isinstance(e, StateReady) and e.is_final)


def assert_equal_trees(first, second) -> None:
  """Asserts that two trees have one structure and equal arrays, to the bit."""
  jax.tree_util.tree_map(np.testing.assert_array_equal, first, second)

"""How values are spread: a histogram small enough to travel."""

import dataclasses
from typing import Any

import numpy as np

_NUM_BINS = 40


@dataclasses.dataclass(frozen=True, kw_only=True)
class Histogram:
  """Counts of values between edges.

  Attributes:
    edges: [n + 1] float64, rising; the first is the smallest value and the last the largest.
    counts: [n] int64.
    total, total_of_squares: of the values.
  """

  edges: np.ndarray
  counts: np.ndarray
  total: float
  total_of_squares: float


def histogram_of(values: Any) -> Histogram | None:
  """The histogram of an array's finite values; None where there are none."""
  values = np.asarray(values, np.float64).ravel()
  values = values[np.isfinite(values)]
  if not values.size:
    return None
  low, high = float(values.min()), float(values.max())
  # One bin for values that are all the same, or so near that there is no number between them.
  edges = np.unique(np.linspace(low, high, _NUM_BINS + 1))
  if len(edges) < 2:
    edges = np.array([low, high])
  counts = np.array([values.size]) if low == high else np.histogram(values, edges)[0]
  return Histogram(
    edges=edges,
    counts=counts,
    total=float(values.sum()),
    total_of_squares=float(np.square(values).sum()),
  )

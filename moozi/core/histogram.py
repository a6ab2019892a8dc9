"""Histograms of at most 40 bins, which processes send to each other."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

_NUM_BINS = 40


@dataclasses.dataclass(frozen=True, kw_only=True)
class Histogram:
  """Counts of values in bins between E edges.

  Attributes:
    edges: ascending; the first is the smallest value and the last the largest.
    counts: number of values in each bin.
    total, total_of_squares: sums of the values and of their squares.
  """

  edges: Float64[np.ndarray, "E"]
  counts: Int64[np.ndarray, "E-1"]
  total: float
  total_of_squares: float


def histogram_of(values: Any) -> Histogram | None:
  """Returns the histogram of the finite values; None if there are none."""
  values = np.asarray(values, np.float64).ravel()
  values = values[np.isfinite(values)]
  if not values.size:
    return None
  low, high = float(values.min()), float(values.max())
  # There is one bin if all values are equal, or if no float is between the lowest and the highest.
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


def merged(parts: Sequence[Mapping[str, Histogram]]) -> dict[str, Histogram]:
  """Returns the histograms of all parts by name. Several of one name are added, with new bins.

  Their values are counted at the centres of the old bins; extremes, number and sums are exact.
  """
  found: dict[str, list[Histogram]] = {}
  for part in parts:
    for name, histogram in part.items():
      found.setdefault(name, []).append(histogram)
  return {name: same[0] if len(same) == 1 else _sum(same) for name, same in found.items()}


def _sum(histograms: Sequence[Histogram]) -> Histogram:
  ends = np.array([(histogram.edges[0], histogram.edges[-1]) for histogram in histograms])
  like = histogram_of(ends)
  assert like is not None
  edges = like.edges
  centres = np.concatenate([(x.edges[:-1] + x.edges[1:]) / 2 for x in histograms])
  weights = np.concatenate([x.counts for x in histograms])
  counts = (
    np.array([weights.sum()]) if edges[0] == edges[-1] else np.histogram(centres, edges, weights=weights)[0]
  )
  return Histogram(
    edges=edges,
    counts=counts.astype(np.int64),
    total=sum(x.total for x in histograms),
    total_of_squares=sum(x.total_of_squares for x in histograms),
  )

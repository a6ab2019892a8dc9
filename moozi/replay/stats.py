"""What is worth telling about replay: figures for each tick, and how priorities are spread. No JAX."""

from collections.abc import Mapping

import numpy as np

from moozi.core.histogram import Histogram, histogram_of
from moozi.replay.sampling import Sampler
from moozi.replay.storage import LaneStorage

_MOST_STEPS = 4096


def replay_stats(storage: LaneStorage, delta: np.ndarray, counters: Mapping[str, int]) -> dict[str, float]:
  """The state of replay now, and its counts since the start; δ from a spread of steps.

  Args:
    storage: where the steps lie.
    delta: priorities by slot.
    counters: the counts.
  """
  shown = delta[_some_slots(storage)]
  num_bytes = sum(x.nbytes for x in storage.arrays.values())
  return {
    "replay/steps": float(storage.num_steps),
    "replay/fill": storage.num_steps / storage.size,
    "replay/eligible": float(storage.num_eligible),
    "replay/delta_mean": float(shown.mean()) if shown.size else 0.0,
    "replay/delta_max": float(shown.max()) if shown.size else 0.0,
    "replay/mib": num_bytes / 2**20,
  } | {f"replay/{name}": float(count) for name, count in counters.items()}


def replay_histograms(storage: LaneStorage, delta: np.ndarray, sampler: Sampler) -> dict[str, Histogram]:
  """How δ is spread, and how often steps are drawn, in multiples of an even draw; none without steps."""
  slot = _some_slots(storage)
  if not slot.size:
    return {}
  found = {
    "replay/delta": histogram_of(delta[slot]),
    "replay/priority": histogram_of(sampler.probability(slot) * storage.num_eligible),
  }
  return {name: histogram for name, histogram in found.items() if histogram is not None}


def _some_slots(storage: LaneStorage) -> np.ndarray:
  """Up to 4096 eligible slots, spread evenly over them all."""
  count = storage.num_eligible
  spread = np.linspace(0, count, min(count, _MOST_STEPS), endpoint=False).astype(np.int64)
  return storage.nth_eligible(spread)

"""How replay draws start indices: three samplers behind one interface, chosen by config. No JAX.

Each sampler is told which slots became eligible (`insert`), ceased to be (`remove`) or got a new
priority (`renew`), and answers a draw with slots, the probability that each was drawn with, and how
many could have been drawn.
"""

from typing import Protocol

import numpy as np

from moozi.core.config import ReplayConfig
from moozi.ops.sampling import SumTree, order_by_priority, rank_weights
from moozi.replay.storage import LaneStorage

# Rank order is sorted early when more than this share of the eligible steps waits for a rank …
_WAITING_SHARE = 0.1
# … or when more than this share of the probability mass belongs to ranks that are gone.
_GONE_SHARE = 0.5


class Sampler(Protocol):
  """What ReplayBuffer asks of a sampler. `delta` is the buffer's array of priorities, by slot."""

  def insert(self, slot: np.ndarray) -> None: ...

  def remove(self, slot: np.ndarray) -> None: ...

  def renew(self, slot: np.ndarray) -> None: ...

  def draw(
    self, rng: np.random.Generator, num_batches: int, batch_size: int
  ) -> tuple[np.ndarray, np.ndarray, int]: ...

  def probability(self, slot: np.ndarray) -> np.ndarray: ...

  def check_valid(self) -> None: ...

  def get_state(self) -> dict[str, np.ndarray]: ...

  def set_state(self, state: dict[str, np.ndarray]) -> None: ...


def make_sampler(config: ReplayConfig, storage: LaneStorage, delta: np.ndarray) -> Sampler:
  """The sampler that `config.sampling` names."""
  if config.sampling == "uniform":
    return UniformSampler(storage)
  if config.sampling == "proportional":
    return ProportionalSampler(config, storage, delta)
  return RankSampler(config, storage, delta)


class UniformSampler:
  """Every eligible step with the same probability. It keeps nothing: lanes say what is eligible."""

  def __init__(self, storage: LaneStorage) -> None:
    self._storage = storage

  def insert(self, slot: np.ndarray) -> None:
    """Nothing to do."""

  def remove(self, slot: np.ndarray) -> None:
    """Nothing to do."""

  def renew(self, slot: np.ndarray) -> None:
    """Nothing to do."""

  def draw(
    self, rng: np.random.Generator, num_batches: int, batch_size: int
  ) -> tuple[np.ndarray, np.ndarray, int]:
    """(slots [U * B] int64, probabilities [U * B] float64, N)."""
    count = self._storage.num_eligible
    number = rng.integers(count, size=num_batches * batch_size)
    return self._storage.nth_eligible(number), np.full(number.shape, 1.0 / count), count

  def probability(self, slot: np.ndarray) -> np.ndarray:
    """[M] float64: that an eligible slot is drawn, now."""
    return np.full(len(slot), 1.0 / self._storage.num_eligible)

  def check_valid(self) -> None:
    """Nothing that could be wrong."""

  def get_state(self) -> dict[str, np.ndarray]:
    """Empty."""
    return {}

  def set_state(self, state: dict[str, np.ndarray]) -> None:
    """Nothing to take."""


class ProportionalSampler:
  """P(i) ∝ (δ_i + ε)^α over the eligible steps, by a sum tree over all slots.

  Source: Schaul et al. 2016, proportional variant, with the thesis's δ. Departures: none.
  """

  def __init__(self, config: ReplayConfig, storage: LaneStorage, delta: np.ndarray) -> None:
    self._config, self._storage, self._delta = config, storage, delta
    self._tree = SumTree(storage.size)

  def insert(self, slot: np.ndarray) -> None:
    """Gives slots their weight."""
    delta = self._delta[slot].astype(np.float64)
    self._tree.assign(slot, (delta + self._config.priority_epsilon) ** self._config.priority_exponent)

  def remove(self, slot: np.ndarray) -> None:
    """Takes their weight."""
    self._tree.assign(slot, 0.0)

  def renew(self, slot: np.ndarray) -> None:
    """A new δ counts at once."""
    self.insert(slot)

  def draw(
    self, rng: np.random.Generator, num_batches: int, batch_size: int
  ) -> tuple[np.ndarray, np.ndarray, int]:
    """(slots [U * B] int64, probabilities [U * B] float64, N)."""
    total = self._tree.total
    slot = self._tree.find(rng.random(num_batches * batch_size) * total)
    return slot, self._tree.leaves[slot] / total, self._storage.num_eligible

  def probability(self, slot: np.ndarray) -> np.ndarray:
    """[M] float64: that an eligible slot is drawn, now."""
    return self._tree.leaves[slot] / self._tree.total

  def check_valid(self) -> None:
    """Raises ValueError where weights lie on other slots than the eligible ones."""
    if not np.array_equal(np.flatnonzero(self._tree.leaves), self._storage.eligible_slots()):
      raise ValueError("sum tree: its weights do not lie on exactly the eligible steps")

  def get_state(self) -> dict[str, np.ndarray]:
    """The weights."""
    return {"weights": self._tree.leaves.copy()}

  def set_state(self, state: dict[str, np.ndarray]) -> None:
    """Takes the weights."""
    self._tree.assign_all(state["weights"])


class RankSampler:
  """P(i) ∝ (1 / rank(i))^α, rank 1 having the largest δ; ranks are those of the last sort.

  A sort comes every `rank_refresh_updates` batches, and early where many steps wait for a rank or much
  of the mass is gone. In between, ranks whose step is gone are redrawn: P is renewed over the others.

  Source: Schaul et al. 2016, rank-based variant. Departures: no stratification; ranks are as old as
    the last sort; equal δ are ordered at random instead of by arrival.
  """

  def __init__(self, config: ReplayConfig, storage: LaneStorage, delta: np.ndarray) -> None:
    self._config, self._storage, self._delta = config, storage, delta
    self._weights = rank_weights(storage.size, config.priority_exponent)
    self._cumulative = np.cumsum(self._weights)
    self._order = np.zeros(0, np.int64)
    self._rank_of = np.full(storage.size, -1, np.int32)  # 0 is the highest; -1: none since the last sort
    self._count, self._mass, self._batches = 0, 0.0, 0

  def insert(self, slot: np.ndarray) -> None:
    """Waits for the next sort."""

  def renew(self, slot: np.ndarray) -> None:
    """Waits for the next sort."""

  def remove(self, slot: np.ndarray) -> None:
    """Takes the ranks of slots out of the draw."""
    rank = self._rank_of[slot]
    rank = rank[rank >= 0]
    self._rank_of[slot] = -1
    self._count -= len(rank)
    self._mass -= float(self._weights[rank].sum())

  def _is_due(self) -> bool:
    eligible = self._storage.num_eligible
    return (
      self._count == 0
      or self._batches >= self._config.rank_refresh_updates
      or eligible - self._count > _WAITING_SHARE * eligible
      or self._mass < (1 - _GONE_SHARE) * self._cumulative[len(self._order) - 1]
    )

  def _sort(self, salt: int) -> None:
    slot = self._storage.eligible_slots()
    self._order = order_by_priority(slot, self._delta[slot], salt)
    self._rank_of.fill(-1)
    self._rank_of[self._order] = np.arange(len(slot), dtype=np.int32)
    self._count, self._mass, self._batches = len(slot), float(self._cumulative[len(slot) - 1]), 0

  def draw(
    self, rng: np.random.Generator, num_batches: int, batch_size: int
  ) -> tuple[np.ndarray, np.ndarray, int]:
    """(slots [U * B] int64, probabilities [U * B] float64, N)."""
    if self._is_due():
      self._sort(int(rng.integers(1 << 32)))
    self._batches += num_batches
    table = self._cumulative[: len(self._order)]
    rank = np.zeros(num_batches * batch_size, np.int64)
    wanting = np.arange(rank.size)
    while wanting.size:
      found = np.searchsorted(table, rng.random(wanting.size) * table[-1], side="right")
      rank[wanting] = np.minimum(found, len(table) - 1)
      wanting = wanting[self._rank_of[self._order[rank[wanting]]] != rank[wanting]]
    return self._order[rank], self._weights[rank] / self._mass, self._count

  def probability(self, slot: np.ndarray) -> np.ndarray:
    """[M] float64: that an eligible slot is drawn, now; 0 while it waits for its rank."""
    rank = self._rank_of[slot]
    return np.where(rank >= 0, self._weights[rank], 0.0) / max(self._mass, 1e-300)

  def check_valid(self) -> None:
    """Raises ValueError where a rank lies on a step that is not eligible, or the mass does not add up."""
    ranked = np.flatnonzero(self._rank_of >= 0)
    if not self._storage.is_eligible(ranked).all() or len(ranked) != self._count:
      raise ValueError("rank table: a rank lies on a step that no target can start at")
    if not np.isclose(self._weights[self._rank_of[ranked]].sum(), self._mass):
      raise ValueError("rank table: the mass is not the sum of its weights")

  def get_state(self) -> dict[str, np.ndarray]:
    """The order since the last sort."""
    numbers = np.array([self._count, self._batches], np.int64)
    out = {"order": self._order, "rank_of": self._rank_of, "numbers": numbers, "mass": np.float64(self._mass)}
    return {name: np.array(value) for name, value in out.items()}

  def set_state(self, state: dict[str, np.ndarray]) -> None:
    """Takes the order."""
    self._order = np.array(state["order"], np.int64)
    self._rank_of[:] = state["rank_of"]
    self._count, self._batches = (int(x) for x in state["numbers"])
    self._mass = float(state["mass"])

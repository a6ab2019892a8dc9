"""Samplers of the slots where targets start: uniform, proportional and rank-based. Imports no JAX."""

import numpy as np
from jaxtyping import Float, Int

from moozi.core.config import ReplayConfig
from moozi.core.flat_state import State
from moozi.ops.sampling import SumTree, order_by_priority, rank_weights
from moozi.replay.storage import LaneStorage

# Steps are ranked again early if more than this share of the eligible steps has no rank yet.
_UNRANKED_SHARE = 0.1
# Steps are also ranked again early if removed steps hold more than this share of the probability mass.
_REMOVED_SHARE = 0.5

Drawn = tuple[Int[np.ndarray, "M"], Float[np.ndarray, "M"], int]
"""Slots, their probabilities, and the number of steps that could be drawn."""


class UniformSampler:
  """Draws every eligible step with the same probability; the base class of samplers.

  ReplayBuffer calls `update` for slots that become eligible or change δ, and `remove` for slots that become
  ineligible. Uniform sampling keeps no state.
  """

  def __init__(self, storage: LaneStorage) -> None:
    self._storage = storage

  def update(self, slot: Int[np.ndarray, "M"]) -> None:
    """Adds slots that became eligible, and reads the new δ of slots."""

  def remove(self, slot: Int[np.ndarray, "M"]) -> None:
    """Removes slots that are no longer eligible."""

  def mass(self) -> tuple[int, float]:
    """Returns the number of slots from which the next draw is made, and the sum of their weights.

    The weights of samplers with the same settings can be compared, so that several samplers can share a draw.
    """
    return self._storage.num_eligible, float(self._storage.num_eligible)

  def draw(self, rng: np.random.Generator, num_batches: int, batch_size: int) -> Drawn:
    """Draws `num_batches * batch_size` slots with replacement."""
    count = self._storage.num_eligible
    number = rng.integers(count, size=num_batches * batch_size)
    return self._storage.nth_eligible(number), np.full(number.shape, 1.0 / count), count

  def probability(self, slot: Int[np.ndarray, "M"]) -> Float[np.ndarray, "M"]:
    """Returns the probability with which each eligible slot is drawn now."""
    return np.full(len(slot), 1.0 / self._storage.num_eligible)

  def get_state(self) -> State:
    """Returns a copy of the state. A sampler restored from it makes equal draws from equal random numbers."""
    return {}

  def set_state(self, state: State) -> None:
    """Restores a state that `get_state` returned."""


class ProportionalSampler(UniformSampler):
  """Draws eligible steps with probability P(i) ∝ (δ_i + ε)^α, from a sum tree over all slots.

  Source: Schaul et al. 2016, proportional variant, with the thesis's δ. Departures: no stratification.
  """

  def __init__(self, config: ReplayConfig, storage: LaneStorage) -> None:
    super().__init__(storage)
    self._config = config
    self._tree = SumTree(storage.size)

  def update(self, slot: Int[np.ndarray, "M"]) -> None:
    delta = self._storage.delta[slot].astype(np.float64)
    self._tree.assign(slot, (delta + self._config.priority_epsilon) ** self._config.priority_exponent)

  def remove(self, slot: Int[np.ndarray, "M"]) -> None:
    self._tree.assign(slot, 0.0)

  def mass(self) -> tuple[int, float]:
    return self._storage.num_eligible, self._tree.total

  def draw(self, rng: np.random.Generator, num_batches: int, batch_size: int) -> Drawn:
    total = self._tree.total
    slot = self._tree.find(rng.random(num_batches * batch_size) * total)
    return slot, self._tree.leaves[slot] / total, self._storage.num_eligible

  def probability(self, slot: Int[np.ndarray, "M"]) -> Float[np.ndarray, "M"]:
    return self._tree.leaves[slot] / self._tree.total

  def get_state(self) -> State:
    return {"weights": self._tree.leaves.copy()}

  def set_state(self, state: State) -> None:
    self._tree.assign_all(state["weights"])


class RankSampler(UniformSampler):
  """Draws steps with probability P(i) ∝ (1 / rank(i))^α; rank 1 has the largest δ at the last sort.

  A draw sorts the steps first if no step has a rank, if at least `rank_refresh_updates` batches were drawn
  since the last sort, if more than a tenth of the steps have no rank, or if removed steps had more than half
  of the probability mass. Between sorts, a draw that hits a removed step is repeated, so P is normalized over
  the remaining steps.

  Source: Schaul et al. 2016, rank-based variant. Departures: no stratification; ranks are those of
    the last sort; equal δ are ordered at random. A slot without a rank has probability 0 until the next sort.
  """

  def __init__(self, config: ReplayConfig, storage: LaneStorage) -> None:
    super().__init__(storage)
    self._config = config
    self._weights = rank_weights(storage.size, config.priority_exponent)
    self._cumulative = np.cumsum(self._weights)
    self._order = np.zeros(0, np.int64)
    self._rank_of = np.full(storage.size, -1, np.int32)  # 0 is the highest rank; -1 means no rank
    self._count, self._mass, self._batches = 0, 0.0, 0

  def remove(self, slot: Int[np.ndarray, "M"]) -> None:
    rank = self._rank_of[slot]
    rank = rank[rank >= 0]
    self._rank_of[slot] = -1
    self._count -= len(rank)
    self._mass -= float(self._weights[rank].sum())

  def mass(self) -> tuple[int, float]:
    """Returns the number of ranked slots, and the sum of the weights that they would have among all samplers.

    Rank r of n stands for rank r·N/n among N steps, where it has the weight (n / (r·N))^α. The mass omits the
    factor N^-α, which all samplers share.
    """
    count, num_ranked, mass = self._count, len(self._order), self._mass
    if self._is_due():
      count = num_ranked = self._storage.num_eligible
      mass = float(self._cumulative[count - 1]) if count else 0.0
    return count, num_ranked**self._config.priority_exponent * mass

  def _is_due(self) -> bool:
    eligible = self._storage.num_eligible
    return bool(
      self._count == 0
      or self._batches >= self._config.rank_refresh_updates
      or eligible - self._count > _UNRANKED_SHARE * eligible
      or self._mass < (1 - _REMOVED_SHARE) * self._cumulative[len(self._order) - 1]
    )

  def _sort(self, salt: int) -> None:
    slot = self._storage.eligible_slots()
    self._order = order_by_priority(slot, self._storage.delta[slot], salt)
    self._rank_of.fill(-1)
    self._rank_of[self._order] = np.arange(len(slot), dtype=np.int32)
    self._count, self._mass, self._batches = len(slot), float(self._cumulative[len(slot) - 1]), 0

  def draw(self, rng: np.random.Generator, num_batches: int, batch_size: int) -> Drawn:
    if self._is_due():
      self._sort(int(rng.integers(1 << 32)))
    self._batches += num_batches
    table = self._cumulative[: len(self._order)]
    rank = np.zeros(num_batches * batch_size, np.int64)
    undrawn = np.arange(rank.size)
    while undrawn.size:
      found = np.searchsorted(table, rng.random(undrawn.size) * table[-1], side="right")
      rank[undrawn] = np.minimum(found, len(table) - 1)
      undrawn = undrawn[self._rank_of[self._order[rank[undrawn]]] != rank[undrawn]]
    return self._order[rank], self._weights[rank] / self._mass, self._count

  def probability(self, slot: Int[np.ndarray, "M"]) -> Float[np.ndarray, "M"]:
    rank = self._rank_of[slot]
    return np.where(rank >= 0, self._weights[rank], 0.0) / max(self._mass, 1e-300)

  def get_state(self) -> State:
    numbers = np.array([self._count, self._batches], np.int64)
    out = {"order": self._order, "rank_of": self._rank_of, "numbers": numbers, "mass": np.float64(self._mass)}
    return {name: np.array(value) for name, value in out.items()}

  def set_state(self, state: State) -> None:
    self._order = np.array(state["order"], np.int64)
    self._rank_of[:] = state["rank_of"]
    self._count, self._batches = (int(x) for x in state["numbers"])
    self._mass = float(state["mass"])


def make_sampler(config: ReplayConfig, storage: LaneStorage) -> UniformSampler:
  """Returns the sampler that `config.sampling` names, for the eligible steps of `storage`."""
  if config.sampling == "uniform":
    return UniformSampler(storage)
  if config.sampling == "proportional":
    return ProportionalSampler(config, storage)
  return RankSampler(config, storage)

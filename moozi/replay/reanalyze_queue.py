"""Chooses stored positions to reanalyze, and gathers their frames and actions. Imports no JAX."""

import numpy as np
from jaxtyping import Int, Num

from moozi.core.flat_state import State
from moozi.core.records import RootSpan, SearchRoots
from moozi.replay.storage import LaneStorage

# Number of calls for which one scan chooses positions. Scans are rare because they read every stored step.
_POOL_CALLS = 16
_ORDERS = ("oldest", "priority")


class ReanalyzeQueue:
  """Chooses positions to reanalyze and gathers them from the lanes.

  A position can be searched again if it is in the window of its lane, and the L steps before it are stored or
  never existed. It need not be eligible as the start of a target. Terminal frames are not searched. Positions
  whose newest search used newer parameters than those of the next search are not searched, because the result
  would be dropped.

  Args:
    seed: seeds the order of positions whose newest searches used the same parameters.
  """

  def __init__(self, storage: LaneStorage, seed: int = 0) -> None:
    self._storage, self._seed, self._num_scans = storage, seed, 0
    # For each slot, the version and the sequence number of the last request. A requested position counts as
    # searched, so that it is not requested again while its search is pending.
    self._requested_version = np.zeros(storage.size, np.int32)
    self._requested_sequence = np.full(storage.size, -1, np.int64)
    # Slots and sequence numbers of the next positions. `_pool_for` is the index of the order for which they
    # were chosen; -1 for none.
    self._pool = np.zeros((2, 0), np.int64)
    self._pool_for = -1

  def choose(self, count: int, order: str, version: int) -> Int[np.ndarray, "M"]:
    """Chooses the slots of up to `count` positions, sorted by lane and time, and marks them as requested.

    Args:
      count: maximum number of positions.
      order: "oldest" takes the positions whose newest search used the oldest parameters; ties are broken at
        random. "priority" takes the positions not yet searched with `version`, the largest δ first, and then
        those that were. The δ of a step that is too new to be a start counts as 0. A scan chooses the
        positions of several calls, by the searches, δ and `version` at its time.
      version: learner step of the parameters that will search the positions. Positions that were searched
        with newer ones are skipped, so there may be fewer than `count`, or none.

    Raises: ValueError: unknown order.
    """
    if order not in _ORDERS:
      raise ValueError(f"order={order!r}: must be oldest or priority")
    pool_for = _ORDERS.index(order)
    # Positions chosen for an older version stay: an averaged target network has a new version at each update.
    if pool_for != self._pool_for:
      self._pool, self._pool_for = self._pool[:, :0], pool_for
    chosen = self._pop(count, version)
    if len(chosen) < count:
      slot = self._scan(count * _POOL_CALLS, order, version)
      slot = slot[~np.isin(slot, chosen)]
      self._pool = np.stack([slot, self._storage.sequence[slot]])
      chosen = np.concatenate([chosen, self._pop(count - len(chosen), version)])
    return chosen[np.lexsort((self._storage.sequence[chosen], chosen // self._storage.lane_capacity))]

  def get_state(self) -> State:
    return {
      "pool": self._pool.copy(),
      "pool_for": np.array(self._pool_for, np.int64),
      "num_scans": np.array(self._num_scans, np.int64),
    }

  def set_state(self, state: State) -> None:
    """Restores the pool of next positions and the number of scans."""
    self._pool = np.array(state["pool"], np.int64)
    self._num_scans = int(state["num_scans"])
    self._pool_for = int(state["pool_for"])

  def _pop(self, count: int, version: int) -> Int[np.ndarray, "M"]:
    """Takes up to `count` slots from the pool, and marks them as requested.

    Slots that were overwritten, or searched with newer parameters, leave the pool.
    """
    slot, sequence = self._pool
    first, _ = self._storage.eligible_range()
    is_kept = (
      (self._storage.sequence[slot] == sequence)
      & (sequence >= first[slot // self._storage.lane_capacity])
      & (self._storage.arrays["searched_version"][slot] <= version)
    )
    kept = self._pool[:, is_kept]
    chosen, self._pool = kept[0, :count], kept[:, count:]
    self._requested_version[chosen] = version
    self._requested_sequence[chosen] = self._storage.sequence[chosen]
    return chosen

  def _scan(self, count: int, order: str, version: int) -> Int[np.ndarray, "M"]:
    """Returns the first `count` slots in the given order of `choose`, or all slots if there are fewer."""
    slot, searched = self._candidates()
    is_old = searched <= version
    slot, searched = slot[is_old], searched[is_old]
    # Ties are broken by the order of the candidates. Without a shuffle, the first lanes would be searched
    # again and again while the last ones wait. A resumed run draws the same order: `num_scans` is saved.
    shuffled = np.random.default_rng([self._seed, self._num_scans]).permutation(len(slot))
    self._num_scans += 1
    slot, searched = slot[shuffled], searched[shuffled]
    # All keys differ, so the result does not depend on the selection algorithm.
    age = searched * len(slot) + np.arange(len(slot))
    if order == "oldest":
      return slot[_smallest(age, count)]
    is_due = searched < version
    due, rest = slot[is_due], slot[~is_due]
    first = due[_smallest(-self._storage.delta[due].astype(np.float64), count)]
    return np.concatenate([first, rest[_smallest(age[~is_due], count - len(first))]])

  def gather(self, slot: Int[np.ndarray, "M"]) -> SearchRoots:
    storage, arrays = self._storage, self._storage.arrays
    frames, actions = storage.histories(slot)
    return SearchRoots(
      # `histories` also returns the frame after the position, which only training targets need.
      frames=np.ascontiguousarray(frames[:, :-1]),
      history_actions=np.ascontiguousarray(actions[:, :-1]),
      legal_actions_mask=storage.legal_actions_mask(slot),
      root_value=arrays["root_value"][slot],
      action_probs=arrays["action_probs"][slot],
      searched_version=arrays["searched_version"][slot],
      slot=slot,
      sequence=storage.sequence[slot],
    )

  def spans(self, slot: Int[np.ndarray, "M"]) -> list[RootSpan]:
    """Returns spans of lanes that contain the positions in these slots and their histories.

    The slots must be sorted by lane and time, as `choose` returns them.
    """
    storage = self._storage
    lane, index = slot // storage.lane_capacity, storage.sequence[slot]
    # Positions whose histories overlap share a span.
    cuts = np.flatnonzero((np.diff(lane) != 0) | (np.diff(index) > storage.history + 1)) + 1
    out = []
    for rows in np.split(np.arange(len(slot)), cuts) if len(slot) else []:
      first = max(0, int(index[rows[0]]) - storage.history)
      steps = storage.trajectory(int(lane[rows[0]]), first, int(index[rows[-1]]) + 1)
      out.append(RootSpan(steps=steps, at=index[rows] - first, slot=slot[rows], sequence=index[rows]))
    return out

  def _candidates(self) -> tuple[Int[np.ndarray, "N"], Int[np.ndarray, "N"]]:
    """Returns the slots that can be searched again, and the version of each slot's newest search.

    A requested search counts as done.
    """
    storage, arrays = self._storage, self._storage.arrays
    first, _ = storage.eligible_range()
    index = storage.sequence.reshape(storage.num_lanes, storage.lane_capacity)
    terminal = arrays["is_last"] & ~arrays["is_truncated"]
    slot = np.flatnonzero((index >= first[:, None]).reshape(-1) & ~terminal)
    searched = arrays["searched_version"][slot].astype(np.int64)
    is_requested = self._requested_sequence[slot] == storage.sequence[slot]
    return slot, np.where(is_requested, np.maximum(searched, self._requested_version[slot]), searched)


def _smallest(key: Num[np.ndarray, "N"], count: int) -> Int[np.ndarray, "M"]:
  """Returns the indices of the `count` smallest keys in ascending order; all indices if there are fewer."""
  found = np.argpartition(key, count)[: max(count, 0)] if count < len(key) else np.arange(len(key))
  return found[np.argsort(key[found], kind="stable")]

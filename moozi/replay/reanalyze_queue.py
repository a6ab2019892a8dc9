"""Which stored positions are searched again next, and what a search needs of them. No JAX."""

import numpy as np

from moozi.core.flat_state import State
from moozi.core.records import RootSpan, SearchRoots
from moozi.replay.storage import LaneStorage

# The choice looks at every stored step: it is made for so many calls at once.
_POOL_CALLS = 16
_ORDERS = ("oldest", "priority")


class ReanalyzeQueue:
  """Chooses positions for reanalyze, and gathers them out of the lanes.

  A position can be searched again while the L steps before it are kept (or never were), also one so new that
  no target can start there yet. Terminal frames have nothing to search.

  Args:
    storage: the lanes.
    delta: priorities by slot, the buffer's own.
  """

  def __init__(self, storage: LaneStorage, delta: np.ndarray) -> None:
    self._storage, self._delta = storage, delta
    # What was asked for counts as searched, so that nothing is asked for twice while its search is under way.
    self._asked_version = np.zeros(storage.size, np.int32)
    self._asked_sequence = np.full(storage.size, -1, np.int64)
    # Slots and sequence numbers of those that come next, and for which order and version they were chosen.
    self._pool = np.zeros((2, 0), np.int64)
    self._pool_for = (-1, -1)

  def choose(self, count: int, order: str, version: int) -> np.ndarray:
    """The slots, lane by lane and rising in time, of up to `count` positions; asked for since now.

    Args:
      count: at most so many; fewer where there are no more.
      order: "oldest" takes those whose newest search has the oldest parameters; "priority" the largest δ
        among those not yet searched with `version`, and then the oldest. Priorities are those of the last
        time that all stored steps were looked at, every few calls; 0 for a step too new to have one.
      version: learner step of the parameters that will search.

    Raises: ValueError: another order.
    """
    if order not in _ORDERS:
      raise ValueError(f"order={order!r}: must be oldest or priority")
    pool_for = (_ORDERS.index(order), version if order == "priority" else -1)
    if pool_for != self._pool_for:
      self._pool, self._pool_for = self._pool[:, :0], pool_for
    chosen = self._pop(count, version)
    if len(chosen) < count:
      slot = self._next(count * _POOL_CALLS, order, version)
      slot = slot[~np.isin(slot, chosen)]
      self._pool = np.stack([slot, self._storage.sequence[slot]])
      chosen = np.concatenate([chosen, self._pop(count - len(chosen), version)])
    return chosen[np.lexsort((self._storage.sequence[chosen], chosen // self._storage.lane_capacity))]

  def get_state(self) -> State:
    """What comes next."""
    return {"pool": self._pool.copy(), "pool_for": np.array(self._pool_for, np.int64)}

  def set_state(self, state: State) -> None:
    """Goes on from there; a state without it begins with a choice."""
    if "pool" in state:
      self._pool = np.array(state["pool"], np.int64)
      order, version = (int(x) for x in state["pool_for"])
      self._pool_for = order, version

  def _pop(self, count: int, version: int) -> np.ndarray:
    """Up to `count` slots out of the pool, without those that were written anew since; they are asked for."""
    slot, sequence = self._pool
    first, _ = self._storage.eligible_range()
    is_kept = (self._storage.sequence[slot] == sequence) & (
      sequence >= first[slot // self._storage.lane_capacity]
    )
    kept = self._pool[:, is_kept]
    chosen, self._pool = kept[0, :count], kept[:, count:]
    self._asked_version[chosen] = version
    self._asked_sequence[chosen] = self._storage.sequence[chosen]
    return chosen

  def _next(self, count: int, order: str, version: int) -> np.ndarray:
    """Up to `count` slots out of all, in their order."""
    slot, searched = self._candidates()
    # Every key is another one, so that the choice does not hang on how the selection goes about it.
    age = searched * self._storage.size + slot
    if order == "oldest":
      return slot[_smallest(age, count)]
    is_due = searched < version
    due, rest = slot[is_due], slot[~is_due]
    first = due[_smallest(-self._delta[due].astype(np.float64), count)]
    return np.concatenate([first, rest[_smallest(age[~is_due], count - len(first))]])

  def gather(self, slot: np.ndarray) -> SearchRoots:
    """The positions at slots [M], with their histories."""
    storage, arrays = self._storage, self._storage.arrays
    frames, actions = storage.histories(slot)
    mask = np.unpackbits(arrays["legal_actions_mask"][slot], axis=-1, count=storage.spec.num_actions)
    return SearchRoots(
      # The frame after the position is for targets only.
      frames=np.ascontiguousarray(frames[:, :-1]),
      history_actions=np.ascontiguousarray(actions[:, :-1]),
      legal_actions_mask=mask.view(np.bool_),
      root_value=arrays["root_value"][slot],
      action_probs=arrays["action_probs"][slot],
      searched_version=arrays["searched_version"][slot],
      slot=slot,
      sequence=storage.sequence[slot],
    )

  def spans(self, slot: np.ndarray) -> list[RootSpan]:
    """The positions at slots [M], as `choose` orders them, in spans of their lanes."""
    storage = self._storage
    lane, index = slot // storage.lane_capacity, storage.sequence[slot]
    # Positions that share steps before them lie in one span.
    cuts = np.flatnonzero((np.diff(lane) != 0) | (np.diff(index) > storage.history + 1)) + 1
    out = []
    for part in np.split(np.arange(len(slot)), cuts):
      if part.size:
        first = max(0, int(index[part[0]]) - storage.history)
        steps = storage.trajectory(int(lane[part[0]]), first, int(index[part[-1]]) + 1)
        out.append(
          RootSpan(
            steps=steps, at=index[part] - first, slot=slot[part], sequence=storage.sequence[slot[part]]
          )
        )
    return out

  def _candidates(self) -> tuple[np.ndarray, np.ndarray]:
    """(slots [N] that can be searched again, [N] learner step of their newest search, asked or made)."""
    storage, arrays = self._storage, self._storage.arrays
    first, _ = storage.eligible_range()
    index = storage.sequence.reshape(storage.num_lanes, storage.lane_capacity)
    terminal = arrays["is_last"] & ~arrays["is_truncated"]
    slot = np.flatnonzero((index >= first[:, None]).reshape(-1) & ~terminal)
    searched = arrays["searched_version"][slot].astype(np.int64)
    is_asked = self._asked_sequence[slot] == storage.sequence[slot]
    return slot, np.where(is_asked, np.maximum(searched, self._asked_version[slot]), searched)


def _smallest(key: np.ndarray, count: int) -> np.ndarray:
  """The places of the `count` smallest keys, the smallest first; all of them where there are no more."""
  found = np.argpartition(key, count)[: max(count, 0)] if count < len(key) else np.arange(len(key))
  return found[np.argsort(key[found], kind="stable")]

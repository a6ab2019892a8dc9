"""Storage of replay: a ring buffer of steps per lane, which holds each frame once. Imports no JAX."""

import time
import zlib
from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float32, Int, Num, Shaped

from moozi.core.config import TargetsConfig
from moozi.core.flat_state import State, check_state, entries_like
from moozi.core.pytree import replace
from moozi.core.records import SEARCH_FIELDS, TrajectorySample
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.ops.history import history_window
from moozi.ops.returns import n_step_return
from moozi.ops.signs import player_sign
from moozi.ops.targets import UnrollTargets, make_targets
from moozi.replay.frame_rows import FrameRows

_EMPTY = -1
NUM_BLOCKS = 64


class LaneStorage:
  """Stores steps and their priorities in one ring buffer per lane, and gathers histories and targets.

  A step has an index in its lane: 0, 1, 2 …, never reused. It is stored in slot
  lane * lane_capacity + index mod lane_capacity, and its index is the slot's sequence number.

  Attributes:
    discount: γ, at first `targets.discount`.
    num_lanes: number of lanes.
    lane_capacity: number of steps kept in each lane.
    newest: [num_lanes] int64, index of the newest step of each lane; -1 for an empty lane.
    sequence: [size] int64, index of the step in each slot; -1 for an empty slot.
    delta: [size] float32, the priority δ of each slot; 0 until the step is eligible.
    steps_before: number of steps that each lane received before index 0; above 0 only after a restore into
      lanes of another number or capacity. They count in the window.
    generations: [64] int64, for each block of ring positions a number that changes at each write; 0 if the
      block was never written. A checkpoint writes only the blocks whose generation has changed.
  """

  def __init__(
    self,
    targets: TargetsConfig,
    spec: EnvSpec,
    num_lanes: int,
    lane_capacity: int,
    window_share: float = 1.0,
    window_min: int = 1,
  ) -> None:
    """Makes an empty storage.

    Args:
      window_share, window_min: targets start in the window of a lane: the newest `window_share` of all steps
        ever added to it, and at least its newest `window_min` steps.

    Raises: ValueError: a lane or its smallest window is too short for one target.
    """
    self.targets, self.spec, self.discount = targets, spec, targets.discount
    self._window_share, self._window_min = window_share, window_min
    self.num_lanes, self.lane_capacity = num_lanes, lane_capacity
    self.history = targets.history_length
    self.reach = targets.unroll_steps + targets.n_step
    if lane_capacity <= self.history + self.reach:
      raise ValueError(
        f"capacity leaves {lane_capacity} steps to each of {num_lanes} lanes: must be more than "
        f"{self.history + self.reach} (history + unroll + n_step)"
      )
    if window_share < 1 and window_min <= self.reach:
      raise ValueError(
        f"replay.window_min leaves {window_min} steps to each of {num_lanes} lanes: must be more than "
        f"{self.reach} (unroll + n_step)"
      )
    self._rows = FrameRows(spec)
    size = num_lanes * lane_capacity
    self.newest = np.full(num_lanes, _EMPTY, np.int64)
    self.steps_before = 0
    self.sequence = np.full(size, _EMPTY, np.int64)
    self.delta = np.zeros(size, np.float32)
    self.arrays = _empty_arrays(spec, size)
    self._block_width = -(-lane_capacity // NUM_BLOCKS)
    self.generations = np.zeros(NUM_BLOCKS, np.int64)
    self._generation = time.time_ns()

  @property
  def size(self) -> int:
    return self.num_lanes * self.lane_capacity

  @property
  def num_steps(self) -> int:
    return int(np.minimum(self.newest + 1, self.lane_capacity).sum())

  @property
  def num_eligible(self) -> int:
    """Number of steps at which a target can start now."""
    first, stop = self.eligible_range()
    return int((stop - first).sum())

  @property
  def is_empty(self) -> Bool[np.ndarray, "lanes"]:
    return self.newest == _EMPTY

  def slots(
    self, lane: Int[np.ndarray, "..."] | int, index: Int[np.ndarray, "..."]
  ) -> Int[np.ndarray, "..."]:
    """Returns the slots of the steps with these indices in these lanes (broadcast)."""
    return lane * self.lane_capacity + index % self.lane_capacity

  def eligible_range(
    self, lane: Int[np.ndarray, "B"] | slice = slice(None)
  ) -> tuple[Int[np.ndarray, "B"], Int[np.ndarray, "B"]]:
    """Returns the indices (first, stop) of each lane's eligible steps; a lane has none if stop <= first.

    A target can start at an eligible step: it is in the window, its lane has K + n steps after it, and the L
    steps before it are still stored or never existed.
    """
    newest = self.newest[lane]
    is_young = newest < self.lane_capacity
    first = np.where(is_young, 0, newest - self.lane_capacity + 1 + self.history)
    # Each added step lengthens the window by at most one, so a step that has left the window stays outside.
    num_added = self.steps_before + newest + 1
    window = np.maximum((self._window_share * num_added).astype(np.int64), self._window_min)
    first = np.maximum(first, newest + 1 - window)
    return first, np.maximum(newest - self.reach + 1, first)

  def is_eligible(self, slot: Int[np.ndarray, "M"]) -> Bool[np.ndarray, "M"]:
    """Returns whether a target can start at the step in each slot."""
    first, stop = self.eligible_range()
    lane, index = slot // self.lane_capacity, self.sequence[slot]
    return (index >= first[lane]) & (index < stop[lane])

  def eligible_slots(self) -> Int[np.ndarray, "N"]:
    """Returns all slots at which a target can start, in ascending order."""
    first, stop = self.eligible_range()
    index = self.sequence.reshape(self.num_lanes, self.lane_capacity)
    return np.flatnonzero((index >= first[:, None]) & (index < stop[:, None]))

  def nth_eligible(self, number: Int[np.ndarray, "M"]) -> Int[np.ndarray, "M"]:
    """Returns the slots of the eligible steps with these numbers.

    The N eligible steps are numbered 0 … N-1, lane by lane, oldest first.
    """
    first, stop = self.eligible_range()
    ends = np.cumsum(stop - first)
    lane = np.searchsorted(ends, number, side="right")
    return self.slots(lane, stop[lane] - (ends[lane] - number))

  def range_slots(
    self, lane: Int[np.ndarray, "B"], first: Int[np.ndarray, "B"], stop: Int[np.ndarray, "B"]
  ) -> Int[np.ndarray, "N"]:
    """Returns the slots of steps first … stop-1 of each lane, as a flat array, lane by lane."""
    width = np.maximum(stop - first, 0)
    begin = np.cumsum(width) - width
    index = np.arange(width.sum()) + np.repeat(first - begin, width)
    return self.slots(np.repeat(lane, width), index)

  def append(self, segment: TrajectorySample, lane: Int[np.ndarray, "B"]) -> int:
    """Appends a segment [T, B, ...] that `check_segment` accepted; returns the number of cut episodes.

    An episode is cut if its lane receives a first step although the newest step is not a last step, as after
    a restart of the worker. The newest step is then marked as truncated, and its search value is the
    bootstrap value.
    """
    is_first = np.asarray(segment.is_first)
    newest = self.newest[lane]
    is_cut = is_first[0] & ~self.is_empty[lane]
    cut = self.slots(lane[is_cut], newest[is_cut])
    cut = cut[~self.arrays["is_last"][cut]]
    self.touch(cut)
    self.arrays["is_last"][cut] = True
    self.arrays["is_truncated"][cut] = True
    self.arrays["action"][cut] = DUMMY_ACTION

    index = newest[None, :] + 1 + np.arange(len(is_first))[:, None]
    slot = self.slots(lane[None, :], index)
    self.sequence[slot] = index
    self.delta[slot] = 0
    for name, array in self.arrays.items():
      array[slot] = self._encode(name, getattr(segment, name))
    self.newest[lane] += len(is_first)
    self.touch(slot)
    return len(cut)

  def touch(self, slot: Int[np.ndarray, "..."]) -> None:
    """Marks the blocks of slots as written."""
    is_touched = np.zeros(NUM_BLOCKS, bool)
    is_touched[slot % self.lane_capacity // self._block_width] = True
    self._generation += 1
    self.generations[is_touched] = self._generation

  def block(self, number: int) -> dict[str, np.ndarray]:
    """Returns a copy of one block: arrays by name, [num_lanes, at most ceil(lane_capacity / 64), ...]."""
    return {name: view.copy() for name, view in self._block_views(number).items()}

  def _block_views(self, number: int) -> dict[str, np.ndarray]:
    columns = slice(number * self._block_width, (number + 1) * self._block_width)
    rings = {"sequence": self.sequence, **self.arrays}
    lanes = self.num_lanes, self.lane_capacity
    return {name: ring.reshape((*lanes, *ring.shape[1:]))[:, columns] for name, ring in rings.items()}

  def _encode(self, name: str, value: np.ndarray) -> np.ndarray:
    value = np.asarray(value)
    if name == "legal_actions_mask":
      return np.packbits(value.astype(np.bool_, copy=False), axis=-1)
    if name == "frame" and not self._rows.are_rows(value):
      return self._rows.encode(value)
    return value

  def legal_actions_mask(self, slot: Int[np.ndarray, "M"]) -> Bool[np.ndarray, "M A"]:
    rows = self.arrays["legal_actions_mask"][slot]
    return np.unpackbits(rows, axis=-1, count=self.spec.policy_size).view(np.bool_)

  def _neighbours(self, slot: Int[np.ndarray, "M"], first: int, stop: int) -> Int[np.ndarray, "W M"]:
    """Returns the slots at offsets first … stop-1 from each slot, within the ring of its lane."""
    position = slot % self.lane_capacity
    around = position + np.arange(first, stop)[:, None]
    around -= self.lane_capacity * (around >= self.lane_capacity)
    around += self.lane_capacity * (around < 0)
    return around + (slot - position)

  def _window(self, around: Int[np.ndarray, "W M"]) -> dict[str, Shaped[np.ndarray, "M W"]]:
    """Returns the arguments of `n_step_return`, gathered from the slots `around`."""
    # Gathers time-major arrays and transposes them: the arithmetic is faster along M, the longer axis.
    names = ("last_reward", "root_value", "to_play", "is_last", "is_truncated")
    return {name: self.arrays[name].take(around).T for name in names}

  def refresh_delta(self, slot: Int[np.ndarray, "M"]) -> None:
    """Sets δ = |v* - z| of slots, where v* is the search value and z is the n-step return.

    Each step must have at least n steps after it.

    Source: thesis 4.3.14. Departures: none.
    """
    window = self._window(self._neighbours(slot, 0, self.targets.n_step + 1))
    z = n_step_return(**window, n_step=self.targets.n_step, discount=self.discount)
    self.delta[slot] = np.abs(window["root_value"][:, 0] - z[:, 0])

  def set_delta(self, slot: Int[np.ndarray, "M"], delta: Num[np.ndarray, "M"]) -> None:
    """Sets δ of slots; if a slot repeats, its last δ counts."""
    self.delta[slot] = delta

  def bootstrapping_slots(self, slot: Int[np.ndarray, "M"]) -> Int[np.ndarray, "N"]:
    """Returns the eligible slots whose n-step return bootstraps from the search value of a step in `slot`.

    Step i-n bootstraps from step i if no episode ends at steps i-n … i-1. If step i is truncated, the steps
    of its episode among i-n … i bootstrap from it too.
    """
    n = self.targets.n_step
    before = self._neighbours(slot, -n, 1)  # row j holds i - n + j
    ends = self.arrays["is_last"][before]
    ends[n] = False
    joined = np.cumsum(ends[::-1], axis=0)[::-1] == 0
    joined[1:] &= self.arrays["is_truncated"][slot]
    # Offsets before the oldest step wrap around to the newest steps or to empty slots. Neither is eligible.
    found = np.unique(before[joined])
    return found[self.is_eligible(found)]

  def unroll(self, slot: Int[np.ndarray, "M"]) -> UnrollTargets:
    """Returns the targets that start at slots.

    If a start is at least `search_value_age` steps old, all its value targets are search values.

    Source: Wang et al. 2024, EfficientZero V2 (mixed value targets). Departures: by age only, not also by
      the number of updates so far; the search value is that of the last search, not one per update. At
      insertion and after a new search, δ is computed as for other starts (`refresh_delta`); after an update,
      δ is the difference from the search value.
    """
    steps = self.targets.unroll_steps
    around = self._neighbours(slot, 0, self.reach + 1)
    made = make_targets(
      **self._window(around),
      action=self.arrays["action"].take(around[:steps]).T,
      action_probs=self.arrays["action_probs"].take(around[: steps + 1].T, axis=0),
      unroll_steps=steps,
      n_step=self.targets.n_step,
      discount=self.discount,
    )
    if self.targets.search_value_age is None:
      return made
    age = (self.newest[slot // self.lane_capacity] - self.sequence[slot]) * self.num_lanes
    is_old = age >= self.targets.search_value_age
    return replace(made, n_step_returns=np.where(is_old[:, None], made.root_values, made.n_step_returns))

  def bootstraps(self, slot: Int[np.ndarray, "M"]) -> tuple[Int[np.ndarray, "M"], Float32[np.ndarray, "M"]]:
    """Returns the slots from whose values the n-step returns of `slot` bootstrap, and these values' factors.

    With h as in `n_step_return`: the slots of steps t + h, and γ^h s(t, t+h), or 0 on a terminal frame.
    """
    n, arrays = self.targets.n_step, self.arrays
    around = self._neighbours(slot, 0, n + 1)
    ends = arrays["is_last"][around]
    ends[n] = True
    h = ends.argmax(axis=0)
    found = around[h, np.arange(len(slot))]
    factor = self.discount**h * player_sign(arrays["to_play"][slot], arrays["to_play"][found])
    is_terminal = arrays["is_last"][found] & ~arrays["is_truncated"][found]
    return found, np.where(is_terminal, 0.0, factor).astype(np.float32)

  def histories(
    self, slot: Int[np.ndarray, "M"], frames_ahead: int = 1
  ) -> tuple[Shaped[np.ndarray, "M L_F H W C"], Int[np.ndarray, "M L_F"]]:
    """Returns (frames, history_actions) of slots as in TrainTarget, with F = `frames_ahead`.

    Does not check that the histories and the frames ahead are still stored.
    """
    around = self._neighbours(slot, -self.history, 1 + frames_ahead).T
    rows, actions = history_window(
      frames=self.arrays["frame"].take(around[:, 1:], axis=0),
      actions=self.arrays["action"].take(around[:, :-1]),
      is_first=self.arrays["is_first"].take(around[:, 1 : 1 + self.history]),
      is_last=self.arrays["is_last"].take(around[:, self.history : -1]),
    )
    return self._rows.decode(rows), actions

  def trajectory(self, lane: int, first: int, stop: int) -> TrajectorySample:
    """Returns steps first … stop-1 of a lane, [stop - first, ...], with their newest search results.

    Raises: ValueError: one of the steps is not stored.
    """
    index = np.arange(first, stop)
    slot = self.slots(lane, index)
    if first < 0 or (self.sequence[slot] != index).any():
      raise ValueError(f"steps {first} … {stop - 1} of lane {lane} are not all stored")
    out = {name: array[slot] for name, array in self.arrays.items()}
    out["frame"] = self._rows.decode(out["frame"])
    out["legal_actions_mask"] = self.legal_actions_mask(slot)
    out["to_play"] = out["to_play"].astype(np.int32)
    return TrajectorySample(**out)

  def get_searched(self) -> dict[str, np.ndarray]:
    """Returns copies of the search results of all slots. Reanalyze changes no other fields."""
    return {name: self.arrays[name].copy() for name in SEARCH_FIELDS}

  def set_searched(self, state: dict[str, np.ndarray]) -> None:
    for name in SEARCH_FIELDS:
      self.arrays[name][:] = state[name]

  def checksum(self) -> int:
    """Returns a checksum of actions, rewards, starts and ends, which identifies the stored steps."""
    sums = [zlib.crc32(self.arrays[name].data) for name in ("action", "last_reward", "is_first", "is_last")]
    return zlib.crc32(np.array([*sums, *self.newest], np.int64).data)

  def set_blocks(self, newest: Int[np.ndarray, "N"], blocks: Mapping[int, State]) -> None:
    """Restores the steps of a storage with the same lanes and capacity; blocks not given become empty.

    Raises: ValueError: a block has other arrays; the steps are then unchanged.
    """
    for number, block in blocks.items():
      check_state(block, entries_like(self._block_views(number)), f"replay block {number}: ")
    for number in range(NUM_BLOCKS):
      for name, view in self._block_views(number).items():
        view[:] = blocks[number][name] if number in blocks else _EMPTY if name == "sequence" else 0
    self.newest[:] = newest
    self._generation += 1
    self.generations[:] = self._generation


def empty_block(spec: EnvSpec, num_lanes: int, width: int) -> dict[str, np.ndarray]:
  """Returns a block without written steps, in the form of `LaneStorage.block`."""
  arrays = {"sequence": np.full(num_lanes * width, _EMPTY, np.int64)} | _empty_arrays(spec, num_lanes * width)
  return {name: x.reshape((num_lanes, width, *x.shape[1:])) for name, x in arrays.items()}


def _empty_arrays(spec: EnvSpec, size: int) -> dict[str, np.ndarray]:
  """Returns zero arrays for the fields of a step, with `size` slots."""
  rows, num_actions = FrameRows(spec), spec.policy_size
  return {
    "frame": np.zeros((size, rows.size), rows.dtype),
    "last_reward": np.zeros(size, np.float32),
    "is_first": np.zeros(size, np.bool_),
    "is_last": np.zeros(size, np.bool_),
    "is_truncated": np.zeros(size, np.bool_),
    "to_play": np.zeros(size, np.int8),
    "legal_actions_mask": np.zeros((size, (num_actions + 7) // 8), np.uint8),
    "root_value": np.zeros(size, np.float32),
    "action_probs": np.zeros((size, num_actions), np.float32),
    "action": np.zeros(size, np.int32),
    "acted_version": np.zeros(size, np.int32),
    "searched_version": np.zeros(size, np.int32),
  }

"""Where replay keeps steps: one ring per (worker, environment) lane, each frame once. No JAX."""

import math
import time
import zlib

import numpy as np

from moozi.core.config import TargetsConfig
from moozi.core.records import TrajectorySample
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.ops.returns import n_step_return
from moozi.ops.targets import UnrollTargets, history_window, make_targets
from moozi.replay.validation import check_segment

_EMPTY = -1
_NUM_BLOCKS = 64
_SEARCHED = ("root_value", "action_probs", "searched_version")


class LaneStorage:
  """Rings of steps, one per lane, and gathers over them.

  A step has an index in its lane (0, 1, 2 …, never reused), which is also the sequence number of its
  slot's writing, and a slot = lane * lane_capacity + index mod lane_capacity.

  Attributes:
    num_lanes: lanes.
    lane_capacity: steps kept in each.
    newest: [num_lanes] int64, index of the newest step of each lane; -1 in an empty one.
    sequence: [num_lanes * lane_capacity] int64, the index written in each slot; -1 where none was.
    generations: [64] int64, a number that changes whenever a block is written to, and that no other buffer
      uses for other content; 0: never. A block is a stretch of positions in all rings: what a checkpoint need
      not write again.
  """

  def __init__(self, targets: TargetsConfig, spec: EnvSpec, num_lanes: int, lane_capacity: int) -> None:
    self.targets, self.spec = targets, spec
    self.num_lanes, self.lane_capacity = num_lanes, lane_capacity
    self.history = targets.history_length
    self.reach = targets.unroll_steps + targets.n_step
    if lane_capacity <= self.history + self.reach:
      raise ValueError(
        f"capacity leaves {lane_capacity} steps to each of {num_lanes} lanes: it takes more than "
        f"{self.history + self.reach} (history + unroll + n_step)"
      )
    self._frame_size = math.prod(spec.frame_shape)
    self._is_packed = spec.frame_dtype == "bool"
    size = num_lanes * lane_capacity
    self.newest = np.full(num_lanes, _EMPTY, np.int64)
    self.sequence = np.full(size, _EMPTY, np.int64)
    self.arrays = _empty_arrays(spec, size)
    self._block_width = -(-lane_capacity // _NUM_BLOCKS)
    self.generations = np.zeros(_NUM_BLOCKS, np.int64)
    self._generation = time.time_ns()

  @property
  def size(self) -> int:
    """Number of slots."""
    return self.num_lanes * self.lane_capacity

  @property
  def num_steps(self) -> int:
    """Steps stored now."""
    return int(np.minimum(self.newest + 1, self.lane_capacity).sum())

  @property
  def num_eligible(self) -> int:
    """Steps that a target can start at now."""
    first, stop = self.eligible_range()
    return int((stop - first).sum())

  def slots(self, lane: np.ndarray | int, index: np.ndarray) -> np.ndarray:
    """The slots of steps, given by lane and index (broadcast)."""
    return lane * self.lane_capacity + index % self.lane_capacity

  def eligible_range(self, lane: np.ndarray | slice = slice(None)) -> tuple[np.ndarray, np.ndarray]:
    """(first, stop) index of the steps of each lane that a target can start at; none where stop <= first.

    Such a step has K + n steps after it, and the L before it are still there or never were.
    """
    newest = self.newest[lane]
    is_young = newest < self.lane_capacity
    first = np.where(is_young, 0, newest - self.lane_capacity + 1 + self.history)
    return first, np.maximum(newest - self.reach + 1, first)

  def is_eligible(self, slot: np.ndarray) -> np.ndarray:
    """[M] bool: whether a target can start at what lies in each slot [M] now."""
    first, stop = self.eligible_range()
    lane, index = slot // self.lane_capacity, self.sequence[slot]
    return (index >= first[lane]) & (index < stop[lane])

  def eligible_slots(self) -> np.ndarray:
    """[N] int64: all slots that a target can start at, rising."""
    first, stop = self.eligible_range()
    index = self.sequence.reshape(self.num_lanes, self.lane_capacity)
    return np.flatnonzero((index >= first[:, None]) & (index < stop[:, None]))

  def nth_eligible(self, number: np.ndarray) -> np.ndarray:
    """The slots of the eligible steps with numbers [M] in 0 … N-1, counted lane by lane, oldest first."""
    first, stop = self.eligible_range()
    ends = np.cumsum(stop - first)
    lane = np.searchsorted(ends, number, side="right")
    return self.slots(lane, stop[lane] - (ends[lane] - number))

  def span_slots(self, lane: np.ndarray, first: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """The slots of steps first … stop-1 of each lane, flat, lane by lane."""
    width = np.maximum(stop - first, 0)
    begin = np.cumsum(width) - width
    index = np.arange(width.sum()) + np.repeat(first - begin, width)
    return self.slots(np.repeat(lane, width), index)

  def check(self, segment: TrajectorySample, lane: np.ndarray) -> None:
    """Raises ValueError where a segment [T, B, ...] cannot be stored in lanes [B], wherever it begins."""
    check_segment(segment, self.spec, len(lane))
    length = np.shape(segment.last_reward)[0]
    if length > self.lane_capacity:
      raise ValueError(f"segment of {length} steps: a lane keeps {self.lane_capacity}")

  def append(self, segment: TrajectorySample, lane: np.ndarray) -> int:
    """Appends a segment [T, B, ...] to lanes [B]; returns how many unfinished episodes it cut off.

    A lane that starts anew while its newest step is not a last one (its worker was restarted) leaves an
    episode without an end. That newest step becomes a truncated one: its search value is the bootstrap.

    Raises: ValueError: when the segment breaks a convention, or a lane's very first step is no is_first.
    """
    self.check(segment, lane)
    if (~np.asarray(segment.is_first)[0] & (self.newest[lane] == _EMPTY)).any():
      raise ValueError("the first step of a lane must be is_first")
    length = np.shape(segment.last_reward)[0]
    newest = self.newest[lane]
    starts = np.asarray(segment.is_first)[0]
    is_cut = starts & (newest != _EMPTY)
    cut = self.slots(lane[is_cut], newest[is_cut])
    cut = cut[~self.arrays["is_last"][cut]]
    self.touch(cut)
    self.arrays["is_last"][cut] = True
    self.arrays["is_truncated"][cut] = True
    self.arrays["action"][cut] = DUMMY_ACTION

    index = newest[None, :] + 1 + np.arange(length)[:, None]
    slot = self.slots(lane[None, :], index)
    self.sequence[slot] = index
    for name, array in self.arrays.items():
      array[slot] = self._encode(name, getattr(segment, name))
    self.newest[lane] += length
    self.touch(slot)
    return len(cut)

  def touch(self, slot: np.ndarray) -> None:
    """Marks the blocks of slots (of any shape) as written to."""
    is_touched = np.zeros(_NUM_BLOCKS, bool)
    is_touched[slot % self.lane_capacity // self._block_width] = True
    self._generation += 1
    self.generations[is_touched] = self._generation

  def block(self, number: int) -> dict[str, np.ndarray]:
    """A copy of one block: by name [num_lanes, at most lane_capacity / 64 rounded up, ...]."""
    columns = slice(number * self._block_width, (number + 1) * self._block_width)
    return {name: view[:, columns].copy() for name, view in self._views().items()}

  def _views(self) -> dict[str, np.ndarray]:
    rings = {"sequence": self.sequence, **self.arrays}
    return {k: v.reshape((self.num_lanes, self.lane_capacity, *v.shape[1:])) for k, v in rings.items()}

  def _encode(self, name: str, value: np.ndarray) -> np.ndarray:
    value = np.asarray(value)
    if name == "legal_actions_mask":
      return np.packbits(value.astype(np.bool_, copy=False), axis=-1)
    if name == "frame":
      flat = value.reshape((*value.shape[:2], -1))
      return np.packbits(flat.astype(np.bool_, copy=False), axis=-1) if self._is_packed else flat
    return value

  def _unpack_frames(self, rows: np.ndarray) -> np.ndarray:
    """Stored frame rows [..., R] as frames [..., H, W, C]."""
    if self._is_packed:
      rows = np.unpackbits(rows, axis=-1, count=self._frame_size).view(np.bool_)
    return rows.reshape(rows.shape[:-1] + self.spec.frame_shape)

  def _neighbours(self, slot: np.ndarray, first: int, stop: int) -> np.ndarray:
    """[stop - first, M] slots at offsets first … stop-1 from slots [M], in their lanes' rings."""
    position = slot % self.lane_capacity
    around = position + np.arange(first, stop)[:, None]
    around -= self.lane_capacity * (around >= self.lane_capacity)
    around += self.lane_capacity * (around < 0)
    return around + (slot - position)

  def _window(self, around: np.ndarray) -> dict[str, np.ndarray]:
    """What returns are made of, [M, W], at slots [W, M]."""
    # Gathered time-major and handed on transposed: the arithmetic then runs along M, not along a few steps.
    names = ("last_reward", "root_value", "to_play", "is_last", "is_truncated")
    return {name: self.arrays[name].take(around).T for name in names}

  def value_gap(self, slot: np.ndarray) -> np.ndarray:
    """[M] float32: δ = |v* - z| at slots [M] that have n steps after them.

    Source: thesis 4.3.14. Departures: none.
    """
    window = self._window(self._neighbours(slot, 0, self.targets.n_step + 1))
    z = n_step_return(**window, n_step=self.targets.n_step, discount=self.targets.discount)
    return np.abs(window["root_value"][:, 0] - z[:, 0])

  def bootstrapping_slots(self, slot: np.ndarray) -> np.ndarray:
    """The slots, eligible now, whose n-step return reads the search value at one of slots [M].

    Step i-n where no episode ends from i-n to i-1; where i is truncated also those in between, and i.
    """
    n = self.targets.n_step
    before = self._neighbours(slot, -n, 1)  # row j holds i - n + j
    ends = self.arrays["is_last"][before]
    ends[n] = False
    joined = np.cumsum(ends[::-1], axis=0)[::-1] == 0
    joined[1:] &= self.arrays["is_truncated"][slot]
    # Rows that reach back behind the oldest step meet the newest ones, or empty slots: never eligible.
    found = np.unique(before[joined])
    return found[self.is_eligible(found)]

  def unroll(self, slot: np.ndarray) -> UnrollTargets:
    """What lies at and after eligible slots [M], as targets."""
    steps, n_step = self.targets.unroll_steps, self.targets.n_step
    around = self._neighbours(slot, 0, self.reach + 1)
    return make_targets(
      **self._window(around),
      action=self.arrays["action"].take(around[:steps]).T,
      action_probs=self.arrays["action_probs"].take(around[: steps + 1].T, axis=0),
      unroll_steps=steps,
      n_step=n_step,
      discount=self.targets.discount,
    )

  def histories(self, slot: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(frames [M, L+1, H, W, C], actions [M, L+1]) around eligible slots [M]: see TrainTarget."""
    around = self._neighbours(slot, -self.history, 2).T
    rows, actions = history_window(
      frames=self.arrays["frame"].take(around[:, 1:], axis=0),
      actions=self.arrays["action"].take(around[:, :-1]),
      is_first=self.arrays["is_first"].take(around[:, 1:-1]),
      is_last=self.arrays["is_last"].take(slot),
    )
    return self._unpack_frames(rows), actions

  def trajectory(self, lane: int, first: int, stop: int, is_batched: bool = False) -> TrajectorySample:
    """Steps first … stop-1 of a lane, exactly as they came: a TrajectorySample [stop - first, ...].

    Search values and policies that were written back stand in place of the old ones. Where `is_batched`, it
    is a segment of one lane, [stop - first, 1, ...].

    Raises: ValueError: when one of them is not stored (any more).
    """
    index = np.arange(first, stop)
    slot = self.slots(lane, index)
    if first < 0 or (self.sequence[slot] != index).any():
      raise ValueError(f"steps {first} … {stop - 1} of lane {lane} are not all stored")
    out = {name: array[slot] for name, array in self.arrays.items()}
    out["frame"] = self._unpack_frames(out["frame"])
    bits = np.unpackbits(out["legal_actions_mask"], axis=-1, count=self.spec.num_actions)
    out["legal_actions_mask"] = bits.view(np.bool_)
    out["to_play"] = out["to_play"].astype(np.int32)
    out["last_discount"] = np.where(out["is_last"] & ~out["is_truncated"], 0, 1).astype(np.float32)
    return TrajectorySample(**{name: x[:, None] for name, x in out.items()} if is_batched else out)

  def check_valid(self) -> None:
    """Raises ValueError where the rings contradict themselves."""
    index = self.sequence.reshape(self.num_lanes, self.lane_capacity)
    position = np.arange(self.lane_capacity)
    newest = self.newest[:, None]
    # The largest index that is at most the newest one and falls on this position.
    expected = newest - (newest - position) % self.lane_capacity
    if (index != np.where(expected >= 0, expected, _EMPTY)).any():
      raise ValueError("sequence: slots do not hold the newest steps of their lanes")
    stored = {name: array[self.sequence >= 0] for name, array in self.arrays.items()}
    if (stored["is_truncated"] & ~stored["is_last"]).any():
      raise ValueError("is_truncated on a step that is not is_last")
    if (stored["action"][stored["is_last"]] != DUMMY_ACTION).any():
      raise ValueError("action: an episode's last step holds another one than the dummy")
    for name in ("last_reward", "root_value", "action_probs"):
      if not np.isfinite(stored[name]).all():
        raise ValueError(f"{name} is not finite")
    follows = index[:, 1:] == index[:, :-1] + 1
    first = self.arrays["is_first"].reshape(index.shape)[:, 1:]
    last = self.arrays["is_last"].reshape(index.shape)[:, :-1]
    if (follows & (index[:, :-1] >= 0) & first & ~last).any():
      raise ValueError("is_first after a step that is not is_last")

  def get_searches(self) -> dict[str, np.ndarray]:
    """Copies of what searches said, by slot: all of a step that ever changes."""
    return {name: self.arrays[name].copy() for name in _SEARCHED}

  def set_searches(self, state: dict[str, np.ndarray]) -> None:
    """Takes what searches said of the same steps."""
    for name in _SEARCHED:
      self.arrays[name][:] = state[name]

  def content(self) -> int:
    """A checksum of what was done and received, by which the same steps are known again."""
    sums = [zlib.crc32(self.arrays[name].data) for name in ("action", "last_reward", "is_first", "is_last")]
    return zlib.crc32(np.array([*sums, *self.newest], np.int64).data)

  def get_state(self) -> dict[str, np.ndarray]:
    """Copies of everything, without the slots that were never written."""
    used = int(min(self.newest.max(initial=-1) + 1, self.lane_capacity))
    return {"newest": self.newest.copy()} | {
      name: view[:, :used].copy() for name, view in self._views().items()
    }

  def set_state(self, state: dict[str, np.ndarray]) -> None:
    """Takes the state of a storage of the same shape.

    Raises: ValueError: when an array is missing or has another shape.
    """
    views = self._views()
    for name in ("newest", *views):
      if name not in state:
        raise ValueError(f"replay state: {name} is missing")
    used = np.shape(state["sequence"])[1] if np.ndim(state["sequence"]) == 2 else -1
    for name, view in views.items():
      want = (self.num_lanes, used, *view.shape[2:])
      if used > self.lane_capacity or np.shape(state[name]) != want:
        raise ValueError(f"replay state: {name} has shape {np.shape(state[name])}: must be {want}")
    for name, view in views.items():
      view[:, :used] = state[name]
      view[:, used:] = _EMPTY if name == "sequence" else 0
    self.newest[:] = state["newest"]
    self._generation += 1
    self.generations[:] = self._generation


def empty_block(spec: EnvSpec, num_lanes: int, width: int) -> dict[str, np.ndarray]:
  """What `LaneStorage.block` gives where nothing was written."""
  arrays = {"sequence": np.full(num_lanes * width, _EMPTY, np.int64)} | _empty_arrays(spec, num_lanes * width)
  return {name: x.reshape((num_lanes, width, *x.shape[1:])) for name, x in arrays.items()}


def _empty_arrays(spec: EnvSpec, size: int) -> dict[str, np.ndarray]:
  """What is kept of a step, for `size` slots."""
  is_packed, num_actions = spec.frame_dtype == "bool", spec.num_actions
  frame_size = math.prod(spec.frame_shape)
  row = (frame_size + 7) // 8 if is_packed else frame_size
  return {
    "frame": np.zeros((size, row), np.uint8 if is_packed else spec.frame_dtype),
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

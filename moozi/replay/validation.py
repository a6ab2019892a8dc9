"""Validates segments before replay stores them. Imports no JAX."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool

from moozi.core.errors import SegmentError
from moozi.core.pytree import fields_of, map_fields
from moozi.core.records import TrajectorySample
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.ops.actions import group_sums
from moozi.replay.frame_rows import FrameRows

# A float32 softmax over thousands of actions sums to one within this tolerance.
_SUM_TOLERANCE = 1e-3
_DTYPES = {
  **dict.fromkeys(("last_reward", "root_value", "action_probs"), "float32"),
  **dict.fromkeys(("is_first", "is_last", "is_truncated", "legal_actions_mask"), "bool"),
  **dict.fromkeys(("to_play", "action", "acted_version", "searched_version"), "int32"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddResult:
  """The result of adding a segment to replay.

  Attributes:
    num_lost: number of steps not stored. A refused segment loses all its steps. After it, an accepted segment
      loses the steps before each lane's next episode.
    refused: the reason why the segment was refused; None if it was accepted.
  """

  num_lost: int
  refused: str | None = None

  @property
  def faults(self) -> dict[str, int]:
    """The `counts` of a Faulted event."""
    return {"refused_segments": int(self.refused is not None), "lost_steps": self.num_lost}

  def describe(self, worker: int) -> str:
    """Returns a log line about the lost steps, with the worker's name."""
    if self.refused is not None:
      return f"training_worker_{worker}: a segment of {self.num_lost} steps is refused: {self.refused}"
    return (
      f"training_worker_{worker}: {self.num_lost} steps after a missing segment are dropped, up to the next "
      "episode of their environment"
    )


class Refusals:
  """Counts the consecutive refused segments of each worker."""

  def __init__(self, limit: int) -> None:
    self._limit = limit
    self._in_a_row: dict[int, int] = {}

  def add(self, worker: int, reason: str) -> None:
    """Counts a refused segment. Raises SegmentError if the worker's count reaches the limit."""
    self._in_a_row[worker] = count = self._in_a_row.get(worker, 0) + 1
    if count >= self._limit:
      raise SegmentError(
        f"training_worker_{worker}: {count} segments in a row were refused, the last: {reason}; "
        f"replay.max_refused_segments={self._limit} allows no more"
      )

  def end(self, worker: int) -> None:
    """Resets the worker's count, because a segment was accepted."""
    self._in_a_row.pop(worker, None)


def check_segment(
  segment: TrajectorySample,
  spec: EnvSpec,
  *,
  num_lanes: int | None = None,
  max_steps: int | None = None,
  is_empty: Bool[np.ndarray, "B"] | None = None,
) -> None:
  """Checks a segment [T, B, ...] against the records' conventions. Its frames may be `packed`.

  Args:
    num_lanes: required B; None allows any.
    max_steps: maximum T; None allows any.
    is_empty: whether each lane is still empty. An empty lane must begin with a first step. None skips this
      check.

  Raises: ValueError: the segment breaks a convention. The message names the field.
  """
  shape = np.shape(segment.last_reward)
  if len(shape) != 2 or 0 in shape:
    raise ValueError(f"segment of shape {shape}: must be [T, B, ...] with at least one step and one lane")
  if num_lanes is not None and shape[1] != num_lanes:
    raise ValueError(f"segment of {shape[1]} lanes: its worker has {num_lanes}")
  rows = FrameRows(spec)
  is_packed = rows.are_rows(np.asarray(segment.frame))
  _check_arrays(segment, shape, spec, (rows.size,) if is_packed else None)
  check_numbers(fields_of(segment), spec)
  if not is_packed:
    rows.check(np.asarray(segment.frame))
  _check_ends(segment)
  if max_steps is not None and shape[0] > max_steps:
    raise ValueError(f"segment of {shape[0]} steps: a lane keeps {max_steps}")
  if is_empty is not None and (is_empty & ~np.asarray(segment.is_first)[0]).any():
    raise ValueError("the first step of a lane must be is_first")


def split_at_gaps(steps: TrajectorySample) -> list[TrajectorySample]:
  """Splits a lane's stored steps [T, …] into contiguous segments [T', 1, …].

  Splits before each first step that does not follow a last step: there, the worker failed or steps are
  missing.
  """
  is_first, is_last = np.asarray(steps.is_first), np.asarray(steps.is_last)
  cuts = np.flatnonzero(is_first[1:] & ~is_last[:-1]) + 1
  bounds = itertools.pairwise([0, *cuts.tolist(), len(is_first)])
  return [map_fields(lambda x, a=first, b=stop: x[a:b, None], steps) for first, stop in bounds]


def check_stored(steps: TrajectorySample, spec: EnvSpec) -> None:
  """Checks a lane's stored steps [T, …] against the records' conventions.

  Raises: ValueError: the steps break a convention. The message names the field.
  """
  for segment in split_at_gaps(steps):
    check_segment(segment, spec)


def _check_arrays(
  segment: TrajectorySample, shape: tuple[int, ...], spec: EnvSpec, row_shape: tuple[int, ...] | None
) -> None:
  """Checks shapes and dtypes, because NumPy assignment would silently broadcast and cast.

  `row_shape` is that of a packed frame; None: frames are not packed.
  """
  tails = {
    "frame": spec.frame_shape if row_shape is None else row_shape,
    "legal_actions_mask": (spec.policy_size,),
    "action_probs": (spec.policy_size,),
    "action": spec.action_shape,
  }
  frame_dtype = spec.frame_dtype if row_shape is None else "uint8"
  dtypes = _DTYPES | {"frame": frame_dtype, "action": spec.action_dtype}
  for name, value in fields_of(segment).items():
    expected = shape + tuple(tails.get(name, ()))
    if np.shape(value) != expected:
      raise ValueError(f"{name} has shape {np.shape(value)}: must be {expected}")
    dtype = np.asarray(value).dtype
    if dtype != np.dtype(dtypes[name]):
      raise ValueError(f"{name} is of {dtype}: must be {dtypes[name]}")


def check_numbers(steps: Mapping[str, Any], spec: EnvSpec) -> None:
  """Checks the numbers in the fields of steps. Raises ValueError, with the field, if a number is invalid."""
  names = ("last_reward", "root_value", "action_probs")
  for name in (*names, "frame") if np.dtype(spec.frame_dtype).kind == "f" else names:
    if not np.isfinite(steps[name]).all():
      raise ValueError(f"{name} is not finite")
  probs = np.asarray(steps["action_probs"])
  if (probs < 0).any():
    raise ValueError("action_probs has negative entries")
  for sums in group_sums(probs, spec.policy_groups):
    if (np.abs(sums - 1) > _SUM_TOLERANCE).any():
      raise ValueError("action_probs do not sum to 1")
  if not np.asarray(steps["legal_actions_mask"]).any(axis=-1).all():
    raise ValueError("legal_actions_mask allows no action")
  if spec.intervals is not None:
    action, is_live = np.asarray(steps["action"]), ~np.asarray(steps["is_last"])[..., None]
    if (is_live & ~((action >= spec.intervals.low) & (action <= spec.intervals.high))).any():
      raise ValueError("action out of bounds")
  stops = {"to_play": spec.num_players} | ({} if spec.is_continuous else {"action": spec.num_actions})
  for name, stop in stops.items():
    value = np.asarray(steps[name])
    if ((value < 0) | (value >= stop)).any():
      raise ValueError(f"{name} outside 0 … {stop - 1}")


def _check_ends(segment: TrajectorySample) -> None:
  is_last, is_truncated = np.asarray(segment.is_last), np.asarray(segment.is_truncated)
  if (is_truncated & ~is_last).any():
    raise ValueError("is_truncated on a frame that is not is_last")
  if (np.asarray(segment.action)[is_last] != DUMMY_ACTION).any():
    raise ValueError("action on an episode's last frame must be the dummy")
  if (np.asarray(segment.legal_actions_mask)[..., DUMMY_ACTION] != is_last & ~is_truncated).any():
    raise ValueError("the dummy must be legal on terminal frames and illegal on all others")
  if (np.asarray(segment.is_first)[1:] & ~is_last[:-1]).any():
    raise ValueError("is_first after a frame that is not is_last")

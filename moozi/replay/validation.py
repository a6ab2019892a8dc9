"""Replay's door: what a segment must be to be let in, and what became of it. No JAX."""

import dataclasses
import itertools

import numpy as np

from moozi.core.errors import SegmentError
from moozi.core.pytree import fields_of, map_fields
from moozi.core.records import TrajectorySample
from moozi.core.spec import DUMMY_ACTION, EnvSpec

# A float32 softmax over thousands of actions sums to one within this.
_SUM_TOLERANCE = 1e-3
_DTYPES = {
  "last_reward": "float32",
  "last_discount": "float32",
  "is_first": "bool",
  "is_last": "bool",
  "is_truncated": "bool",
  "to_play": "int32",
  "legal_actions_mask": "bool",
  "root_value": "float32",
  "action_probs": "float32",
  "action": "int32",
  "acted_version": "int32",
  "searched_version": "int32",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddResult:
  """What became of a segment at the door.

  Attributes:
    num_lost: steps of it that are not stored: all where it was refused, else those before a lane's next
      episode.
    refused: why it was refused; None where it was not.
  """

  num_lost: int
  refused: str | None = None

  @property
  def faults(self) -> dict[str, int]:
    """As an event counts them."""
    return {"refused_segments": int(self.refused is not None), "lost_steps": self.num_lost}

  def describe(self, worker: int) -> str:
    """In one line, with the worker's name."""
    if self.refused is not None:
      return f"training_worker_{worker}: a segment of {self.num_lost} steps is refused: {self.refused}"
    return (
      f"training_worker_{worker}: {self.num_lost} steps after a refused segment are dropped, up to the next "
      "episode of their environment"
    )


class Refusals:
  """How many segments of each worker were refused in a row.

  Args:
    limit: so many are no accident.
  """

  def __init__(self, limit: int) -> None:
    self._limit = limit
    self._in_a_row: dict[int, int] = {}

  def add(self, worker: int, reason: str) -> None:
    """One more of this worker. Raises SegmentError: it is one too many."""
    self._in_a_row[worker] = count = self._in_a_row.get(worker, 0) + 1
    if count >= self._limit:
      raise SegmentError(
        f"training_worker_{worker}: {count} segments in a row were refused, the last: {reason}; "
        f"replay.max_refused_segments={self._limit} allows no more"
      )

  def end(self, worker: int) -> None:
    """One of this worker was taken."""
    self._in_a_row.pop(worker, None)


def check_segment(segment: TrajectorySample, spec: EnvSpec, num_lanes: int | None = None) -> None:
  """Raises ValueError, naming the field, where a segment [T, B, ...] breaks the records' conventions.

  Args:
    segment: what a worker sent.
    spec: the environment's facts.
    num_lanes: B must be this; None takes any.
  """
  shape = np.shape(segment.last_reward)
  if len(shape) != 2 or 0 in shape:
    raise ValueError(f"segment of shape {shape}: must be [T, B, ...] with at least one step and one lane")
  if num_lanes is not None and shape[1] != num_lanes:
    raise ValueError(f"segment of {shape[1]} lanes: its worker has {num_lanes}")
  _check_arrays(segment, shape, spec)
  _check_numbers(segment, spec)
  _check_ends(segment)


def stretches(steps: TrajectorySample) -> list[TrajectorySample]:
  """A lane's steps [T, …], as they lie on disk, in segments [T', 1, …] that join within.

  It is cut where a game begins and the one before has no end: its worker died, or steps between are missing.
  """
  is_first, is_last = np.asarray(steps.is_first), np.asarray(steps.is_last)
  cuts = np.flatnonzero(is_first[1:] & ~is_last[:-1]) + 1
  bounds = itertools.pairwise([0, *cuts.tolist(), len(is_first)])
  return [map_fields(lambda x, a=first, b=stop: x[a:b, None], steps) for first, stop in bounds]


def check_stored(steps: TrajectorySample, spec: EnvSpec) -> None:
  """Raises ValueError, naming the field, where a lane's steps [T, …], as they lie on disk, are not sound."""
  for segment in stretches(steps):
    check_segment(segment, spec)


def _check_arrays(segment: TrajectorySample, shape: tuple[int, ...], spec: EnvSpec) -> None:
  """Shapes and dtypes: NumPy would convert in silence, and cut what does not fit."""
  tails = {
    "frame": spec.frame_shape,
    "legal_actions_mask": (spec.num_actions,),
    "action_probs": (spec.num_actions,),
  }
  dtypes = _DTYPES | {"frame": spec.frame_dtype}
  for name, value in fields_of(segment).items():
    expected = shape + tuple(tails.get(name, ()))
    if np.shape(value) != expected:
      raise ValueError(f"{name} has shape {np.shape(value)}: must be {expected}")
    dtype = np.asarray(value).dtype
    if dtype != np.dtype(dtypes[name]):
      raise ValueError(f"{name} is of {dtype}: must be {dtypes[name]}")


def _check_numbers(segment: TrajectorySample, spec: EnvSpec) -> None:
  names = ("last_reward", "root_value", "action_probs")
  for name in (*names, "frame") if np.dtype(spec.frame_dtype).kind == "f" else names:
    if not np.isfinite(getattr(segment, name)).all():
      raise ValueError(f"{name} is not finite")
  probs = np.asarray(segment.action_probs)
  if (probs < 0).any():
    raise ValueError("action_probs has negative entries")
  if (np.abs(probs.sum(axis=-1, dtype=np.float64) - 1) > _SUM_TOLERANCE).any():
    raise ValueError("action_probs do not sum to 1")
  if not np.asarray(segment.legal_actions_mask).any(axis=-1).all():
    raise ValueError("legal_actions_mask allows no action")
  for name, stop in (("action", spec.num_actions), ("to_play", spec.num_players)):
    value = np.asarray(getattr(segment, name))
    if ((value < 0) | (value >= stop)).any():
      raise ValueError(f"{name} outside 0 … {stop - 1}")


def _check_ends(segment: TrajectorySample) -> None:
  is_last, is_truncated = np.asarray(segment.is_last), np.asarray(segment.is_truncated)
  if (is_truncated & ~is_last).any():
    raise ValueError("is_truncated on a frame that is not is_last")
  terminal = is_last & ~is_truncated
  if (np.asarray(segment.last_discount) != np.where(terminal, 0, 1)).any():
    raise ValueError("last_discount must be 0 on terminal frames and 1 on all others")
  if (np.asarray(segment.action)[is_last] != DUMMY_ACTION).any():
    raise ValueError("action on an episode's last frame must be the dummy")
  if (np.asarray(segment.is_first)[1:] & ~is_last[:-1]).any():
    raise ValueError("is_first after a frame that is not is_last")

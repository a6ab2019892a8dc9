"""Checks the values that third-party environments return. The message of an error is one line."""

import decimal
import functools
import logging
import math
import numbers
from typing import Any

import numpy as np
from dm_env import StepType, TimeStep
from jaxtyping import Bool

from moozi.core.errors import EnvValueError, UserError
from moozi.core.errors import one_line as one_line
from moozi.core.spec import EnvSpec, all_legal

_log = logging.getLogger("moozi.envs")

MAX_ACTIONS = 1 << 16
"""Maximum number of actions that each have an entry in masks, policies and search trees."""


_LARGEST_REWARD = float(np.finfo(np.float32).max)
# Every step of a run is checked. The common types are first, because abstract classes are slow to test.
_NUMBERS = (int, np.floating, np.integer, numbers.Real, decimal.Decimal)
_DTYPES = {name: np.dtype(name) for name in ("bool", "uint8", "float32")}
_FIRST, _MID, _LAST = StepType


def check_num_actions(where: str, num_actions: int) -> int:
  """Returns the number. Raises UserError, which starts with `where`, if it is not in 1 … MAX_ACTIONS."""
  if not 1 <= num_actions <= MAX_ACTIONS:
    raise UserError(f"{where}: it has {num_actions} actions; must have 1 to {MAX_ACTIONS:,}")
  return num_actions


def check_reward(where: str, reward: Any) -> float:
  """Returns an environment's reward as a float.

  Raises: UserError: the reward is not one number. EnvValueError: the reward is not finite in float32.
  """
  if type(reward) is float and -_LARGEST_REWARD <= reward <= _LARGEST_REWARD:
    return reward
  out = check_number(where, "reward", reward)
  if _LARGEST_REWARD < abs(out) < math.inf or (math.isinf(out) and isinstance(reward, int)):
    raise EnvValueError(
      f"{where}: reward={one_line(reward, 40)} is not finite in float32; scale the rewards down"
    )
  if not math.isfinite(out):
    raise EnvValueError(f"{where}: reward={out} is not finite")
  return out


def as_array(name: str, value: Any) -> np.ndarray:
  """Returns a value as an array. Raises UserError, which starts with `name`, if it cannot be converted."""
  try:
    if type(value) is not np.ndarray and np.ma.is_masked(value):
      raise TypeError("entries are missing")
    return np.asarray(value)
  except Exception:  # a ragged list, or a class of the user's code that converts itself
    raise UserError(f"{name}: a {type(value).__name__} that is not an array") from None


def numeric_array(where: str, name: str, value: Any) -> np.ndarray:
  """Returns a value as an array of booleans, integers or floats. Raises UserError if it is anything else."""
  if type(value) is np.ndarray and value.dtype.kind in "biuf":
    return value
  try:
    if (out := as_array(name, value)).dtype.kind in "biuf":
      return out
  except UserError:
    pass
  raise UserError(f"{where}: {name} {one_line(value, 80)}; must be an array of numbers")


def check_number(where: str, name: str, value: Any) -> float:
  """Returns a number, or an array of one number, as a float. Raises UserError if it is anything else."""
  if isinstance(value, float):
    return float(value)
  try:
    if isinstance(value, _NUMBERS):
      return float(value)
    array = numeric_array(where, name, value)
    if array.size == 1:
      return float(array.item())
  except OverflowError:  # an integer of more than 308 digits
    return math.inf if value > 0 else -math.inf
  except UserError:
    pass
  raise UserError(f"{where}: {name}={one_line(value, 80)}: must be a number")


def check_integer(where: str, name: str, value: Any, low: int, high: int) -> int:
  """Returns a whole number from `low` to `high` as an int. Raises UserError if the value is anything else."""
  array = numeric_array(where, f"an {name}", value)
  number = float(array.item()) if array.size == 1 else math.nan
  if not (number.is_integer() and low <= number <= high):
    raise UserError(f"{where}: {name} {one_line(value, 80)}; its spec says {low} to {high}, an integer")
  return int(number)


def check_flag(where: str, name: str, value: Any) -> bool:
  """Returns True or False, or a number 1 or 0, as a bool. Raises UserError if the value is anything else."""
  if value is True or value is False:
    return value
  if isinstance(value, np.bool_):
    return bool(value)
  try:
    number = check_number(where, name, value)
  except UserError:
    number = math.nan
  if number not in (0.0, 1.0):
    raise UserError(f"{where}: {name}={one_line(value, 80)}: must be true or false")
  return bool(number)


def check_step(spec: EnvSpec, step: Any, is_first: bool, mover: int | None) -> TimeStep:
  """Returns a step of an `Environment` that fits its spec, with its numbers as floats and its flag as a bool.

  Frames and rewards that are not finite pass; the adapters and the replay buffer refuse them.

  Args:
    is_first: whether the step follows a reset. It must then be FIRST, and must not be FIRST otherwise.
    mover: the player who must be to move if there are two players; None if either may.

  Raises: UserError: the step violates the spec.
  """
  if _is_plain_step(spec, step, is_first, mover):
    return step  # type: ignore[no-any-return]
  where = f"env.name={spec.name}"
  if not isinstance(step, TimeStep) or not isinstance(step.step_type, StepType):
    raise UserError(f"{where}: a step is {one_line(step, 80)}; must be a dm_env.TimeStep")
  if step.first() != is_first:
    what = "reset" if is_first else "step"
    raise UserError(
      f"{where}: {what} returns a {step.step_type.name} step; must {'' if is_first else 'not '}be FIRST"
    )
  seen = step.observation
  if not isinstance(seen, tuple) or len(seen) != 4:
    raise UserError(f"{where}: an observation is {one_line(seen, 80)}; must be a moozi.Observation")
  frame, mask, to_play, is_continued = seen
  values = frame if isinstance(frame, np.ndarray) else numeric_array(where, "a frame", frame)
  if values.shape != spec.frame_shape or values.dtype != spec.frame_dtype:
    raise UserError(
      f"{where}: a frame is {values.dtype}{list(values.shape)}; its spec says "
      f"{spec.frame_dtype}{list(spec.frame_shape)}"
    )
  if not is_first:
    reward, discount = (check_number(where, name, getattr(step, name)) for name in ("reward", "discount"))
    if discount not in ((0.0, 1.0) if step.last() else (1.0,)):
      raise UserError(f"{where}: a step of discount {step.discount}; must be 1, or 0 at a terminal step")
    step = step._replace(reward=reward, discount=discount)
  flag = check_flag(where, "is_continued", is_continued)
  # Some environments return a tuple without names.
  own = seen._replace(is_continued=flag) if hasattr(seen, "_replace") else (frame, mask, to_play, flag)
  step = step._replace(observation=own)
  is_terminal = step.last() and not step.discount
  check_mask(where, "legal_actions_mask", mask, spec.mask_size, is_terminal)
  if is_terminal:
    # Nobody is to move, and any number may say so.
    number = np.asarray(to_play)
    if number.ndim or number.dtype.kind not in "biu" or not -(2**31) <= number < 2**31:
      raise UserError(f"{where}: to_play={one_line(to_play, 80)} at the end; must be an integer")
    return step
  allowed = (0,) if spec.num_players == 1 else (0, 1) if mover is None else (mover,)
  if (type(to_play) is not int and np.ndim(to_play)) or to_play not in allowed:
    text = "0" if spec.num_players == 1 else "0 and 1 in turn"
    raise UserError(f"{where}: to_play={one_line(to_play, 80)}; must be {text}")
  return step


def _is_plain_step(spec: EnvSpec, step: Any, is_first: bool, mover: int | None) -> bool:
  """Returns whether a step has the usual types and fits the spec.

  The other checks of `check_step`, which are slower, also accept other types, and say what is wrong.
  """
  if type(step) is not TimeStep or not isinstance(step.observation, tuple) or len(step.observation) != 4:
    return False
  kind, reward, discount, (frame, mask, to_play, is_continued) = step
  if type(is_continued) is not bool or type(to_play) is not int or not isinstance(frame, np.ndarray):
    return False
  if is_first:
    if kind is not _FIRST:
      return False
  elif not type(reward) is type(discount) is float or not (
    (kind is _MID and discount == 1.0) or (kind is _LAST and discount in (0.0, 1.0))
  ):
    return False
  if frame.dtype is not _DTYPES[spec.frame_dtype] or frame.shape != spec.frame_shape:
    return False
  if mask is not all_legal(spec.mask_size) and not (
    type(mask) is np.ndarray
    and mask.dtype is _DTYPES["bool"]
    and mask.shape == (spec.mask_size,)
    and np.count_nonzero(mask)
  ):
    return False
  if kind is _LAST and not discount:
    return -(2**31) <= to_play < 2**31
  if spec.num_players == 1:
    return to_play == 0
  return to_play in (0, 1) if mover is None else to_play == mover


def check_finite(where: str, frame: np.ndarray) -> np.ndarray:
  """Returns an environment's frame. Raises EnvValueError if it has a value that is not finite."""
  # A user's game may return any type, which the trial episode checks.
  values = frame if type(frame) is np.ndarray else np.asarray(frame)
  # For the small arrays of most environments, counting takes a fraction of the time of `all`.
  if values.dtype.kind == "f" and np.count_nonzero(np.isfinite(values)) != values.size:
    raise EnvValueError(f"{where}: an observation that is not finite")
  return frame


def check_mask(where: str, name: str, mask: Any, num_actions: int, is_end: bool) -> Bool[np.ndarray, "E"]:
  """Returns an environment's mask of legal actions as a fresh array.

  Args:
    where: the start of error messages (`env.name=…`).
    is_end: whether the task has ended; the mask may then have no legal action.

  Raises: UserError: the mask has a wrong shape or other values than 0 and 1, or no legal action before the
    end.
  """
  try:
    given = numeric_array(where, name, mask)
  except UserError:
    given = np.full(num_actions, math.nan)
  if given.shape != (num_actions,):
    raise UserError(f"{where}: {name} has shape {list(given.shape)}, must be [{num_actions}]")
  # Masks that are added to logits would be read the wrong way round.
  if given.dtype.kind != "b" and not ((given == 0) | (given == 1)).all():
    raise UserError(f"{where}: {name}={one_line(mask, 80)}: must be {num_actions} values 0 or 1")
  out = given.astype(bool)
  if not is_end and not np.count_nonzero(out):
    raise UserError(f"{where}: {name} has no legal action before the end of the task; must have one")
  return out


@functools.cache
def warn_once(text: str) -> None:
  """Logs a warning; the same text only once per process."""
  _log.warning("%s", text)


def short(spec: Any) -> str:
  """Returns a short text of a spec or a space: its own text, or its type and shape if that text is long."""
  text, shape = one_line(spec, 1000), getattr(spec, "shape", None)
  if len(text) <= 120 or shape is None:
    return one_line(text, 120)
  return f"{type(spec).__name__} of shape {list(shape)}"

"""Checks of the values that third-party environments return, and their errors in one line."""

import functools
import logging
import math
import numbers
from typing import Any

import numpy as np
from jaxtyping import Bool

from moozi.core.errors import EnvValueError, UserError
from moozi.core.errors import one_line as one_line

_log = logging.getLogger("moozi.envs")

MAX_ACTIONS = 1 << 16
"""Maximum number of actions; masks, policies and search trees have an entry for each action."""


_LARGEST_REWARD = float(np.finfo(np.float32).max)


def check_num_actions(where: str, num_actions: int) -> int:
  """Returns `num_actions`. Raises UserError, which starts with `where`, unless it is in 1 … MAX_ACTIONS."""
  if not 1 <= num_actions <= MAX_ACTIONS:
    raise UserError(f"{where}: it has {num_actions} actions; must have 1 to {MAX_ACTIONS:,}")
  return num_actions


def check_reward(where: str, reward: Any) -> float:
  """Returns an environment's reward as a float.

  Raises: UserError: it is not one number. EnvValueError: it is not finite in float32.
  """
  if hasattr(reward, "__array__"):  # an array of one number is accepted; a text of one is not
    values = np.asarray(reward)
    if values.size != 1 or values.dtype.kind not in "biuf":
      raise UserError(f"{where}: reward={one_line(reward)}: must be a number")
    reward = values.item()
  elif not isinstance(reward, numbers.Real):
    raise UserError(f"{where}: reward={one_line(reward)}: must be a number")
  if _LARGEST_REWARD < abs(reward) < math.inf:
    raise EnvValueError(
      f"{where}: reward={one_line(reward, 40)} is not finite in float32; scale the rewards down"
    )
  out = float(reward)
  if not math.isfinite(out):
    raise EnvValueError(f"{where}: reward={out} is not finite")
  return out


def check_flag(where: str, name: str, flag: Any) -> bool:
  """Returns a flag such as Gymnasium's `terminated`. Raises UserError unless it is true, false, 1 or 0."""
  value = np.asarray(flag) if not isinstance(flag, bool | list | tuple) else flag
  if isinstance(value, bool):
    return value
  if not isinstance(value, np.ndarray) or value.size != 1 or value.dtype.kind not in "biuf":
    raise UserError(f"{where}: {name}={one_line(flag, 80)}: must be true or false")
  if value.item() not in (0, 1):
    raise UserError(f"{where}: {name}={one_line(flag, 80)}: must be true or false")
  return bool(value.item())


def check_finite(where: str, frame: np.ndarray) -> np.ndarray:
  """Returns an environment's frame. Raises EnvValueError if it has a value that is not finite."""
  values = np.asarray(frame)  # a user's game may return any type, which the trial episode checks
  if values.dtype.kind == "f" and not np.isfinite(values).all():
    raise EnvValueError(f"{where}: an observation that is not finite")
  return frame


def check_mask(where: str, name: str, mask: Any, num_actions: int, is_end: bool) -> Bool[np.ndarray, "E"]:
  """Returns an environment's mask of legal actions as a fresh array.

  Args:
    where: the start of error messages (`env.name=…`).
    is_end: whether the task has ended; the mask may then be empty.

  Raises: UserError: the mask has a wrong shape or other values than 0 and 1, or is empty before the end.
  """
  try:
    given = np.asarray(mask)
  except ValueError:
    raise UserError(f"{where}: {name}={one_line(mask, 80)}: must be {num_actions} values 0 or 1") from None
  if given.shape != (num_actions,):
    raise UserError(f"{where}: {name} has shape {list(given.shape)}, must be [{num_actions}]")
  if given.dtype.kind not in "biuf" or (given.dtype.kind != "b" and not ((given == 0) | (given == 1)).all()):
    raise UserError(f"{where}: {name}={one_line(mask, 80)}: must be {num_actions} values 0 or 1")
  out = given.astype(bool)
  if not is_end and not out.any():
    raise UserError(f"{where}: {name} has no legal action before the end of the task; must have one")
  return out


@functools.cache
def warn_once(text: str) -> None:
  """Logs a warning, which a command shows before its run starts; the same text only once per process."""
  _log.warning("%s", text)


def short(spec: Any) -> str:
  """Returns a short text of a spec or a space: its own text, or its type and shape if that is long."""
  text, shape = one_line(spec, 1000), getattr(spec, "shape", None)
  if len(text) <= 120 or shape is None:
    return one_line(text, 120)
  return f"{type(spec).__name__} of shape {list(shape)}"

"""What the bridges to other people's environments share: their promises checked, and their errors in one
line.
"""

import math
import re
from typing import Any

import numpy as np

from moozi.core.errors import UserError

MAX_ACTIONS = 1 << 16
"""The most actions an environment may have: masks, policies and search trees hold an entry for each."""


def check_num_actions(where: str, num_actions: int) -> int:
  """Returns `num_actions`.

  Args:
    where: begins the error (`env.name=…`).
    num_actions: that the environment says it has.

  Raises: UserError: it is below 1, or above MAX_ACTIONS.
  """
  if not 1 <= num_actions <= MAX_ACTIONS:
    raise UserError(f"{where}: it has {num_actions} actions; supported are 1 to {MAX_ACTIONS:,}")
  return num_actions


def check_reward(where: str, reward: Any) -> float:
  """Returns an environment's reward as a float. Raises UserError where it is not one finite number."""
  try:
    out = float(reward)
  except (TypeError, ValueError):
    raise UserError(f"{where}: reward={one_line(reward)}: must be a number") from None
  if not math.isfinite(out):
    raise UserError(f"{where}: reward={out} is not finite")
  return out


def check_mask(where: str, name: str, mask: Any, num_actions: int, is_end: bool) -> np.ndarray:
  """Returns an environment's mask of legal actions.

  Args:
    where: begins the error (`env.name=…`).
    name: what the environment calls it.
    mask: what it shows.
    num_actions: of the environment.
    is_end: nothing needs to be legal here.

  Returns: [num_actions] bool, a fresh array.
  Raises: UserError: it is of another shape, or allows nothing where something must be legal.
  """
  out = np.array(mask, bool)
  if out.shape != (num_actions,):
    raise UserError(f"{where}: {name} has shape {list(out.shape)}, must be [{num_actions}]")
  if not is_end and not out.any():
    raise UserError(f"{where}: {name} allows nothing, and the task has not ended")
  return out


def one_line(thing: Any, limit: int = 300) -> str:
  """An error or a spec in one line of at most `limit` characters, without the colors of a terminal."""
  text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(thing)).split())
  text = text or type(thing).__name__
  return text if len(text) <= limit else f"{text[:limit]}…"


def short(spec: Any) -> str:
  """A spec or a space in a few words: as it writes itself, or its kind and shape where that is long."""
  text, shape = one_line(spec, 1000), getattr(spec, "shape", None)
  if len(text) <= 120 or shape is None:
    return one_line(text, 120)
  return f"{type(spec).__name__} of shape {list(shape)}"

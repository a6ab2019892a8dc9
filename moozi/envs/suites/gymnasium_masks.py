"""Finds the mask of legal actions of a Gymnasium environment, in the places where libraries put it."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool

from moozi.core.errors import UserError
from moozi.envs.validation import check_mask, one_line, short

MASK_ENTRY = "action_mask"
"""The entry of a Dict observation, or of `info`, that is the mask (PettingZoo; Gymnasium's Taxi)."""
_ACTIONS_ENTRY = "legal_actions"
_METHOD = "action_masks"  # of sb3-contrib


def entry_of(where: str, observation: Any, key: Any) -> Any:
  """Returns an entry of an observation. Raises UserError, which starts with `where`, if there is none."""
  try:
    return observation[key]
  except (KeyError, IndexError, TypeError):
    raise UserError(f"{where}: an observation without {key!r}, an entry of its space") from None


def observed_space(where: str, space: Any) -> tuple[Any, Callable[[Any], Any]]:
  """Returns a space without its mask, and a function that returns an observation without its mask.

  In a Dict with other entries, also in one within another Dict, the entry `action_mask` is not part of the
  observation. Where one other entry is left, it takes the place of the Dict.
  """
  from gymnasium import spaces

  path = _path_of_mask(space)
  if not path:
    return space, lambda observation: observation
  parts = {key: observed_space(where, part) for key, part in space.spaces.items() if (key,) != path}
  if len(path) == 1 and len(parts) == 1:
    ((only, (part, select)),) = parts.items()
    return part, lambda observation: select(entry_of(where, observation, only))
  others = spaces.Dict({key: part for key, (part, _) in parts.items()})
  return others, lambda observation: {
    key: select(entry_of(where, observation, key)) for key, (_, select) in parts.items()
  }


def _path_of_mask(space: Any) -> tuple[str, ...]:
  """Returns the keys that lead to the first entry `action_mask` beside others; empty if there is none."""
  from gymnasium import spaces

  if not isinstance(space, spaces.Dict):
    return ()
  if MASK_ENTRY in space.spaces and len(space.spaces) > 1:
    return (MASK_ENTRY,)
  for key, part in space.spaces.items():
    if path := _path_of_mask(part):
      return (key, *path)
  return ()


class MaskReader:
  """Reads masks from the first of these places that the environment has.

  1. the entry `action_mask` of a Dict observation
  2. `info["action_mask"]`
  3. the actions in `info["legal_actions"]`
  4. the method `action_masks()` of the environment or of one of its wrappers

  Args:
    where: the start of error messages (`env.name=…`).
    env: a `gymnasium.Env`.
    num_actions, start: the number of entries of its mask, and its first action.

  Raises: UserError: the space of an `action_mask` has another number of entries.
  """

  def __init__(self, where: str, env: Any, num_actions: int, start: int) -> None:
    self._where, self._num_actions, self._start = where, num_actions, start
    self._path, space = _path_of_mask(env.observation_space), env.observation_space
    for key in self._path:
      space = space[key]
    if self._path and space.shape != (num_actions,):
      raise UserError(
        f"{where}: the observation's {MASK_ENTRY} is {short(space)}; must have {num_actions} entries, one "
        "for each action"
      )
    try:
      method = env.get_wrapper_attr(_METHOD)
    except AttributeError:
      method = None
    self._method = method if callable(method) else None

  def read(self, observation: Any, info: Any, is_end: bool) -> Bool[np.ndarray, "E"] | None:
    """Returns the mask after a step; None without a mask, and where an end leaves no legal action.

    Raises: UserError: as `check_mask`; the observation lacks the entry of its mask; `info["legal_actions"]`
      is not a list of distinct actions of the environment.
    """
    name, mask = self._find(observation, info)
    if mask is None:
      return None
    out = check_mask(self._where, name, mask, self._num_actions, is_end)
    return out if out.any() else None

  def in_observation(self, observation: Any) -> Bool[np.ndarray, "E"] | None:
    """Returns the mask in a Dict observation; None if its space has none.

    Raises: UserError: as `check_mask`; the observation lacks the entry of its mask.
    """
    if not self._path:
      return None
    return check_mask(self._where, *self._find(observation, {}), self._num_actions, is_end=False)

  def _find(self, observation: Any, info: Any) -> tuple[str, Any]:
    info = info if isinstance(info, dict) else {}
    if self._path:
      for key in self._path:
        observation = entry_of(self._where, observation, key)
      return f"the observation's {MASK_ENTRY}", observation
    if info.get(MASK_ENTRY) is not None:
      return f"info[{MASK_ENTRY!r}]", info[MASK_ENTRY]
    if info.get(_ACTIONS_ENTRY) is not None:
      return f"info[{_ACTIONS_ENTRY!r}]", self._mask_of(info[_ACTIONS_ENTRY])
    if self._method is not None:
      return f"{_METHOD}()", self._method()
    return "", None

  def _mask_of(self, actions: Any) -> Bool[np.ndarray, "E"]:
    """Returns the mask of the environment's own actions in a list."""
    mask, last = np.zeros(self._num_actions, bool), self._start + self._num_actions - 1
    try:
      given = np.asarray(sorted(actions) if isinstance(actions, set | frozenset) else actions)
    except (TypeError, ValueError):
      given = np.zeros((0, 0))
    is_list = given.ndim == 1 and (given.dtype.kind in "iu" or given.size == 0)
    indices = given.astype(int) - self._start if is_list else np.zeros(1, int) - 1
    is_known = bool(((indices >= 0) & (indices < self._num_actions)).all())
    if not is_known or len(np.unique(indices)) < len(indices):
      raise UserError(
        f"{self._where}: info[{_ACTIONS_ENTRY!r}]={one_line(actions, 80)}: must be different actions from "
        f"{self._start} to {last}; a mask is info[{MASK_ENTRY!r}]"
      )
    mask[indices] = True
    return mask

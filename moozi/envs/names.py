"""Names that third-party environments give to their actions and to the entries of their observations."""

import functools
import logging
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from moozi.core.errors import one_line

_log = logging.getLogger("moozi.envs")

# Larger spaces get no names, because nobody reads that many entries one by one.
MAX_NAMED = 4096


def action_names(where: str, env: Any, num_actions: int, start: int = 0) -> tuple[str, ...]:
  """Returns the names of an environment's actions; without names, the actions' numbers from `start` on.

  The outermost layer that has names provides them: by the attribute `action_names`, the result of
  `get_action_meanings()`, or the members of an enumeration `actions`. Layers below a wrapper that changes
  actions are not read.

  Args:
    where: the start of warnings (`env.name=…`). Names that do not fit are left out with a warning.
  """
  for layer in _layers(env, "ActionWrapper"):
    for key, read in (
      ("action_names", lambda names: names),
      ("get_action_meanings", lambda names: names()),
      ("actions", _members),
    ):
      names = _read(where, layer, key, num_actions, read)
      if names:
        return names
  return tuple(str(start + i) for i in range(num_actions))


def frame_names(where: str, env: Any, num_entries: int) -> tuple[str, ...]:
  """Returns the attribute `frame_names` of an environment: names of planes or entries; empty if it has none.

  Layers below a wrapper that changes observations are not read. `where` is as in `action_names`.
  """
  for layer in _layers(env, "ObservationWrapper"):
    names = _read(where, layer, "frame_names", num_entries, lambda names: names)
    if names:
      return names
  return ()


def entry_names(space: Any) -> tuple[str, ...]:
  """Returns a name for each entry of `gymnasium.spaces.flatten` of a Dict or Tuple space.

  The only entry of an array has the name of the array's key, such as `speed`. Names of other entries also
  have an index or a value, such as `position 0`, `goal 3` or `inner mission 0,1`. Returns () if the space is
  not of this kind, has more than 4,096 entries, or has an entry without a name or with a name that cannot be
  printed.
  """
  from gymnasium import spaces

  if not isinstance(space, spaces.Dict | spaces.Tuple) or spaces.flatdim(space) > MAX_NAMED:
    return ()
  names = tuple(_entries(space, ()))
  is_text = all(name.isprintable() for name in names)
  return names if is_text and len(names) == spaces.flatdim(space) else ()


def _entries(space: Any, keys: tuple[str, ...]) -> Iterator[str]:
  from gymnasium import spaces

  if isinstance(space, spaces.Dict | spaces.Tuple):
    parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    for key, part in parts:
      yield from _entries(part, (*keys, str(key)))
    return
  name = " ".join(keys)
  if isinstance(space, spaces.Discrete):
    yield from (f"{name} {int(space.start) + i}" for i in range(int(space.n)))
  elif isinstance(space, spaces.MultiDiscrete):
    starts = np.broadcast_to(getattr(space, "start", 0), space.nvec.shape)
    for at, size in np.ndenumerate(space.nvec):
      yield from (f"{name} {','.join(map(str, at))}={int(starts[at]) + i}" for i in range(int(size)))
  else:
    yield from array_entries(name, space.shape or ())


def array_entries(name: str, shape: tuple[int, ...]) -> Iterator[str]:
  """Yields a name for each entry of an array: `position 0`, `matrix 0,1`; of a single entry, `speed`."""
  for at in np.ndindex(*shape):
    yield name if math.prod(shape) == 1 else f"{name} {','.join(map(str, at))}"


def _layers(env: Any, changes: str) -> Iterator[Any]:
  """Yields an environment and those that it wraps, down to a Gymnasium wrapper of the class `changes`."""
  gymnasium = sys.modules.get("gymnasium")
  yield env
  while gymnasium is not None and isinstance(env, gymnasium.Wrapper):
    if isinstance(env, getattr(gymnasium, changes)):
      return
    env = env.env
    yield env


def _members(actions: Any) -> list[str] | None:
  """Returns the names of an enumeration with the values 0 … n - 1, in their order; None for other objects."""
  members = getattr(actions, "__members__", None)
  values = [] if members is None else [getattr(member, "value", None) for member in members.values()]
  if members is None or not all(type(value) is int for value in values):
    return None
  pairs = sorted(zip(values, members, strict=True))
  return [name for _, name in pairs] if [value for value, _ in pairs] == list(range(len(pairs))) else None


def _read(where: str, layer: Any, key: str, size: int, read: Callable[[Any], Any]) -> tuple[str, ...]:
  """Returns the names in an attribute of a layer; empty if it has none or they do not fit."""
  try:
    value = getattr(layer, key, None)
    names = None if value is None else read(value)
    if names is None:
      return ()
    texts = () if isinstance(names, str | dict) else tuple(names)
    if len(texts) == size and all(isinstance(text, str) and text.isprintable() for text in texts):
      return tuple(map(str, texts))
    problem = f"{one_line(repr(names), 80)}: must be {size} texts that can be printed"
  except Exception as error:
    problem = f"{type(error).__name__}: {one_line(error, 80)}"
  _warn(where, f"{key}: {problem}; the names are left out")
  return ()


@functools.cache
def _warn(where: str, what: str) -> None:
  _log.warning("%s: its %s", where, what)

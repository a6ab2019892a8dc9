"""How a person chooses an action with keys: a key for each action, or keys that set each dimension."""

from typing import Protocol

import numpy as np
from jaxtyping import Bool

from moozi.core.factors import Factors, Intervals, bins, value_text
from moozi.core.spec import EnvSpec
from moozi.envs.action_spaces import DEFAULT_BINS

Action = int | np.ndarray
"""The number of an action, or the row [D] float32 of a continuous action."""

CHANGED, IDLE_KEY = "changed", "idle"
_SIGNS = "0123456789bcefghijklmnortuvxyz"
# Keys by action name; each action also has a digit or a letter.
_NAMED_KEYS = {
  "left": ("left", "a"),
  "right": ("right", "d"),
  "up": ("up", "w"),
  "down": ("down", "s"),
  "fire": (" ",),
  "noop": (".",),
  "none": (".",),
  "stay": (".", "down"),
}
_IDLE_NAMES = ("noop", "none", "stay")
_MAX_LISTED = 20


class Controls(Protocol):
  """The keys that choose an environment's actions."""

  @property
  def idle(self) -> Action | None:
    """The action that is played without a key at `--speed`; None if there is none."""

  def press(self, key: str | None, legal: Bool[np.ndarray, "E"]) -> Action | str | None:
    """Returns the legal action of a key, CHANGED if the key changes what is shown, or None.

    IDLE_KEY means that no key was pressed in time; its action is `idle`.
    """

  def lines(self) -> list[str]:
    """Returns lines of text that explain the keys."""


def controls_of(spec: EnvSpec) -> Controls:
  """Returns keys that set each dimension if the actions have dimensions, otherwise a key for each action."""
  return KeyPerAction(spec) if spec.factors is None else KeysOfDimensions(spec)


class KeyPerAction:
  """A digit or a letter for each of the first 30 actions, and further keys for some names of actions."""

  def __init__(self, spec: EnvSpec) -> None:
    self._keys, self._names = keys_of(spec), own_names(spec)
    self.idle = next((a for a, name in enumerate(self._names) if name.lower() in _IDLE_NAMES), None)

  def press(self, key: str | None, legal: Bool[np.ndarray, "E"]) -> int | str | None:
    action = self.idle if key == IDLE_KEY else None if key is None else self._keys.get(key)
    return action if action is not None and legal[action] else None

  def lines(self) -> list[str]:
    def pressed(action: int) -> str:
      return " ".join("space" if key == " " else key for key, a in self._keys.items() if a == action)

    return [f"{name}: {pressed(action)}" for action, name in enumerate(self._names[:_MAX_LISTED])]


class KeysOfDimensions:
  """Up and down choose a dimension, left and right change its value, and enter or space plays the values.

  A digit sets the value by its number. Values stay until they are changed; at first each dimension has its
  middle value. A continuous dimension has as many values as one with the default number of bins.
  """

  def __init__(self, spec: EnvSpec) -> None:
    assert spec.factors is not None
    self._factors = spec.factors
    self._values = self._factors.values
    if isinstance(self._factors, Intervals):
      self._values = tuple(bins(low, high, DEFAULT_BINS) for low, high in self._values)
    self._is_factored = spec.is_factored
    self._row, self._at = [len(values) // 2 for values in self._values], 0

  @property
  def idle(self) -> Action:
    if isinstance(self._factors, Factors):
      return self._factors.index(self._row)
    return np.array([values[i] for values, i in zip(self._values, self._row, strict=True)], np.float32)

  def press(self, key: str | None, legal: Bool[np.ndarray, "E"]) -> Action | str | None:
    size = len(self._values[self._at])
    if key in ("enter", " ", IDLE_KEY):
      return self.idle if self._is_factored or legal[self.idle] else None
    if key in ("up", "down"):
      self._at = (self._at + (1 if key == "down" else -1)) % len(self._row)
    elif key in ("left", "right"):
      self._row[self._at] = min(size - 1, max(0, self._row[self._at] + (1 if key == "right" else -1)))
    elif key is not None and key.isdigit() and int(key) < size:
      self._row[self._at] = int(key)
    else:
      return None
    return CHANGED

  def lines(self) -> list[str]:
    names = self._factors.names
    texts = [value_text(values[i]) for values, i in zip(self._values, self._row, strict=True)]
    # Of many dimensions, those around the chosen one are shown.
    first = max(0, min(self._at - _MAX_LISTED // 2, len(names) - _MAX_LISTED))
    shown = range(first, min(len(names), first + _MAX_LISTED))
    width = max(len(names[d]) for d in shown)
    out = [
      f"{'>' if d == self._at else ' '} {names[d]:<{width}}  {texts[d]:<6}  {_range(values)}"
      for d, values in ((d, self._factors.values[d]) for d in shown)
    ]
    return [*out, "", "up down: dimension   left right: value", "enter: step"]


def dimensions_prompt(factors: Factors | Intervals) -> str:
  """Returns the dimensions with the ranges of their values as text."""
  pairs = zip(factors.names, factors.values, strict=True)
  return ", ".join(f"{name}: {_range(values)}" for name, values in pairs)


def _range(values: tuple[float, ...]) -> str:
  return f"{value_text(values[0])} … {value_text(values[-1])}"


def own_names(spec: EnvSpec) -> list[str]:
  """Returns the names of the environment's own actions."""
  from moozi.vis.action_names import action_names

  return list(action_names(spec)[1:])


def keys_of(spec: EnvSpec) -> dict[str, int]:
  """Maps keys to the environment's actions; see `KeyPerAction`."""
  keys = dict(zip(_SIGNS, range(spec.num_env_actions), strict=False))
  named: dict[str, int] = {}
  for action, name in enumerate(own_names(spec)):
    named |= {key: action for key in _NAMED_KEYS.get(name.lower(), ()) if key not in named}
  return named | {key: action for key, action in keys.items() if key not in named}

"""Checks a loaded state of a training worker's collector against that of a newly built one."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from moozi.core.flat_state import Entry, State, check_state, entries_like, part

# The parts of the state that other settings may add or remove; see `acting.past_selves` and `envs.vector`.
_PAST, _ENV = "past", "env"
# The actions of each game since its start, which `envs.vector` replays.
_LOG = "env/log"
# The ranges of some figures. A game's own state may hold any number.
_RANGES = {
  "past/status": (0, 2),
  "past/mover": (0, 1),
  "past/version": (-1, 2**53),
  "env/log_lengths": (0, 2**53),
}
# The numbers of games begun, which cost time to restore: a game has a step, except after some resets.
_NUM_GAMES, _MAX_RESETS = ("env/games", "env/num_seeds"), 1 << 20
# What wrappers of an agent keep (`acting.temperature_drop`, `acting.holding`).
_COUNTS = ("carry/num_moves", "carry/steps_made")
_WRAPPERS = (*_COUNTS, "carry/last_action")
# What the agent has seen, by a part of the name.
_SHOWN = ("carry/", "timestep/", "returns", "episode_return")


def have_same_settings(saved: Sequence[State], own: Sequence[State]) -> bool:
  """Returns whether collectors were saved with the settings of those that were built.

  The number of workers, of environments and of games against past selves may have changed, and so may the
  wrappers of the agent and the class of a collector and of its environments. An altered state of the same
  settings is not detected here.
  """
  if len(saved) != len(own):
    return False
  return all(
    _is_same_class(a, b) and _wrappers(a) == _wrappers(b) and not _has_other_size(a, b)
    for a, b in zip(saved, own, strict=True)
  )


def check_collector(saved: State, own: State, env_steps: int) -> None:
  """Checks a state that was saved with the settings of the collector whose state is `own`.

  Args:
    env_steps: environment steps of the run.

  Raises: ValueError: an entry is missing, not expected or invalid; the message names it.
  """
  # Without past selves, the collector ignores their part; it begins a new round if the state has none.
  if not (part(saved, _PAST) and part(own, _PAST)):
    saved, own = (
      {name: x for name, x in s.items() if not name.startswith(f"{_PAST}/")} for s in (saved, own)
    )
  entries = entries_like(own)
  for name, entry in entries.items():
    if name in _RANGES:
      low, high = _RANGES[name]
      entries[name] = dataclasses.replace(entry, low=low, high=high)
    elif name.endswith(_COUNTS):
      entries[name] = dataclasses.replace(entry, low=0, high=2**30)
    elif name in _NUM_GAMES:
      entries[name] = dataclasses.replace(entry, low=0, high=env_steps + _MAX_RESETS)
    elif name.endswith("timestep/to_play"):
      entries[name] = dataclasses.replace(entry, low=0, high=1)
    elif any(shown in name for shown in _SHOWN):
      # A segment with a NaN is refused, and its environments are reset.
      entries[name] = dataclasses.replace(entry, may_be_nan=False)
  if _LOG in entries:
    log = entries[_LOG]  # of continuous actions, rows of floats; a reset is NaN
    least = -math.inf if log.kind == "float32" else -1
    entries[_LOG] = Entry(log.kind, (None, *log.shape[1:]), low=least, may_be_nan=True)
  check_state(saved, entries)
  if _LOG in entries and int(saved["env/log_lengths"].sum()) != len(saved[_LOG]):
    raise ValueError(f"env/log_lengths contradicts {_LOG}")
  for name, value in saved.items():
    if name.endswith("timestep/legal_actions_mask") and not value.any(axis=-1).all():
      raise ValueError(f"{name} allows no action")


def _wrappers(state: State) -> set[str]:
  return {wrapper for wrapper in _WRAPPERS for name in state if name.endswith(wrapper)}


def _is_same_class(saved: State, own: State) -> bool:
  """Returns whether the parts have a name in common, as any two states of one class have."""
  env, own_env = part(saved, _ENV), part(own, _ENV)
  return bool(saved.keys() & own.keys()) and (not own_env or bool(env.keys() & own_env.keys()))


def _has_other_size(saved: State, own: State) -> bool:
  """Returns whether all saved arrays have one other number of environments, or of games with past selves."""
  for is_past in (False, True):
    sizes = {
      (np.shape(saved[name])[0], np.shape(own[name])[0])
      for name in saved.keys() & own.keys()
      if name.startswith(f"{_PAST}/") == is_past
      and name != _LOG
      and not name.endswith("rng_key")
      and np.ndim(saved[name])
      and np.ndim(own[name])
    }
    if len(sizes) == 1 and any(a != b for a, b in sizes):
      return True
  return False

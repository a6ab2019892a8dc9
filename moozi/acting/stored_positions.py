"""Positions to search out of lanes that are read from their beginning, part after part. No JAX."""

import numpy as np

from moozi.core.pytree import map_fields, replace
from moozi.core.records import SearchedRoots, SearchRoots, TrajectorySample
from moozi.core.spec import EnvSpec
from moozi.ops.history import init_history
from moozi.ops.targets import history_window


class LaneRoots:
  """Makes roots of successive steps of many lanes; remembers of each what the next histories need.

  Args:
    spec: the environment's facts.
    history_length: L.
  """

  def __init__(self, spec: EnvSpec, history_length: int) -> None:
    self._spec, self._length = spec, history_length
    # By lane, of its last L steps: frames, actions, is_first.
    self._tails: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

  def add(self, lane: int, steps: TrajectorySample) -> SearchRoots:
    """The roots of a lane's next steps [T, …]: all but terminal frames; `slot` says which of the steps.

    Where a lane begins in the middle of an episode, the history begins there.
    """
    length = self._length
    is_first = np.array(steps.is_first)
    if lane not in self._tails:
      blank = init_history(1, length, self._spec)
      self._tails[lane] = blank.frames[0], blank.actions[0], np.zeros(length, bool)
      is_first[0] = True
    parts = zip(self._tails[lane], (steps.frame, steps.action, is_first), strict=True)
    frames, actions, firsts = (np.concatenate(pair) for pair in parts)
    self._tails[lane] = frames[-length:].copy(), actions[-length:].copy(), firsts[-length:].copy()
    at = np.flatnonzero(~steps.is_last | steps.is_truncated)
    # Step i lies at L + i behind the tail; the frame after it is not asked for, and any will do.
    here = at[:, None] + length
    window = here + np.arange(-length + 1, 1)
    rows, past = history_window(
      frames=frames[np.concatenate([window, here], axis=1)],
      actions=actions[here + np.arange(-length, 1)],
      is_first=firsts[window],
      is_last=steps.is_last[at],
    )
    return SearchRoots(
      frames=np.ascontiguousarray(rows[:, :-1]),
      history_actions=np.ascontiguousarray(past[:, :-1]),
      legal_actions_mask=steps.legal_actions_mask[at],
      root_value=steps.root_value[at],
      action_probs=steps.action_probs[at],
      searched_version=steps.searched_version[at],
      slot=at,
      sequence=at,
    )


def join_roots(roots: list[SearchRoots]) -> SearchRoots:
  """Several as one."""
  return map_fields(lambda *xs: np.concatenate(xs), *roots)


def with_searched(
  steps: TrajectorySample, at: np.ndarray, searched: SearchedRoots, rows: slice
) -> TrajectorySample:
  """A copy of steps [T, …] with a new search's values and policies, those of `rows`, at steps `at` [M]."""
  names = ("root_value", "action_probs", "searched_version")
  fresh = {name: np.array(getattr(steps, name)) for name in names}
  for name, array in fresh.items():
    array[at] = getattr(searched, name)[rows]
  return replace(steps, **fresh)

"""Makes search roots from trajectory files, for `moozi reanalyze`. Imports no JAX."""

import numpy as np
from jaxtyping import Int

from moozi.core.pytree import map_fields, replace
from moozi.core.records import SEARCH_FIELDS, SearchedRoots, SearchRoots, TrajectorySample
from moozi.core.spec import EnvSpec
from moozi.ops.history import history_window, init_history


class LaneRoots:
  """Builds search roots from the steps of many lanes; keeps the last L steps of each lane for histories."""

  def __init__(self, spec: EnvSpec, history_length: int) -> None:
    self._spec, self._length = spec, history_length
    # By lane: frames, actions and is_first of the last L steps.
    self._tails: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

  def add(self, lane: int, steps: TrajectorySample) -> SearchRoots:
    """Returns the roots of a lane's next steps [T, …], without terminal frames.

    The roots' `slot` and `sequence` are indices in `steps`. If a lane begins in the middle of an episode, its
    history begins there too.
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
    live = np.flatnonzero(~steps.is_last | steps.is_truncated)
    # The tail precedes the steps, so step i has index L + i.
    window = live[:, None] + length + np.arange(-length + 1, 1)
    past_frames, past_actions = history_window(
      frames=frames[window],
      actions=actions[window - 1],
      is_first=firsts[window],
      is_last=np.zeros((len(live), 0), bool),
    )
    return SearchRoots(
      frames=past_frames,
      history_actions=past_actions,
      legal_actions_mask=steps.legal_actions_mask[live],
      root_value=steps.root_value[live],
      action_probs=steps.action_probs[live],
      searched_version=steps.searched_version[live],
      slot=live,
      sequence=live,
    )


def join_roots(roots: list[SearchRoots]) -> SearchRoots:
  return map_fields(lambda *xs: np.concatenate(xs), *roots)


def with_searched(
  steps: TrajectorySample, at: Int[np.ndarray, "M"], searched: SearchedRoots, rows: slice
) -> TrajectorySample:
  """Returns a copy of steps [T, …] with the new search results `searched[rows]` at the indices `at`."""
  fresh = {name: np.array(getattr(steps, name)) for name in SEARCH_FIELDS}
  for name, array in fresh.items():
    array[at] = getattr(searched, name)[rows]
  return replace(steps, **fresh)

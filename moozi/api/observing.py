"""Reads what a user passes to an `Agent`: observations of several types, masks, lanes and actions."""

from collections.abc import Callable
from typing import Any

import numpy as np
from dm_env import StepType, TimeStep
from jaxtyping import Bool, Int, Num, Shaped

from moozi.core.errors import UserError, one_line
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Observation, check_action
from moozi.envs.observations import Frame, OwnObservations
from moozi.envs.validation import as_array
from moozi.envs.vector import blank_step, mark_end


class ObservationReader:
  """Reads the observations of one game, and those of several games, into rows of a `BatchedTimeStep`.

  It keeps which games are at a start, where the next frame has no history. It reads the observation of a
  `TimeStep`. An `Observation` has a frame, and a `Frame` is one. Anything else is an observation of the
  environment's own if the environment has such a form, and a frame if not.

  Args:
    own: returns the form of the environment's own observations, or None; called when it is needed.
  """

  def __init__(self, spec: EnvSpec, own: Callable[[], OwnObservations | None]) -> None:
    self._spec, self._own = spec, own
    self._is_first, self._is_first_of = True, np.ones(0, bool)

  def reset(self, lanes: Any = None) -> None:
    """Starts new episodes in the games that `lanes` names; None: in all, and in the single one."""
    if lanes is None:
      self._is_first = True
      self._is_first_of[:] = True
    else:
      self._is_first_of[read_lanes(lanes, len(self._is_first_of))] = True

  def split(self, observations: Any) -> list[Any] | None:
    """Returns the observations of a batch; None if the argument is one observation.

    A list is a batch, and so is an array with one axis more than a frame. `OwnObservations.split` finds the
    batches of the environment's own observations. Raises UserError if a batch is empty.
    """
    if isinstance(observations, TimeStep | Observation):
      return None
    if isinstance(observations, list):
      rows = observations
    elif not isinstance(observations, Frame) and (own := self._own()) is not None:
      return own.split(observations)
    else:
      frames = as_array("observation", observations).view(Frame)
      if frames.ndim != len(self._spec.frame_shape) + 1:
        return None
      rows = list(frames)
    if not rows:
      raise UserError("observation: a batch without observations; must have at least one")
    return rows

  def read_one(self, observation: Any, legal: Any, lanes: Any = None) -> BatchedTimeStep:
    """Returns one observation as a batch of one; call `advance` once the agent has its frame.

    Raises: UserError: it does not fit the environment, the episode is over, or `lanes` is given.
    """
    if lanes is not None:
      raise UserError(f"lanes={one_line(lanes, 80)}: is for B observations; this is one observation")
    if isinstance(observation, TimeStep) and observation.last():
      raise UserError("observation: the episode is over (a LAST step); reset the environment")
    out = blank_step(self._spec, 1)
    self.read(out, 0, observation, legal, self._is_first)
    return out

  def advance(self, games: Int[np.ndarray, "n"] | None = None) -> None:
    """Marks games as in an episode, which their next frames continue; None: the single game."""
    if games is None:
      self._is_first = False
    else:
      self._is_first_of[games] = False

  def read_games(
    self, rows: list[Any], legal: Any, lanes: Any
  ) -> tuple[Int[np.ndarray, "n"], BatchedTimeStep]:
    """Returns the games that `lanes` names and their observations.

    Call `advance` once the agent has the frames. The first call, and the first after a `reset` of all games,
    determines the number of games.

    Raises: UserError: another number of games is in progress, or an argument does not fit the environment.
    """
    num_games, is_first_of = len(rows), self._is_first_of
    if num_games != len(is_first_of):
      if not is_first_of.all():
        raise UserError(
          f"observation: {num_games} observations; {len(is_first_of)} games are played; call agent.reset() "
          "before others"
        )
      self._is_first_of = is_first_of = np.ones(num_games, bool)
    games, masks = read_lanes(lanes, num_games), read_rows("legal", legal, num_games)
    out = blank_step(self._spec, len(games))
    for i, game in enumerate(games.tolist()):
      try:
        self.read(out, i, rows[game], masks[game], bool(is_first_of[game]))
      except UserError as error:
        raise UserError(f"observation {game} of {num_games}: {error}") from None
    return games, out

  def read(self, out: BatchedTimeStep, i: int, observation: Any, legal: Any, is_first: bool) -> None:
    """Writes an observation to row i of a blank step.

    Args:
      legal: [mask_size] bool; None takes the mask of the observation, or allows every action.
      is_first: whether the agent's history starts here; a FIRST TimeStep also starts it. With an
        `Observation` that `is_continued`, it does not start.

    Raises: UserError: the observation or the mask does not fit the environment.
    """
    step = observation if isinstance(observation, TimeStep) else None
    mask, to_play = legal, 0
    if step is not None:
      is_first, observation = is_first or step.step_type is StepType.FIRST, step.observation
    if not isinstance(observation, Observation | Frame) and (own := self._own()) is not None:
      frame, own_mask, to_play = own.read(observation)
      mask = own_mask if legal is None else legal
    elif isinstance(observation, Observation):
      is_first = is_first and not observation.is_continued
      mask = observation.legal_actions_mask if legal is None else legal
      to_play, frame = observation.to_play, observation.frame
    else:
      frame = observation
    out.frame[i] = _check_frame(frame, self._spec)
    out.is_first[i], out.to_play[i] = is_first, to_play
    if step is not None and step.last():
      mark_end(out, i, is_truncated=bool(step.discount))
      mask = None if legal is None and not step.discount else mask
    if not out.is_last[i] or out.is_truncated[i]:
      out.legal_actions_mask[i, 1:] = _check_legal(mask, self._spec)


def read_lanes(lanes: Any, num_lanes: int) -> Int[np.ndarray, "n"]:
  """Returns the indices of lanes that a mask [B], or a list of different indices, names; None means all.

  Raises: UserError: `lanes` is neither.
  """
  if lanes is None:
    return np.arange(num_lanes)
  given = as_array("lanes", lanes)
  if given.dtype.kind == "b" and given.shape == (num_lanes,):
    return np.flatnonzero(given)
  if given.size == 0 and given.ndim == 1 and given.dtype.kind != "b":
    return np.zeros(0, int)
  is_list = given.ndim == 1 and given.dtype.kind in "iu" and len(np.unique(given)) == given.size
  if not is_list or given.min() < 0 or given.max() >= num_lanes:
    raise UserError(
      f"lanes={one_line(lanes, 80)}: must be bool[{num_lanes}], or different lanes from 0 to {num_lanes - 1}"
    )
  return given.astype(int)


def read_rows(name: str, values: Any, num_lanes: int) -> Any:
  """Returns an argument that has a row for each lane; for None, a list of None for each lane.

  Raises: UserError: the number of rows differs.
  """
  if values is None:
    return [None] * num_lanes
  try:
    count = len(values)
  except TypeError:
    count = -1
  if count != num_lanes:
    found = "one value" if count < 0 else f"{count} rows"
    raise UserError(f"{name}: {found}; must have {num_lanes}, one for each observation")
  return values


def _check_frame(frame: Any, spec: EnvSpec) -> Shaped[np.ndarray, "H W C"]:
  out = as_array("observation", frame)
  if out.shape != spec.frame_shape or out.dtype != np.dtype(spec.frame_dtype):
    raise UserError(
      f"observation: {_describe(out)}; must be {spec.frame_dtype}{list(spec.frame_shape)}, a frame of "
      f"{spec.name} as agent.make_env() returns it"
    )
  if out.dtype.kind == "f" and not np.isfinite(out).all():
    raise UserError("observation: has numbers that are not finite")
  return out


def _check_legal(legal: Any, spec: EnvSpec) -> Bool[np.ndarray, "E"]:
  if legal is None:
    return np.ones(spec.mask_size, bool)
  mask = as_array("legal", legal)
  # Masks of other libraries are integers of 0 and 1.
  is_mask = mask.dtype.kind == "b" or (mask.dtype.kind in "iu" and np.isin(mask, (0, 1)).all())
  if mask.shape != (spec.mask_size,) or not is_mask:
    raise UserError(
      f"legal: {_describe(mask)}; must be bool[{spec.mask_size}], one entry for each action of {spec.name}"
    )
  if not mask.any():
    raise UserError("legal: allows no action; at least one must be legal")
  return mask.astype(bool)


def _describe(array: np.ndarray) -> str:
  return f"{array.dtype}{list(array.shape)}"


def split_actions(actions: Any, spec: EnvSpec) -> Any:
  """Returns N actions by row: numbers as they are; own actions of the environment, split from stacked arrays.

  Raises: UserError: the arrays have another form, or different numbers of rows.
  """
  array = actions if isinstance(actions, np.ndarray) else None
  has_numbers = array is not None and array.ndim == 1 and array.dtype.kind in "iu"
  if spec.factors is None or (has_numbers and not spec.is_continuous):
    return actions
  try:
    return spec.factors.split(actions)
  except ValueError as error:
    raise UserError(str(error)) from None


def read_actions(actions: Any, spec: EnvSpec, step: BatchedTimeStep) -> Num[np.ndarray, "n *D"]:
  """Returns other players' actions at the frames of a step, in the agent's action space.

  Raises: UserError: an action is illegal.
  """
  try:
    legal = step.legal_actions_mask[:, 1:]
    own = [check_action(a, spec, mask) for a, mask in zip(actions, legal, strict=True)]
    return np.array([spec.from_env(a) for a in own], spec.action_dtype).reshape(-1, *spec.action_shape)
  except ValueError as error:
    raise UserError(str(error)) from None

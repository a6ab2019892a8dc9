"""Parts that the added games share: their type, their sizes and their observer."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyspiel

Write = Callable[[np.ndarray, Any, int], None]
"""A function (tensor, state, player) that writes the player's view of a state into a tensor of zeros."""


class Observer:
  """A player's view of a state, as the package's `PyObserver`.

  Args:
    shape: shape of the tensor.
    write: writes the tensor.
    describe: maps (state, player) to the view as text.
  """

  def __init__(self, shape: tuple[int, ...], write: Write, describe: Callable[[Any, int], str]) -> None:
    self.tensor = np.zeros(int(np.prod(shape)), np.float32)
    self.dict = {"observation": self.tensor.reshape(shape)}
    self._write, self._describe = write, describe

  def set_from(self, state: Any, player: int) -> None:
    self.tensor.fill(0)
    self._write(self.dict["observation"], state, player)

  def string_from(self, state: Any, player: int) -> str:
    return self._describe(state, player)


def game_type(
  short_name: str,
  long_name: str,
  *,
  num_players: tuple[int, int] = (2, 2),
  has_chance: bool = False,
  has_hidden: bool = False,
  parameters: dict[str, Any] | None = None,
) -> Any:
  """Returns the `GameType` of a zero-sum game with turns and rewards only at its end.

  Args:
    num_players: the smallest and the largest number of players.
    parameters: the game's parameters with their defaults.
  """
  kinds = pyspiel.GameType
  return kinds(
    short_name=short_name,
    long_name=long_name,
    dynamics=kinds.Dynamics.SEQUENTIAL,
    chance_mode=kinds.ChanceMode.EXPLICIT_STOCHASTIC if has_chance else kinds.ChanceMode.DETERMINISTIC,
    information=(
      kinds.Information.IMPERFECT_INFORMATION if has_hidden else kinds.Information.PERFECT_INFORMATION
    ),
    utility=kinds.Utility.ZERO_SUM,
    reward_model=kinds.RewardModel.TERMINAL,
    max_num_players=num_players[1],
    min_num_players=num_players[0],
    provides_information_state_string=False,
    provides_information_state_tensor=False,
    provides_observation_string=True,
    provides_observation_tensor=True,
    provides_factored_observation_string=False,
    parameter_specification=parameters or {},
  )


def game_info(
  num_actions: int, max_length: int, *, num_players: int = 2, max_chance_outcomes: int = 0
) -> Any:
  """Returns the `GameInfo` of a game whose returns are from -1 to 1."""
  return pyspiel.GameInfo(
    num_distinct_actions=num_actions,
    max_chance_outcomes=max_chance_outcomes,
    num_players=num_players,
    min_utility=-1.0,
    max_utility=1.0,
    utility_sum=0.0,
    max_game_length=max_length,
  )


def check_parameter(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
  """Returns the value. Raises SpielError if it is not allowed; the suite reports the error in one line."""
  if value not in allowed:
    raise pyspiel.SpielError(f"{name}={value}: must be one of {', '.join(map(str, allowed))}")
  return value

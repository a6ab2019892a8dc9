"""Simplest: the first player chooses a number from 1 to 4, then the second player does.

If the numbers match, the second player wins; otherwise the first player does. The second player sees the
first player's number, so with optimal play the second player always wins.

Source: Duvall, RLAIT: a Reinforcement Learning Artificial Intelligence Testbed, section 2.4.1. Departures:
none.
"""

from typing import Any

import numpy as np
import pyspiel

from moozi.envs.suites.open_spiel.games import base

NUMBERS = 4
_TYPE = base.game_type("simplest", "Simplest")


class SimplestGame(pyspiel.Game):
  """The game."""

  def __init__(self, params: dict[str, Any] | None = None) -> None:
    super().__init__(_TYPE, base.game_info(NUMBERS, 2), params or {})

  def new_initial_state(self) -> "SimplestState":
    return SimplestState(self)

  def make_py_observer(self, iig_obs_type: Any = None, params: Any = None) -> base.Observer:
    return base.Observer((2 * NUMBERS,), _write, lambda state, player: str(state))


class SimplestState(pyspiel.State):
  """A state; `played` has the actions so far, each the number minus 1."""

  def __init__(self, game: Any) -> None:
    super().__init__(game)
    self.played: tuple[int, ...] = ()

  def current_player(self) -> int:
    return pyspiel.PlayerId.TERMINAL if self.is_terminal() else len(self.played)

  def _legal_actions(self, player: int) -> list[int]:
    return list(range(NUMBERS))

  def _apply_action(self, action: int) -> None:
    self.played = (*self.played, action)

  def _action_to_string(self, player: int, action: int) -> str:
    return str(action + 1)

  def is_terminal(self) -> bool:
    return len(self.played) == 2

  def returns(self) -> list[float]:
    if not self.is_terminal():
      return [0.0, 0.0]
    first, second = self.played
    return [-1.0, 1.0] if first == second else [1.0, -1.0]

  def __str__(self) -> str:
    return " ".join(str(action + 1) for action in self.played)


def _write(tensor: np.ndarray, state: SimplestState, player: int) -> None:
  for i, action in enumerate(state.played):
    tensor[NUMBERS * i + action] = 1


pyspiel.register_game(_TYPE, SimplestGame)

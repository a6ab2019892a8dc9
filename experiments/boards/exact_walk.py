"""Plays an agent against every legal reply at every move, without sampling.

Supports deterministic two-player games of the package open_spiel whose trees are small enough to walk.
"""

import dataclasses
from typing import Any

import numpy as np

from experiments.boards.lines import Decide, Move, move_at
from moozi.core.errors import UserError
from moozi.envs.suites.open_spiel.rules import TERMINAL, Rules

_MAX_LOST = 10

Position = tuple[Any, list[Move]]
"""An OpenSpiel state and the moves that led to it."""


@dataclasses.dataclass(frozen=True)
class WalkResult:
  """Results of the agent in one seat.

  Attributes:
    seat: the agent's seat.
    wins, draws, losses: number of distinct final positions reached, by result for the agent.
    positions: number of positions in which the agent chose an action.
    lost: up to ten lost games, each as the list of its actions.
  """

  seat: int
  wins: int
  draws: int
  losses: int
  positions: int
  lost: list[list[int]]


def walk(
  rules: Rules, seat: int, decide: Decide, history_length: int = 1, max_positions: int = 5_000_000
) -> WalkResult:
  """Plays the agent in `seat` against every legal reply, breadth first; returns the counts of results.

  Merges lines of play with equal printed states and equal frames and actions in the agent's history.
  If the printed state of a game is incomplete (repetition in Go), this can merge lines that differ.

  Args:
    rules: the game.
    seat: the agent's seat, 0 or 1.
    decide: the agent, such as a result of `agent_decides`; called once for each of the agent's plies, with
      all lines of play. The agent plays the most probable action.
    history_length: L, number of frames and actions that the agent sees.
    max_positions: limit on the number of positions of both players.

  Raises:
    UserError: the game is not a deterministic two-player game, or the walk has more than `max_positions`
      positions.
    ValueError: the agent chose an illegal action.
  """
  if rules.spec.num_players != 2 or not rules.is_deterministic:
    raise UserError(f"{rules.spec.name}: only deterministic two-player games are supported")
  frontier: list[Position] = [(rules.game.new_initial_state(), [])]
  results, positions, count = {1: 0, 0: 0, -1: 0}, 0, 0
  lost: list[Any] = []
  while frontier:
    count += len(frontier)
    if count > max_positions:
      raise UserError(f"{rules.spec.name}: more than {max_positions:,} positions; choose a smaller game")
    lines = [[*past, move_at(rules, state)] for state, past in frontier]
    if frontier[0][0].current_player() == seat:  # the players alternate strictly
      positions += len(frontier)
      actions = np.argmax(decide(lines), axis=1)[:, None].tolist()
    else:
      actions = [state.legal_actions() for state, _ in frontier]
    ends, frontier = _play(rules, frontier, lines, actions, history_length)
    for state in ends:
      gain = int(np.sign(state.returns()[seat]))
      results[gain] += 1
      if gain < 0 and len(lost) < _MAX_LOST:
        lost.append(state.history())
  return WalkResult(seat, results[1], results[0], results[-1], positions, lost)


def _play(
  rules: Rules,
  frontier: list[Position],
  lines: list[list[Move]],
  actions: list[list[int]],
  history_length: int,
) -> tuple[list[Any], list[Position]]:
  """Plays the actions in each position; returns the distinct final states and the distinct next positions."""
  ends: dict[str, Any] = {}
  others: dict[tuple[Any, ...], Position] = {}
  for (state, _), (*past, move), chosen in zip(frontier, lines, actions, strict=True):
    for action in chosen:
      if not move.legal[action]:
        raise ValueError(f"action={action}: illegal after {state.history()}")
      child, line = state.child(action), [*past, move._replace(action=action)]
      if child.current_player() == TERMINAL:
        ends[str(child)] = child
        continue
      rules.next_player(child, state.current_player())
      recent = line[::-1][:history_length]
      # The history's oldest frame is dropped when the next frame is added.
      frames = [m.frame.tobytes() for m in recent[: history_length - 1]]
      others[str(child), *frames, *(m.action for m in recent)] = (child, line)
  return list(ends.values()), list(others.values())

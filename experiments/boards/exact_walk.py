"""Plays an agent against every legal reply at every move: a full walk of the game tree, without sampling.

Supports deterministic two-player games of the package open_spiel whose trees are small enough to walk.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Shaped

from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs.environment import moves_array
from moozi.envs.suites.open_spiel.rules import TERMINAL, Rules
from moozi.envs.vector import blank_step
from moozi.evaluation.evaluator import Evaluator
from moozi.ops.history import HistoryState, init_history, push_action, push_frame

_MAX_LOST = 10


@dataclasses.dataclass(frozen=True)
class Position:
  """A position in which the agent is to move, and its history.

  Attributes:
    state: the OpenSpiel state.
    frame: the current observation.
    legal_actions_mask: over the environment's actions, without the dummy.
    is_first: whether no move has been made.
    history: the agent's history in one lane, up to the last action.
  """

  state: Any
  frame: Shaped[np.ndarray, "H W C"]
  legal_actions_mask: Bool[np.ndarray, " num_env_actions"]
  is_first: bool
  history: HistoryState


Choose = Callable[[Sequence[Position]], Sequence[int]]
"""The agent as a function: maps positions to actions of the game, one per position."""


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
  rules: Rules, seat: int, choose: Choose, history_length: int = 1, max_positions: int = 5_000_000
) -> WalkResult:
  """Plays the agent in `seat` against every legal reply, breadth first; returns the counts of results.

  Merges lines of play with equal printed states and equal frames and actions in the agent's history.
  If the printed state of a game is incomplete (repetition in Go), this can merge lines that differ.

  Args:
    rules: the game.
    seat: the agent's seat, 0 or 1.
    choose: the agent; called once per depth with all positions.
    history_length: L, number of frames and actions that the agent sees.
    max_positions: limit on the number of positions of both players.

  Raises:
    UserError: the game is not a deterministic two-player game, or has more than `max_positions` positions.
    ValueError: the agent chose an illegal action.
  """
  _check(rules)
  start = init_history(1, history_length, rules.spec)
  frontier: dict[Any, tuple[Any, HistoryState]] = {None: (rules.game.new_initial_state(), start)}
  results, positions, count, is_first = {1: 0, 0: 0, -1: 0}, 0, 0, True
  lost: list[Any] = []
  while frontier:
    count += len(frontier)
    if count > max_positions:
      raise UserError(f"{rules.spec.name}: more than {max_positions:,} positions; choose a smaller game")
    mine, moves = [], []
    for state, history in frontier.values():
      position = _position(rules, state, history, is_first)
      if state.current_player() == seat:
        mine.append(position)
      else:
        moves += [(position, action) for action in state.legal_actions()]
    moves += _choices(mine, choose) if mine else []
    positions += len(mine)
    ends, frontier = _play(rules, moves)
    for state in ends:
      gain = int(np.sign(state.returns()[seat]))
      results[gain] += 1
      if gain < 0 and len(lost) < _MAX_LOST:
        lost.append(state.history())
    is_first = False
  return WalkResult(seat, results[1], results[0], results[-1], positions, lost)


def agent(
  evaluator: Evaluator, variables: tuple[Any, Any], spec: EnvSpec, *, prior: bool = False, width: int = 64
) -> Choose:
  """Returns a trained agent as the `choose` argument of `walk`.

  Args:
    evaluator: the run's evaluator, without noise.
    variables: (params, net_state).
    prior: choose the most probable legal action of the network's policy, without search.
    width: batch size of one call.
  """
  rng_key = jax.random.PRNGKey(0)

  def choose(positions: Sequence[Position]) -> list[int]:
    out: list[int] = []
    for i in range(0, len(positions), width):
      part = positions[i : i + width]
      history, step, moves = _stack(part, spec, evaluator.history_length, width)
      output = evaluator.decide(variables, history, step, rng_key, moves)
      actions = np.argmax(output.prior_probs, axis=-1) if prior else np.asarray(output.action)
      out += (actions[: len(part)] - 1).tolist()
    return out

  return choose


def _check(rules: Rules) -> None:
  if rules.spec.num_players != 2 or not rules.is_deterministic:
    raise UserError(f"{rules.spec.name}: only deterministic two-player games are supported")


def _position(rules: Rules, state: Any, history: HistoryState, is_first: bool) -> Position:
  return Position(
    state=state,
    frame=rules.frame(state, state.current_player()),
    legal_actions_mask=rules.legal_actions_mask(state),
    is_first=is_first,
    history=history,
  )


def _choices(mine: list[Position], choose: Choose) -> list[tuple[Position, int]]:
  out = list(zip(mine, choose(mine), strict=True))
  for position, action in out:
    if not position.legal_actions_mask[action]:
      raise ValueError(f"action={action}: illegal after {position.state.history()}")
  return out


def _play(rules: Rules, moves: list[tuple[Position, int]]) -> tuple[list[Any], dict]:
  """Plays every move; returns the distinct final states and the distinct next positions."""
  ends: dict[Any, Any] = {}
  frontier: dict[Any, tuple[Any, HistoryState]] = {}
  for position, action in moves:
    state = position.state.child(action)
    if state.current_player() == TERMINAL:
      ends[str(state)] = state
      continue
    rules.next_player(state, position.state.current_player())
    seen = push_frame(position.history, position.frame[None], np.array([position.is_first]))
    history = push_action(seen, np.array([action + 1], np.int32))
    # The next push drops the oldest frame.
    key = (str(state), history.frames[:, 1:].tobytes(), history.actions.tobytes())
    frontier[key] = (state, history)
  return list(ends.values()), frontier


def _stack(
  positions: Sequence[Position], spec: EnvSpec, history_length: int, width: int
) -> tuple[HistoryState, Any, np.ndarray]:
  """Stacks positions into a batch of `width`, padded with copies of the first position.

  Returns: the histories, the time steps, and the moves since the start (`Environment.position`).
  """
  rows = [*positions, *[positions[0]] * (width - len(positions))]
  step = blank_step(spec, width)
  step.frame[:] = [p.frame for p in rows]
  step.is_first[:] = [p.is_first for p in rows]
  step.to_play[:] = [p.state.current_player() for p in rows]
  step.legal_actions_mask[:, 1:] = [p.legal_actions_mask for p in rows]
  history = init_history(width, history_length, spec)
  history.frames[:] = np.concatenate([p.history.frames for p in rows])
  history.actions[:] = np.concatenate([p.history.actions for p in rows])
  length = rows[0].state.get_game().max_game_length()
  return history, step, np.stack([moves_array(p.state.history(), length) for p in rows])

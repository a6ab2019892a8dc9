"""Tactics of an agent in positions of random play of a board game: wins, blocks, and predicted rewards.

A *win* position has a move that wins immediately. A *block* position has no such move, and at least half of
the moves, but not all, allow the opponent to win immediately; the agent has to find one of the others. Both
kinds are found with the rules alone, so this works for every two-player game of open_spiel without chance and
hidden information.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from moozi.agent.policy import observe
from moozi.analysis.exploitability import Decide, Move, histories_of, line_of
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs.suites.open_spiel.rules import Rules
from moozi.nn.model import Model

PositionKind = Literal["win", "block"]
_MAX_GAMES = 100


@dataclasses.dataclass(frozen=True, eq=False)
class Position:
  """One position.

  Attributes:
    line: the steps of the game up to the position; see `exploitability.line_of`.
    right: the moves that win immediately, or those after which the opponent cannot win immediately.
  """

  kind: PositionKind
  line: Sequence[Move]
  right: Bool[np.ndarray, "E"]


def find_positions(rules: Rules, count: int, seed: int = 0) -> list[Position]:
  """Returns up to `count` different positions of each kind, from games of random play.

  A game gives at most one position of each kind, so that the positions are diverse. At most 100 · count games
  are played, so the result can have fewer positions.

  Raises: UserError: the game is not for two players, or has chance or hidden information.
  """
  if rules.num_seats != 2 or not (rules.is_deterministic and rules.is_perfect_information):
    raise UserError(
      f"{rules.spec.name}: tactics are for games of two players without chance and hidden information"
    )
  random, seen = np.random.default_rng(seed), set()
  found: dict[PositionKind, list[Position]] = {kind: [] for kind in get_args(PositionKind)}
  for _ in range(_MAX_GAMES * count):
    if all(len(positions) == count for positions in found.values()):
      break
    state = rules.game.new_initial_state()
    game: dict[PositionKind, list[tuple[list[int], list[int]]]] = {kind: [] for kind in found}
    while not state.is_terminal():
      named = _kind_of(state)
      if named is not None:
        game[named[0]].append((state.history(), named[1]))
      state.apply_action(int(random.choice(state.legal_actions())))
    for kind, candidates in game.items():
      if candidates and len(found[kind]) < count:
        actions, right = candidates[random.integers(len(candidates))]
        line = line_of(rules, actions, sees_others=True)
        key = kind, line[-1].frame.tobytes()
        if key not in seen:
          seen.add(key)
          mask = np.isin(np.arange(rules.spec.num_env_actions), right)
          found[kind].append(Position(kind, line, mask))
  return [position for positions in found.values() for position in positions]


def _kind_of(state: Any) -> tuple[PositionKind, list[int]] | None:
  """Returns the kind of a position and its right moves; None if it is of neither kind or all moves win."""
  legal = state.legal_actions()
  wins = _wins(state)
  if wins:
    return ("win", wins) if len(wins) < len(legal) else None
  children = {action: state.child(action) for action in legal}
  safe = [action for action, child in children.items() if child.is_terminal() or not _wins(child)]
  return ("block", safe) if 0 < len(safe) <= len(legal) / 2 else None


def _wins(state: Any) -> list[int]:
  """Returns the moves that win immediately."""
  mover = state.current_player()
  children = ((action, state.child(action)) for action in state.legal_actions())
  return [action for action, child in children if child.is_terminal() and child.returns()[mover] > 0]


def shares(positions: Sequence[Position], decide: Decide) -> dict[str, float]:
  """Returns the share of positions of each kind in which the most probable move is right.

  Args:
    decide: the player's probabilities of moves, such as a result of `exploitability.agent_decides`.
  """
  chosen = decide([position.line for position in positions]).argmax(axis=1)
  hits = [bool(position.right[action]) for position, action in zip(positions, chosen, strict=True)]
  return _means(positions, hits)


def chance_shares(positions: Sequence[Position]) -> dict[str, float]:
  """Returns the shares of a uniformly random player."""
  return _means(positions, [x.right.sum() / x.line[-1].legal.sum() for x in positions])


def _means(positions: Sequence[Position], hits: Sequence[float]) -> dict[str, float]:
  kinds = np.array([position.kind for position in positions])
  return {kind: float(np.asarray(hits)[kinds == kind].mean()) for kind in sorted(set(kinds))}


def reward_errors(
  positions: Sequence[Position],
  model: Model,
  variables: tuple[Any, Any],
  spec: EnvSpec,
  history_length: int,
  seed: int = 0,
) -> dict[str, float]:
  """Returns how well the model predicts the reward of one step in the win positions.

  Returns: `reward_loss_win` and `reward_loss_other`, the mean cross-entropies of a winning move (reward 1)
    and of a random other move (reward 0), and the mean rewards `reward_win` and `reward_other` that the model
    predicts. Empty without win positions.
  """
  chosen = [position for position in positions if position.kind == "win"]
  if not chosen:
    return {}
  random = np.random.default_rng(seed)

  def pick(masks: list[Bool[np.ndarray, "E"]]) -> Int[np.ndarray, "N"]:
    return np.array([1 + random.choice(np.flatnonzero(mask)) for mask in masks], np.int32)

  actions = {
    "win": pick([x.right for x in chosen]),
    "other": pick([x.line[-1].legal & ~x.right for x in chosen]),
  }
  _, stacked = observe(*histories_of([x.line for x in chosen], history_length, spec), spec)

  @jax.jit
  def predict(variables: Any, stacked: Array, action: Array, reward: Array) -> tuple[Array, Array]:
    root, _ = model.root_inference(*variables, stacked, False)
    output, _ = model.recurrent_inference(*variables, root.hidden_state, action, False)
    target = model.transform.to_probs(reward)
    loss = -jnp.sum(target * jax.nn.log_softmax(output.reward_logits), axis=-1)
    return jnp.mean(loss), jnp.mean(model.transform.to_scalar(output.reward_logits))

  out: dict[str, float] = {}
  for name, reward in (("win", 1.0), ("other", 0.0)):
    rewards: Float[np.ndarray, N] = np.full(len(chosen), reward, np.float32)
    loss, mean = predict(variables, stacked, actions[name], rewards)
    out |= {f"reward_loss_{name}": float(loss), f"reward_{name}": float(mean)}
  return out

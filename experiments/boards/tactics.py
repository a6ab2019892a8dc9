"""Prints how often agents take immediate wins and block immediate threats, with search and without.

    python -m experiments.boards.tactics runs/connect_four runs/tic_tac_toe
    python -m experiments.boards.tactics runs/connect_four --positions 500 --checkpoint 4000000 --json

A *win* position has a move that wins immediately and a move that does not. A *block* position has no winning
move, and at least half of the moves, but not all, allow the opponent to win immediately; the agent has to
find one of the others. Both kinds are found with the rules alone, in random play, so this works for every
two-player game of open_spiel without chance and hidden information. Each line also has the shares of a random
player and, if the run has a model, how well it predicts the rewards of a winning move and of another move.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from experiments.boards.lines import Decide, Move, PolicyKind, agent_decides, inputs_of, line_of
from experiments.boards.loading import load_game
from experiments.lib.command import command, positive_int
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs.suites.open_spiel.rules import Rules
from moozi.nn.model import Model
from moozi.run.build import build_model

PositionKind = Literal["win", "block"]
_MAX_GAMES = 100


@dataclasses.dataclass(frozen=True, eq=False)
class Position:
  """One position.

  Attributes:
    line: the steps of the game up to the position; see `lines.line_of`.
    right: the moves that win immediately, or those after which the opponent cannot win immediately.
  """

  kind: PositionKind
  line: Sequence[Move]
  right: Bool[np.ndarray, " E"]


@command
def main(arguments: list[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("runs", nargs="+")
  parser.add_argument("--positions", type=positive_int, default=200, help="of each kind; default: 200")
  parser.add_argument("--simulations", type=int, help="simulations per search; default: planners.test")
  parser.add_argument("--checkpoint", help="a name, an environment step, or last")
  parser.add_argument("--json", action="store_true")
  options = parser.parse_args(arguments)
  results = [of_run(run, options.checkpoint, options.positions, options.simulations) for run in options.runs]
  for result in results:
    print(json.dumps(result) if options.json else _text(result))
  return 0


def of_run(run: str, checkpoint: str | None, count: int, simulations: int | None = None) -> dict:
  """Returns the number of positions, the shares of right moves by player and kind, and the model's errors."""
  agent, rules, variables = load_game(run, checkpoint, simulations)
  config, spec, evaluator = agent.config, agent.spec, agent.evaluator()
  positions = find_positions(rules, count)
  if not positions:
    raise UserError(f"{run}: random play of {spec.name} reaches no immediate win and no block")
  out: dict[str, Any] = {
    "run": str(run),
    "env": spec.name,
    "checkpoint": agent.checkpoint.name,
    "positions": {kind: sum(x.kind == kind for x in positions) for kind in ("win", "block")},
    "random": chance_shares(positions),
  }
  kinds: dict[str, PolicyKind] = {"prior": "prior", "search": "played"}
  for name, kind in kinds.items():
    decide = agent_decides(evaluator, variables, spec, config.evaluation.num_envs, kind, rules.max_moves)
    out[name] = shares(positions, decide)
  if config.has_model:
    model, length = build_model(config, spec), config.targets.history_length
    out |= reward_errors(positions, model, variables, spec, length)
  return out


def _text(result: dict) -> str:
  parts = [
    f"{kind}s {', '.join(f'{name} {result[name][kind]:.3f}' for name in ('search', 'prior', 'random'))}"
    f" of {count}"
    for kind, count in result["positions"].items()
    if count
  ]
  if "reward_win" in result:
    parts.append(
      f"reward of a win {result['reward_win']:.3f} (loss {result['reward_loss_win']:.3f}), "
      f"of another move {result['reward_other']:.3f} (loss {result['reward_loss_other']:.3f})"
    )
  return f"{result['run']} ({result['env']}): {'; '.join(parts)}"


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
    decide: the player's probabilities of moves, such as a result of `lines.agent_decides`.
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

  def pick(masks: list[Bool[np.ndarray, " E"]]) -> Int[np.ndarray, " N"]:
    return np.array([1 + random.choice(np.flatnonzero(mask)) for mask in masks], np.int32)

  actions = {
    "win": pick([x.right for x in chosen]),
    "other": pick([x.line[-1].legal & ~x.right for x in chosen]),
  }
  stacked = inputs_of([x.line for x in chosen], history_length, spec)

  @jax.jit
  def predict(variables: Any, stacked: Array, action: Array, reward: Array) -> tuple[Array, Array]:
    root, _ = model.root_inference(*variables, stacked, False)
    output, _ = model.recurrent_inference(*variables, root.hidden_state, action, False)
    target = model.transform.to_probs(reward)
    loss = -jnp.sum(target * jax.nn.log_softmax(output.reward_logits), axis=-1)
    return jnp.mean(loss), jnp.mean(model.transform.to_scalar(output.reward_logits))

  out: dict[str, float] = {}
  for name, reward in (("win", 1.0), ("other", 0.0)):
    rewards: Float[np.ndarray, " N"] = np.full(len(chosen), reward, np.float32)
    loss, mean = predict(variables, stacked, actions[name], rewards)
    out |= {f"reward_loss_{name}": float(loss), f"reward_{name}": float(mean)}
  return out


if __name__ == "__main__":
  sys.exit(main())

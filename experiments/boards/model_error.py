"""Prints how far an agent's learned model is from the rules of its game.

    python -m experiments.boards.model_error zoo:connect_four
    python -m experiments.boards.model_error runs/othello --positions 600 --checkpoint last

The positions are of games that begin with four random moves and then follow the network's policy. In each
position, every legal move is taken with the model and by the rules. The network then evaluates both results:
the hidden state that the model predicts, and the true next frame. AlphaZero's search evaluates true frames,
so the difference is the cost of the learned model after one move. The game must be a board game of OpenSpiel
that was learned in self-play.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from experiments.boards.lines import Move, inputs_of, move_at
from experiments.boards.loading import load_game
from experiments.lib.command import command, positive_int
from moozi.analysis.batches import in_batches
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs.suites.open_spiel.rules import Rules
from moozi.nn.model import Model
from moozi.run.build import build_model

_RANDOM_PLIES = 4
_BATCH = 512


@command
def main(arguments: list[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("runs", nargs="+")
  parser.add_argument("--positions", type=positive_int, default=300, help="number of positions; default: 300")
  parser.add_argument("--checkpoint", help="a name, an environment step, or last")
  options = parser.parse_args(arguments)
  for run in options.runs:
    print(json.dumps(of_run(run, options.checkpoint, options.positions)), flush=True)
  return 0


def of_run(run: str, checkpoint: str | None, count: int) -> dict:
  """Returns the run's name, the checkpoint and the model's errors."""
  agent, rules, variables = load_game(run, checkpoint)
  config, spec = agent.config, agent.spec
  if not config.has_model:
    raise UserError(f"{run}: algorithm={config.algorithm} has no model")
  if not (rules.is_deterministic and rules.is_perfect_information):
    raise UserError(f"{run}: env.name={spec.name}; the game must have neither chance nor hidden information")
  model, length = build_model(config, spec), config.targets.history_length
  errors = model_errors(rules, model, variables, spec, length, count)
  return {"run": str(run), "checkpoint": agent.checkpoint.name, **errors}


def model_errors(
  rules: Rules,
  model: Model,
  variables: tuple[Any, Any],
  spec: EnvSpec,
  history_length: int,
  count: int,
  seed: int = 0,
) -> dict[str, float]:
  """Compares the model with the rules after every legal move of `count` positions.

  Plays `count` games: four random moves, then moves drawn from the network's policy. Takes one position from
  each game, drawn uniformly from all in which a move was played but the last. The game must have two players,
  no chance, no hidden information, and rewards only at its end. Q is the reward minus the value for the
  opponent.

  Returns: the numbers of `positions` and `moves`, and statistics of Q less its mean over a position's moves:
    - `q_spread`: the standard deviation of Q by the rules, env units;
    - `q_error`: the root mean square of the model's Q minus Q by the rules, env units;
    - `q_correlation`: Pearson's correlation of the two; 0 if one of them is 0 for all moves;
    - `legal_share_model`, `legal_share_network`: the mean probability of the legal moves after the move, in
      the policy for the predicted state and for the true frame. Moves that end the game are left out.
  """
  random = np.random.default_rng(seed)

  @jax.jit
  def evaluate(stacked: Array) -> tuple[Array, Array, Array]:
    output, _ = model.root_inference(*variables, stacked, False)
    value = model.transform.to_scalar(output.value_logits)
    return output.hidden_state, value, jax.nn.softmax(output.policy_logits)

  @jax.jit
  def take(hidden_state: Array, action: Array) -> tuple[Array, Array]:
    output, _ = model.recurrent_inference(*variables, hidden_state, action, False)
    to_scalar = model.transform.to_scalar
    q = to_scalar(output.reward_logits) - to_scalar(output.value_logits)
    return q, jax.nn.softmax(output.policy_logits)

  def evaluate_lines(lines: Sequence[Sequence[Move]]) -> list[np.ndarray]:
    return in_batches(evaluate, _BATCH, np.asarray(inputs_of(lines, history_length, spec)))

  games = _play(rules, evaluate_lines, count, random)
  lines = [moves[: 1 + random.integers(max(1, len(moves) - 1))] for moves in games]
  hidden_state, _, _ = evaluate_lines(lines)
  position, action, rewards, next_lines, unfinished = [], [], [], [], []
  for i, line in enumerate(lines):
    state = rules.game.new_initial_state()
    for move in line[:-1]:
      state.apply_action(move.action)
    for each in state.legal_actions():
      child = state.child(each)
      if child.is_terminal():
        rewards.append(child.returns()[state.current_player()])
      else:
        unfinished.append(len(rewards))
        rewards.append(0.0)
        next_lines.append([*line[:-1], line[-1]._replace(action=each), move_at(rules, child)])
      position.append(i)
      action.append(1 + each)
  q_model, policy_model = in_batches(take, _BATCH, hidden_state[position], np.array(action, np.int32))
  _, value, policy = evaluate_lines(next_lines)
  q_rules = np.array(rewards)
  q_rules[unfinished] = -value
  legal = np.stack([line[-1].legal for line in next_lines])
  model_within, rules_within = _less_means(q_model, position), _less_means(q_rules, position)
  scale = np.std(model_within) * np.std(rules_within)
  return {
    "positions": len(lines),
    "moves": len(action),
    "q_spread": float(np.std(rules_within)),
    "q_error": float(np.sqrt(np.mean((model_within - rules_within) ** 2))),
    "q_correlation": float(np.mean(model_within * rules_within) / scale) if scale > 0 else 0.0,
    "legal_share_model": float(np.mean(np.sum(policy_model[unfinished, 1:], axis=1, where=legal))),
    "legal_share_network": float(np.mean(np.sum(policy[:, 1:], axis=1, where=legal))),
  }


def _play(rules: Rules, evaluate_lines: Any, count: int, random: np.random.Generator) -> list[list[Move]]:
  """Returns the moves of `count` games."""
  states = [rules.game.new_initial_state() for _ in range(count)]
  games: list[list[Move]] = [[] for _ in states]
  for ply in itertools.count():
    unfinished = [i for i, state in enumerate(states) if not state.is_terminal()]
    if not unfinished:
      break
    for i in unfinished:
      games[i].append(move_at(rules, states[i]))
    shares = np.ones((len(unfinished), rules.spec.num_env_actions))
    if ply >= _RANDOM_PLIES:
      shares = evaluate_lines([games[i] for i in unfinished])[2][:, 1:].astype(np.float64)
    for i, share in zip(unfinished, shares, strict=True):
      legal = states[i].legal_actions()
      probs = share[legal] + 1e-9
      action = int(random.choice(legal, p=probs / probs.sum()))
      games[i][-1] = games[i][-1]._replace(action=action)
      states[i].apply_action(action)
  return games


def _less_means(values: Float[np.ndarray, " N"], position: list[int]) -> Float[np.ndarray, " N"]:
  """Returns the values less the mean over their position."""
  means = np.bincount(position, values) / np.bincount(position)
  return values - means[position]


if __name__ == "__main__":
  sys.exit(main())

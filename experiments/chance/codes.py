"""Measures what the codes of an agent with chance nodes encode in 2048.

    python -m experiments.chance.codes RUN

The agent's policy, without search, plays games by the true rules. The encoder gives each transition its code.
A code should encode the outcome: the new number and its cell. Then the codes have much information about the
outcome, and little about the reward, which state and action determine. Entropies are in nats.
"""

import argparse
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

import moozi
from experiments.chance.expectimax import ACTIONS, GAME, model_of, move, new_games, outcomes, slide_all, stack
from experiments.lib.command import command, positive_int
from moozi.core.errors import UserError
from moozi.experiments.results import write_json

NUM_GAMES, NUM_MOVES, EVERY = 128, 220, 6
"""Number of parallel games, number of their moves, and the period of the moves that count."""


def entropy(x: Int[np.ndarray, " N"]) -> float:
  """Returns the entropy of the values' frequencies."""
  share = np.unique(x, return_counts=True)[1] / len(x)
  return float(-(share * np.log(share)).sum())


def entropies(probs: Float[np.ndarray, "N M"]) -> Float[np.ndarray, " N"]:
  """Returns the entropy of each row of probabilities."""
  return -(probs * np.log(np.maximum(probs, 1e-30))).sum(axis=1)


def information(x: Int[np.ndarray, " N"], y: Int[np.ndarray, " N"]) -> float:
  """Returns the mutual information of two series."""
  _, y = np.unique(y, return_inverse=True)
  return entropy(x) + entropy(y) - entropy(x * len(y) + y)


def measure(agent: moozi.Agent, num_games: int = NUM_GAMES, num_moves: int = NUM_MOVES) -> dict[str, float]:
  """Returns the figures of an agent.

  Raises: UserError: the agent has no chance nodes, or as `model_of`.
  """
  model, state = model_of(agent), agent.state
  if model.chance is None:
    raise UserError(
      f"{agent.directory.path}: must play {GAME} with chance.codes and targets.history_length=1"
    )
  chance, variables, scalar = model.chance, (state.params, state.net_state), model.transform.to_scalar

  @jax.jit
  def play(boards: Array, previous: Array, key: Array) -> tuple[Array, ...]:
    output, _ = model.root_inference(*variables, stack(boards[:, None], previous[:, None]), False)
    _, _, is_legal = slide_all(boards, ACTIONS)
    action = jnp.argmax(jnp.where(is_legal, output.policy_logits[:, 1:], -jnp.inf), axis=-1)
    return action, *move(boards, action, key)

  @jax.jit
  def encode(boards: Array, previous: Array, action: Array, new: Array) -> Array:
    transition = stack(jnp.stack([boards, new], axis=1), jnp.stack([previous, action], axis=1))
    return jnp.argmax(chance.encode(*variables, transition, False)[0], axis=-1)

  @jax.jit
  def predict(boards: Array, previous: Array, action: Array) -> tuple[Array, Array]:
    """Returns the logarithms of the predicted code probabilities, and the predicted reward."""
    output, _ = model.root_inference(*variables, stack(boards[:, None], previous[:, None]), False)
    after, _ = chance.afterstate(*variables, output.hidden_state, action + 1, False)
    likely, _ = model.recurrent_inference(*variables, output.hidden_state, action + 1, False)
    return jax.nn.log_softmax(after.chance_logits), scalar(likely.reward_logits)

  boards, key = new_games(num_games, seed=0)
  previous, is_playing, kept = jnp.full(num_games, -1), np.ones(num_games, bool), list[list[np.ndarray]]()
  for i in range(num_moves):
    *step, is_legal = play(boards, previous, jax.random.fold_in(key, i))
    is_playing &= np.asarray(is_legal)
    if i % EVERY == 0:
      kept.append([np.asarray(x)[is_playing] for x in (boards, previous, *step)])
    previous, _, boards, _ = step
  before, last, action, after, new, reward = (np.concatenate(x) for x in zip(*kept, strict=True))

  code = np.asarray(encode(before, last, action, new))
  placed = (new - after).reshape(-1, 16)
  log_probs, predicted = (np.asarray(x) for x in predict(before, last, action))
  # The codes of all outcomes of each transition's move.
  possible, probs = (np.asarray(x) for x in outcomes(after, with_fours=True))
  repeated = (np.repeat(x, probs.shape[1], axis=0) for x in (before, last, action))
  codes = np.asarray(encode(*repeated, possible.reshape(-1, 4, 4))).reshape(probs.shape)
  by_code = (probs[..., None] * np.eye(chance.num_codes)[codes]).sum(axis=1)
  conditional, chance_entropy = entropies(by_code), entropies(probs)
  return {
    "transitions": len(code),
    "code_entropy": entropy(code),
    "information_reward": information(code, reward),
    "information_cell": information(code, placed.argmax(axis=1)),
    "information_number": information(code, placed.max(axis=1)),
    "code_entropy_given_move": float(conditional.mean()),
    "outcome_entropy": float(chance_entropy.mean()),
    "prediction_kl": float((-(by_code * log_probs).sum(axis=1) - conditional).mean()),
    "reward_error": float(np.abs(predicted - reward).mean()),
  }


@command
def main(arguments: list[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("run")
  parser.add_argument("--games", type=positive_int, default=NUM_GAMES, help=f"default: {NUM_GAMES}")
  parser.add_argument("--out", type=Path, help="also write the figures to this file")
  given = parser.parse_args(arguments)
  agent = moozi.load(given.run)
  found = {"run": Path(given.run).name, "checkpoint": agent.checkpoint.name} | measure(agent, given.games)
  if given.out is not None:
    write_json(given.out, found)
  print(json.dumps(found))
  return 0


if __name__ == "__main__":
  sys.exit(main())

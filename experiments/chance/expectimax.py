"""Plays 2048 by expectimax with the true rules and the value of a run's network, without its model.

    python -m experiments.chance.expectimax RUN                       # one move and its outcome ahead
    python -m experiments.chance.expectimax RUN --depth 2 --games 12  # slow: 8,192 values per move of a game

The outcomes of the last move ahead are a new 2 and a new 4 in each free cell. Those of the moves before it
are only a new 2, which has probability 0.9.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

import moozi
from experiments.lib.command import command, positive_int
from moozi.core.errors import UserError
from moozi.core.types import AnyArray
from moozi.experiments.results import write_json
from moozi.nn.model import Model
from moozi.ops.history import stack_history
from moozi.run.build import build_model

GAME = "pgx:2048"
ACTIONS = jnp.arange(4)  # left, up, right, down
NUM_PLANES = 31
Value = Callable[[Int[Array, "N 4 4"], Int[Array, " N"]], Float[Array, " N"]]


def slide(board: Int[Array, "4 4"], action: Int[Array, ""]) -> tuple[Array, Array, Array]:
  """Returns the board after a move and before the new number, the reward, and whether the move is legal.

  A cell has the base-2 logarithm of its number; a free cell has 0.
  """

  def slide_row(row: Array) -> tuple[Array, Array]:
    row = row[jnp.argsort(row == 0, stable=True)]
    reward = jnp.int32(0)
    for i in range(3):
      merges = (row[i] > 0) & (row[i] == row[i + 1])
      reward += jnp.where(merges, 2 << row[i], 0)
      merged = jnp.concatenate([row[:i], row[i : i + 1] + 1, row[i + 2 :], jnp.zeros(1, row.dtype)])
      row = jnp.where(merges, merged, row)
    return row, reward

  def turn(x: Array, quarters: Array) -> Array:
    return jax.lax.switch(quarters, [lambda i=i: jnp.rot90(x, i) for i in range(4)])

  rows, rewards = jax.vmap(slide_row)(turn(board, action))
  after = turn(rows, (4 - action) % 4)
  return after, rewards.sum(), jnp.any(after != board)


slide_all = jax.vmap(jax.vmap(slide, (None, 0)), (0, None))


def outcomes(after: Int[AnyArray, "*n 4 4"], with_fours: bool) -> tuple[Array, Float[Array, "*n M"]]:
  """Returns the boards after each new number, and their probabilities: 0 for a cell that is not free."""
  flat = after.reshape(*after.shape[:-2], 1, 16)
  new = jnp.eye(16, dtype=flat.dtype)
  boards = jnp.concatenate([flat + new, flat + 2 * new] if with_fours else [flat + new], axis=-2)
  free = (flat[..., 0, :] == 0).astype(jnp.float32)
  prob = free / jnp.maximum(free.sum(-1, keepdims=True), 1)
  probs = jnp.concatenate([0.9 * prob, 0.1 * prob], axis=-1) if with_fours else prob
  return boards.reshape(*boards.shape[:-1], 4, 4), probs


def spawn(after: Int[Array, "N 4 4"], key: Array) -> Int[Array, "N 4 4"]:
  """Returns the boards with a random new number."""
  following, probs = outcomes(after, with_fours=True)
  chosen = jax.random.categorical(key, jnp.log(probs))
  return jnp.take_along_axis(following, chosen[:, None, None, None], axis=1)[:, 0]


def new_games(num_games: int, seed: int) -> tuple[Int[Array, "G 4 4"], Array]:
  """Returns the first boards of games, each with two numbers, and a key for their moves."""
  first, second, key = jax.random.split(jax.random.PRNGKey(seed), 3)
  return spawn(spawn(jnp.zeros((num_games, 4, 4), jnp.int32), first), second), key


def move(boards: Int[Array, "G 4 4"], action: Int[Array, " G"], key: Array) -> tuple[Array, ...]:
  """Plays a move in each game.

  Returns the boards before the new number, those after it, the rewards, and whether the moves are legal. An
  illegal move keeps its board and has reward 0.
  """
  after, reward, is_legal = jax.vmap(slide)(boards, action)
  following = jnp.where(is_legal[:, None, None], spawn(after, key), boards)
  return after, following, jnp.where(is_legal, reward, 0), is_legal


def stack(boards: Int[Array, "N L 4 4"], moves: Int[Array, "N L"]) -> Float[Array, "N 4 4 _"]:
  """Returns the network's input for boards and the moves before them; -1 stands for no move."""
  return stack_history(jax.nn.one_hot(boards, NUM_PLANES), moves + 1, (len(ACTIONS) + 1,))


def q_values(boards: Int[Array, "B 4 4"], depth: int, value: Value, discount: float) -> Float[Array, "B 4"]:
  """Returns the expectimax values of the moves; -inf for illegal ones. A lost position has the value 0."""
  after, reward, is_legal = slide_all(boards, ACTIONS)
  following, probs = outcomes(after, with_fours=depth == 1)
  # Impossible outcomes have probability 0; an empty board stands for them.
  following = jnp.where(probs[..., None, None] > 0, following, 0).reshape(-1, 4, 4)
  if depth == 1:
    values = value(following, jnp.broadcast_to(ACTIONS[:, None], probs.shape).reshape(-1))
  else:
    values = jnp.max(q_values(following, depth - 1, value, discount), axis=-1)
    values = jnp.where(jnp.isfinite(values), values, 0.0)
  expected = jnp.sum(probs * values.reshape(probs.shape), axis=-1)
  return jnp.where(is_legal, reward + discount * expected, -jnp.inf)


def model_of(agent: moozi.Agent) -> Model:
  """Returns an agent's network.

  Raises: UserError: the agent plays another game, or its history is longer than one frame.
  """
  if agent.spec.name != GAME or agent.config.targets.history_length != 1:
    raise UserError(f"{agent.directory.path}: must play {GAME} with targets.history_length=1")
  return build_model(agent.config, agent.spec)


def network_value(agent: moozi.Agent) -> Value:
  """Returns the value of an agent's network on boards and the moves before them; 0 without a legal move.

  Raises: UserError: as `model_of`.
  """
  model, state = model_of(agent), agent.state

  def value(boards: Array, actions: Array) -> Array:
    stacked = stack(boards[:, None], actions[:, None])
    output, _ = model.root_inference(state.params, state.net_state, stacked, False)
    _, _, is_legal = slide_all(boards, ACTIONS)
    return jnp.where(is_legal.any(axis=-1), model.transform.to_scalar(output.value_logits), 0.0)

  return value


def play(value: Value, discount: float, depth: int, num_games: int, seed: int) -> Float[np.ndarray, " G"]:
  """Returns the returns of games played in parallel to their ends."""

  @jax.jit
  def step(boards: Array, key: Array) -> tuple[Array, Array, Bool[Array, " G"]]:
    action = jnp.argmax(q_values(boards, depth, value, discount), axis=-1)
    _, following, reward, is_legal = move(boards, action, key)
    return following, reward, is_legal

  boards, key = new_games(num_games, seed)
  returns = np.zeros(num_games)
  num_moves, num_playing = 0, num_games
  while num_playing:
    if num_moves % 100 == 0:
      print(f"move {num_moves}: {num_playing} games, mean return {returns.mean():,.0f}", file=sys.stderr)
    boards, rewards, is_playing = step(boards, jax.random.fold_in(key, num_moves))
    returns += np.asarray(rewards)
    num_moves, num_playing = num_moves + 1, int(np.sum(is_playing))
  return returns


@command
def main(arguments: list[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("run")
  parser.add_argument("--depth", type=positive_int, default=1, help="moves ahead; default: 1")
  parser.add_argument("--games", type=positive_int, default=50, help="number of games; default: 50")
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--out", type=Path, help="write the result as JSON")
  options = parser.parse_args(arguments)
  agent = moozi.load(options.run)
  returns = play(
    network_value(agent), agent.config.targets.discount, options.depth, options.games, options.seed
  )
  result = {
    "run": agent.directory.path.name,
    "checkpoint": agent.checkpoint.name,
    "depth": options.depth,
    "games": options.games,
    "return_mean": float(returns.mean()),
    "return_std": float(returns.std()),
    "returns": returns.tolist(),
  }
  print(json.dumps(result))
  if options.out is not None:
    write_json(options.out, result)
  return 0


if __name__ == "__main__":
  sys.exit(main())

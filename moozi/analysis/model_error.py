"""How far the learned model of a board game is from the rules, as the search meets it.

In positions of the agent's own play, the model takes every legal move, and so do the rules. The network then
evaluates both results: the hidden state that the model predicts, and the true next frame. AlphaZero's search
has the second, so the difference is what the learned model costs after one move.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from moozi.analysis.exploitability import Move, histories_of, line_of
from moozi.core.spec import EnvSpec
from moozi.envs.suites.open_spiel.rules import Rules
from moozi.nn.model import Model
from moozi.ops.history import normalize_frame, push_frame, stack_history

_RANDOM_PLIES = 4
_BATCH = 512


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

  The positions are from `count` games, whose moves are drawn from the network's policy after four random
  ones; one of each, drawn uniformly from those before its last move. The game is for two players, without
  chance and hidden information, and has rewards only at its end. Q is the reward minus the value for the
  opponent.

  Returns: the numbers of `positions` and `moves`, and
    - `q_spread`: the standard deviation of Q by the rules among the moves of a position, env units;
    - `q_error`: the root mean square of the difference between the model's Q and that by the rules, less the
      mean difference of the position, because only differences between moves matter to the search;
    - `q_correlation`: Pearson's, of the same two, less their means over the position; 0 if the model tells
      no moves apart;
    - `legal_share_model`, `legal_share_network`: the mean probability that the policy gives to the legal
      moves after the move, in the predicted state and for the true frame.
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
    history, last = histories_of(lines, history_length, spec)
    history = push_frame(history, last.frame, last.is_first)
    frames = normalize_frame(history.frames, spec.frame_dtype)
    return _in_batches(evaluate, stack_history(frames, history.actions, spec.num_actions))

  states = _play(rules, evaluate_lines, count, random)
  hidden_state, _, _ = evaluate_lines([line_of(rules, state.history(), sees_others=True) for state in states])
  edges = [(i, action) for i, state in enumerate(states) for action in state.legal_actions()]
  position = np.array([i for i, _ in edges])
  action = np.array([1 + action for _, action in edges], np.int32)
  q_model, policy_model = _in_batches(take, hidden_state[position], action)
  children = [states[i].child(action) for i, action in edges]
  q_rules = np.array(
    [
      child.returns()[states[i].current_player()] if child.is_terminal() else 0.0
      for (i, _), child in zip(edges, children, strict=True)
    ]
  )
  going_on = np.array([k for k, child in enumerate(children) if not child.is_terminal()])
  lines = [line_of(rules, children[k].history(), sees_others=True) for k in going_on]
  _, value, policy = evaluate_lines(lines)
  q_rules[going_on] = -value
  legal = np.stack([line[-1].legal for line in lines])
  model_within, rules_within = _less_means(q_model, position), _less_means(q_rules, position)
  scale = np.std(model_within) * np.std(rules_within)
  return {
    "positions": len(states),
    "moves": len(edges),
    "q_spread": float(np.std(rules_within)),
    "q_error": float(np.sqrt(np.mean((model_within - rules_within) ** 2))),
    "q_correlation": float(np.mean(model_within * rules_within) / scale) if scale > 0 else 0.0,
    "legal_share_model": float(np.mean(np.sum(policy_model[going_on, 1:], axis=1, where=legal))),
    "legal_share_network": float(np.mean(np.sum(policy[:, 1:], axis=1, where=legal))),
  }


def _play(rules: Rules, evaluate_lines: Any, count: int, random: np.random.Generator) -> list[Any]:
  """Returns a position of each of `count` games, drawn uniformly from those before its last move."""
  games = [rules.game.new_initial_state() for _ in range(count)]
  for ply in itertools.count():
    going_on = [state for state in games if not state.is_terminal()]
    if not going_on:
      break
    shares = np.ones((len(going_on), rules.spec.num_env_actions))
    if ply >= _RANDOM_PLIES:
      lines = [line_of(rules, state.history(), sees_others=True) for state in going_on]
      shares = evaluate_lines(lines)[2][:, 1:].astype(np.float64)
    for state, share in zip(going_on, shares, strict=True):
      legal = state.legal_actions()
      probs = share[legal] + 1e-9
      state.apply_action(int(random.choice(legal, p=probs / probs.sum())))
  out = []
  for state in games:
    moves = state.history()
    start = rules.game.new_initial_state()
    for move in moves[: random.integers(max(1, len(moves) - 1))]:
      start.apply_action(move)
    out.append(start)
  return out


def _in_batches(function: Any, *arrays: Any) -> list[np.ndarray]:
  """Returns the function's outputs for rows [N, ...], in batches of one size, so that it compiles once."""
  parts = []
  for start in range(0, len(arrays[0]), _BATCH):
    rows = [np.asarray(x[start : start + _BATCH]) for x in arrays]
    size = len(rows[0])
    padded = [np.concatenate([x, np.repeat(x[-1:], _BATCH - size, axis=0)]) for x in rows]
    parts.append([np.asarray(x)[:size] for x in function(*map(jnp.asarray, padded))])
  return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def _less_means(values: Float[np.ndarray, "N"], position: Int[np.ndarray, "N"]) -> Float[np.ndarray, "N"]:
  """Returns the values less the mean over their position."""
  means = np.bincount(position, values) / np.bincount(position)
  return values - means[position]

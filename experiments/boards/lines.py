"""Lines of play of a game of open_spiel, and what an agent plays at their ends."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from moozi.agent.agent import Carry, PureAgent, make_agent
from moozi.agent.muzero import input_of
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import EnvSpec
from moozi.envs.environment import moves_array
from moozi.envs.suites.open_spiel.rules import CHANCE, Rules
from moozi.envs.vector import live_steps
from moozi.evaluation.evaluator import Evaluator

PolicyKind = Literal["played", "search", "prior"]
"""An agent's policy: the action that it plays, the search's probabilities, or the network's probabilities."""


class Move(NamedTuple):
  """One step of a line of play: the frame, the legal actions, and the action; -1 if it is not chosen yet."""

  frame: Shaped[np.ndarray, "H W C"]
  legal: Bool[np.ndarray, " E"]
  action: int


Decide = Callable[[Sequence[Sequence[Move]]], Float[np.ndarray, "N E"]]
"""A function that maps N lines of play to the agent's probabilities of the actions at their ends."""


def agent_decides(
  evaluator: Evaluator,
  variables: Any,
  spec: EnvSpec,
  width: int,
  kind: PolicyKind,
  max_moves: int | None = None,
) -> Decide:
  """Returns a trained agent's policy.

  Args:
    variables: the agent's.
    width: number of states per search.
    max_moves: `Rules.max_moves`; needed by an agent that plans with the true rules. The lines of such an
      agent must have the moves of both players.
  """

  def decide(lines: Sequence[Sequence[Move]]) -> Float[np.ndarray, "N E"]:
    out = []
    for start in range(0, len(lines), width):
      part = lines[start : start + width]
      # The last part is padded, so that the policy compiles once.
      padded = [part[i % len(part)] for i in range(width)]
      out.append(_decide(evaluator, variables, spec, padded, kind, max_moves)[: len(part)])
    return np.concatenate(out)

  return decide


def line_of(rules: Rules, actions: Sequence[int], sees_others: bool) -> list[Move]:
  """Returns the steps that the player to move has seen after `actions`, which include chance outcomes."""
  state, out = rules.game.new_initial_state(), []
  for action in actions:
    if state.current_player() != CHANCE:
      out.append((state.current_player(), move_at(rules, state, action)))
    state.apply_action(action)
  player = state.current_player()
  seen = [move for mover, move in out if sees_others or mover == player]
  return [*seen, move_at(rules, state)]


def move_at(rules: Rules, state: Any, action: int = -1) -> Move:
  """Returns the step of the player to move in a state."""
  frame = rules.frame(state, state.current_player())
  return Move(frame, rules.legal_actions_mask(state), action)


def _decide(
  evaluator: Evaluator,
  variables: Any,
  spec: EnvSpec,
  lines: Sequence[Sequence[Move]],
  kind: PolicyKind,
  max_moves: int | None,
) -> Float[np.ndarray, "N E"]:
  carry, last = histories_of(lines, evaluator.agent, variables, spec)
  position = None
  if evaluator.agent.plans_with_rules:
    assert max_moves is not None, "the game has no chance and hides nothing"
    position = np.stack([moves_array([move.action for move in line[:-1]], max_moves) for line in lines])
  _, decision = jax.device_get(evaluator.decide(variables, carry, last, jax.random.PRNGKey(0), position))
  if kind == "played":
    return np.eye(spec.num_actions)[decision.action][:, 1:]
  # PPO has no search, so its probabilities are the network's.
  prior = decision.extras.get("prior_probs") if kind == "prior" else None
  return np.asarray(decision.action_probs if prior is None else prior, np.float64)[:, 1:]


def histories_of(
  lines: Sequence[Sequence[Move]], agent: PureAgent, variables: Any, spec: EnvSpec
) -> tuple[Carry, BatchedTimeStep]:
  """Returns the agent's carries before the last steps of the lines, and these last steps as a batch."""
  carry = jax.tree_util.tree_map(np.array, agent.init(len(lines)))
  for t in range(max(map(len, lines)) - 1):
    rows = np.array([i for i, line in enumerate(lines) if t < len(line) - 1])
    step = _step([lines[i][t] for i in rows], spec)
    actions = np.array([1 + lines[i][t].action for i in rows], np.int32)
    known = jax.tree_util.tree_map(lambda x, rows=rows: x[rows], carry)
    seen = agent.observe(variables, known, step, actions)
    for own, new in zip(*map(jax.tree_util.tree_leaves, (carry, seen)), strict=True):
      own[rows] = new
  return carry, _step([line[-1] for line in lines], spec)


def inputs_of(
  lines: Sequence[Sequence[Move]], history_length: int, spec: EnvSpec
) -> Float[Array, "N H W Ch"]:
  """Returns the input of MuZero's network at the ends of the lines."""

  def no_decision(*args: Any) -> Any:
    raise AssertionError("the agent only observes")

  agent = make_agent(no_decision, spec, history_length)
  return input_of(*histories_of(lines, agent, None, spec), spec)


def _step(moves: Sequence[Move], spec: EnvSpec) -> BatchedTimeStep:
  return live_steps(spec, [move.frame for move in moves], [move.legal for move in moves])

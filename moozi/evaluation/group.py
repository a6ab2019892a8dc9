"""A trained agent that plays several games at once."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Int, PyTree

from moozi.agent.agent import Carry
from moozi.core.pytree import map_fields
from moozi.core.records import BatchedTimeStep
from moozi.envs.environment import stack_positions
from moozi.evaluation.evaluator import Evaluator


class GroupPlayer:
  """Chooses an agent's actions in N games, of each of which it has its own carry.

  Call `choose` or `observe` for every frame that the agent sees in a game, in order. Each search has a batch
  of `width` games, so that the policy compiles once.

  Args:
    evaluator: has the agent and its temperature.
    num_games: N.
    uses_prior: choose the most probable legal action of the network's policy instead of the search's action.
      The agent's decisions must then have the extra `prior_probs`.
    seed: seed of the search's noise and of action sampling, if the evaluation has them.
  """

  def __init__(
    self,
    evaluator: Evaluator,
    variables: PyTree,
    num_games: int,
    width: int,
    *,
    uses_prior: bool = False,
    seed: int = 0,
  ) -> None:
    self._evaluator, self._variables, self._width = evaluator, jax.device_put(variables), width
    self._uses_prior, self._rng_key = uses_prior, jax.random.PRNGKey(seed)
    self._carry = jax.tree_util.tree_map(np.array, evaluator.agent.init(num_games))

  @property
  def plans_with_rules(self) -> bool:
    """Whether `choose` needs the games' positions."""
    return self._evaluator.agent.plans_with_rules

  def choose(
    self, games: Int[np.ndarray, "n"], timestep: BatchedTimeStep, positions: Sequence[Any] = ()
  ) -> Int[np.ndarray, "n"]:
    """Returns the agent's actions, in its own action space, and adds them to what it remembers.

    Args:
      games: indices of the games, each at most once.
      timestep: their current frames, in the same order.
      positions: their positions, in the same order, if the agent `plans_with_rules`.
    """
    out = np.empty(len(games), np.int32)
    for start in range(0, len(games), self._width):
      count = min(self._width, len(games) - start)
      # The last batch is padded with copies of its own rows.
      rows = start + np.resize(np.arange(count), self._width)
      step = map_fields(lambda x, rows=rows: x[rows], timestep)
      position = stack_positions([positions[row] for row in rows.tolist()]) if self.plans_with_rules else None
      carry = self._carry_of(games[rows])
      self._rng_key, decision = self._evaluator.decide(self._variables, carry, step, self._rng_key, position)
      if self._uses_prior:
        chosen = np.where(step.legal_actions_mask, np.asarray(decision.extras["prior_probs"]), -1.0).argmax(
          axis=-1
        )
      else:
        chosen = np.asarray(decision.action)
      out[start : start + count] = chosen[:count]
    self.observe(games, timestep, out)
    return out

  def observe(
    self, games: Int[np.ndarray, "n"], timestep: BatchedTimeStep, actions: Int[np.ndarray, "n"]
  ) -> None:
    """Adds frames and the actions played there, in the agent's action space."""
    carry = self._evaluator.agent.observe(self._carry_of(games), timestep, actions)
    for own, new in zip(*map(jax.tree_util.tree_leaves, (self._carry, carry)), strict=True):
      own[games] = new

  def _carry_of(self, games: Int[np.ndarray, "n"]) -> Carry:
    return jax.tree_util.tree_map(lambda x: x[games], self._carry)

"""A trained agent that plays several games at once."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from moozi.core.pytree import map_fields
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import EnvSpec
from moozi.envs.environment import stack_positions
from moozi.evaluation.evaluator import Evaluator
from moozi.ops.history import HistoryState, init_history, push_action, push_frame


class GroupPlayer:
  """Chooses an agent's actions in N games, each of which has its own history.

  Call `choose` or `observe` for every frame that the agent sees in a game, in order. Each search has a batch
  of `width` games, so that the policy compiles once.

  Args:
    evaluator: has the policy and its temperature.
    variables: (params, net_state).
    num_games: N.
    uses_prior: choose the most probable legal action of the network's policy instead of the search's action.
      The policy's output must then have `prior_probs`.
    seed: seed of the search's noise and of action sampling, if the evaluation has them.
  """

  def __init__(
    self,
    evaluator: Evaluator,
    variables: tuple[Any, Any],
    spec: EnvSpec,
    num_games: int,
    width: int,
    *,
    uses_prior: bool = False,
    seed: int = 0,
  ) -> None:
    self._evaluator, self._variables, self._width = evaluator, variables, width
    self._uses_prior, self._rng_key = uses_prior, jax.random.PRNGKey(seed)
    history = init_history(num_games, evaluator.history_length, spec)
    self._frames, self._actions = np.asarray(history.frames), np.asarray(history.actions)

  @property
  def plans_with_rules(self) -> bool:
    """Whether `choose` needs the games' positions."""
    return self._evaluator.plans_with_rules

  def choose(
    self, games: Int[np.ndarray, "n"], timestep: BatchedTimeStep, positions: Sequence[Any] = ()
  ) -> Int[np.ndarray, "n"]:
    """Returns the agent's actions, in its own action space, and adds them to the histories.

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
      self._rng_key, key = jax.random.split(self._rng_key)
      position = stack_positions([positions[row] for row in rows.tolist()]) if self.plans_with_rules else None
      output = self._evaluator.decide(self._variables, self._history(games[rows]), step, key, position)
      if self._uses_prior:
        chosen = np.where(step.legal_actions_mask, np.asarray(output.prior_probs), -1.0).argmax(axis=-1)
      else:
        chosen = np.asarray(output.action)
      out[start : start + count] = chosen[:count]
    self.observe(games, timestep, out)
    return out

  def observe(
    self, games: Int[np.ndarray, "n"], timestep: BatchedTimeStep, actions: Int[np.ndarray, "n"]
  ) -> None:
    """Adds frames and the actions played there, in the agent's action space, to the histories."""
    history = push_frame(self._history(games), timestep.frame, timestep.is_first)
    history = push_action(history, actions)
    self._frames[games], self._actions[games] = history.frames, history.actions

  def _history(self, games: Int[np.ndarray, "n"]) -> HistoryState:
    return HistoryState(frames=self._frames[games], actions=self._actions[games])

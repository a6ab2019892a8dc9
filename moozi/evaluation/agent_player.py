"""A trained agent that plays several games at once."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Int, Num, PyTree

from moozi.agent.agent import Carry, KeyedAct, PureAgent
from moozi.core.pytree import map_fields
from moozi.core.records import BatchedTimeStep
from moozi.envs.environment import stack_positions


class AgentPlayer:
  """Chooses an agent's actions in N games, with a carry and a random key for each game.

  Call `choose` or `observe` for every frame that the agent sees in a game, in order. Each search has a batch
  of `width` games, so that the policy compiles once. A search uses and advances the key of its first game.

  Args:
    act: `keyed(agent)`, compiled.
    temperature: temperature at which the agent draws actions.
    num_games: N.
    uses_prior: choose the most probable legal action of the network's policy instead of the search's action.
      The agent's decisions must then have the extra `prior_action`.
    seed: seed of the search's noise and of action sampling, if the evaluation has them.

  Attributes:
    variables: the agent's variables, on the device.
    temperature: as given.
  """

  def __init__(
    self,
    agent: PureAgent,
    act: KeyedAct,
    variables: PyTree,
    temperature: Any,
    num_games: int,
    width: int,
    *,
    uses_prior: bool = False,
    seed: int = 0,
  ) -> None:
    self._agent, self._act, self._width, self._uses_prior = agent, act, width, uses_prior
    self.variables, self.temperature = jax.device_put(variables), temperature
    self._carry = jax.tree_util.tree_map(np.array, agent.init(num_games))
    self._keys = np.tile(np.asarray(jax.random.PRNGKey(seed)), (num_games, 1))

  @property
  def num_games(self) -> int:
    """N."""
    return len(self._keys)

  @property
  def plans_with_rules(self) -> bool:
    """Whether `choose` needs the games' positions."""
    return self._agent.plans_with_rules

  def start(self, game: int, seed: int) -> None:
    """Starts game `game` with a new carry and a random key of `seed`; if `game` is N, adds it."""
    carry, key = self._agent.init(1), np.asarray(jax.random.PRNGKey(seed))
    if game < self.num_games:
      self._write(np.array([game]), carry)
      self._keys[game] = key
      return
    self._carry = jax.tree_util.tree_map(lambda *parts: np.concatenate(parts), self._carry, carry)
    self._keys = np.concatenate([self._keys, key[None]])

  def choose(
    self, games: Int[np.ndarray, "n"], timestep: BatchedTimeStep, positions: Sequence[Any] = ()
  ) -> Num[np.ndarray, "n *D"]:
    """Returns the agent's actions, in its action space, and adds frames and actions to the games' carries.

    Args:
      games: indices of the games, each at most once.
      timestep: their current frames, in the same order.
      positions: their positions, in the same order, if the agent `plans_with_rules`.
    """
    if not len(games):
      return np.zeros(0, np.int32)
    out: list[np.ndarray] = []
    for start in range(0, len(games), self._width):
      count = min(self._width, len(games) - start)
      # The last batch is padded with copies of its own rows.
      rows = start + np.resize(np.arange(count), self._width)
      step = map_fields(lambda x, rows=rows: x[rows], timestep)
      position = stack_positions([positions[row] for row in rows.tolist()]) if self.plans_with_rules else None
      self._keys[games[start]], carry, decision = self._act(
        self.variables,
        self.carry_of(games[rows]),
        step,
        self._keys[games[start]],
        self.temperature,
        None,
        position,
      )
      chosen = np.asarray(decision.extras["prior_action"] if self._uses_prior else decision.action)
      out.append(chosen[:count])
      if not self._uses_prior:
        own = jax.tree_util.tree_map(lambda x, count=count: np.asarray(x)[:count], carry)
        self._write(games[start : start + count], own)
    actions = np.concatenate(out)
    if self._uses_prior:  # the carry has the search's action, which is not played
      self.observe(games, timestep, actions)
    return actions

  def observe(
    self, games: Int[np.ndarray, "n"], timestep: BatchedTimeStep, actions: Num[np.ndarray, "n *D"]
  ) -> None:
    """Adds frames, and the actions played there in the agent's action space, to the games' carries."""
    self._write(games, self._agent.observe(self.variables, self.carry_of(games), timestep, actions))

  def carry_of(self, games: Int[np.ndarray, "n"]) -> Carry:
    """Returns a copy of what the agent remembers of these games."""
    return jax.tree_util.tree_map(lambda x: x[games], self._carry)

  def key_of(self, game: int) -> Any:
    """Returns the random key of a game, which its next search uses if the game is the first of its batch."""
    return self._keys[game]

  def _write(self, games: Int[np.ndarray, "n"], carry: Carry) -> None:
    for own, new in zip(*map(jax.tree_util.tree_leaves, (self._carry, carry)), strict=True):
      own[games] = new

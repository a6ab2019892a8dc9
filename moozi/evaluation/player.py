"""The agent at one environment, step by step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from moozi.core.records import BatchedTimeStep
from moozi.core.spec import EnvSpec
from moozi.ops.history import HistoryState, init_history


class Thought(NamedTuple):
  """What the agent says of one frame.

  Attributes:
    action: in the agent's action space, what is played; the dummy at an end.
    root_value: for the player to move.
    action_probs: [A], the search policy, or the network's where nothing searches.
  """

  action: int
  root_value: float
  action_probs: np.ndarray


class AgentPlayer:
  """Sees every frame of one environment in order, also where somebody else moves, and says what it would
  play.

  Args:
    policy: as `agent.policy.make_policy` makes one, jitted or not.
    temperature: what the policy is called with.
    history_length: frames of its history.
    spec: the environment's facts.
    params, net_state: the network's.
    seed: of the search's noise, where it has any.
  """

  def __init__(
    self,
    policy: Callable[..., tuple[HistoryState, Any]],
    temperature: Any,
    history_length: int,
    spec: EnvSpec,
    params: Any,
    net_state: Any,
    seed: int,
  ) -> None:
    self._policy, self._temperature = policy, temperature
    self._variables = jax.device_put((params, net_state))
    self._history = init_history(1, history_length, spec)
    self._rng_key = jax.random.PRNGKey(seed)

  def think(self, timestep: BatchedTimeStep, forced: np.ndarray | None = None) -> Thought:
    """What the agent says of the environment's frame now.

    Args:
      timestep: of one environment; the one after the last that was thought about.
      forced: [1] int32, the action that somebody else plays here, or -1; None is -1.
    """
    self._rng_key, key = jax.random.split(self._rng_key)
    self._history, output = self._policy(
      *self._variables, self._history, timestep, key, self._temperature, forced
    )
    action, value, probs = jax.device_get((output.action, output.root_value, output.action_probs))
    return Thought(int(action[0]), float(value[0]), probs[0])

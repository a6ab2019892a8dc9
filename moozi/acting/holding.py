"""Exploration with actions that last: in some environments the last action is often repeated.

Independent random actions stay near the start where progress takes many equal actions. In Atari's Freeway a
random player scores 0 points a game; if its actions last for up to a hundred steps, it scores several.

Source: Dabney, Ostrovski and Barreto 2021, temporally extended ε-greedy, where random actions last for a
number of steps with a heavy-tailed distribution. Departures: the search chooses the actions that last; the
number of steps is geometric, with a mean that differs between environments, so that collectors have no other
state; the other environments explore as before.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32

from moozi.agent.planner import SearchOutput
from moozi.agent.policy import Policy
from moozi.core.records import BatchedTimeStep
from moozi.ops.history import HistoryState

# Folded into the random key of the search, this gives the key that decides whether an action is repeated.
_HOLD = 3
_NUM_MEANS = 6


def hold_probs(num_holding: int) -> Float32[np.ndarray, "{num_holding}"]:
  """Returns each lane's probability of repeating an action; actions then last 2, 4, … 64 steps on average."""
  return (1 - 0.5 ** (1 + np.arange(num_holding) % _NUM_MEANS)).astype(np.float32)


def with_holding(policy: Policy, num_holding: int) -> Policy:
  """Returns a policy that often repeats the last action in the first `num_holding` lanes.

  An action is repeated only within an episode and where it is legal. The policy target does not change.
  """
  probs = hold_probs(num_holding)

  def play(
    params: Any,
    net_state: Any,
    history: HistoryState,
    timestep: BatchedTimeStep,
    rng_key: Array,
    temperature: Any,
    **position: Any,
  ) -> tuple[HistoryState, SearchOutput]:
    last = jnp.asarray(history.actions)[:, -1]
    is_legal = jnp.take_along_axis(jnp.asarray(timestep.legal_actions_mask), last[:, None], axis=1)[:, 0]
    draws = jax.random.uniform(jax.random.fold_in(rng_key, _HOLD), probs.shape)
    is_held = jnp.zeros(len(last), bool).at[:num_holding].set(draws < probs)
    forced = jnp.where(is_held & is_legal & ~jnp.asarray(timestep.is_first), last, -1)
    return policy(params, net_state, history, timestep, rng_key, temperature, forced=forced, **position)

  return play

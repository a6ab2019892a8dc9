"""Temporally extended exploration: in some environments the last action is often repeated.

With independent random actions, an agent stays near its start if progress takes many equal actions in a row,
as in Atari's Freeway.

Source: Dabney, Ostrovski and Barreto 2021, whose random actions last for a number of steps drawn from a
heavy-tailed distribution. Departures: the agent chooses the actions; the number of steps is geometric, so the
last action is the only state; its mean differs between environments; the other environments repeat no action.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Int, PyTree

from moozi.agent.agent import Carry, Decision, PureAgent, Temperature, merge_forced
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import DUMMY_ACTION
from moozi.core.types import AnyArray

# Folded into the random key of the search, this gives the key that decides whether an action is repeated.
_HOLD = 3
_NUM_MEANS = 6


def hold_probs(num_holding: int) -> Float32[np.ndarray, "{num_holding}"]:
  """Returns each lane's probability of repeating an action.

  An action lasts 2, 4, … 64 steps on average in six successive lanes, if the agent's next choice differs.
  """
  return (1 - 0.5 ** (1 + np.arange(num_holding) % _NUM_MEANS)).astype(np.float32)


def with_holding(agent: PureAgent, num_holding: int) -> PureAgent:
  """Returns an agent that often repeats the last action in the first `num_holding` lanes.

  An action is repeated only within an episode and where it is legal. The policy target is the agent's; n-step
  returns and the returns of training episodes include the rewards of repeated actions.
  """
  probs = hold_probs(num_holding)

  def init(num_lanes: int) -> Carry:
    return {"agent": agent.init(num_lanes), "last_action": np.full(num_lanes, DUMMY_ACTION, np.int32)}

  def act(
    variables: PyTree,
    carry: Carry,
    timestep: BatchedTimeStep,
    rng_key: Array,
    temperature: Temperature,
    forced: Int[AnyArray, "B"] | None = None,
    position: Any = None,
  ) -> tuple[Carry, Decision]:
    last = jnp.asarray(carry["last_action"])
    is_legal = jnp.take_along_axis(jnp.asarray(timestep.legal_actions_mask), last[:, None], axis=1)[:, 0]
    draws = jax.random.uniform(jax.random.fold_in(rng_key, _HOLD), probs.shape)
    is_held = jnp.zeros(len(last), bool).at[:num_holding].set(draws < probs)
    held = jnp.where(is_held & is_legal & ~jnp.asarray(timestep.is_first), last, -1)
    forced = merge_forced(forced, held)
    own, decision = agent.act(variables, carry["agent"], timestep, rng_key, temperature, forced, position)
    return {"agent": own, "last_action": decision.action}, decision

  def observe(
    variables: PyTree, carry: Carry, timestep: BatchedTimeStep, action: Int[AnyArray, "B"]
  ) -> Carry:
    own = agent.observe(variables, carry["agent"], timestep, action)
    return {"agent": own, "last_action": action}

  return dataclasses.replace(agent, init=init, act=act, observe=observe)

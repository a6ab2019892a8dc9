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
from moozi.ops.xp import array_namespace

# Folded into the random key of the search, this gives the key that decides whether an action is repeated.
_HOLD = 3
_NUM_MEANS = 6
# The counts are int32.
_MAX_STEPS = 1 << 30


def hold_probs(num_holding: int) -> Float32[np.ndarray, "{num_holding}"]:
  """Returns each lane's probability of repeating an action.

  An action lasts 2, 4, … 64 steps on average in six successive lanes, if the agent's next choice differs.
  """
  return (1 - 0.5 ** (1 + np.arange(num_holding) % _NUM_MEANS)).astype(np.float32)


def with_holding(
  agent: PureAgent, num_holding: int, num_steps: int | None = None, first_step: int = 0
) -> PureAgent:
  """Returns an agent that often repeats the last action in the first `num_holding` lanes.

  An action is repeated only within an episode and where it is legal. The policy target is the agent's; n-step
  returns and the returns of training episodes include the rewards of repeated actions.

  Args:
    num_steps: number of first steps of each lane in which actions are repeated; None: in all steps.
    first_step: number of steps that count as made when a carry begins; at most 2^30 are counted.
  """
  probs = hold_probs(num_holding)

  def init(num_lanes: int) -> Carry:
    own = {"agent": agent.init(num_lanes), "last_action": np.full(num_lanes, DUMMY_ACTION, np.int32)}
    if num_steps is not None:
      own["steps_made"] = np.full(num_lanes, min(first_step, _MAX_STEPS), np.int32)
    return own

  def stepped(carry: Carry, own: Carry, action: Int[AnyArray, "B"]) -> Carry:
    after = {"agent": own, "last_action": action}
    if num_steps is not None:
      made = carry["steps_made"]
      after["steps_made"] = array_namespace(made).minimum(made + 1, _MAX_STEPS)
    return after

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
    if num_steps is not None:
      is_held &= jnp.asarray(carry["steps_made"]) < min(num_steps, _MAX_STEPS)
    held = jnp.where(is_held & is_legal & ~jnp.asarray(timestep.is_first), last, -1)
    forced = merge_forced(forced, held)
    own, decision = agent.act(variables, carry["agent"], timestep, rng_key, temperature, forced, position)
    return stepped(carry, own, decision.action), decision

  def observe(
    variables: PyTree, carry: Carry, timestep: BatchedTimeStep, action: Int[AnyArray, "B"]
  ) -> Carry:
    return stepped(carry, agent.observe(variables, carry["agent"], timestep, action), action)

  return dataclasses.replace(agent, init=init, act=act, observe=observe)

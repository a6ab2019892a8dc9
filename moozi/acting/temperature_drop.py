"""Acting with a temperature in the first moves of a game, and another one after them.

Source: Silver et al. 2017 (AlphaGo Zero): temperature 1 in the first 30 moves of a game, then 0.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from moozi.agent.agent import Carry, Decision, PureAgent, Temperature
from moozi.core.records import BatchedTimeStep
from moozi.core.types import AnyArray


def with_temperature_drop(agent: PureAgent, num_moves: int, dropped: float) -> PureAgent:
  """Returns an agent that acts with its caller's temperature in each game's first `num_moves` moves.

  In later moves it acts with the temperature `dropped`. Moves of both players in self-play count, also those
  that its caller forces. Moves that the environment makes for other players do not count. Random first moves
  do not count either, because the first frame is the one after them. A lost life does not start a game.
  """
  num_moves = min(num_moves, np.iinfo(np.int32).max)  # the counts are int32

  def init(num_lanes: int) -> Carry:
    return {"agent": agent.init(num_lanes), "num_moves": np.zeros(num_lanes, np.int32)}

  def act(
    variables: PyTree,
    carry: Carry,
    timestep: BatchedTimeStep,
    rng_key: Array,
    temperature: Temperature,
    forced: Int[AnyArray, "B"] | None = None,
    position: Any = None,
  ) -> tuple[Carry, Decision]:
    played = jnp.where(jnp.asarray(timestep.is_first), 0, carry["num_moves"])
    by_lane = jnp.where(played < num_moves, temperature, jnp.float32(dropped))
    own, decision = agent.act(variables, carry["agent"], timestep, rng_key, by_lane, forced, position)
    return {"agent": own, "num_moves": played + ~jnp.asarray(timestep.is_last)}, decision

  def observe(
    variables: PyTree, carry: Carry, timestep: BatchedTimeStep, action: Int[AnyArray, "B"]
  ) -> Carry:
    played = jnp.where(jnp.asarray(timestep.is_first), 0, carry["num_moves"])
    own = agent.observe(variables, carry["agent"], timestep, action)
    return {"agent": own, "num_moves": played + ~jnp.asarray(timestep.is_last)}

  return dataclasses.replace(agent, init=init, act=act, observe=observe)

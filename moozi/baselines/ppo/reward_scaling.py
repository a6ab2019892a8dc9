"""The scaling of PPO's rewards by the standard deviation of running returns, which are in the training state.

Source: Huang et al. 2022, details 8 and 9 for robotics (`VecNormalize` of `openai/baselines`). Departures:
  - The statistics change once per round, before its rewards are divided, not at each step.
  - In self-play, returns are those of the player to move.
  - A round without an update (docs/ppo.md, Workers) changes no statistics; running returns then continue from
    the last round with one.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32

from moozi.acting.on_policy import Rollout
from moozi.baselines.observations import NetState
from moozi.core.config.ppo import PPOConfig
from moozi.core.pytree import record, replace
from moozi.core.types import AnyArray
from moozi.ops.running_stats import RunningStats, deviation, initial_stats, updated

RETURNS = "returns"
"""The name of the RunningReturns in `net_state`."""


@record
class RunningReturns:
  """The running discounted returns of B environments, and the statistics of all returns so far.

  Attributes:
    stats: those of the scalars G_t = r_{t+1} + γ·s·G_{t-1}, where G is 0 before an episode's first reward,
      and s is as in `generalized_advantages`.
    carried: γ·s·G of the last step, for the player to move next.
  """

  stats: RunningStats
  carried: Float32[AnyArray, "B"]


def return_state(config: PPOConfig) -> NetState:
  """Returns the initial part of `net_state`, which is empty if rewards are not scaled."""
  if not config.normalize_rewards:
    return {}
  return {RETURNS: RunningReturns(stats=initial_stats(), carried=jnp.zeros(config.num_envs))}


def scaled_rewards(
  net_state: NetState,
  segment: Rollout,
  config: PPOConfig,
  discount: Float[AnyArray, ""] | float | None = None,
) -> tuple[NetState, Rollout, dict[str, Float[Array, ""]]]:
  """Returns `net_state` after a segment, the segment with scaled rewards, and `ppo/return_deviation`.

  Rewards are divided by the standard deviation of the running returns of all live samples so far, and clipped
  to ±reward_clip. Without `normalize_rewards`, nothing changes. `discount` is γ in place of
  `config.discount`.
  """
  if RETURNS not in net_state:
    return net_state, segment, {}
  running: RunningReturns = net_state[RETURNS]
  gamma = config.discount if discount is None else discount

  def step(carried: Float[Array, "B"], row: Any) -> tuple[Float[Array, "B"], Float[Array, "B"]]:
    reward, sign, is_first, is_live = row
    total = jnp.where(is_live, reward + jnp.where(is_first, 0.0, carried), 0.0)
    return gamma * sign * total, total

  rows = (segment.reward, segment.sign, segment.is_first, segment.is_live)
  carried, totals = jax.lax.scan(step, running.carried, rows)
  stats = updated(running.stats, totals.reshape(-1), segment.is_live.reshape(-1))
  scale = deviation(stats)
  reward = jnp.clip(segment.reward / scale, -config.reward_clip, config.reward_clip)
  carried = jnp.where(jnp.isfinite(carried), carried, 0.0)
  return (
    net_state | {RETURNS: RunningReturns(stats=stats, carried=carried)},
    replace(segment, reward=reward),
    {"ppo/return_deviation": scale},
  )

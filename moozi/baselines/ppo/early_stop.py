"""The early stop of a round's updates once the policy has moved too far from the one that acted.

Source: Huang et al. 2022, "early stopping of the policy optimizations", and the code of
`ppo_continuous_action.py`: after each epoch, the divergence of its last minibatch is compared with
`target_kl`. Departure: the updates after the stop are computed, but change nothing, because compiled updates
have a fixed number. The stop does not shorten a round.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Int, PyTree

from moozi.agent.finite import ALL_FINITE
from moozi.agent.update import TrainingState, repeat
from moozi.core.config.ppo import PPOConfig

Stopping = tuple[TrainingState, Bool[Array, ""]]


def repeat_until(
  step: Callable[..., Any], reduce: Callable[[Any], Any], config: PPOConfig
) -> Callable[..., tuple[TrainingState, Any]]:
  """Returns `agent.update.repeat` of `step`, whose updates change nothing after a stop.

  The updates stop after an epoch whose last update has a `ppo/approx_kl` above `target_kl`. A later update
  leaves the whole state as it is, also its learner step. Its scalars do not enter means, except that of
  `ppo/stopped_share`, the share of updates after the stop.

  Args:
    step: (state, indices, *constants) -> (state, (scalars, bad_term)).
  """
  updates = repeat(_stopping(step, config), reduce)

  def run(
    state: TrainingState, rows: Int[np.ndarray, "U M"], *constants: PyTree
  ) -> tuple[TrainingState, Any]:
    is_epoch_end = np.arange(1, len(rows) + 1) % config.num_minibatches == 0
    (state, _), result = updates((state, jnp.zeros((), bool)), (rows, is_epoch_end), *constants)
    return state, result

  return run


def _stopping(step: Callable[..., Any], config: PPOConfig) -> Callable[..., tuple[Stopping, Any]]:
  def stopping(carry: Stopping, row: Any, *constants: PyTree) -> tuple[Stopping, Any]:
    (state, is_stopped), (indices, is_epoch_end) = carry, row
    updated, (scalars, bad_term) = step(state, indices, *constants)
    stops = is_epoch_end & (scalars["ppo/approx_kl"] > config.target_kl)
    # `reduce_metrics` leaves out values that are not finite.
    scalars = {name: jnp.where(is_stopped, jnp.nan, x) for name, x in scalars.items()} | {
      "faults/skipped_updates": jnp.where(is_stopped, 0.0, scalars["faults/skipped_updates"]),
      "ppo/stopped_share": is_stopped.astype(jnp.float32),
    }
    state = optax.tree.where(is_stopped, state, updated)
    return (state, is_stopped | stops), (scalars, jnp.where(is_stopped, ALL_FINITE, bad_term))

  return stopping

"""Action values Q as pure functions of parameters (a table or a network), and the ε-greedy policy."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int, Int32, PyTree, UInt32

from moozi.baselines.ppo.network import make_network
from moozi.baselines.q_learning.table import empty_table, keys_of, slots_of, values_at
from moozi.core.config import Config
from moozi.core.pytree import record, register_records
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.core.types import AnyArray
from moozi.ops.history import HistoryState, init_history, push_action, push_frame


@dataclasses.dataclass(frozen=True)
class QFunction:
  """Action values Q as pure functions.

  Attributes:
    init: rng_key → params.
    apply: (params, frames [B, L, H, W, C] of the spec's dtype, legal_actions_mask [B, A]) → Q [B, A] float32,
      in environment units, for the player to move. The values of illegal actions have no meaning.
  """

  init: Callable[[Array], PyTree]
  apply: Callable[[PyTree, AnyArray, AnyArray], Array]


@record
class PolicyOutput:
  """The policy's output on B frames, with the fields that evaluation reads.

  Attributes:
    action: a legal action in the agent's action space; the dummy on a last frame.
    action_probs: the probabilities with which the action is drawn.
    root_value: the highest Q of a legal action; 0 on a terminal frame.
  """

  action: Int32[AnyArray, "B"]
  action_probs: Float32[AnyArray, "B A"]
  root_value: Float32[AnyArray, "B"]


def make_q_function(config: Config, spec: EnvSpec) -> QFunction:
  """Builds Q from the section `q_learning`.

  The network is that of PPO. Its policy head outputs the action values, or with `dueling` the advantages.

  Source: Mnih et al. 2015; Wang et al. 2016 (dueling). Departure: a dueling network subtracts the mean
    advantage of the legal actions, not of all actions.
  """
  register_records()
  options = config.q_learning
  if options.kind == "table":

    def look_up(table: PyTree, frames: AnyArray, legal: AnyArray) -> Array:
      return values_at(table, slots_of(table, keys_of(frames, legal)))

    return QFunction(lambda rng_key: empty_table(options.capacity, spec.num_actions), look_up)

  # Without `dueling` the value head is unused, so separate layers for it would be wasted.
  sharing = options.network.sharing if options.dueling else "shared"
  network = make_network(options.network.model_copy(update={"sharing": sharing}), spec)

  def apply(params: PyTree, frames: AnyArray, legal: AnyArray) -> Array:
    values, head = network.apply(params, frames)
    if not options.dueling:
      return values
    is_legal = jnp.asarray(legal)
    return head[:, None] + values - jnp.mean(values, axis=-1, keepdims=True, where=is_legal)

  frames = init_history(1, config.targets.history_length, spec).frames
  return QFunction(lambda rng_key: network.init(rng_key, jnp.asarray(frames)), apply)


def highest(
  values: Float[Array, "B A"], legal_actions_mask: Bool[AnyArray, "B A"]
) -> tuple[Int[Array, "B"], Float[Array, "B"]]:
  """Returns the legal action of highest value (of equal ones, the first) and its value."""
  legal = jnp.where(legal_actions_mask, values, -jnp.inf)
  return jnp.argmax(legal, axis=-1), jnp.max(legal, axis=-1)


def make_policy(q_function: QFunction) -> Callable[..., tuple[HistoryState, PolicyOutput]]:
  """Returns policy(params, net_state, history, timestep, rng_key, epsilon, forced) -> (history, output).

  The policy has the arguments of MuZero's policy, because evaluation calls both; it does not read net_state.
  With probability ε it draws a legal action uniformly, else it takes one of the highest Q.
  """

  def policy(
    params: PyTree,
    net_state: Any,
    history: HistoryState,
    timestep: BatchedTimeStep,
    rng_key: UInt32[AnyArray, "2"],
    epsilon: Float[AnyArray, ""] | float,
    forced: Int[AnyArray, "B"] | None = None,
  ) -> tuple[HistoryState, PolicyOutput]:
    del net_state
    history = push_frame(history, jnp.asarray(timestep.frame), jnp.asarray(timestep.is_first))
    mask = jnp.asarray(timestep.legal_actions_mask)
    values = q_function.apply(params, history.frames, mask)
    # A non-finite value must not make its action the best; the learner handles non-finite parameters.
    is_finite = jnp.isfinite(values)
    best, value = highest(jnp.where(is_finite, values, jnp.finfo(values.dtype).min), mask)
    value = jnp.where(jnp.any(is_finite & mask, axis=-1), value, 0.0)
    random_key, uniform_key = jax.random.split(rng_key)
    uniform = mask / jnp.sum(mask, axis=-1, keepdims=True)
    is_random = jax.random.bernoulli(random_key, epsilon, best.shape)
    drawn = jnp.where(is_random, jax.random.categorical(uniform_key, jnp.log(uniform)), best)
    chosen = drawn if forced is None else jnp.where(forced < 0, drawn, forced)
    output = PolicyOutput(
      action=jnp.where(timestep.is_last, DUMMY_ACTION, chosen).astype(jnp.int32),
      action_probs=(1.0 - epsilon) * jax.nn.one_hot(best, mask.shape[-1]) + epsilon * uniform,
      root_value=jnp.where(timestep.is_last & ~timestep.is_truncated, 0.0, value),
    )
    return push_action(history, output.action), output

  return policy

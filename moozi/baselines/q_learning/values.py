"""Action values Q as pure functions of parameters (a table or a network), and the ε-greedy agent."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from moozi.agent.agent import Decision, PureAgent, Temperature, make_agent
from moozi.baselines.observations import NetState, normalized
from moozi.baselines.ppo.actor_critic import make_network
from moozi.baselines.q_learning.hash_table import cells_of, empty_table, keys_of, values_at
from moozi.core.config import Config
from moozi.core.pytree import register_records
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import EnvSpec
from moozi.core.types import AnyArray
from moozi.ops.history import HistoryState, init_history


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
      return values_at(table, cells_of(table, keys_of(frames, legal)))

    return QFunction(lambda rng_key: empty_table(options.capacity, spec.num_actions), look_up)

  # Without `dueling` the value head is unused, so separate layers for it would be wasted.
  sharing = options.network.sharing if options.dueling else "shared"
  layers = options.network.model_copy(update={"sharing": sharing})
  network = make_network(layers, spec, conv_stride=options.conv_stride)

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


def make_q_learning(q_function: QFunction, spec: EnvSpec, history_length: int) -> PureAgent:
  """Returns the agent whose variables are (params, net_state), and whose temperature is ε.

  With statistics of observations in `net_state`, the input of Q is normalized.

  With probability ε the agent draws a legal action uniformly, else it takes the legal action of the highest
  Q. The value of a decision is this highest Q.
  """

  def decide(
    variables: tuple[PyTree, NetState],
    history: HistoryState,
    timestep: BatchedTimeStep,
    rng_key: Array,
    temperature: Temperature,
    position: Any,
  ) -> Decision:
    del position
    mask = jnp.asarray(timestep.legal_actions_mask)
    params, net_state = variables
    values = q_function.apply(params, normalized(net_state, history.frames), mask)
    # A non-finite value must not make its action the best; the learner handles non-finite parameters.
    is_finite = jnp.isfinite(values)
    best, value = highest(jnp.where(is_finite, values, jnp.finfo(values.dtype).min), mask)
    random_key, uniform_key = jax.random.split(rng_key)
    uniform = mask / jnp.sum(mask, axis=-1, keepdims=True)
    is_random = jax.random.bernoulli(random_key, temperature, best.shape)
    return Decision(
      action=jnp.where(is_random, jax.random.categorical(uniform_key, jnp.log(uniform)), best),
      action_probs=(1.0 - temperature) * jax.nn.one_hot(best, mask.shape[-1]) + temperature * uniform,
      root_value=jnp.where(jnp.any(is_finite & mask, axis=-1), value, 0.0),
      extras={},
    )

  return make_agent(decide, spec, history_length)

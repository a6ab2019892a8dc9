"""Computes the outputs of the networks of PPO and Q-learning from a training state."""

from collections.abc import Callable
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Shaped

from moozi.baselines.observations import normalized
from moozi.baselines.ppo.algorithm import network_of
from moozi.baselines.ppo.lstm import Memory
from moozi.baselines.q_learning.values import make_q_function
from moozi.core.flat_state import State, part, tree_of_state
from moozi.core.spec import DUMMY_ACTION
from moozi.surgery.fresh_state import initial_training_state
from moozi.surgery.networks import NamedNetwork


def baseline_outputs(
  network: NamedNetwork, state: State, frames: Shaped[np.ndarray, "B T H W C"]
) -> list[dict[str, np.ndarray]]:
  """Returns the outputs for the histories that end with each of the last frames, in 64 bits, so that rounding
  adds nothing.

  An LSTM begins with a state of zeros and reads the histories in order. All actions but the dummy are legal.

  Args:
    frames: T is the length L of a history, and the number of further steps.

  Returns: for each of the T - L + 1 steps, of PPO `policy` [B, P] and `value` [B], with continuous actions
    `gaussian` [B, 2 D] in place of the policy; of Q-learning `action values` [B, A].
  """
  config, spec, length = network.config, network.spec, network.length
  batch, num_steps = frames.shape[0], frames.shape[1] - length + 1
  template = jax.eval_shape(lambda: initial_training_state(config, spec)).variables
  parts = zip(template, ("params", "net_state"), strict=True)
  variables = tuple(tree_of_state(like, part(state, name)) for like, name in parts)
  histories = np.concatenate([frames[:, t : t + length] for t in range(num_steps)])
  legal = np.ones((len(histories), spec.policy_size), bool)
  legal[:, DUMMY_ACTION] = False

  def actor_critic(params: Any, histories: Any) -> dict[str, Any]:
    model = network_of(config, spec)
    if model.unroll is None or model.state_shape is None:
      policy, head = model.apply(params, histories)
    else:
      memory = Memory(
        state=jnp.zeros((batch, *model.state_shape), jnp.float64),
        is_first=jnp.arange(len(histories)) < batch,
      )
      policy, head, _ = model.unroll(params, histories, memory)
    value = {"value": model.value(head)}
    if spec.is_continuous:
      return value | {"gaussian": policy}
    return value | {"policy": jnp.exp(model.distribution(policy, jnp.asarray(legal)))}

  @jax.jit
  def run(variables: Any, histories: Any) -> dict[str, Any]:
    params, net_state = variables
    if config.algorithm == "ppo":
      return actor_critic(params, normalized(net_state, histories, config.ppo.observation_clip))
    values = make_q_function(config, spec).apply(params, normalized(net_state, histories), jnp.asarray(legal))
    return {"action values": values}

  precise = jax.default_matmul_precision("highest"), hk.intercept_methods(_in_64_bits)
  with jax.enable_x64(True), precise[0], precise[1]:
    wide = jax.tree.map(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, variables)
    found = jax.device_get(run(wide, histories))
  by_step = {name: np.split(x, num_steps) for name, x in found.items()}
  return [{name: x[t] for name, x in by_step.items()} for t in range(num_steps)]


def _in_64_bits(
  next_f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], context: hk.MethodContext
) -> Any:
  """Converts the inputs of dense and convolutional layers, which must have the dtype of the parameters."""
  if isinstance(context.module, hk.Linear | hk.ConvND) and context.method_name == "__call__":
    args = tuple(jnp.asarray(x, jnp.float64) for x in args)
  return next_f(*args, **kwargs)

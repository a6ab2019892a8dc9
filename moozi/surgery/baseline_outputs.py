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
from moozi.core.config import Config
from moozi.core.flat_state import State, part, tree_of_state
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.surgery.fresh_state import initial_training_state
from moozi.surgery.networks import NamedNetwork


def baseline_outputs(
  network: NamedNetwork, state: State, frames: Shaped[np.ndarray, "B T H W C"]
) -> list[dict[str, np.ndarray]]:
  """Returns the outputs, in 64 bits, for the histories that end with each of the last T - L + 1 frames.

  An LSTM begins with a state of zeros and reads the histories in order. All actions but the dummy are legal.

  Args:
    frames: T is the length L of a history plus the number of further steps.

  Returns: for each of the T - L + 1 steps, of PPO `policy` [B, P] and `value` [B], with continuous actions
    `gaussian` [B, 2 D] in place of the policy; of Q-learning `action values` [B, A].
  """
  num_steps = frames.shape[1] - network.length + 1
  histories = np.stack([frames[:, t : t + network.length] for t in range(num_steps)])
  found = make_baseline_outputs(network.config, network.spec)(state, histories)
  by_step = {name: np.split(x, num_steps) for name, x in found.items()}
  return [{name: x[t] for name, x in by_step.items()} for t in range(num_steps)]


def make_baseline_outputs(
  config: Config, spec: EnvSpec
) -> Callable[[State, Shaped[np.ndarray, "T B L H W C"]], dict[str, np.ndarray]]:
  """Returns a function (state, histories) → outputs [T · B, …] by name; it compiles once for a shape."""
  template = jax.eval_shape(lambda: initial_training_state(config, spec)).variables

  def actor_critic(params: Any, histories: Any, legal: Any, batch: int) -> dict[str, Any]:
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
    return value | {"policy": jnp.exp(model.distribution(policy, legal))}

  @jax.jit
  def run(variables: Any, histories: Any) -> dict[str, Any]:
    (params, net_state), batch = variables, histories.shape[1]
    histories = histories.reshape(-1, *histories.shape[2:])
    legal = jnp.tile(jnp.arange(spec.policy_size) != DUMMY_ACTION, (len(histories), 1))
    if config.algorithm == "ppo":
      seen = normalized(net_state, histories, config.ppo.observation_clip)
      return actor_critic(params, seen, legal, batch)
    q_function = make_q_function(config, spec)
    return {"action values": q_function.apply(params, normalized(net_state, histories), legal)}

  def outputs(state: State, histories: Shaped[np.ndarray, "T B L H W C"]) -> dict[str, np.ndarray]:
    parts = zip(template, ("params", "net_state"), strict=True)
    variables = tuple(tree_of_state(like, part(state, name)) for like, name in parts)
    precise = jax.default_matmul_precision("highest"), hk.intercept_methods(_in_64_bits)
    with jax.enable_x64(True), precise[0], precise[1]:
      wide = jax.tree.map(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, variables)
      return jax.device_get(run(wide, histories))  # type: ignore[no-any-return]

  return outputs


def _in_64_bits(
  next_f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], context: hk.MethodContext
) -> Any:
  """Converts the inputs of dense and convolutional layers, which must have the dtype of the parameters."""
  if isinstance(context.module, hk.Linear | hk.ConvND) and context.method_name == "__call__":
    args = tuple(jnp.asarray(x, jnp.float64) for x in args)
  return next_f(*args, **kwargs)

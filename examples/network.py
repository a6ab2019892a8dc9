"""A network of your own: one linear layer for each output.

In this folder: `moozi train tiny/catch network.kind=network:make`, or `python network.py`.
"""

import haiku as hk
import jax
import jax.numpy as jnp

import moozi


@moozi.register_network("linear")
def make(config, num_actions, support_size, num_frame_planes):
  """Returns the functions representation, prediction, dynamics and projection."""
  encode, step, project = (hk.Linear(config.latent_size) for _ in range(3))
  value, reward = hk.Linear(support_size), hk.Linear(support_size)
  policy = hk.Linear(num_actions)

  def representation(stacked_history, is_training):
    return jnp.tanh(encode(hk.Flatten()(stacked_history)))

  def prediction(hidden_state, is_training):
    return value(hidden_state), policy(hidden_state)

  def dynamics(hidden_state, action, is_training):
    inputs = jnp.concatenate([hidden_state, jax.nn.one_hot(action, num_actions)], axis=-1)
    hidden_state = jnp.tanh(step(inputs))
    return hidden_state, reward(hidden_state)

  def projection(hidden_state, is_training):
    return project(hidden_state)

  return representation, prediction, dynamics, projection


if __name__ == "__main__":
  moozi.train("tiny/catch", network={"kind": "linear"})

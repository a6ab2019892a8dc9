"""Tiny implementations of `Model`: lookup tables for the search, and a linear network for the loss."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from moozi.core.records import TrainTarget
from moozi.nn.model import AfterstateOutput, ChanceModel, Model, ModelOutput
from moozi.ops.scalar_transform import ScalarTransform

PHI = ScalarTransform(-5, 5, 0.001)


def encode(x, transform=PHI):
  """Returns logits of the categories of scalars in env units."""
  return jnp.log(jnp.maximum(transform.to_probs(x), 1e-30))


def unused(*args):
  raise NotImplementedError


def model_of(groups: int | tuple[int, ...], root, recurrent=unused, transform=PHI) -> Model:
  """Returns a model with these functions of inference; the others raise NotImplementedError.

  Args:
    groups: as in `EnvSpec.policy_groups`; a number of actions is one group.
  """
  return Model(
    init=unused,
    root_inference=root,
    recurrent_inference=recurrent,
    project=unused,
    represent=unused,
    policy_groups=groups if isinstance(groups, tuple) else (groups,),
    transform=transform,
  )


def table_model(groups: int | tuple[int, ...]) -> Model:
  """Returns a model that looks up its outputs in tables; a hidden state is a one-hot row index.

  The stacked history [B, 1, 1, N] is the hidden state of the root.

  The params are next_state [N, A] int32, reward [N, A], value [N], logits [N, P]; scalars in env units.
  """

  def output(params, state, reward):
    index = jnp.argmax(state, axis=-1)
    return ModelOutput(
      hidden_state=state,
      value_logits=encode(params["value"][index]),
      reward_logits=encode(reward),
      policy_logits=params["logits"][index],
    )

  def root(params, net_state, history, is_training):
    state = history[:, 0, 0, :]
    return output(params, state, jnp.zeros(state.shape[0])), net_state

  def recurrent(params, net_state, state, action, is_training):
    index = jnp.argmax(state, axis=-1)
    nxt = jax.nn.one_hot(params["next_state"][index, action], state.shape[-1])
    return output(params, nxt, params["reward"][index, action]), net_state

  return model_of(groups, root, recurrent)


def chance_table_model(num_actions: int, num_codes: int, reward_from: str = "outcome") -> Model:
  """Returns a `table_model` with chance nodes; an afterstate is a one-hot row index, like a state.

  The params are after_state [N, A] int32, value [N] and logits [N, A], indexed by state; after_value [N],
  chance [N, C] logits, next_state [N, C] int32 and reward [N, C], indexed by afterstate. With
  `reward_from="afterstate"`, an afterstate has the reward of code 0, and outcomes have none.
  """
  has_reward = reward_from == "afterstate"
  base = table_model(num_actions)

  def one_hot(index, like):
    return jax.nn.one_hot(index, like.shape[-1])

  def afterstate(params, net_state, state, action, is_training):
    index = params["after_state"][jnp.argmax(state, axis=-1), action]
    value, chance = encode(params["after_value"][index]), params["chance"][index]
    reward = encode(params["reward"][index, 0]) if has_reward else None
    return AfterstateOutput(
      hidden_state=one_hot(index, state), value_logits=value, chance_logits=chance, reward_logits=reward
    ), net_state

  def outcome(params, net_state, after, code, is_training):
    edge = jnp.argmax(after, axis=-1), jnp.argmax(code, axis=-1)
    index = params["next_state"][edge]
    return ModelOutput(
      hidden_state=one_hot(index, after),
      value_logits=encode(params["value"][index]),
      reward_logits=encode(params["reward"][edge] * (not has_reward)),
      policy_logits=params["logits"][index],
    ), net_state

  chance = ChanceModel(afterstate=afterstate, outcome=outcome, encode=unused, num_codes=num_codes)
  return dataclasses.replace(base, recurrent_inference=unused, chance=chance)


def random_chance_tables(
  rng: np.random.Generator, num_states: int, num_actions: int, num_codes: int
) -> dict[str, np.ndarray]:
  def integers(size):
    return rng.integers(0, num_states, (num_states, size)).astype(np.int32)

  def normal(*shape):
    return rng.normal(size=(num_states, *shape)).astype(np.float32)

  return {
    "after_state": integers(num_actions),
    "after_value": normal(),
    "chance": normal(num_codes),
    "next_state": integers(num_codes),
    "reward": normal(num_codes),
    "value": normal(),
    "logits": normal(num_actions),
  }


def random_tables(rng: np.random.Generator, num_states: int, num_actions: int) -> dict[str, np.ndarray]:
  return {
    "next_state": rng.integers(0, num_states, (num_states, num_actions)).astype(np.int32),
    "reward": rng.normal(size=(num_states, num_actions)).astype(np.float32),
    "value": rng.normal(size=num_states).astype(np.float32),
    "logits": rng.normal(size=(num_states, num_actions)).astype(np.float32),
  }


def one_hot_roots(states, num_states: int) -> np.ndarray:
  return np.eye(num_states, dtype=np.float32)[np.asarray(states)][:, None, None, :]


def linear_model(num_actions: int) -> Model:
  """Returns a linear model: x_0 = hW_h, x' = xW_x + W_a[a]; each head and the projection is one matrix."""

  def output(params, x, reward_logits):
    return ModelOutput(
      hidden_state=x, value_logits=x @ params["v"], reward_logits=reward_logits, policy_logits=x @ params["p"]
    )

  def represent(params, net_state, history, is_training):
    return history.reshape(history.shape[0], -1) @ params["h"], net_state

  def root(params, net_state, history, is_training):
    x, _ = represent(params, net_state, history, is_training)
    return output(params, x, jnp.zeros((x.shape[0], PHI.size))), {"calls": net_state["calls"] + 1}

  def recurrent(params, net_state, x, action, is_training):
    x = x @ params["x"] + params["a"][action]
    return output(params, x, x @ params["r"]), {"calls": net_state["calls"] + 1}

  def project(params, net_state, x, is_training):
    return x @ params["q"], net_state

  return Model(
    init=lambda key, history: (_linear_params(key, history, num_actions), {"calls": jnp.zeros(())}),
    root_inference=root,
    recurrent_inference=recurrent,
    project=project,
    represent=represent,
    policy_groups=(num_actions,),
    transform=PHI,
  )


def _linear_params(key, history, num_actions, width=3):
  sizes = {
    "h": (int(np.prod(history.shape[1:])), width),
    "x": (width, width),
    "a": (num_actions, width),
    "v": (width, PHI.size),
    "r": (width, PHI.size),
    "p": (width, num_actions),
    "q": (width, width),
  }
  return _random_params(key, sizes)


def _random_params(key, sizes):
  # NumPy, because JAX would compile a function for each size.
  rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
  return {name: jnp.asarray(0.7 * rng.normal(size=size), jnp.float32) for name, size in sizes.items()}


def linear_chance_model(num_actions: int, num_codes: int, reward_from: str = "outcome") -> Model:
  """Returns a `linear_model` with chance nodes: x' = xW_x + W_a[a], x'' = x'W_y + cW_c, e = hW_e.

  The reward is x''W_r, or x'W_ar with `reward_from="afterstate"`.
  """
  base = linear_model(num_actions)

  def afterstate(params, net_state, x, action, is_training):
    x = x @ params["x"] + params["a"][action]
    value, chance = x @ params["av"], x @ params["ac"]
    reward = x @ params["ar"] if reward_from == "afterstate" else None
    return AfterstateOutput(
      hidden_state=x, value_logits=value, chance_logits=chance, reward_logits=reward
    ), net_state

  def outcome(params, net_state, x, code, is_training):
    x = x @ params["y"] + code @ params["c"]
    return ModelOutput(
      hidden_state=x,
      value_logits=x @ params["v"],
      reward_logits=x @ params["r"],
      policy_logits=x @ params["p"],
    ), {"calls": net_state["calls"] + 1}

  def encode(params, net_state, transition, is_training):
    return transition.reshape(transition.shape[0], -1) @ params["e"], net_state

  def init(key, history, width=3):
    params, net_state = base.init(key, history)
    length = history.shape[-1] // (num_actions + 1)  # frames of one plane
    flat = int(np.prod(history.shape[1:])) * (length + 1) // length
    sizes = {
      "av": (width, PHI.size),
      "ac": (width, num_codes),
      "ar": (width, PHI.size),
      "y": (width, width),
      "c": (num_codes, width),
      "e": (flat, num_codes),
    }
    return params | _random_params(jax.random.fold_in(key, 1), sizes), net_state

  chance = ChanceModel(afterstate=afterstate, outcome=outcome, encode=encode, num_codes=num_codes)
  return dataclasses.replace(base, init=init, chance=chance)


def random_target(
  rng: np.random.Generator, batch, unroll, length, frame_shape, num_actions, frames_ahead=1
) -> TrainTarget:
  """Returns a target with random values in every field, including masks and ratios."""
  probs = rng.dirichlet(np.ones(num_actions), (batch, unroll + 1)).astype(np.float32)
  alive = rng.integers(0, unroll + 2, batch)
  return TrainTarget(
    frames=rng.random((batch, length + frames_ahead, *frame_shape)) < 0.5,
    history_actions=rng.integers(0, num_actions, (batch, length + frames_ahead)).astype(np.int32),
    actions=rng.integers(0, num_actions, (batch, unroll)).astype(np.int32),
    rewards=rng.normal(size=(batch, unroll)).astype(np.float32),
    action_probs=probs,
    root_values=rng.normal(size=(batch, unroll + 1)).astype(np.float32),
    n_step_returns=(3 * rng.normal(size=(batch, unroll + 1))).astype(np.float32),
    unroll_mask=(np.arange(unroll + 1) <= alive[:, None]).astype(np.float32),
    consistency_mask=(rng.random(batch) < 0.7).astype(np.float32),
    importance_ratio=rng.uniform(0.2, 3.0, batch).astype(np.float32),
    slot=np.arange(batch, dtype=np.int64),
    sequence=np.zeros(batch, np.int64),
    acted_version=np.zeros(batch, np.int32),
    searched_version=np.zeros(batch, np.int32),
  )

"""Tests of PPO's advantages, loss and updates, against oracles and against hand-computed values."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moozi.acting.on_policy import Rollout
from moozi.agent.update import TrainingState
from moozi.baselines.ppo.actor_critic import PPONetwork, make_network
from moozi.baselines.ppo.algorithm import batch_of
from moozi.baselines.ppo.optimization import (
  TERMS,
  PPOBatch,
  generalized_advantages,
  init_state,
  learning_rate_at,
  make_batch,
  make_loss,
  make_optimizer,
  make_round,
  make_update,
  minibatch_indices,
  rates_at,
)
from moozi.baselines.ppo.reward_scaling import RETURNS, return_state, scaled_rewards
from moozi.core.config import Config
from moozi.core.config.ppo import PPOConfig
from moozi.core.pytree import replace
from moozi.ops.scalar_transform import ScalarTransform
from tests.envs.environments import NIM_SPEC
from tests.fast_jit import fast_jit
from tests.run_events import assert_equal_trees

# The network's outputs are its params: tables of logits and values, one row for each sample.
TABLE = PPONetwork(
  init=lambda key, frames: None, apply=lambda params, frames: (params["logits"], params["value"])
)
COMPILED = {}
PLAIN = PPOConfig(normalize_advantages=False, entropy_coef=0.0, value_coef=0.0)


def graded(config: PPOConfig, network: PPONetwork = TABLE):
  """Returns the compiled function (params, batch) → ((loss, scalars), gradient)."""
  return jax.jit(jax.value_and_grad(make_loss(network, config), has_aux=True))


def loss_of(config: PPOConfig, params, batch: PPOBatch):
  return jax.jit(make_loss(TABLE, config))(params, batch)


def changed(config: PPOConfig, **changes) -> PPOConfig:
  return PPOConfig.model_validate(config.model_dump() | changes)


# --- advantages ---------------------------------------------------------------------------------------


def advantages(segment: Rollout, config: PPOConfig):
  """Returns the advantages, computed by one compiled function for each shape: the factors are arguments."""

  def compute(segment, discount, gae_lambda):
    options = config.model_copy(update={"discount": discount, "gae_lambda": gae_lambda})
    return generalized_advantages(segment, options)

  key = config.bootstrap_truncated, config.clip_rewards
  compiled = COMPILED.setdefault(key, fast_jit(compute))
  return compiled(segment, config.discount, config.gae_lambda)


def random_segment(seed: int, length: int, width: int, end: float = 0.3, truncated: float = 0.5) -> Rollout:
  """Returns a segment of random episodes; after each last frame comes a first frame with reward 0."""
  random = np.random.default_rng(seed)
  is_last = np.zeros((length + 1, width), bool)
  for t in range(length + 1):
    is_last[t] = random.random(width) < end
    if t:
      is_last[t] &= ~is_last[t - 1]
  reward = np.where(is_last[:-1], 0.0, random.normal(size=(length, width))).astype(np.float32)
  return Rollout(
    frames=random.random((length, width, 1, 1, 1, 2)).astype(np.float32),
    legal_actions_mask=np.ones((length, width, 4), bool),
    action=random.integers(1, 4, (length, width)).astype(np.int32),
    value=random.normal(size=(length + 1, width)).astype(np.float32),
    is_first=np.concatenate([np.ones((1, width), bool), is_last[:-2]]),
    is_live=~is_last[:-1],
    reward=reward,
    is_last=is_last[1:],
    is_truncated=is_last[1:] & (random.random((length, width)) < truncated),
    sign=random.choice(np.array([-1, 1], np.float32), (length, width)),
    extras={"log_probs": random.normal(size=(length, width, 4)).astype(np.float32)},
  )


def slow_advantages(segment: Rollout, config: PPOConfig) -> np.ndarray:
  """Returns the advantages by their definition: the sum over l of (γλ)^l δ_{t+l} to the episode's end."""
  length, width = segment.action.shape
  out = np.zeros((length, width))
  for t, b in itertools.product(range(length), range(width)):
    if not segment.is_live[t, b]:
      continue
    weight = 1.0
    for s in range(t, length):
      reward = float(segment.reward[s, b])
      if config.clip_rewards:
        reward = (reward > 0) - (reward < 0)
      if not segment.is_last[s, b] or (segment.is_truncated[s, b] and config.bootstrap_truncated):
        reward += config.discount * float(segment.sign[s, b]) * float(segment.value[s + 1, b])
      out[t, b] += weight * (reward - float(segment.value[s, b]))
      weight *= config.discount * config.gae_lambda * float(segment.sign[s, b])
      if segment.is_last[s, b]:
        break
  return out


@settings(max_examples=20)
@given(
  seed=st.integers(0, 2**31),
  length=st.sampled_from([1, 9]),
  end=st.sampled_from([0.0, 0.2, 0.6, 1.0]),
  discount=st.sampled_from([0.0, 0.9, 1.0]),
  gae_lambda=st.sampled_from([0.0, 0.95, 1.0]),
  bootstrap=st.booleans(),
  clip=st.booleans(),
)
def test_advantages_equal_the_definition(seed, length, end, discount, gae_lambda, bootstrap, clip):
  segment = random_segment(seed, length, 6, end)
  config = PPOConfig(
    discount=discount, gae_lambda=gae_lambda, bootstrap_truncated=bootstrap, clip_rewards=clip
  )
  np.testing.assert_allclose(
    advantages(segment, config), slow_advantages(segment, config), rtol=1e-4, atol=1e-5
  )


def one_lane(is_last, is_truncated, reward, value) -> Rollout:
  segment = random_segment(0, len(reward), 1)
  is_last = np.array(is_last, bool)
  return replace(
    segment,
    value=np.array(value, np.float32)[:, None],
    reward=np.array(reward, np.float32)[:, None],
    is_last=is_last[1:, None],
    is_truncated=np.array(is_truncated, bool)[1:, None],
    is_live=~is_last[:-1, None],
    sign=np.ones((len(reward), 1), np.float32),
  )


def test_advantages_by_hand():
  """Computes advantages with γ = λ = ½. Frame 2 ends an episode; frame 4 ends the segment."""
  config = PPOConfig(discount=0.5, gae_lambda=0.5)
  last = [0, 0, 1, 0, 0]
  value = [1.0, 2.0, 8.0, 4.0, 6.0]
  reward = [0.0, 3.0, 0.0, 1.0]  # reward[t] is for the action in frame t
  # δ_3 = 1 + ½·6 - 4 = 0; δ_1 = 3 - 2 = 1; δ_0 = 0 + ½·2 - 1 = 0, A_0 = 0 + ¼·1. Frame 2 is no sample.
  terminal = one_lane(last, [0] * 5, reward, value)
  np.testing.assert_allclose(advantages(terminal, config)[:, 0], [0.25, 1.0, 0.0, 0.0])
  truncated = one_lane(last, [0, 0, 1, 0, 0], reward, value)
  np.testing.assert_allclose(advantages(truncated, config)[:, 0], [0.25, 1.0, 0.0, 0.0])
  # With a bootstrap from frame 2, δ_1 = 3 + ½·8 - 2 = 5. The next episode adds nothing.
  bootstrapped = advantages(truncated, changed(config, bootstrap_truncated=True))
  np.testing.assert_allclose(bootstrapped[:, 0], [1.25, 5.0, 0.0, 0.0])
  bootstrapped = advantages(terminal, changed(config, bootstrap_truncated=True))
  np.testing.assert_allclose(
    bootstrapped[:, 0], [0.25, 1.0, 0.0, 0.0], err_msg="a terminal frame has no value"
  )


def test_advantages_of_two_players_by_hand():
  """The players alternate; the second one's move wins 1 at the end. γ = 1, λ = ½."""
  segment = one_lane([0, 0, 1], [0] * 3, [0.0, 1.0], [0.5, 0.25, 8.0])
  segment = replace(segment, sign=-segment.sign)
  # δ_1 = 1 - ¼; δ_0 = 0 - ¼ - ½, and A_0 = δ_0 - ½ δ_1, because the second player's gain is the first's loss.
  found = advantages(segment, PPOConfig(discount=1.0, gae_lambda=0.5))
  np.testing.assert_allclose(found[:, 0], [-0.75 - 0.375, 0.75])


def test_a_scheduled_discount_replaces_the_configured_one():
  segment, config = random_segment(3, 6, 3), PPOConfig(num_envs=3, normalize_rewards=True)
  other = changed(config, discount=0.5)
  compiled = fast_jit(lambda gamma: make_batch(segment, config, discount=gamma)[0].advantage)
  np.testing.assert_allclose(compiled(np.float32(0.5)), make_batch(segment, other)[0].advantage, rtol=1e-4)
  state = return_state(config)
  scaled = [
    scaled_rewards(state, segment, *args)[0] for args in ((config, np.float32(0.5)), (other,), (config,))
  ]
  assert_equal_trees(scaled[0], scaled[1])
  assert not np.array_equal(scaled[0][RETURNS].carried, scaled[2][RETURNS].carried)


def test_a_round_has_the_discount_of_its_first_step():
  points = [{"env_steps": 100, "discount": 0.5}]
  for schedule, expected in ((points, [[0.75, 0.01], [0.5, 0.01]]), ([], [[0.01], [0.01]])):
    ppo = {"discount": 0.75, "discount_schedule": schedule, "learning_rate": 0.01}
    config = Config.model_validate({"ppo": ppo | {"anneal_learning_rate": False}})
    rates = [batch_of(config, random_segment(0, 1, 1), steps)[1:] for steps in (99, 100)]
    np.testing.assert_array_equal(np.float32(rates), np.float32(expected))


def test_batch():
  segment = random_segment(3, 5, 2)
  config = PPOConfig(num_envs=2, segment_length=5, num_minibatches=2)
  both = fast_jit(lambda x: (make_batch(x, config), generalized_advantages(x, config)))
  (batch, metrics), advantage = both(segment)
  np.testing.assert_array_equal(batch.frames, segment.frames.reshape(10, 1, 1, 1, 2))
  np.testing.assert_array_equal(batch.action, segment.action.reshape(-1))
  np.testing.assert_allclose(batch.target, (np.asarray(advantage) + segment.value[:-1]).reshape(-1))
  live = segment.is_live.reshape(-1)
  targets, values = np.asarray(batch.target)[live], np.asarray(batch.value)[live]
  explained = 1 - np.var(targets - values) / np.var(targets)
  assert metrics["ppo/explained_variance"] == pytest.approx(explained, abs=1e-4)
  assert metrics["ppo/live_share"] == pytest.approx(live.mean())
  assert 0 < live.mean() < 1


# --- loss ---------------------------------------------------------------------------------------------


def table_batch(ratio, advantage, old_value=None, target=None, is_live=None) -> tuple[dict, PPOBatch]:
  """Returns (params, batch) with two legal actions of probability ½; the old probability is ½ / ratio."""
  size = len(ratio)
  zeros = np.zeros(size, np.float32)
  batch = PPOBatch(
    frames=np.zeros((size, 1, 1, 1, 1), np.float32),
    legal_actions_mask=np.tile([False, True, True], (size, 1)),
    action=np.ones(size, np.int32),
    log_prob=(math.log(0.5) - np.log(ratio)).astype(np.float32),
    value=zeros if old_value is None else np.array(old_value, np.float32),
    advantage=np.array(advantage, np.float32),
    target=zeros if target is None else np.array(target, np.float32),
    is_live=np.ones(size, bool) if is_live is None else np.array(is_live, bool),
  )
  return {"logits": np.zeros((size, 3), np.float32), "value": zeros}, batch


def test_policy_loss_is_clipped_pessimistically():
  params, batch = table_batch(ratio=[1.5, 1.5, 0.5, 0.5, 1.1], advantage=[1, -1, 1, -1, 2])
  (total, metrics), grads = graded(PLAIN)(params, batch)
  # The terms are 1.2 (clipped), -1.5, 0.5, -0.8 (clipped) and 2.2.
  assert total == pytest.approx(-(1.2 - 1.5 + 0.5 - 0.8 + 2.2) / 5, abs=1e-5)
  assert metrics["loss/policy"] == pytest.approx(float(total))
  assert metrics["ppo/clip_fraction"] == pytest.approx(0.8)
  slope = np.asarray(grads["logits"][:, 1])
  # The derivative of the ratio with respect to the logit is ratio · (1 - ½). Clipped terms have derivative 0.
  np.testing.assert_allclose(slope, [0, 0.15, -0.05, 0, -0.22], atol=1e-5)
  np.testing.assert_array_equal(grads["logits"][:, 0], 0.0)
  log_ratio = np.log([1.5, 1.5, 0.5, 0.5, 1.1])
  assert metrics["ppo/approx_kl_k1"] == pytest.approx(-log_ratio.mean(), abs=1e-5)
  assert metrics["ppo/approx_kl"] == pytest.approx((np.exp(log_ratio) - 1 - log_ratio).mean(), abs=1e-5)


def test_value_loss_is_clipped_pessimistically():
  params, batch = table_batch([1] * 4, [0] * 4, old_value=[1, 1, 1, 1], target=[2, 2, 1, 0])
  params["value"] = np.array([1.1, 1.5, 1.5, 0.5], np.float32)
  (total, metrics), grads = graded(changed(PLAIN, value_coef=1.0))(params, batch)
  # The loss takes the larger of each pair (plain, clipped): 0.9², 0.9²; 0.5², 0.8²; 0.5², 0.2²; 0.5², 0.8².
  assert total == pytest.approx(0.5 * (0.81 + 0.64 + 0.25 + 0.64) / 4, abs=1e-6)
  assert metrics["loss/value"] == pytest.approx(float(total))
  np.testing.assert_allclose(grads["value"], np.array([-0.9, 0, 0.5, 0]) / 4, atol=1e-6)
  unclipped = loss_of(changed(PLAIN, value_coef=1.0, clip_value=False), params, batch)
  assert unclipped[0] == pytest.approx(0.5 * (0.81 + 0.25 + 0.25 + 0.25) / 4, abs=1e-6)


def test_huber_loss():
  params, batch = table_batch([1] * 4, [0] * 4, target=[0.5, -0.5, 3, -9], is_live=[1, 1, 1, 0])
  config = changed(PLAIN, value_coef=1.0, clip_value=False, value_loss="huber")
  (total, metrics), grads = graded(config)(params, batch)
  assert total == pytest.approx((0.125 + 0.125 + 2.5) / 3, abs=1e-6)
  assert metrics["loss/value"] == pytest.approx(float(total))
  np.testing.assert_allclose(grads["value"], np.array([-0.5, 0.5, -1, 0]) / 3, atol=1e-6)


def test_categorical_loss():
  """With equal logits, the gradient is the uniform distribution minus the target's, for any return."""
  transform = ScalarTransform(-1, 30)
  network = dataclasses.replace(TABLE, transform=transform)
  params, batch = table_batch([1] * 4, [0] * 4, target=[0, 3, 800, 5], is_live=[1, 1, 1, 0])
  params["value"] = np.zeros((4, transform.size), np.float32)
  config = changed(PLAIN, value_coef=1.0, clip_value=False, value_loss="categorical")
  (total, metrics), grads = graded(config, network)(params, batch)
  assert total == pytest.approx(math.log(32), rel=1e-5)
  assert metrics["loss/value"] == pytest.approx(float(total))
  # φ(0) = 0 is category 1; φ(3) = 1.003 is between categories 2 and 3.
  expected = np.full((2, 32), 1 / 32)
  expected[0, 1] -= 1
  expected[1, 2:4] -= 0.997, 0.003
  np.testing.assert_allclose(grads["value"][:2], expected / 3, atol=1e-5)
  np.testing.assert_array_equal(grads["value"][3], 0)
  assert np.abs(grads["value"]).max() <= 1 / 3
  np.testing.assert_allclose(
    transform.to_scalar(np.log(1e-9 + np.asarray(transform.to_probs(batch.target)))), batch.target, atol=0.1
  )


def test_total_loss_and_entropy_bonus():
  params, batch = table_batch([1, 1], [1, 2], old_value=[0, 0], target=[1, 3])
  params["logits"] = np.log(np.array([[9.0, 0.5, 0.5], [9.0, 0.2, 0.8]], np.float32))
  batch = replace(batch, log_prob=np.log([0.5, 0.2]).astype(np.float32))
  total, metrics = loss_of(changed(PLAIN, entropy_coef=0.3, value_coef=0.7), params, batch)
  entropy = (math.log(2) - 0.2 * math.log(0.2) - 0.8 * math.log(0.8)) / 2
  assert metrics["loss/entropy"] == pytest.approx(entropy, abs=1e-6)
  assert total == pytest.approx(-1.5 - 0.3 * entropy + 0.7 * 0.5 * 5, abs=1e-5)


def test_advantage_normalization():
  advantage = np.array([1.0, 2.0, 6.0, 100.0], np.float32)
  params, batch = table_batch([1.1, 0.9, 1.0, 1.0], advantage, is_live=[1, 1, 1, 0])
  total = loss_of(changed(PLAIN, normalize_advantages=True), params, batch)[0]
  live = advantage[:3]
  by_hand = replace(batch, advantage=np.append((live - live.mean()) / live.std(), 0.0).astype(np.float32))
  assert total == pytest.approx(float(loss_of(PLAIN, params, by_hand)[0]), rel=1e-5)
  assert total != pytest.approx(float(loss_of(PLAIN, params, batch)[0]), rel=1e-2)


def test_last_frames_are_masked():
  """Last frames do not change the loss, whatever their action, value and advantage."""
  config = PPOConfig()
  params, batch = table_batch([1.1, 0.9, 1.05], [1, -2, 3], old_value=[0, 1, 2], target=[1, 1, 1])
  lone = loss_of(config, params, batch)
  more = {"logits": np.zeros((5, 3), np.float32), "value": np.array([0, 0, 0, 9, -9], np.float32)}
  extended = PPOBatch(
    frames=np.zeros((5, 1, 1, 1, 1), np.float32),
    legal_actions_mask=np.array([[0, 1, 1]] * 3 + [[0, 1, 1], [1, 0, 0]], bool),  # truncated, terminal
    action=np.array([1, 1, 1, 0, 0], np.int32),
    log_prob=np.append(batch.log_prob, [0, -40]).astype(np.float32),
    value=np.append(batch.value, [1e6, 5]).astype(np.float32),
    advantage=np.append(batch.advantage, [1e6, -3]).astype(np.float32),
    target=np.append(batch.target, [7, 7]).astype(np.float32),
    is_live=np.array([1, 1, 1, 0, 0], bool),
  )
  (total, metrics), grads = graded(config)(more, extended)
  assert total == pytest.approx(float(lone[0]), rel=1e-6)
  for name, value in lone[1].items():
    assert metrics[name] == pytest.approx(float(value), rel=1e-6), name
  np.testing.assert_array_equal(grads["logits"][3:], 0.0)
  np.testing.assert_array_equal(grads["value"][3:], 0.0)
  assert np.isfinite(grads["logits"]).all()
  assert np.abs(grads["logits"][:3, 1:]).min() > 0


def test_minibatch_of_last_frames():
  params, batch = table_batch([1.1, 0.9], [1, -2], target=[5, 5], is_live=[0, 0])
  (total, _), grads = graded(PPOConfig())(params, batch)
  assert total == 0.0
  assert all((np.asarray(g) == 0).all() for g in jax.tree_util.tree_leaves(grads))


# --- updates ------------------------------------------------------------------------------------------


def test_minibatch_indices():
  config = PPOConfig(num_envs=4, segment_length=6, num_epochs=3, num_minibatches=8)
  indices = np.asarray(minibatch_indices(jax.random.PRNGKey(0), config))
  assert indices.shape == (24, 3)
  epochs = indices.reshape(3, 24)
  for epoch in epochs:
    np.testing.assert_array_equal(np.sort(epoch), np.arange(24))
  assert len({tuple(e) for e in epochs} | {tuple(range(24))}) == 4
  assert (indices != minibatch_indices(jax.random.PRNGKey(1), config)).any()


def test_optimizer_clips_by_global_norm():
  def first_step(grads, **options):
    optimizer = make_optimizer(PPOConfig(**options))
    return fast_jit(lambda: optimizer.update(grads, optimizer.init(grads))[0])()

  grads = {"a": np.float32([3.0]), "b": np.float32([4.0])}
  out = first_step(grads, adam_epsilon=1.0)
  # The gradient is clipped to norm ½, which gives 0.3 and 0.4. Adam's first step is g / (|g| + ε).
  np.testing.assert_allclose([out["a"][0], out["b"][0]], [0.3 / 1.3, 0.4 / 1.4], rtol=1e-5)
  out = first_step(grads, adam_epsilon=1.0, max_grad_norm=None)
  np.testing.assert_allclose([out["a"][0], out["b"][0]], [3 / 4, 4 / 5], rtol=1e-5)
  states = [jax.eval_shape(make_optimizer(PPOConfig(max_grad_norm=norm)).init, grads) for norm in (None, 0.5)]
  assert len({str(jax.tree_util.tree_structure(state)) for state in states}) == 1
  np.testing.assert_allclose(first_step({"a": np.float32([1e-5])})["a"], [0.5], rtol=1e-3)
  # A factor below 1 clips even the first gradient: to 1.5 and 2.
  out = first_step(grads, adam_epsilon=1.0, max_grad_norm=None, max_grad_rms=0.5)
  np.testing.assert_allclose([out["a"][0], out["b"][0]], [1.5 / 2.5, 2 / 3], rtol=1e-5)


def test_learning_rate_annealing():
  config = PPOConfig(learning_rate=0.8, num_envs=2, segment_length=50)
  rates = [learning_rate_at(config, steps, 350) for steps in (0, 100, 200, 300, 400, 500)]
  np.testing.assert_allclose(rates, [0.8, 0.6, 0.4, 0.2, 0.0, 0.0], atol=1e-9)
  flat = changed(config, anneal_learning_rate=False)
  assert learning_rate_at(flat, 300, 350) == 0.8


def test_annealing_by_time():
  """The rates are those of the smaller one of the shares of rounds and of time that remain."""
  sizes = {"num_envs": 2, "segment_length": 50, "anneal_clip_range": True}
  config = PPOConfig(learning_rate=0.8, clip_range=0.4, anneal_by="progress", **sizes)
  by_steps = changed(config, anneal_by="steps")
  for steps in (0, 100, 200, 300, 400):
    assert rates_at(config, steps, 350) == rates_at(by_steps, steps, 350)
    assert rates_at(by_steps, steps, 350, 0.9) == rates_at(by_steps, steps, 350)
  found = [rates_at(config, *at) for at in ((0, 350, 0.25), (200, 350, 0.25), (200, 350, 0.75), (0, 350, 1))]
  np.testing.assert_allclose(found, [(0.6, 0.3), (0.4, 0.2), (0.2, 0.1), (0, 0)], atol=1e-9)
  flat = changed(config, anneal_learning_rate=False, anneal_clip_range=False)
  assert rates_at(flat, 200, 350, 0.75) == (0.8,)


def test_clip_range_annealing():
  config = PPOConfig(clip_range=0.4, anneal_learning_rate=False, num_envs=2, segment_length=50)
  assert rates_at(config, 200, 350) == (2.5e-4,)
  annealed = changed(config, anneal_clip_range=True)
  found = [rates_at(annealed, steps, 350) for steps in (0, 100, 200, 300, 400)]
  np.testing.assert_allclose(found, [(2.5e-4, x) for x in (0.4, 0.3, 0.2, 0.1, 0.0)], atol=1e-9)


def test_annealed_clip_range_clips_ratios_and_values():
  params, batch = table_batch([1.5, 0.7, 1.15], [1, -1, 2], old_value=[0, 1, 2], target=[3, 3, 3])
  params["value"] = np.array([0.15, 1.5, 2.3], np.float32)
  total, metrics = jax.jit(make_loss(TABLE, PPOConfig()))(params, batch, jnp.float32(0.1))
  expected, fixed = loss_of(PPOConfig(clip_range=0.1), params, batch)
  assert total == pytest.approx(float(expected), rel=1e-6)
  assert metrics["ppo/clip_fraction"] == fixed["ppo/clip_fraction"] == 1
  for name in ("loss/policy", "loss/value"):
    assert metrics[name] == pytest.approx(float(fixed[name]), rel=1e-6)
    assert metrics[name] != pytest.approx(float(loss_of(PPOConfig(), params, batch)[1][name]), rel=1e-3)


@pytest.fixture(scope="module")
def problem():
  config = PPOConfig(num_envs=3, segment_length=8, num_epochs=2, num_minibatches=3)
  config = changed(config, network={"hidden_sizes": (8,)})
  network = make_network(config.network, NIM_SPEC)
  state = jax.jit(lambda key: init_state(network, config, NIM_SPEC, key))(jax.random.PRNGKey(0))
  return config, network, random_segment(1, 8, 3), jax.device_get(state), make_round(network, config)


def fresh(problem) -> TrainingState:
  """Returns a copy of the initial state; a round donates its argument to JAX."""
  return jax.tree_util.tree_map(lambda x: jnp.array(x, copy=True), problem[3])


@pytest.mark.slow
def test_round_equals_its_minibatches(problem):
  config, network, segment, _, run_round = problem
  state, output = run_round(fresh(problem), (segment, jnp.float32(0.01)))
  metrics = output.metrics
  expected = fresh(problem)
  rng_key, order_key = jax.random.split(expected.rng_key)
  batch, _ = make_batch(segment, config)
  update, norms = jax.jit(make_update(network, config)), []
  for row in np.asarray(minibatch_indices(order_key, config)):
    expected, scalars, _ = update(expected, batch, row, jnp.float32(0.01))
    norms.append(float(scalars["update/grad_norm"]))
  assert int(state.learner_step) == 6
  for a, b in zip(
    jax.tree_util.tree_leaves(state.params), jax.tree_util.tree_leaves(expected.params), strict=True
  ):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
  np.testing.assert_array_equal(state.rng_key, rng_key)
  assert metrics["update/grad_norm"] == pytest.approx(np.mean(norms), rel=1e-4)
  assert metrics["faults/skipped_updates"] == 0


@pytest.mark.slow
def test_scanned_round_equals_dispatched_round(problem, monkeypatch):
  """On a CPU a round dispatches its updates one by one; on other devices it scans over them."""
  config, network, segment, _, run_round = problem
  one_by_one, output = run_round(fresh(problem), (segment, jnp.float32(0.01)))
  monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
  scanned, other = make_round(network, config)(fresh(problem), (segment, jnp.float32(0.01)))
  for a, b in zip(jax.tree_util.tree_leaves(one_by_one), jax.tree_util.tree_leaves(scanned), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
  np.testing.assert_array_equal(output.bad_term, other.bad_term)
  assert output.metrics.keys() == other.metrics.keys()
  for name, value in output.metrics.items():
    assert other.metrics[name] == pytest.approx(float(value), rel=1e-3, abs=1e-6), name


@pytest.mark.slow
def test_non_finite_update_is_skipped(problem):
  _, _, segment, _, run_round = problem
  state = fresh(problem)
  before = jax.tree_util.tree_map(np.array, (state.params, state.opt_state))
  bad = replace(segment, reward=np.full_like(segment.reward, np.nan))
  state, output = run_round(state, (bad, jnp.float32(0.01)))
  after = (state.params, state.opt_state)
  assert_equal_trees(before, after)
  assert output.metrics["faults/skipped_updates"] == 6
  assert [TERMS[code] for code in output.bad_term] == ["loss/policy"] * 6
  assert int(state.learner_step) == 6


@pytest.mark.slow
def test_non_finite_sample_skips_its_minibatches(problem):
  """Only one sample is NaN: the reward of a lane's first step, on which no earlier advantage depends."""
  config, _, segment, _, run_round = problem
  reward, is_live = segment.reward.copy(), segment.is_live.copy()
  reward[0, 0], is_live[0, 0] = np.nan, True
  state = fresh(problem)
  before = jax.tree_util.tree_map(np.array, state.params)
  broken = replace(segment, reward=reward, is_live=is_live)
  state, output = run_round(state, (broken, jnp.float32(0.01)))
  metrics, bad_term = output.metrics, output.bad_term
  assert metrics["faults/skipped_updates"] == config.num_epochs == 2
  assert ((bad_term >= 0).reshape(2, 3).sum(axis=1) == 1).all()
  assert np.isfinite(metrics["loss/total"])
  for a, b in zip(jax.tree_util.tree_leaves(before), jax.tree_util.tree_leaves(state.params), strict=True):
    assert np.isfinite(b).all()
    assert (a != b).any()

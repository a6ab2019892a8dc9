"""Tests of the loss against an oracle in plain Python, and of its gradient against hand-derived formulas."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moozi.agent.loss import make_loss, state_metrics
from moozi.core.config import LearnerConfig, TargetsConfig
from moozi.core.pytree import replace
from moozi.ops.scalar_transform import inverse_transform
from tests.agent.tiny import PHI, linear_model, random_target
from tests.fast_jit import fast_jit

A, K, L, B = 3, 3, 2, 4
FRAME = (2, 2, 1)
TARGETS = TargetsConfig(unroll_steps=K, history_length=L, n_step=2)
MODEL = linear_model(A)
COEFS = {"value_coef": 0.25, "reward_coef": 0.7, "consistency_coef": 2.0, "l2_coef": 1e-2}
CONFIGS = {
  "default": LearnerConfig(**COEFS),
  "target_encoder": LearnerConfig(**COEFS, consistency_from_target=True, scale_reward_loss=False),
  "no_consistency": LearnerConfig(**(COEFS | {"consistency_coef": 0.0})),
}
LOSSES = {name: fast_jit(make_loss(MODEL, config, TARGETS, "bool")) for name, config in CONFIGS.items()}
STATE = {"calls": jnp.zeros(())}


def make_params(seed):
  history = np.zeros((1, *FRAME[:2], L * (FRAME[2] + A)), np.float32)
  return MODEL.init(jax.random.PRNGKey(seed), history)[0]


PARAMS = [make_params(seed) for seed in range(3)]


def slow_phi(x):
  z = math.copysign(math.sqrt(abs(x) + 1) - 1, x) + PHI.epsilon * x
  z = min(max(z, PHI.support_min), PHI.support_max)
  low = math.floor(z)
  probs = [0.0] * PHI.size
  probs[low - PHI.support_min] += 1 - (z - low)
  if z > low:
    probs[low + 1 - PHI.support_min] += z - low
  return probs


def slow_cross_entropy(probs, logits):
  top = max(logits)
  log_sum = top + math.log(sum(math.exp(v - top) for v in logits))
  return -sum(p * (v - log_sum) for p, v in zip(probs, logits, strict=True))


def slow_scalar(logits):
  weights = [math.exp(v) for v in logits]
  z = sum(w * s for w, s in zip(weights, range(PHI.support_min, PHI.support_max + 1), strict=True)) / sum(
    weights
  )
  eps = PHI.epsilon
  q = (math.sqrt(1 + 4 * eps * (abs(z) + 1 + eps)) - 1) / (2 * eps)
  return math.copysign(q * q - 1, z)


def slow_history(frames, actions):
  """Returns the flat stacked history of frames [L, H, W, C] and actions [L]."""
  cells = []
  for h in range(FRAME[0]):
    for w in range(FRAME[1]):
      cells += [float(frames[i][h][w][c]) for i in range(L) for c in range(FRAME[2])]
      cells += [float(actions[i] == a) / A for i in range(L) for a in range(A)]
  return np.array(cells)


def slow_state_metrics(states):
  """Computes `state_metrics` with loops over pairs of states and NumPy's eigenvalues."""
  x = np.asarray(states, np.float64).reshape(len(states), -1)
  cosines = [
    x[i] @ x[j] / np.linalg.norm(x[i]) / np.linalg.norm(x[j])
    for i in range(len(x))
    for j in range(len(x))
    if i != j
  ]
  eigenvalues = np.linalg.eigvalsh(np.cov(x.T, bias=True))
  return {
    "state/cosine": np.mean(cosines),
    "state/spread": np.sqrt(np.mean(np.square(x - x.mean(0)))),
    "state/rank": eigenvalues.sum() ** 2 / np.square(eigenvalues).sum(),
  }


@pytest.mark.slow
def test_state_metrics():
  rng = np.random.default_rng(0)
  for states in (rng.normal(size=(6, 2, 4)), 3 + rng.normal(size=(5, 8))):
    metrics = state_metrics(jnp.asarray(states, jnp.float32))
    assert {name: float(x) for name, x in metrics.items()} == pytest.approx(
      slow_state_metrics(states), rel=1e-4
    )
  collapsed = state_metrics(jnp.ones((4, 3)))
  assert [float(collapsed[f"state/{name}"]) for name in ("cosine", "spread", "rank")] == pytest.approx(
    [1, 0, 0]
  )


def slow_loss(config, params, target_params, target):
  """Returns the thesis's loss, computed one sample at a time, with the departures listed in `make_loss`."""
  w = {k: np.asarray(v, np.float64) for k, v in params.items()}
  w_target = {k: np.asarray(v, np.float64) for k, v in target_params.items()}
  sums = {"policy": 0.0, "value": 0.0, "reward": 0.0, "consistency": 0.0}
  errors = []
  for b in range(B):
    x = slow_history(target.frames[b, :L], target.history_actions[b, :L]) @ w["h"]
    rho, mask = float(target.importance_ratio[b]), target.unroll_mask[b]
    for k in range(K + 1):
      if k > 0:
        x = x @ w["x"] + w["a"][target.actions[b, k - 1]]
        reward = mask[k] * slow_cross_entropy(slow_phi(float(target.rewards[b, k - 1])), x @ w["r"])
        sums["reward"] += rho * reward / (K if config.scale_reward_loss else 1)
      else:
        errors.append(abs(slow_scalar(x @ w["v"]) - float(target.n_step_returns[b, 0])))
      scale = 1 / K if k else 1
      sums["policy"] += rho * scale * mask[k] * slow_cross_entropy(target.action_probs[b, k], x @ w["p"])
      value = slow_cross_entropy(slow_phi(float(target.n_step_returns[b, k])), x @ w["v"])
      sums["value"] += rho * scale * mask[k] * value
      if k == 1 and config.consistency_coef > 0:
        encoder = w_target if config.consistency_from_target else w
        following = slow_history(target.frames[b, 1:], target.history_actions[b, 1:]) @ encoder["h"]
        projected = x @ w["q"]
        cosine = projected @ following / math.sqrt((projected @ projected) * (following @ following))
        sums["consistency"] += rho * target.consistency_mask[b] * (1 - cosine)
  terms = {k: v / B for k, v in sums.items()}
  terms["l2"] = sum(float((v**2).sum()) for v in w.values())
  coefs = {
    "policy": 1.0,
    "value": config.value_coef,
    "reward": config.reward_coef,
    "consistency": config.consistency_coef,
    "l2": config.l2_coef,
  }
  return sum(coefs[k] * terms[k] for k in terms), terms, errors


@pytest.mark.parametrize(
  "name", ["default", "target_encoder", pytest.param("no_consistency", marks=pytest.mark.slow)]
)
@settings(max_examples=12)
@given(seed=st.integers(0, 10_000), which=st.permutations([0, 1, 2]))
def test_terms_equal_oracle(name, seed, which):
  target = random_target(np.random.default_rng(seed), B, K, L, FRAME, A)
  params, target_params = PARAMS[which[0]], PARAMS[which[1]]
  loss, aux = LOSSES[name](params, target_params, STATE, target)
  want, terms, errors = slow_loss(CONFIGS[name], params, target_params, target)
  for term, value in terms.items():
    assert aux.metrics[f"loss/{term}"] == pytest.approx(value, rel=1e-4, abs=1e-5), term
  assert loss == pytest.approx(want, rel=1e-4)
  assert aux.metrics["loss/total"] == loss
  np.testing.assert_allclose(aux.value_error, errors, rtol=2e-4, atol=2e-4)
  assert float(aux.net_state["calls"]) == K + 1


def test_addends_sum_to_their_term():
  target = random_target(np.random.default_rng(0), B, K, L, FRAME, A)
  metrics = {
    k: float(v) for k, v in LOSSES["default"](PARAMS[0], PARAMS[1], STATE, target)[1].metrics.items()
  }
  for term in ("policy", "value"):
    unrolled = sum(metrics[f"loss/{term}_{k}"] for k in range(1, K + 1)) / K
    assert metrics[f"loss/{term}"] == pytest.approx(metrics[f"loss/{term}_0"] + unrolled, rel=1e-5)
  rewards = sum(metrics[f"loss/reward_{k}"] for k in range(1, K + 1)) / K
  assert metrics["loss/reward"] == pytest.approx(rewards, rel=1e-5)
  assert "loss/reward_0" not in metrics


def test_without_unrolled_steps():
  """With K = 0 the loss has policy and value at the start only; the last frame of an episode is masked."""
  targets = TargetsConfig(unroll_steps=0, history_length=L, n_step=2)
  target = random_target(np.random.default_rng(0), B, 0, L, FRAME, A)
  target = replace(target, consistency_mask=np.float32([1, 0, 1, 1]))
  params, config = PARAMS[0], CONFIGS["default"]
  loss, aux = fast_jit(make_loss(MODEL, config, targets, "bool"))(params, params, STATE, target)
  w = {k: np.asarray(v, np.float64) for k, v in params.items()}
  want = {"policy": 0.0, "value": 0.0}
  for b in (0, 2, 3):
    x = slow_history(target.frames[b, :L], target.history_actions[b, :L]) @ w["h"]
    scale = float(target.importance_ratio[b] * target.unroll_mask[b, 0]) / B
    want["policy"] += scale * slow_cross_entropy(target.action_probs[b, 0], x @ w["p"])
    want["value"] += scale * slow_cross_entropy(slow_phi(float(target.n_step_returns[b, 0])), x @ w["v"])
  for term, value in want.items():
    assert aux.metrics[f"loss/{term}"] == pytest.approx(value, rel=1e-4), term
  l2 = config.l2_coef * float(aux.metrics["loss/l2"])
  assert loss == pytest.approx(want["policy"] + config.value_coef * want["value"] + l2, rel=1e-4)
  assert aux.value_error[1] == 0
  absent = {"loss/reward", "loss/consistency", "error/reward", "error/value_1", "targets/zero_rewards"}
  assert not absent & set(aux.metrics)


def test_errors_by_unrolled_step():
  target = random_target(np.random.default_rng(5), B, K, L, FRAME, A)
  rewards = np.array(target.rewards)
  rewards[:2] = 0
  mask = np.float32([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]])
  target = replace(target, rewards=rewards, unroll_mask=mask)
  metrics = LOSSES["default"](PARAMS[0], PARAMS[1], STATE, target)[1].metrics
  w = {k: np.asarray(v, np.float64) for k, v in PARAMS[0].items()}
  errors = {"reward": [[] for _ in range(K)], "value": [[] for _ in range(K)]}
  for b in range(B):
    x = slow_history(target.frames[b, :L], target.history_actions[b, :L]) @ w["h"]
    for k in range(K):
      x = x @ w["x"] + w["a"][target.actions[b, k]]
      if mask[b, k + 1]:
        errors["reward"][k].append(abs(slow_scalar(x @ w["r"]) - float(rewards[b, k])))
        errors["value"][k].append(abs(slow_scalar(x @ w["v"]) - float(target.n_step_returns[b, k + 1])))
  assert [len(found) for found in errors["reward"]] == [4, 3, 2]
  for name, by_step in errors.items():
    for k, found in enumerate(by_step, start=1):
      assert metrics[f"error/{name}_{k}"] == pytest.approx(np.mean(found), rel=1e-3, abs=1e-4)
  mean = np.mean(np.concatenate(errors["reward"]))
  assert metrics["error/reward"] == pytest.approx(mean, rel=1e-3, abs=1e-4)
  assert metrics["targets/zero_rewards"] == pytest.approx(4 / 9)


def test_shares_of_clipped_targets():
  """Only targets that count and lie beyond the support are counted; its ends themselves are not beyond it."""
  end = float(inverse_transform(np.float32(PHI.support_max), PHI.epsilon))
  target = random_target(np.random.default_rng(5), B, K, L, FRAME, A)
  rewards, values = np.zeros((B, K), np.float32), np.full((B, K + 1), end, np.float32)
  rewards[0], values[2, :2] = (2 * end, -2 * end, end), (1e30, -1e30)
  mask = np.ones((B, K + 1), np.float32)
  mask[2, 1] = 0
  target = replace(target, rewards=rewards, n_step_returns=values, unroll_mask=mask)
  metrics = LOSSES["default"](PARAMS[0], PARAMS[1], STATE, target)[1].metrics
  assert metrics["targets/clipped_rewards"] == pytest.approx(2 / (B * K - 1))
  assert metrics["targets/clipped_values"] == pytest.approx(1 / (B * (K + 1) - 1))


def test_uniform_predictions_cost_log_n():
  """If all parameters are 0, every prediction is uniform and its cross-entropy is the log of its size."""
  params = jax.tree_util.tree_map(jnp.zeros_like, PARAMS[0])
  target = random_target(np.random.default_rng(0), B, K, L, FRAME, A)
  target = replace(
    target, unroll_mask=np.ones((B, K + 1), np.float32), importance_ratio=np.ones(B, np.float32)
  )
  metrics = LOSSES["default"](params, params, STATE, target)[1].metrics
  assert metrics["loss/policy"] == pytest.approx(2 * math.log(A), rel=1e-5)
  assert metrics["loss/value"] == pytest.approx(2 * math.log(PHI.size), rel=1e-5)
  assert metrics["loss/reward"] == pytest.approx(math.log(PHI.size), rel=1e-5)
  assert metrics["policy/entropy"] == pytest.approx(math.log(A), rel=1e-5)


def test_importance_ratio_scales_data_terms_only():
  target = random_target(np.random.default_rng(0), B, K, L, FRAME, A)
  double = replace(target, importance_ratio=2 * target.importance_ratio)
  one = LOSSES["default"](PARAMS[0], PARAMS[1], STATE, target)[1].metrics
  two = LOSSES["default"](PARAMS[0], PARAMS[1], STATE, double)[1].metrics
  for term in ("policy", "value", "reward", "consistency"):
    assert two[f"loss/{term}"] == pytest.approx(2 * float(one[f"loss/{term}"]), rel=1e-5)
  assert two["loss/l2"] == one["loss/l2"]


def test_masked_targets_have_no_gradient():
  target = random_target(np.random.default_rng(3), B, K, L, FRAME, A)
  mask = np.ones((B, K + 1), np.float32)
  mask[:, 2:] = 0
  a = replace(target, unroll_mask=mask)
  rewards, returns = a.rewards.copy(), a.n_step_returns.copy()
  rewards[:, 1:] += 3
  returns[:, 2:] -= 2
  b = replace(a, rewards=rewards, n_step_returns=returns, action_probs=np.roll(a.action_probs, 1, -1))
  b = replace(b, action_probs=np.where(mask[..., None] > 0, a.action_probs, b.action_probs))
  compiled = gradient("default", l2_coef=0.0, dynamics_gradient_scale=0.5)
  grads = [compiled(PARAMS[0], PARAMS[1], STATE, t)[0][0] for t in (a, b)]
  jax.tree_util.tree_map(np.testing.assert_array_equal, *grads)


@functools.cache
def gradient(name, **changes):
  """Returns the compiled gradient function for (params, target_params), with a changed configuration."""
  config = CONFIGS[name].model_copy(update=changes)
  loss = make_loss(MODEL, config, TARGETS, "bool")
  return fast_jit(jax.grad(loss, argnums=(0, 1), has_aux=True))


def only_step(k):
  """Returns a random target in which only unroll step k has a loss."""
  target = random_target(np.random.default_rng(7), B, K, L, FRAME, A)
  mask = np.zeros((B, K + 1), np.float32)
  mask[:, k] = 1
  return replace(target, unroll_mask=mask, consistency_mask=np.zeros(B, np.float32))


@pytest.mark.parametrize("scale", [0.5, pytest.param(0.25, marks=pytest.mark.slow)])
def test_gradient_is_scaled_at_each_dynamics_call(scale):
  """A loss at unroll step k has its gradient for the representation multiplied by scale^k."""
  grads = {s: gradient("default", l2_coef=0.0, dynamics_gradient_scale=s) for s in (1.0, scale)}
  for k in range(K + 1):
    (plain, _), _ = grads[1.0](PARAMS[0], PARAMS[0], STATE, only_step(k))
    (scaled, _), _ = grads[scale](PARAMS[0], PARAMS[0], STATE, only_step(k))
    assert float(jnp.abs(plain["h"]).max()) > 1e-3
    np.testing.assert_allclose(scaled["h"], scale**k * plain["h"], rtol=1e-4, atol=1e-7)
    for head in ("v", "p", "r"):
      np.testing.assert_allclose(scaled[head], plain[head], rtol=1e-4, atol=1e-7)


def test_dynamics_parameters_gradient_by_hand():
  """For one unit, x_k = w^k x_0, so a loss l at k = 2 has dl/dw = l'(x_2)(x_1 + s w x_0); s is the scale."""
  width, w, s = 3, 0.8, 0.5
  params = dict(PARAMS[0], x=w * jnp.eye(width), a=jnp.zeros((A, width)))
  config = CONFIGS["default"]
  target = only_step(2)
  compiled = gradient("default", l2_coef=0.0, dynamics_gradient_scale=s)
  got = compiled(params, params, STATE, target)[0][0]["x"]
  want = np.zeros((width, width))
  for b in range(B):
    x_0 = slow_history(target.frames[b, :L], target.history_actions[b, :L]) @ np.asarray(
      params["h"], np.float64
    )
    x_1, x_2 = w * x_0, w * w * x_0
    grad_x = np.zeros(width)
    for head, probs, coef in (
      ("v", slow_phi(float(target.n_step_returns[b, 2])), config.value_coef),
      ("p", target.action_probs[b, 2], 1.0),
      ("r", slow_phi(float(target.rewards[b, 1])), config.reward_coef),
    ):
      matrix = np.asarray(params[head], np.float64)
      logits = x_2 @ matrix
      softmax = np.exp(logits) / np.exp(logits).sum()
      grad_x += coef * matrix @ (softmax - np.asarray(probs))
    grad_x *= float(target.importance_ratio[b]) / K / B
    want += np.outer(x_1 + s * w * x_0, grad_x)
  np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-6)


def consistency_gradients(name, params, target_params):
  target = replace(
    random_target(np.random.default_rng(5), B, K, L, FRAME, A),
    unroll_mask=np.zeros((B, K + 1), np.float32),
    consistency_mask=np.ones(B, np.float32),
  )
  compiled = gradient(name, l2_coef=0.0, dynamics_gradient_scale=0.5)
  return compiled(params, target_params, STATE, target)[0]


def test_consistency_target_has_no_gradient():
  """The gradient is the same if separate target_params, equal to params, encode x_{t+1}."""
  online, _ = consistency_gradients("default", PARAMS[0], PARAMS[0])
  target, into_target = consistency_gradients("target_encoder", PARAMS[0], PARAMS[0])
  jax.tree_util.tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-8), online, target)
  assert all(float(jnp.abs(leaf).max()) == 0 for leaf in jax.tree_util.tree_leaves(into_target))
  assert float(jnp.abs(online["q"]).max()) > 1e-3


def test_target_params_are_read_by_option_only():
  target = random_target(np.random.default_rng(5), B, K, L, FRAME, A)
  for name, is_read in (("default", False), ("target_encoder", True)):
    first = LOSSES[name](PARAMS[0], PARAMS[1], STATE, target)[0]
    second = LOSSES[name](PARAMS[0], PARAMS[2], STATE, target)[0]
    assert bool(first != second) == is_read


def test_zero_hidden_state_has_finite_gradient():
  params = jax.tree_util.tree_map(jnp.zeros_like, PARAMS[0])
  grads, _ = consistency_gradients("default", params, params)
  assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree_util.tree_leaves(grads))


def test_rejects_target_of_other_size():
  with pytest.raises(ValueError, match="unroll_steps"):
    LOSSES["default"](
      PARAMS[0], PARAMS[0], STATE, random_target(np.random.default_rng(0), B, K + 1, L, FRAME, A)
    )
  with pytest.raises(ValueError, match="history_length"):
    LOSSES["default"](
      PARAMS[0], PARAMS[0], STATE, random_target(np.random.default_rng(0), B, K, L + 1, FRAME, A)
    )

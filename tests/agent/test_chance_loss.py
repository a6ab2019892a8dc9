"""Tests of the loss of a model with chance nodes, against an oracle that loops over samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.agent.loss import make_loss
from moozi.agent.update import CHANCE_TERMS, TERMS, terms_of
from moozi.core.config import Config, LearnerConfig
from moozi.core.config.chance import ChanceConfig
from moozi.core.pytree import replace
from moozi.nn.chance import straight_through
from tests.agent.test_loss import FRAME, TARGETS, A, B, K, L, slow_cross_entropy, slow_phi
from tests.agent.tiny import linear_chance_model, random_target
from tests.fast_jit import fast_jit

C = 4
CHANCE = ChanceConfig(codes=C, coef=0.8, commitment_coef=0.3)
LEARNER = LearnerConfig(value_coef=0.25, reward_coef=0.7, consistency_coef=2.0)
MODEL = linear_chance_model(A, C)
LOSS = make_loss(MODEL, LEARNER, TARGETS, "bool", None, CHANCE)
STATE = {"calls": jnp.zeros(())}


def make_params(seed):
  history = np.zeros((1, *FRAME[:2], L * (FRAME[2] + A)), np.float32)
  return MODEL.init(jax.random.PRNGKey(seed), history)[0]


def slow_stack(frames, actions):
  """Returns the flat stacked history of equally many frames and actions."""
  cells = []
  for h in range(FRAME[0]):
    for w in range(FRAME[1]):
      cells += [float(x) for frame in frames for x in frame[h][w]]
      cells += [float(action == a) / A for action in actions for a in range(A)]
  return np.array(cells)


def slow_chance_loss(params, target, reward_from):
  w = {k: np.asarray(v, np.float64) for k, v in params.items()}
  names = ("policy", "value", "reward", "afterstate_value", "chance", "commitment")
  sums = dict.fromkeys(names, 0.0)
  for b in range(B):
    frames, actions = target.frames[b], target.history_actions[b]
    rho, mask = float(target.importance_ratio[b]), target.unroll_mask[b]
    returns = [slow_phi(float(z)) for z in target.n_step_returns[b]]
    x = slow_stack(frames[:L], actions[:L]) @ w["h"]
    for k in range(K + 1):
      scale = rho * mask[k] / (K if k else 1)
      if k:
        encoded = slow_stack(frames[k - 1 : k + L], actions[k - 1 : k + L]) @ w["e"]
        code = np.eye(C)[int(np.argmax(encoded))]
        after = x @ w["x"] + w["a"][target.actions[b, k - 1]]
        x = after @ w["y"] + code @ w["c"]
        reward = float(target.rewards[b, k - 1])
        if reward_from == "afterstate":
          reward_logits = after @ w["ar"]
          value = slow_phi((float(target.n_step_returns[b, k - 1]) - reward) / TARGETS.discount)
        else:
          reward_logits, value = x @ w["r"], returns[k - 1]
        sums["afterstate_value"] += scale * slow_cross_entropy(value, after @ w["av"])
        sums["chance"] += scale * slow_cross_entropy(code, after @ w["ac"])
        sums["commitment"] += scale * float(((code - encoded) ** 2).sum())
        sums["reward"] += scale * slow_cross_entropy(slow_phi(reward), reward_logits)
      sums["policy"] += scale * slow_cross_entropy(target.action_probs[b, k], x @ w["p"])
      sums["value"] += scale * slow_cross_entropy(returns[k], x @ w["v"])
  return {name: value / B for name, value in sums.items()}


@pytest.fixture(scope="module", params=["outcome", pytest.param("afterstate", marks=pytest.mark.slow)])
def reward_from(request):
  return request.param


@pytest.fixture(scope="module")
def computed(reward_from):
  params = make_params(0)
  model = linear_chance_model(A, C, reward_from)
  value_and_grad = jax.value_and_grad(make_loss(model, LEARNER, TARGETS, "bool", None, CHANCE), has_aux=True)
  target = random_target(np.random.default_rng(3), B, K, L, FRAME, A, frames_ahead=K)
  (loss, aux), grads = fast_jit(value_and_grad)(params, params, STATE, target)
  return params, target, float(loss), {k: float(v) for k, v in aux.metrics.items()}, grads


def test_terms_equal_oracle(computed, reward_from):
  params, target, loss, metrics, _ = computed
  terms = slow_chance_loss(params, target, reward_from)
  for name, value in terms.items():
    assert metrics[f"loss/{name}"] == pytest.approx(value, rel=1e-4, abs=1e-5), name
  data = terms["policy"] + 0.25 * (terms["value"] + terms["afterstate_value"]) + 0.7 * terms["reward"]
  chance = 0.8 * terms["chance"] + 0.3 * terms["commitment"]
  assert loss == pytest.approx(data + chance + 2 * metrics["loss/consistency"], rel=1e-4)
  assert 1 <= metrics["chance/codes_used"] <= C
  assert 0 <= metrics["chance/entropy"] <= np.log(C)


def test_addends_sum_to_their_term(computed):
  metrics = computed[3]
  for term in ("afterstate_value", "chance", "commitment"):
    unrolled = sum(metrics[f"loss/{term}_{k}"] for k in range(1, K + 1)) / K
    assert metrics[f"loss/{term}"] == pytest.approx(unrolled, rel=1e-5)
    assert f"loss/{term}_0" not in metrics


def test_encoder_has_a_gradient(computed):
  assert float(jnp.abs(computed[4]["e"]).max()) > 1e-4


@pytest.mark.slow
def test_code_is_a_fixed_target_of_its_prediction(computed):
  """The chance loss of step 1 has no gradient to the encoder; later steps, which have one, are masked."""
  params, target, *_ = computed
  mask = np.broadcast_to(np.arange(K + 1) <= 1, (B, K + 1)).astype(np.float32)
  target = replace(target, unroll_mask=mask)
  grads = []
  for coef in (0.8, 0.0):
    loss = make_loss(MODEL, LEARNER, TARGETS, "bool", None, CHANCE.model_copy(update={"coef": coef}))
    grads.append(fast_jit(jax.grad(loss, has_aux=True))(params, params, STATE, target)[0])
  np.testing.assert_allclose(grads[0]["e"], grads[1]["e"], rtol=1e-4, atol=1e-6)
  assert float(jnp.abs(grads[0]["ac"]).max()) > 1e-4
  np.testing.assert_array_equal(grads[1]["ac"], jnp.zeros_like(grads[1]["ac"]))


def test_straight_through():
  encoded = jnp.array([[0.2, 3.0, -1.0]])
  np.testing.assert_allclose(straight_through(encoded), [[0, 1, 0]], atol=1e-6)
  weights = jnp.array([1.0, 2.0, 3.0])
  np.testing.assert_array_equal(
    jax.grad(lambda e: jnp.sum(straight_through(e) * weights))(encoded), [weights]
  )


def test_rejects_targets_without_the_frames_of_the_unroll():
  target = random_target(np.random.default_rng(0), B, K, L, FRAME, A)
  with pytest.raises(ValueError, match=f"frames: {L + 1}, must be history_length \\+ {K}"):
    LOSS(make_params(0), make_params(0), STATE, target)


def test_terms_that_must_be_finite():
  assert terms_of(Config()) == TERMS
  config = Config(chance={"codes": 2})
  assert set(terms_of(config)) - set(TERMS) == set(CHANCE_TERMS)
  assert terms_of(config).index("loss/chance") < terms_of(config).index("loss/total")

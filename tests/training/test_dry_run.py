"""Tests of the dry run of plug-ins; `tests/evaluation/test_opponents.py` has those of players."""

import haiku as hk
import jax
import jax.numpy as jnp
import mctx
import pytest

from moozi.core import plugins
from moozi.core.errors import UserError
from moozi.io.config import load_config
from moozi.run import build, local
from moozi.run.events import Updated
from moozi.run.session import RunInputs
from moozi.training.dry_run import dry_run
from tests.tiny_run import TINY

pytestmark = pytest.mark.usefixtures("folder")


def config_with(config, section, **values):
  """Returns the configuration with changed values of a section, without validation."""
  return config.model_copy(update={section: getattr(config, section).model_copy(update=values)})


def check(config):
  dry_run(config, build.env_spec(config))


def network(changed=None, out=None):
  """Returns a network function with linear parts; the result of the part `changed` is passed to `out`."""

  def make(config, num_actions, support_size, num_frame_planes):
    encode, step, project = (hk.Linear(8) for _ in range(3))
    value, reward, policy = hk.Linear(support_size), hk.Linear(support_size), hk.Linear(num_actions)
    parts = (
      lambda history, is_training: encode(hk.Flatten()(history)),
      lambda x, is_training: (value(x), policy(x)),
      lambda x, action, is_training: (step(x), reward(x)),
      lambda x, is_training: project(x),
    )
    if changed is None:
      return parts if out is None else out(parts)
    return tuple(
      (lambda *args, part=part: out(part(*args))) if i == changed else part for i, part in enumerate(parts)
    )

  return make


@pytest.mark.slow
def test_a_network_learns(tiny_config):
  plugins.register_network("own")(network())
  config = config_with(tiny_config, "network", kind="own")
  check(config)
  events = local.run(RunInputs(config, build.env_spec(config)))
  update = next(event for event in events if isinstance(event, Updated))
  assert update.metrics["loss/total"] > 0
  events.close()


@pytest.mark.parametrize(
  ("changed", "out", "message"),
  [
    (None, lambda parts: parts[:3], "must return a tuple of 4 functions: representation, prediction"),
    (None, lambda parts: (*parts[:3], 1), "must return a tuple of 4 functions"),
    (
      0,
      lambda x: x[:, 0],
      r"the representation returns float32\[2\] as the hidden state; must be .* \[2, …\]",
    ),
    (0, lambda x: x > 0, r"the representation returns bool\[2, 8\]"),
    (
      1,
      lambda x: x[0],
      r"prediction returns float32\[2, 61\]; must be a tuple \(value logits, policy logits\)",
    ),
    (1, lambda x: (x[1], x[0]), r"float32\[2, 4\] as the value logits; must be a float array \[2, 61\]"),
    (
      1,
      lambda x: (x[0], x[1][:, 1:]),
      r"float32\[2, 3\] as the policy logits; must be a float array \[2, 4\]",
    ),
    (
      2,
      lambda x: (x[0][:, :3], x[1]),
      r"dynamics returns float32\[2, 3\] as the hidden state; must be .*\[2, 8\]",
    ),
    (2, lambda x: (x[0], x[1][:, 0]), r"the dynamics returns float32\[2\] as the reward logits"),
    (3, lambda x: x[:, :3], r"the projection returns float32\[2, 3\] as the projection"),
    (3, lambda x: 1 / 0, r"the projection failed: .*test_dry_run.py:\d+: ZeroDivisionError"),
  ],
)
def test_networks_that_are_refused(tiny_config, changed, out, message):
  plugins.register_network("own")(network(changed, out))
  with pytest.raises(UserError, match=f"^network.kind=own: .*{message}"):
    check(config_with(tiny_config, "network", kind="own"))


def searched(change):
  """Returns a search function: PUCT, whose output is passed to `change`."""

  def search(config, **kwargs):
    return change(mctx.muzero_policy(**kwargs, num_simulations=config.num_simulations))

  return search


def with_search(config, name):
  planners = config.planners
  train = planners.train.model_copy(update={"algorithm": name})
  return config.model_copy(update={"planners": planners.model_copy(update={"train": train})})


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (lambda out: out.action, "returns .* with NoneType as action; must be an mctx.PolicyOutput"),
    (lambda out: out.replace(action=out.action_weights), r"with float32\[3, 4\] as action; .*integer\[3\]"),
    pytest.param(
      lambda out: out.replace(action_weights=out.action),
      r"int32\[3\] as action_weights; .*floating\[3, 4\]",
      marks=pytest.mark.slow,
    ),
    pytest.param(
      lambda out: out.replace(search_tree=None),
      "its search_tree is NoneType; must be an mctx.Tree",
      marks=pytest.mark.slow,
    ),
    (lambda out: out.replace(action=out.action * 0), r"chooses action 0, .* must be one of \[1, 2, 3\]"),
    pytest.param(
      lambda out: out.replace(action_weights=out.action_weights * 2),
      "must be probabilities",
      marks=pytest.mark.slow,
    ),
    pytest.param(
      lambda out: out.replace(action_weights=out.action_weights * jnp.nan),
      r"root 0 are \[0.0, nan",
      marks=pytest.mark.slow,
    ),
    (lambda out: 1 / 0, r"the call failed: .*test_dry_run.py:\d+: ZeroDivisionError"),
  ],
)
def test_searches_that_are_refused(tiny_config, change, message):
  plugins.register_search("own")(searched(change))
  with pytest.raises(UserError, match=f"^planners.train.algorithm=own: .*{message}"):
    check(with_search(tiny_config, "own"))


@pytest.mark.slow
def test_a_search_that_is_allowed(tiny_config):
  plugins.register_search("own")(searched(lambda out: out))
  check(with_search(tiny_config, "own"))


@pytest.mark.slow
def test_a_search_with_the_true_rules():
  pytest.importorskip("pyspiel")
  game = ("env.name=open_spiel:tic_tac_toe", "algorithm=alphazero", "targets.unroll_steps=0")
  config = with_search(load_config(None, [*TINY, *game]), "own")
  plugins.register_search("own")(searched(lambda out: out))
  check(config)
  plugins.register_search("own")(searched(lambda out: out.replace(action=out.action * 0)))
  with pytest.raises(UserError, match=r"chooses action 0, .* must be one of \[1, 2, 3, 4, 5, 6, 7, 8, 9\]"):
    check(config)


def entropy(config, model):
  def loss(params, net_state, outputs, target):
    log_probs = jax.nn.log_softmax(outputs[0].policy_logits)
    return jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)

  return loss


@pytest.mark.slow
def test_a_loss_is_added_and_recorded(tiny_config):
  plugins.register_loss("entropy")(entropy)
  config = config_with(tiny_config, "learner", extra_losses=("entropy",))
  check(config)
  events = local.run(RunInputs(config, build.env_spec(config)))
  update = next(event for event in events if isinstance(event, Updated))
  events.close()
  metrics = update.metrics
  coefficients = {"policy": 1.0, "value": 0.25, "reward": 1.0, "consistency": 2.0, "entropy": 1.0}
  total = sum(coefficient * metrics[f"loss/{name}"] for name, coefficient in coefficients.items())
  assert metrics["loss/entropy"] < 0
  assert metrics["loss/total"] == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize(
  ("name", "out", "message"),
  [
    ("own", lambda x: jnp.mean(x), r"the loss is float32\[\]; must be a float array \[2\], one"),
    ("own", lambda x: x > 0, r"the loss is bool\[2\]"),
    ("own", lambda x: None, "the loss is NoneType"),
    ("own", lambda x: 1 / 0, r"the loss failed: .*test_dry_run.py:\d+: ZeroDivisionError"),
    ("value_0", lambda x: x, "loss/value_0 is a built-in metric; choose another name"),
  ],
)
def test_losses_that_are_refused(tiny_config, name, out, message):
  plugins.register_loss(name)(lambda config, model: lambda p, s, o, target: out(target.importance_ratio))
  with pytest.raises(UserError, match=f"^learner.extra_losses.*={name}: .*{message}"):
    check(config_with(tiny_config, "learner", extra_losses=(name,)))


def test_a_loss_must_be_made_and_listed_once(tiny_config):
  plugins.register_loss("own")(lambda config, model: 3)
  with pytest.raises(UserError, match=r"learner.extra_losses\[0\]=own: returns 3; must return a function"):
    check(config_with(tiny_config, "learner", extra_losses=("own",)))
  with pytest.raises(UserError, match="a term is listed twice"):
    check(config_with(tiny_config, "learner", extra_losses=("own", "own")))


@pytest.mark.slow
def test_a_loss_that_is_not_finite_is_skipped_by_its_name(tiny_config):
  plugins.register_loss("bad")(
    lambda config, model: lambda p, s, outputs, target: jnp.log(0 * target.rewards[:, 0])
  )
  config = config_with(tiny_config, "learner", extra_losses=("bad",))
  events = local.run(RunInputs(config, build.env_spec(config)))
  update = next(event for event in events if isinstance(event, Updated))
  events.close()
  assert update.metrics["faults/not_finite_bad"] == update.metrics["faults/skipped_updates"] > 0


def test_built_in_names_need_no_check(tiny_config, monkeypatch):
  monkeypatch.setattr(build, "build_model", None)
  check(tiny_config)

"""Follows the recipes of docs/architecture.md, from outside the package where the API allows this.

Each recipe mentions only files and names that exist.
"""

import re
import sys
from pathlib import Path

import haiku as hk
import jax
import jax.numpy as jnp
import mctx
import numpy as np
import pytest

from moozi.agent import planner
from moozi.envs import registry
from moozi.nn import model as networks
from moozi.nn.latent import LatentDynamics, LatentPrediction, LatentProjection
from moozi.run import build, local
from moozi.run.events import Finished, Started, Updated
from moozi.run.session import RunInputs
from moozi.training import algorithms

ROOT = Path(__file__).parents[1]
ENV = """
import dm_env
import numpy as np


class Bandit(dm_env.Environment):
  def reset(self):
    return dm_env.restart(np.zeros((2,), np.float32))

  def step(self, action):
    return dm_env.termination(float(action), np.zeros((2,), np.float32))

  def observation_spec(self):
    return dm_env.specs.BoundedArray((2,), np.float32, 0.0, 1.0)

  def action_spec(self):
    return dm_env.specs.DiscreteArray(2)


def make_env(seed):
  return Bandit()
"""


def with_network(config, kind):
  """Sets a name that the schema does not allow, without validation."""
  return config.model_copy(update={"network": config.network.model_copy(update={"kind": kind})})


def events_of(config):
  return list(local.run(RunInputs(config, build.env_spec(config))))


def test_an_environment(tmp_path, monkeypatch):
  (tmp_path / "recipe_envs.py").write_text(ENV)
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.delitem(sys.modules, "recipe_envs", raising=False)
  env = registry.make("recipe_envs:make_env", seed=1)
  assert env.env_spec.num_actions == 3  # the dummy is the third
  env.close()


def test_a_network(monkeypatch, tiny_config):
  class Representation(hk.Module):
    def __call__(self, stacked_history, is_training):
      flat = stacked_history.reshape(stacked_history.shape[0], -1)
      return jnp.tanh(hk.Linear(tiny_config.network.latent_size)(flat))

  def make_parts(config, num_actions, support_size, num_frame_planes):
    return (
      Representation(),
      LatentPrediction(config, num_actions, support_size),
      LatentDynamics(config, num_actions, support_size),
      LatentProjection(config),
    )

  monkeypatch.setitem(networks.NETWORKS, "linear", make_parts)
  events = events_of(with_network(tiny_config, "linear"))
  assert any(isinstance(event, Updated) for event in events)


def test_a_search(monkeypatch, tiny_config):
  def uniform(config, *, root, invalid_actions, temperature, rng_key, params, recurrent_fn):
    """Ignores the model: the weights are uniform over legal actions."""
    output = mctx.gumbel_muzero_policy(
      params, rng_key, root, recurrent_fn, config.num_simulations, invalid_actions=invalid_actions
    )
    legal = 1.0 - invalid_actions
    return output.replace(action_weights=legal / legal.sum(-1, keepdims=True))

  monkeypatch.setitem(planner.SEARCHES, "uniform", uniform)
  spec = build.env_spec(tiny_config)
  model = build.build_model(tiny_config, spec)
  history = jnp.zeros((2, *model_input_shape(tiny_config, spec)))
  params, net_state = model.init(jax.random.PRNGKey(0), history)
  legal = np.ones((2, spec.num_actions), bool)
  config = tiny_config.planners.train.model_copy(update={"algorithm": "uniform"})
  output = planner.plan(model, config, 0.99, 1, params, net_state, jax.random.PRNGKey(1), history, legal, 1.0)
  np.testing.assert_allclose(output.action_probs, 1.0 / spec.num_actions, rtol=1e-6)


def model_input_shape(config, spec):
  height, width, planes = spec.frame_shape
  return height, width, config.targets.history_length * (planes + spec.num_actions)


def test_a_metric_from_events(tiny_config):
  """Every event is public, so users can compute their own metrics from the events."""
  updates = [event for event in events_of(tiny_config) if isinstance(event, Updated)]
  mean_loss = np.mean([event.metrics["loss/total"] for event in updates])
  assert np.isfinite(mean_loss)


def test_a_baseline(monkeypatch, tiny_config):
  def run(inputs):
    yield Started(env_steps=0, learner_steps=0, message="nothing to learn")
    yield Finished(env_steps=0, learner_steps=0, reason="max_env_steps", sample_reuse=0.0)

  idle = algorithms.Algorithm(
    run=run, training_state_template=lambda *_: {}, build_evaluator=lambda *_: None, has_model=False
  )
  monkeypatch.setitem(algorithms.ALGORITHMS, "idle", lambda: idle)
  config = tiny_config.model_copy(update={"algorithm": "idle"})
  events = list(algorithms.algorithm_of(config).run(RunInputs(config, build.env_spec(config))))
  assert [type(event) for event in events] == [Started, Finished]


def recipes():
  text = (ROOT / "docs" / "architecture.md").read_text()
  section = text.partition("## Where to add what")[2].partition("\n## ")[0]
  rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| a")]
  return {row[0].strip(): row[1:] for row in rows}


@pytest.mark.parametrize("name", recipes())
def test_a_recipe_names_what_exists(name):
  text = " ".join(recipes()[name])
  files = re.findall(r"`([\w/]+\.(?:py|md|yaml))`", text)
  found = [next((p for p in (ROOT / "moozi" / f, ROOT / f) if p.exists()), None) for f in files]
  assert None not in found, f"{files[found.index(None)]} does not exist"
  sources = "\n".join(path.read_text() for path in found)
  names = re.findall(r"`(_?[A-Za-z]\w+)`", text)
  assert [n for n in names if n not in sources] == []


def test_every_kind_of_part_has_a_recipe():
  parts = ("environment", "network", "search", "loss term", "metric", "actor", "baseline")
  assert [part for part in parts if not any(part in name for name in recipes())] == []

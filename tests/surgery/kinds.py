"""Runs a surgery between two configurations with random parameters, for tests."""

from typing import Any

import jax
import numpy as np

from moozi.core.flat_state import tree_of_state, tree_state
from moozi.io.config import load_config
from moozi.run import build
from moozi.surgery.check import compare
from moozi.surgery.fresh_state import initial_training_state
from moozi.surgery.plan import Plan, make_plan
from moozi.surgery.transform import transform

BASE = (
  "env.name=tiny:catch",
  "runtime=local",
  "network.kind=mlp",
  "network.latent_size=8",
  "network.head_size=6",
  "network.channels=4",
  "network.num_representation_blocks=1",
  "network.num_prediction_blocks=1",
  "scalar_transform.support_min=-3",
  "scalar_transform.support_max=3",
  "targets.history_length=2",
  "targets.unroll_steps=2",
  "targets.n_step=3",
  "learner.batch_size=4",
  "learner.updates_per_call=1",
  "replay.capacity=4096",
  "replay.min_steps_to_learn=64",
  "workers.num_envs=2",
  "workers.segment_length=8",
)


def config_of(*overrides: str) -> Any:
  return load_config(None, [*BASE, *overrides])


def random_state(config: Any, spec: Any, seed: int = 0) -> dict[str, Any]:
  """Returns a training state whose parameters, statistics and moments are random; variances are positive."""
  state = tree_state(jax.device_get(initial_training_state(config, spec)))
  rng = np.random.default_rng(seed)
  for name, x in state.items():
    if x.dtype == np.float32:
      noise = rng.normal(size=x.shape).astype(np.float32)
      state[name] = x + 0.3 * noise
      if "variance" in name or "/nu/" in name or name.endswith("count"):
        state[name] = np.abs(state[name]) + np.float32(0.1)
  state["learner_step"] = np.int32(700)
  if "opt_state/1/count" in state:
    state["opt_state/1/count"] = np.int32(700)
  return state


def operate(old: Any, new: Any, old_spec: Any = None, new_spec: Any = None, pairs: Any = None) -> Any:
  """Returns the plan, the states before and after, and the differences of their outputs."""
  specs = old_spec or build.env_spec(old), new_spec or build.env_spec(new)
  plan = make_plan(old, specs[0], new, specs[1], pairs)
  state = random_state(old, specs[0])
  after = transform(state, plan)
  return plan, state, after, compare(plan, state, after)


def training_state(plan: Plan, state: dict[str, Any]) -> Any:
  template = jax.eval_shape(lambda: initial_training_state(plan.new.config, plan.new.spec))
  return tree_of_state(template, state)

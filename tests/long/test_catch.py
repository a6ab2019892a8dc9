"""Tests that agents learn tiny environments, whose best returns are known."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.core.spec import DUMMY_ACTION
from moozi.envs.vector import make_vector
from moozi.io.checkpoints import find_checkpoint, load_checkpoint
from moozi.io.run_directory import RunDirectory
from moozi.ops.history import init_history, normalize_frame, push_action, push_frame, stack_history
from moozi.run.build import build_model, env_spec
from moozi.training.algorithms import algorithm_of

CONFIG = Path(__file__).parents[2] / "config" / "tiny" / "catch.yaml"


def train(folder: Path, *overrides: str, config: Path = CONFIG) -> dict:
  command = [sys.executable, "-m", "moozi.cli", "train", str(config), f"run.dir={folder}", "run.name=one"]
  result = subprocess.run(
    [*command, "logging.progress=none", "evaluation.gif=false", *overrides],
    capture_output=True,
    text=True,
    timeout=560,
    check=False,
  )
  assert result.returncode == 0, result.stderr
  return json.loads((folder / "one" / "summary.json").read_text())


@pytest.mark.learning
def test_catch_in_one_process(tmp_path):
  assert train(tmp_path, "runtime=local")["test_return_mean"] >= 0.95
  check_beyond_the_end(tmp_path / "one")


def check_beyond_the_end(folder: Path) -> None:
  """Asserts that after an episode's end the model predicts reward 0, value 0 and the dummy action."""
  run = RunDirectory.open(folder)
  config = run.load_config()
  spec, model = env_spec(config), build_model(config, env_spec(config))
  found = find_checkpoint(run.checkpoints_path)
  state = load_checkpoint(found.path, algorithm_of(config).training_state_template(config, spec))
  env = make_vector(config.env.name, {}, 64, seed=3)
  random = np.random.default_rng(0)
  step, history = env.reset(), init_history(64, config.targets.history_length, spec)
  while not step.is_last.any():
    history, before = push_frame(history, step.frame, step.is_first), step
    frames = normalize_frame(history.frames, spec.frame_dtype)
    last_live = jnp.asarray(stack_history(frames, history.actions, spec.policy_groups))
    action = random.integers(1, spec.num_actions, 64).astype(np.int32)
    step, history = env.step(action), push_action(history, action)
  assert step.is_last.all()
  assert not before.is_last.any()

  root, _ = model.root_inference(state.params, state.net_state, last_live, False)
  end, _ = model.recurrent_inference(
    state.params, state.net_state, root.hidden_state, jnp.asarray(action), False
  )
  beyond, _ = model.recurrent_inference(
    state.params, state.net_state, end.hidden_state, jnp.full(64, DUMMY_ACTION, jnp.int32), False
  )
  reward = model.transform.to_scalar(end.reward_logits)
  # The model may miss some last rewards, because random play reaches positions that were rare in training.
  assert (np.sign(reward) == step.last_reward).mean() > 0.8
  assert np.abs(model.transform.to_scalar(beyond.reward_logits)).mean() < 0.05
  for after in (end, beyond):
    assert np.abs(model.transform.to_scalar(after.value_logits)).mean() < 0.1
    assert jax.nn.softmax(after.policy_logits)[:, DUMMY_ACTION].mean() > 0.9


@pytest.mark.learning
def test_catch_with_ray(tmp_path):
  assert train(tmp_path, "runtime=ray", "ray.num_cpus=4")["test_return_mean"] >= 0.95


@pytest.mark.learning
@pytest.mark.parametrize("seed", range(1, 6))
def test_catch_for_other_seeds(tmp_path, seed):
  assert train(tmp_path, "runtime=local", f"seed={seed}")["test_return_mean"] >= 0.95


@pytest.mark.learning
@pytest.mark.parametrize("seed", range(3))
def test_corridor_finds_the_far_reward(tmp_path, seed):
  corridor = CONFIG.parent / "corridor.yaml"
  assert train(tmp_path, "runtime=local", f"seed={seed}", config=corridor)["test_return_mean"] == 1.0

"""Tests of PPO through `moozi train` and `moozi evaluate`."""

import json
from pathlib import Path

import numpy as np
import pytest

from moozi import cli
from moozi.core.config import Config, EnvConfig
from moozi.envs.registry import env_spec
from moozi.io.checkpoints import expected_of, read_checkpoint_info, save_checkpoint
from moozi.io.metrics import read_metrics
from tests.tiny_run import TINY as TINY_MUZERO

SETTINGS = (
  "algorithm=ppo",
  "runtime=local",
  "max_env_steps=20480",
  "ppo.num_envs=16",
  "ppo.segment_length=32",
  "ppo.learning_rate=2.5e-3",
  "evaluation.max_random_starts=0",
  "evaluation.final_episodes=50",
  "evaluation.period_env_steps=10000",
  "logging.progress=none",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
  return tmp_path_factory.mktemp("ppo")


def command(*arguments) -> int:
  with pytest.raises(SystemExit) as caught:
    cli.main([str(a) for a in arguments])
  return caught.value.code


@pytest.fixture(scope="module")
def config_file(runs) -> Path:
  path = runs / "catch.yaml"
  path.write_text(f"env: {{name: 'tiny:catch'}}\nrun: {{dir: {runs}}}\n")
  return path


@pytest.fixture(scope="module")
def trained(runs, config_file) -> Path:
  """Returns a trained run. Tests must not change it."""
  assert command("train", config_file, "run.name=first", *SETTINGS) == 0
  return runs / "first"


@pytest.mark.slow
def test_catch_is_learned(trained):
  summary = json.loads((trained / "summary.json").read_text())
  assert summary["test_return_mean"] >= 0.95
  assert summary["env_steps"] == 20480
  assert summary["sample_reuse"] == 4.0
  ticks = read_metrics(trained / "metrics.jsonl")
  assert any("ppo/explained_variance" in tick for tick in ticks)
  assert "train/return_mean" in ticks[-1]
  assert list((trained / "gifs").glob("*.gif"))


@pytest.mark.slow
def test_evaluate_equals_the_final_evaluation(trained, capfd):
  summary = json.loads((trained / "summary.json").read_text())
  assert command("evaluate", trained, "--episodes", "50", "--json", "--returns") == 0
  figures = json.loads(capfd.readouterr().out)
  assert figures["return_mean"] == summary["test_return_mean"] == np.mean(figures["returns"])
  assert len(figures["lengths"]) == 50
  assert np.mean(figures["lengths"]) == figures["length_mean"]
  assert figures["env_steps"] == 20480


@pytest.mark.slow
def test_evaluate_refuses_simulations(trained, refused):
  assert "--simulations=9: this run's algorithm is ppo" in refused("evaluate", trained, "--simulations", 9)


@pytest.mark.slow
def test_start_from(trained, config_file, runs, cli, refused):
  start = f"checkpoint.start_from={trained}"
  shorter = (start, "max_env_steps=512", "evaluation.gif=false")
  assert cli("train", config_file, "run.name=second", *SETTINGS, *shorter)[0] == 0
  summary = json.loads((runs / "second" / "summary.json").read_text())
  assert summary["learner_steps"] == 40 * 16 + 16
  assert summary["test_return_mean"] >= 0.95
  error_text = refused("train", config_file, "run.name=third", *TINY_MUZERO, "runtime=local", start)
  assert "a checkpoint of another algorithm: algorithm is ppo, expected muzero" in error_text
  error_text = refused(
    "train", config_file, "run.name=third", *SETTINGS, start, "ppo.network.hidden_sizes=[32]"
  )
  assert "a checkpoint of another network: network.hidden_sizes" in error_text
  error_text = refused("train", config_file, "run.name=third", *SETTINGS, start, "ppo.scale_frames=false")
  assert "a checkpoint of another network: network.scale_frames" in error_text
  categorical = ("ppo.value_loss=categorical", "ppo.clip_value=false")
  error_text = refused("train", config_file, "run.name=third", *SETTINGS, start, *categorical)
  assert "a checkpoint of another network: network.scalar_transform" in error_text
  error_text = refused("train", config_file, "run.name=third", *SETTINGS, start, "ppo.layer_norm=true")
  assert "a checkpoint of another network: network.layer_norm" in error_text
  assert not (runs / "third").exists()


@pytest.mark.slow
def test_resume_keeps_the_network_settings(trained, refused):
  error_text = refused("train", "--resume", trained, "ppo.scale_frames=false", "max_env_steps=30000")
  assert "ppo.scale_frames=False: a run cannot change it (it began with True)" in error_text
  error_text = refused("train", "--resume", trained, "ppo.initial_bias=0.05", "max_env_steps=30000")
  assert "ppo.initial_bias=0.05: a run cannot change it (it began with 0.0)" in error_text


def test_start_from_muzero_is_refused(config_file, runs, refused):
  config = Config(env=EnvConfig(name="tiny:catch"))
  meta = {"env_steps": 9, "learner_steps": 3} | expected_of(config, env_spec("tiny:catch"))
  path = save_checkpoint(runs / "muzero", "step_9", {"x": np.zeros(2)}, meta)
  error_text = refused("train", config_file, "run.name=fourth", *SETTINGS, f"checkpoint.start_from={path}")
  assert "a checkpoint of another algorithm: algorithm is muzero, expected ppo" in error_text
  assert read_checkpoint_info(path, expected_of(config, env_spec("tiny:catch"))).env_steps == 9


@pytest.mark.parametrize(
  ("override", "error_text"),
  [
    ("ppo.num_minibatches=3", "ppo: num_minibatches=3: must divide"),
    ("ppo.clip_rang=0.1", "did you mean ppo.clip_range?"),
    ("ppo.network.kind=cnn", "ppo.network.kind"),
    ("ppo.network.kind=nature_conv", "at least 36×36"),
    ("algorithm=pppo", "algorithm"),
    ("ppo.network.lstm_size=8 ppo.num_minibatches=32", "must divide num_envs=16 with network.lstm_size"),
    ("q_learning.network.lstm_size=8", "q_learning.network.lstm_size"),
    ("ppo.gae_lambda=2", "ppo.gae_lambda=2: must be less than or equal to 1"),
    ("ppo.observation_clip=0", "ppo.observation_clip=0: must be greater than 0"),
    ("ppo.reward_clip=-1", "ppo.reward_clip=-1: must be greater than 0"),
    ("ppo.normalize_observations=true", "env.name=tiny:catch, whose frames are bool; only float32"),
    ("ppo.target_kl=0", "ppo.target_kl=0: must be greater than 0"),
  ],
)
def test_invalid_settings_are_refused(config_file, runs, refused, override, error_text):
  assert error_text in refused("train", config_file, "run.name=bad", *SETTINGS, *override.split())
  assert not (runs / "bad").exists()

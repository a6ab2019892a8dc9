"""Tests of Atari runs in one process, and of the Atari configurations."""

from pathlib import Path

import numpy as np
import pytest

from moozi.io.config import load_config
from moozi.run import build, local
from moozi.run.events import Acted, Evaluated, Finished, StateReady, Updated
from moozi.run.session import RunInputs

pytest.importorskip("ale_py")

CONFIGS = Path(__file__).parents[2] / "config" / "atari"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_configurations_are_complete(path):
  config = load_config(path, ["env.name=atari:Pong"] if path.stem in ("base", "two_cores") else [])
  spec = build.env_spec(config)
  assert spec.frame_shape == (84, 84, 1)
  assert config.targets.history_length == 4
  assert not config.env.kwargs.get("clip_rewards", False)
  state = build.training_state_template(config, spec)
  is_small = "two_cores" in path.stem
  assert config.network.kind == ("conv_latent" if is_small else "resnet")
  num_params = sum(x.size for x in state.params.values() for x in x.values())
  assert num_params < (1_300_000 if is_small else 5_000_000)
  if is_small:
    assert (config.ray.num_gpus or config.ray.learner.num_gpus) == 0
    assert config.max_wall_s == 600


@pytest.mark.slow
@pytest.mark.parametrize("num_threads", [0, 1])
def test_run_trains_evaluates_and_renders(num_threads):
  config = load_config(
    CONFIGS / "breakout_two_cores.yaml",
    [
      "runtime=local",
      f"env.kwargs.num_threads={num_threads}",
      "network.channels=2",
      "network.latent_size=16",
      "planners.train.num_simulations=2",
      "planners.test.num_simulations=2",
      "workers.num_envs=4",
      "learner.batch_size=8",
      "learner.updates_per_call=2",
      "replay.capacity=2048",
      "replay.min_steps_to_learn=64",
      "evaluation.max_episode_steps=40",
      "evaluation.episodes=2",
      "evaluation.final_episodes=2",
      "evaluation.num_envs=2",
      "evaluation.gif_max_frames=30",
      "max_env_steps=320",
    ],
  )
  spec = build.env_spec(config)
  events = list(local.run(RunInputs(config, spec)))
  assert isinstance(events[-1], Finished)
  assert sum(event.num_samples for event in events if isinstance(event, Updated)) > 0
  losses = [event.metrics["loss/total"] for event in events if isinstance(event, Updated)]
  assert np.isfinite(losses).all()
  assert any(isinstance(event, StateReady) for event in events)
  assert sum(isinstance(event, Acted) for event in events) == 10
  (evaluated,) = [event for event in events if isinstance(event, Evaluated)]
  episode = evaluated.result.episode
  assert episode.pictures.shape == (30, 210, 160, 3)
  assert episode.frames.dtype == np.uint8
  assert episode.frames.shape == (30, 84, 84, 1)

"""Tests of Atari runs in one process, and of the Atari configurations."""

import resource
from pathlib import Path

import jax
import numpy as np
import pytest

from moozi.agent.update import init_training_state, make_update
from moozi.core.config import ScalarTransformConfig
from moozi.envs import registry
from moozi.io.config import load_config
from moozi.learning.learner import zero_targets
from moozi.ops.scalar_transform import ScalarTransform
from moozi.run import build, local
from moozi.run.events import Acted, Evaluated, Finished, StateReady, Updated
from moozi.run.session import RunInputs
from moozi.training.algorithms import algorithm_of

pytest.importorskip("ale_py")

CONFIGS = Path(__file__).parents[2] / "config" / "atari"
GAMES = ("boxing", "breakout", "freeway", "pong")
ATARI_100K = {"sticky_action_prob": 0.0, "episodic_life": True, "max_noops": 30}
MACHADO = {"sticky_action_prob": 0.25, "episodic_life": False, "max_noops": 0}
FOLDERS = {"": (GAMES, ATARI_100K), "100k": (GAMES, ATARI_100K), "machado": (GAMES, MACHADO)}
FOLDERS["gpu"] = ("breakout", "pong"), ATARI_100K


@pytest.mark.parametrize("folder", FOLDERS)
def test_presets_hold_their_conventions(folder):
  games, conventions = FOLDERS[folder]
  bases = {path.stem: path for path in (CONFIGS / folder).glob("*.yaml")}
  assert bases.keys() == {"base", *games}
  # The presets take any game.
  for path, override in [(bases[g], []) for g in games] + [(bases["base"], ["env.name=atari:Qbert"])]:
    config = load_config(path, override)
    assert config.env.name == (f"atari:{path.stem.title()}" if not override else "atari:Qbert")
    options = registry.options_of(config.env.name, config.env.kwargs)
    assert options.items() >= (conventions | {"clip_rewards": True, "frame_skip": 4}).items()
    # Evaluation: whole games of at most 108,000 frames with the game's own rewards.
    assert config.evaluation.noise_free
    assert config.evaluation.final_episodes == 30
    assert config.evaluation.max_random_starts == 0
    assert config.evaluation.max_episode_steps == options["max_episode_steps"] == 108_000 // 4
    assert (config.max_env_steps == 100_000) == (folder == "100k")
    assert config.network.center_frames
  tested = registry._find(config.env.name, config.env.kwargs)[0].for_testing(
    registry._find(config.env.name, config.env.kwargs)[2]
  )
  assert (tested.episodic_life, tested.clip_rewards) == (False, False)
  assert tested.sticky_action_prob == conventions["sticky_action_prob"]


@pytest.mark.parametrize("name", ["base", "gpu/base"])
def test_supports_cover_all_values_of_clipped_rewards(name):
  config = load_config(CONFIGS / f"{name}.yaml", ["env.name=atari:Pong"])
  largest = 1 / (1 - config.targets.discount)
  settings: ScalarTransformConfig = config.scalar_transform
  transform = ScalarTransform(settings.support_min, settings.support_max, settings.epsilon)
  logits = np.log(np.maximum(transform.to_probs(np.array([-largest, largest], np.float32)), 1e-30))
  np.testing.assert_allclose(transform.to_scalar(logits), [-largest, largest], rtol=1e-3)


def test_network_of_two_cores_is_small():
  config = load_config(CONFIGS / "pong.yaml")
  state = algorithm_of(config).training_state_template(config, build.env_spec(config))
  assert sum(x.size for x in jax.tree_util.tree_leaves(state.params)) < 800_000


SMALL = (
  "runtime=local",
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
)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "overrides"),
  [
    ("breakout", ("env.kwargs.num_threads=1", "env.kwargs.frame_size=84")),
    ("breakout", ()),
    ("100k/breakout", ("learner.samples_per_step=2", "reanalyze.batch_size=16")),
    ("machado/breakout", ("env.kwargs.frame_size=64",)),
  ],
)
def test_run_trains_evaluates_and_renders(name, overrides):
  config = load_config(CONFIGS / f"{name}.yaml", [*SMALL, *overrides])
  spec = build.env_spec(config)
  events = list(local.run(RunInputs(config, spec)))
  assert isinstance(events[-1], Finished)
  assert sum(event.num_samples for event in events if isinstance(event, Updated)) > 0
  losses = [event.metrics["loss/total"] for event in events if isinstance(event, Updated)]
  assert np.isfinite(losses).all()
  assert any(isinstance(event, StateReady) for event in events)
  assert any(isinstance(event, Acted) for event in events)
  evaluated = [event for event in events if isinstance(event, Evaluated)][-1]
  figures = evaluated.result.summary()
  assert figures["human_normalized"] == pytest.approx((figures["return_mean"] - 1.7) / (30.5 - 1.7))
  episode = evaluated.result.episode
  assert episode.pictures.shape == (30, 210, 160, 3)
  assert episode.frames.dtype == np.uint8
  assert episode.frames.shape == (30, *spec.frame_shape)


@pytest.mark.slow
def test_deep_q_learning_of_pong_trains_and_evaluates():
  small = ("workers.num_envs=4", "replay.capacity=2048", "replay.min_steps_to_learn=64", "max_env_steps=320")
  short = ("evaluation.max_episode_steps=40", "evaluation.final_episodes=2", "evaluation.gif=false")
  config = load_config(CONFIGS.parent / "q_learning" / "atari" / "pong.yaml", [*small, *short])
  events = list(algorithm_of(config).run(RunInputs(config, build.env_spec(config))))
  assert isinstance(events[-1], Finished)
  losses = [event.metrics["loss/total"] for event in events if isinstance(event, Updated)]
  assert len(losses) > 0
  assert np.isfinite(losses).all()
  evaluated = [event for event in events if isinstance(event, Evaluated)][-1]
  assert -21 <= evaluated.result.summary()["return_mean"] <= 21


# --- one GPU ---------------------------------------------------------------------------------------------

GPU_UPDATE_GIB = 1.28  # as config/atari/gpu/base.yaml states for a batch of 256


@pytest.mark.slow
def test_gpu_configuration_updates_within_its_memory():
  """Ten updates on the CPU, with an eighth of the batch; the whole batch is compiled only."""
  config = load_config(CONFIGS / "gpu" / "pong.yaml")
  spec = build.env_spec(config)
  model = build.build_model(config, spec)
  state = init_training_state(model, config, spec, jax.random.PRNGKey(0))
  update = jax.jit(make_update(model, config, spec), donate_argnums=0)

  def compiled(batch):
    out = update.lower(state, zero_targets(config, spec, (batch,))).compile()
    analysis = out.memory_analysis()
    return out, (analysis.temp_size_in_bytes + analysis.argument_size_in_bytes) / 2**30

  _, whole = compiled(config.learner.batch_size)
  assert whole == pytest.approx(GPU_UPDATE_GIB, rel=0.1)
  few = config.learner.batch_size // 8
  update_few, planned = compiled(few)
  targets = zero_targets(config, spec, (few,))
  frames = np.random.default_rng(0).integers(0, 255, targets.frames.shape).astype(np.uint8)
  targets.frames[:], targets.unroll_mask[:], targets.consistency_mask[:] = frames, 1.0, 1.0
  targets.importance_ratio[:], targets.action_probs[..., 1] = 1.0, 1.0
  before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  for _ in range(10):
    state, output = update_few(state, targets)
  assert np.isfinite(float(output.metrics["loss/total"]))
  assert int(state.learner_step) == 10
  assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20 < 2 * planned


@pytest.mark.slow
def test_replay_of_a_gpu_run_has_its_stated_size():
  config = load_config(CONFIGS / "gpu" / "pong.yaml")
  replay = build.build_replay(config, build.env_spec(config))
  assert replay.stats()["replay/mib"] * 2**20 == pytest.approx(3.7e9, rel=0.05)

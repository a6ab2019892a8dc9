"""Tests of the estimate of a run's memory."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.agent.muzero import make_muzero
from moozi.baselines.ppo import algorithm as ppo
from moozi.core.errors import UserError
from moozi.core.factors import ActionPart, Factors, bins
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import EnvSpec
from moozi.io.config import load_config
from moozi.run import build, memory
from moozi.run.memory import check_memory
from tests.tiny_run import TINY

ROOT = Path(__file__).resolve().parents[2]
GIB = 1 << 30
SPEC = EnvSpec(name="test:env", frame_shape=(10, 10, 4), frame_dtype="bool", num_env_actions=6, num_players=1)
LARGE = EnvSpec(
  name="test:env", frame_shape=(84, 84, 3), frame_dtype="uint8", num_env_actions=18, num_players=1
)


CONFIGS = sorted((ROOT / "config").rglob("*.yaml"))
QUICK = CONFIGS[::12]


@pytest.mark.parametrize(
  "path",
  [pytest.param(path, marks=() if path in QUICK else (pytest.mark.slow,), id=path.stem) for path in CONFIGS],
)
def test_every_configuration_fits(path):
  config = load_config(path)
  is_large = "atari" in str(path)
  gib = 24 if is_large and "gpu" in str(path) else 8
  check_memory(config, LARGE if is_large else SPEC, gib * GIB)


@pytest.mark.parametrize(
  ("overrides", "message"),
  [
    (
      ["replay.capacity=1000000000000"],
      "replay.capacity=1000000000000: .* replay takes .* replay.capacity to",
    ),
    (
      ["planners.train.num_simulations=1000000000"],
      "planners.train.num_simulations=1000000000: .*the search",
    ),
    (
      ["planners.test.num_simulations=1000000000"],
      "planners.test.num_simulations=1000000000: .*the search of",
    ),
    (
      ["workers.num_envs=1000000000", "replay.capacity=100000000000"],
      "workers.num_envs=1000000000: .* the mach",
    ),
    (
      ["network.kind=mlp", "network.latent_size=1000000000"],
      "network.latent_size=1000000000: .* the network",
    ),
    (["network.kind=resnet", "network.channels=1000000"], "network.channels=1000000: .* the network takes"),
    (["network.num_dynamics_blocks=1000000000"], "network.num_dynamics_blocks=1000000000: .* the network"),
    (["learner.updates_per_call=1000000000"], "learner.updates_per_call=1000000000: .* a batch takes"),
    (["targets.history_length=1000000", "replay.capacity=100000000"], "targets.history_length=1000000: "),
    (["scalar_transform.support_max=1000000000"], "scalar_transform.support_max=1000000000: "),
    (["evaluation.episodes=1000000000"], "evaluation.episodes=1000000000: .* evaluation takes"),
    (["evaluation.num_envs=1000000000"], "evaluation.num_envs=1000000000: "),
    (["workers.segment_length=1000000", "replay.capacity=70000000"], "workers.segment_length=1000000: "),
    (["algorithm=ppo", "ppo.num_envs=1000000000"], "ppo.num_envs=1000000000: .* acting takes"),
    (
      ["algorithm=ppo", "ppo.network.hidden_sizes=[64,1000000]"],
      "ppo.network.hidden_sizes=1000000: .* the network takes",
    ),
    (
      ["algorithm=ppo", "ppo.network.lstm_size=1000000"],
      "ppo.network.lstm_size=1000000: .* the network takes",
    ),
    (
      ["algorithm=q_learning", "q_learning.kind=network", "q_learning.network.hidden_sizes=[1000000,64]"],
      "q_learning.network.hidden_sizes=1000000: .* the network takes",
    ),
    (
      ["algorithm=q_learning", "q_learning.kind=table", "q_learning.capacity=1000000000000"],
      "q_learning.capacity=1000000000000: .* the table takes",
    ),
  ],
)
def test_a_run_that_cannot_fit_names_the_key(overrides, message):
  config = load_config(None, overrides)
  with pytest.raises(UserError, match=message) as caught:
    check_memory(config, SPEC, 8 * GIB)
  assert "the machine has 8.0 GiB" in str(caught.value)


@pytest.mark.parametrize(
  "overrides",
  [
    ["ppo.network.hidden_sizes=[300,200]"],
    ["ppo.network.kind=conv", "ppo.network.sharing=shared", "ppo.network.hidden_sizes=[128]"],
    ["ppo.network.lstm_size=256"],
  ],
)
def test_the_network_of_ppo_has_the_size_of_its_parameters(overrides):
  """The estimate takes the largest layer for all."""
  config = load_config(None, ["algorithm=ppo", *overrides])
  parameters = jax.eval_shape(lambda: ppo.initial_training_state(config, SPEC).variables[0])
  estimate = memory._parts(config, SPEC)["the network"](memory._sizes(config)) / memory._COPIES
  assert 0.5 < bytes_of(parameters) / estimate < 1.2


def factored(num_dims: int) -> EnvSpec:
  """Returns an environment with continuous actions in bins: 7 to the power of the dimensions' number."""
  part = ActionPart(path=(), shape=(num_dims,), dtype="float32", values=(bins(-1, 1, 7),) * num_dims)
  factors = Factors(parts=(part,), names=tuple(map(str, range(num_dims))))
  return EnvSpec(
    name="test:env",
    frame_shape=(1, 1, 9),
    frame_dtype="float32",
    num_env_actions=factors.num_joint_actions,
    factors=factors,
  )


def bytes_of(tree) -> int:
  return sum(x.size * np.dtype(x.dtype).itemsize for x in jax.tree.leaves(tree))


@pytest.mark.parametrize(
  ("spec", "num_sampled"),
  [(SPEC, 16), (factored(1), 16), (factored(2), 16), (factored(2), 300), (factored(10), 90)],
  ids=["discrete", "enumerated", "49 actions", "all 49 actions", "282,475,249 actions"],
)
def test_the_search_has_the_size_of_its_arrays(spec, num_sampled):
  """Nothing is allocated or compiled: JAX traces the search for its shapes."""
  options = (f"planners.train.num_sampled_actions={num_sampled}", "workers.num_envs=16")
  config = load_config(None, [*TINY, *options, "planners.train.num_simulations=9"])
  agent = make_muzero(build.build_model(config, spec), config.planners.train, config.targets, spec, True)
  flags, numbers = jnp.zeros(16, bool), jnp.zeros(16, jnp.int32)
  step = BatchedTimeStep(
    frame=jnp.zeros((16, *spec.frame_shape), spec.frame_dtype),
    last_reward=jnp.zeros(16),
    is_first=flags,
    is_last=flags,
    is_truncated=flags,
    to_play=numbers,
    legal_actions_mask=jnp.ones((16, spec.policy_size), bool),
  )
  arguments = (build.variables_template(config, spec), agent.init(16), step, jax.random.PRNGKey(0))
  _, decision = jax.eval_shape(lambda *args: agent.act(*args, 1.0), *arguments)
  estimate = memory._parts(config, spec)["the search"](memory._sizes(config))
  assert estimate == pytest.approx(bytes_of(decision.extras["tree"]), rel=0.05)


def test_too_many_sampled_actions_name_the_key():
  config = load_config(None, ["planners.test.num_sampled_actions=10000000"])
  with pytest.raises(UserError, match=r"^planners.test.num_sampled_actions=10000000: .*the search of eval"):
    check_memory(config, factored(10), 8 * GIB)
  check_memory(config, factored(3), 8 * GIB)  # 343 joint actions
  check_memory(config, SPEC, 8 * GIB)


def test_the_advice_fits():
  config = load_config(None, ["replay.capacity=1000000000000"])
  with pytest.raises(UserError) as caught:
    check_memory(config, SPEC, 8 * GIB)
  value = str(caught.value).rpartition("at most ")[2].replace(",", "")
  check_memory(load_config(None, [f"replay.capacity={value}"]), SPEC, 8 * GIB)


def test_frames_that_are_too_large_name_the_environment():
  spec = EnvSpec(
    name="test:env", frame_shape=(100_000, 100_000, 3), frame_dtype="uint8", num_env_actions=6, num_players=1
  )
  with pytest.raises(UserError, match=r"env\.name=.* with frames of 100,000×100,000×3: .*choose a smaller"):
    check_memory(load_config(None), spec, 8 * GIB)

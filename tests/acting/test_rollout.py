"""Tests that the compiled rollout and stepping give the same trajectories for the same seeds, to the bit."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from moozi.acting.collector import TrajectoryCollector
from moozi.acting.rollout import RolloutCollector, _check_actions
from moozi.agent.agent import Decision, make_agent
from moozi.core.errors import UserError
from moozi.core.records import TrajectorySample
from moozi.core.spec import EnvSpec
from moozi.envs.jax.adapters import JaxVectorEnvironment
from moozi.io.config import load_config
from moozi.run import build, local
from moozi.run.events import Acted, Evaluated, Finished, Updated
from moozi.run.session import RunInputs
from tests.acting.parameters import collector_in, random_parameters
from tests.compilations import num_compilations
from tests.envs.environments import need
from tests.envs.jax.toys import make_nim, make_walk
from tests.tiny_run import TINY

FIELDS = tuple(TrajectorySample.__dataclass_fields__)
MLP = (*TINY, "targets.history_length=3", "planners.train.num_simulations=2")
CONFIG = (*MLP, "network.kind=conv_latent", "network.channels=4")
ENV_SEEDS = [5, 6, 7, 8]
CONFIGS = Path(__file__).parents[2] / "config"


def need_library(name):
  library = name.partition(":")[0]
  if library in ("gymnax", "pgx"):
    need(library)


def collect_both(config, env, num_segments, seeds=tuple(ENV_SEEDS)):
  """Returns (segment, result) of each stepped call and each scan, and copies of the scans' segments."""
  seeds = list(seeds)
  parameters = random_parameters(config, env.spec)
  steps = collector_in(JaxVectorEnvironment(env, seeds), config)
  scan = collector_in(JaxVectorEnvironment(env, seeds), config, kind=RolloutCollector)
  out = ([], [], [])
  for collector, results in ((steps, out[0]), (scan, out[1])):
    collector.set_parameters(parameters, 7)
    for i in range(num_segments):
      results.append(collector.run(100 * i))
      if collector is scan:
        out[2].append({name: getattr(results[-1][0], name).copy() for name in FIELDS})
  return out


def assert_same(left, right):
  for (a, result_a), (b, result_b) in zip(left, right, strict=True):
    for name in FIELDS:
      x, y = getattr(a, name), getattr(b, name)
      assert (x.shape, x.dtype) == (y.shape, y.dtype), name
      if name in ("root_value", "action_probs"):
        # On some processors the two programs of XLA round differently.
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6, err_msg=name)
      else:
        np.testing.assert_array_equal(x, y, err_msg=name)
    assert (result_a.num_steps, result_a.version) == (result_b.num_steps, result_b.version)
    np.testing.assert_allclose(result_a.episode_returns, result_b.episode_returns, rtol=1e-6)
    np.testing.assert_array_equal(result_a.episode_lengths, result_b.episode_lengths)
    for name in result_b.metrics.keys() - {"train/worker_steps_per_s"}:
      assert result_a.metrics[name] == pytest.approx(result_b.metrics[name], abs=1e-5), name


@pytest.fixture(scope="module")
def walk():
  """Covers terminations, truncations, and histories that cross an episode end."""
  config = load_config(None, list(MLP))
  return config, collect_both(config, make_walk(max_episode_steps=4, length=6), 10)


def test_scan_equals_step(walk):
  _, (steps, scan, _) = walk
  assert_same(steps, scan)
  assert len({s.root_value.tobytes() for s, _ in scan}) == len(scan)
  assert sum(len(result.episode_lengths) for _, result in scan) > 20
  assert any(s.is_truncated.any() for s, _ in scan)
  assert any((s.is_last & ~s.is_truncated).any() for s, _ in scan)
  assert {float(r) for s, _ in scan for r in s.last_reward.ravel()} == {-1.0, 0.0, 1.0}
  assert all(isinstance(getattr(s, name), np.ndarray) for s, _ in scan for name in FIELDS)


RESNET = ("kind=resnet", "norm=batch", "channels=4", "num_representation_blocks=1", "num_prediction_blocks=1")


@pytest.mark.slow
@pytest.mark.parametrize(
  ("network", "num_lanes"), [(("channels=4",), 4), (("channels=16",), 64), (RESNET, 64)]
)
def test_scan_equals_step_with_other_networks(network, num_lanes):
  config = load_config(None, [*CONFIG, *(f"network.{key}" for key in network)])
  env = make_walk(max_episode_steps=4, length=6)
  steps, scan, _ = collect_both(config, env, 4, range(num_lanes))
  assert_same(steps, scan)
  assert len({s.root_value.tobytes() for s, _ in scan}) == len(scan)
  assert bool(random_parameters(config, env.spec)[1]) == ("norm=batch" in network)


@pytest.mark.slow
def test_scan_equals_step_for_two_players_and_a_schedule():
  schedule = "[{env_steps: 0, temperature: 1.0}, {env_steps: 150, temperature: 0.0}]"
  search = ("algorithm=puct", "dirichlet_fraction=0.3", f"temperature={schedule}")
  config = load_config(None, [*CONFIG, *(f"planners.train.{key}" for key in search)])
  steps, scan, _ = collect_both(config, make_nim(), 6)
  assert_same(steps, scan)
  assert {int(p) for s, _ in scan for p in s.to_play.ravel()} == {0, 1}
  assert any((~s.legal_actions_mask[~s.is_last, 1:]).any() for s, _ in scan)
  assert [result.metrics["train/temperature"] for _, result in scan] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.slow
@pytest.mark.parametrize(
  "name",
  [
    "gymnax:Breakout-MinAtar",
    "gymnax:CartPole-v1",
    "gymnax:SpaceInvaders-MinAtar",
    "pgx:connect_four",
    "pgx:minatar-asterix",
    "pgx:othello",
    "pgx:tic_tac_toe",
    "pgx:tic_tac_toe algorithm=alphazero targets.unroll_steps=0",
  ],
)
def test_scan_equals_step_in_libraries(name):
  name, *options = name.split()
  need_library(name)
  out = []
  for rollout in ("step", "scan"):
    config = load_config(None, [*TINY, f"env.name={name}", f"workers.rollout={rollout}", *options])
    spec = build.env_spec(config)
    collector = build.build_collector(config, spec, worker=0)
    collector.set_parameters(random_parameters(config, spec), 0)
    out.append([collector.run(0) for _ in range(8)])
  assert_same(*out)
  assert sum(len(result.episode_lengths) for _, result in out[1]) > 0


def test_returned_segments_do_not_change(walk):
  """Each call donates the rollout's state to JAX, so earlier segments must be copies."""
  _, (_, scan, copies) = walk
  for (segment, _), copy in zip(scan, copies, strict=True):
    for name in FIELDS:
      np.testing.assert_array_equal(getattr(segment, name), copy[name], err_msg=name)


@pytest.mark.parametrize("action", [2, *(pytest.param(a, marks=pytest.mark.slow) for a in (0, 3, -1))])
def test_illegal_actions_are_refused(action):
  """The illegal actions are right where only left is legal, the dummy, and actions out of range.

  Without the check, the scan would replace an illegal action by another one.
  """
  config, env = load_config(None, list(MLP)), make_walk(max_episode_steps=4, length=6)

  def stubborn(variables, history, timestep, rng_key, temperature, position):
    probs = jnp.float32(timestep.legal_actions_mask)
    return Decision(
      action=jnp.full(len(ENV_SEEDS), action), action_probs=probs, root_value=probs[:, 0], extras={}
    )

  vector = JaxVectorEnvironment(env, ENV_SEEDS)
  agent = make_agent(stubborn, env.spec, 1)
  collector = collector_in(vector, config, kind=RolloutCollector, agent=agent)
  collector.set_parameters({}, 0)
  message = rf"^step \d of the segment: actions\[\d\]={action}: cannot be played on a live frame"
  with pytest.raises(ValueError, match=message):  # noqa: PT012
    for _ in range(10):
      collector.run(0)


@pytest.mark.parametrize("action", [0, 2, 3, -1])
def test_actions_of_a_segment_are_checked(action):
  spec = EnvSpec(name="a:b", frame_shape=(1, 1, 1), frame_dtype="bool", num_env_actions=2)
  steps = {
    "action": np.array([[1, 0], [1, action]], np.int32),
    "legal_actions_mask": np.array(
      [[[False, True, False], [True, False, False]], [[False, True, False]] * 2]
    ),
    "is_last": np.array([[False, True], [False, False]]),
  }
  with pytest.raises(ValueError, match=rf"^step 1 of the segment: actions\[1\]={action}: "):
    _check_actions(steps, spec)
  steps["action"][1, 1] = 1
  _check_actions(steps, spec)


@pytest.mark.parametrize(
  ("name", "rollout", "kind"),
  [
    ("gymnax:CartPole-v1", "auto", RolloutCollector),
    pytest.param("gymnax:CartPole-v1", "scan", RolloutCollector, marks=pytest.mark.slow),
    ("gymnax:CartPole-v1", "step", TrajectoryCollector),
    ("tiny:catch", "auto", TrajectoryCollector),
    ("tiny:catch", "step", TrajectoryCollector),
  ],
)
def test_config_chooses_the_collector(name, rollout, kind):
  need_library(name)
  config = load_config(None, [*TINY, f"env.name={name}", f"workers.rollout={rollout}"])
  assert isinstance(build.build_collector(config, build.env_spec(config), worker=0), kind)


def test_scan_needs_an_environment_in_jax():
  config = load_config(None, [*TINY, "workers.rollout=scan"])
  with pytest.raises(UserError, match=r"^workers\.rollout=scan: tiny:catch is not written in JAX"):
    build.build_collector(config, build.env_spec(config), worker=0)


SMALL = (
  "runtime=local",
  "max_env_steps=320",
  "targets.unroll_steps=2",
  "network.channels=4",
  "network.latent_size=16",
  "network.head_size=16",
  "planners.train.num_simulations=2",
  "planners.test.num_simulations=2",
  "workers.num_envs=8",
  "workers.segment_length=8",
  "replay.capacity=4096",
  "replay.min_steps_to_learn=64",
  "learner.batch_size=16",
  "learner.updates_per_call=2",
  "learner.samples_per_step=1",
  "evaluation.episodes=2",
  "evaluation.final_episodes=2",
  "evaluation.num_envs=2",
  "evaluation.max_episode_steps=20",
)


@pytest.mark.slow
@pytest.mark.parametrize("config", ["pgx/tic_tac_toe.yaml", "gymnax/breakout.yaml"])
def test_a_run_in_one_process(config):
  """Trains a small version of a configuration from config/."""
  config = load_config(CONFIGS / config, list(SMALL))
  need_library(config.env.name)
  events = list(local.run(RunInputs(config, build.env_spec(config))))
  acted = [e for e in events if isinstance(e, Acted)]
  assert len(acted) == 5
  assert sum(len(e.episode_returns) for e in acted) > 0
  assert any(isinstance(e, Updated) and np.isfinite(e.metrics["loss/total"]) for e in events)
  (final,) = [e for e in events if isinstance(e, Evaluated) and e.is_final]
  assert len(final.result.returns) == 2
  assert isinstance(events[-1], Finished)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(CONFIGS.glob("gymnax/*.yaml")) + sorted(CONFIGS.glob("pgx/*.yaml")))
def test_committed_configs_fit_their_environments(path):
  config = load_config(path, [])
  need_library(config.env.name)
  assert build.env_spec(config).name == config.env.name


@pytest.mark.slow
@pytest.mark.parametrize("make", [TrajectoryCollector, RolloutCollector])
def test_warm_up_compiles_and_changes_nothing(make):
  env = make_walk()
  config = load_config(None, list(MLP))
  parameters = random_parameters(config, env.spec)
  cold, warm = (collector_in(JaxVectorEnvironment(env, list(ENV_SEEDS)), config, kind=make) for _ in range(2))
  left = []
  for collector in (cold, warm):
    if collector is warm:
      warm.warm_up(build.variables_template(config, env.spec))
    collector.set_parameters(parameters, 0)
    with num_compilations() as count:
      left.append((*collector.run(0), count()))
  assert left[0][2] > 0
  assert left[1][2] == 0
  for name in FIELDS:
    np.testing.assert_array_equal(getattr(left[0][0], name), getattr(left[1][0], name), err_msg=name)

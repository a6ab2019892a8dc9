"""The compiled rollout: the same trajectories as step by step from the same seeds, whole and to the bit."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.acting.collector import TrajectoryCollector
from moozi.acting.rollout import RolloutCollector
from moozi.agent.planner import PlannerOutput
from moozi.agent.policy import see
from moozi.core.errors import UserError
from moozi.core.records import TrajectorySample
from moozi.envs.jax.environment import JaxVectorEnvironment
from moozi.io.config import load_config
from moozi.ops.history import push_action
from moozi.run import build, local
from moozi.run.events import Acted, Evaluated, Finished, Updated
from moozi.run.session import RunInputs
from tests.envs.environments import import_gymnax
from tests.envs.jax.toys import make_nim, make_walk
from tests.tiny_run import TINY

FIELDS = tuple(TrajectorySample.__dataclass_fields__)
# Ends of both kinds and histories that cross them.
CONFIG = (*TINY, "targets.history_length=3")
WORLD_SEEDS = [5, 6, 7, 8]
CONFIGS = Path(__file__).parents[2] / "config"


def import_library(name):
  """Skips the test where the library of an environment is not there."""
  library = name.partition(":")[0]
  if library == "gymnax":
    import_gymnax()
  elif library == "pgx":
    pytest.importorskip("pgx")


def random_parameters(config, spec):
  """Parameters unlike the first ones, whose priors are all even and whose values are all 0."""
  template = build.training_state_template(config, spec)
  random = np.random.default_rng(0)
  params = jax.tree.map(lambda x: (0.3 * random.standard_normal(x.shape)).astype(x.dtype), template.params)
  # Averages of batch norm, whose variances are above 0.
  net_state = jax.tree.map(lambda x: (0.5 + random.random(x.shape)).astype(x.dtype), template.net_state)
  return params, net_state


def collect_both(config, world, num_segments, seeds=tuple(WORLD_SEEDS)):
  """(segment, result) of each call, step by step and compiled; and the compiled ones when given out."""
  seeds = list(seeds)
  model, planner = build.build_model(config, world.spec), config.planners.train
  parameters = random_parameters(config, world.spec)
  env = JaxVectorEnvironment(world, seeds)
  steps = TrajectoryCollector(model, config, planner, env, seed=1)
  scan = RolloutCollector(model, config, planner, world, seeds, seed=1)
  out = ([], [], [])
  for collector, results in ((steps, out[0]), (scan, out[1])):
    collector.set_parameters(*parameters, 7)
    for i in range(num_segments):
      results.append(collector.run(100 * i))
      if collector is scan:
        out[2].append({name: getattr(results[-1][0], name).copy() for name in FIELDS})
  return out


def assert_same(left, right):
  for (a, told_a), (b, told_b) in zip(left, right, strict=True):
    for name in FIELDS:
      x, y = getattr(a, name), getattr(b, name)
      assert (x.shape, x.dtype) == (y.shape, y.dtype), name
      np.testing.assert_array_equal(x, y, err_msg=name)
    assert (told_a.num_steps, told_a.version) == (told_b.num_steps, told_b.version)
    np.testing.assert_allclose(told_a.episode_returns, told_b.episode_returns, rtol=1e-6)
    np.testing.assert_array_equal(told_a.episode_lengths, told_b.episode_lengths)
    for name in told_b.metrics.keys() - {"train/worker_steps_per_s"}:
      assert told_a.metrics[name] == pytest.approx(told_b.metrics[name], abs=1e-5), name


@pytest.fixture(scope="module")
def walk():
  config = load_config(None, list(CONFIG))
  return config, collect_both(config, make_walk(max_episode_steps=4, length=6), 10)


def test_the_scan_is_the_loop(walk):
  _, (steps, scan, _) = walk
  assert_same(steps, scan)
  assert len({s.root_value.tobytes() for s, _ in scan}) == len(scan)  # there was something to compare
  assert sum(len(told.episode_lengths) for _, told in scan) > 20
  assert any(s.is_truncated.any() for s, _ in scan)
  assert any((s.is_last & ~s.is_truncated).any() for s, _ in scan)
  assert {float(r) for s, _ in scan for r in s.last_reward.ravel()} == {-1.0, 0.0, 1.0}


RESNET = ("kind=resnet", "norm=batch", "channels=4", "num_representation_blocks=1", "num_prediction_blocks=1")


@pytest.mark.parametrize(
  ("network", "num_lanes"),
  [
    (("kind=conv_latent", "channels=4"), 4),
    pytest.param(("kind=conv_latent", "channels=16"), 64, marks=pytest.mark.slow),
    pytest.param(RESNET, 64, marks=pytest.mark.slow),
  ],
)
def test_the_scan_is_the_loop_with_convolutions_and_batch_norm(network, num_lanes):
  config = load_config(None, [*CONFIG, *(f"network.{key}" for key in network)])
  world = make_walk(max_episode_steps=4, length=6)
  steps, scan, _ = collect_both(config, world, 4, range(num_lanes))
  assert_same(steps, scan)
  assert len({s.root_value.tobytes() for s, _ in scan}) == len(scan)
  assert bool(random_parameters(config, world.spec)[1]) == ("norm=batch" in network)


@pytest.mark.slow
def test_the_scan_is_the_loop_for_two_players_and_a_schedule():
  schedule = "[{env_steps: 0, temperature: 1.0}, {env_steps: 150, temperature: 0.0}]"
  search = ("algorithm=puct", "dirichlet_fraction=0.3", f"temperature={schedule}")
  config = load_config(None, [*CONFIG, *(f"planners.train.{key}" for key in search)])
  steps, scan, _ = collect_both(config, make_nim(), 6)
  assert_same(steps, scan)
  assert {int(p) for s, _ in scan for p in s.to_play.ravel()} == {0, 1}
  assert any((~s.legal_actions_mask[~s.is_last, 1:]).any() for s, _ in scan)
  assert [told.metrics["train/temperature"] for _, told in scan] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


QUICK = ("pgx:tic_tac_toe",)


@pytest.mark.parametrize(
  "name",
  [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
    for name in (
      "gymnax:Breakout-MinAtar",
      "gymnax:CartPole-v1",
      "gymnax:SpaceInvaders-MinAtar",
      "pgx:connect_four",
      "pgx:minatar-asterix",
      "pgx:othello",
      "pgx:tic_tac_toe",
    )
  ],
)
def test_the_scan_is_the_loop_in_real_envs(name):
  import_library(name)
  out = []
  for rollout in ("step", "scan"):
    config = load_config(None, [*TINY, f"env.name={name}", f"workers.rollout={rollout}"])
    spec = build.env_spec(config)
    collector = build.build_collector(config, spec, worker=0)
    collector.set_parameters(*random_parameters(config, spec), 0)
    out.append([collector.run(0) for _ in range(8)])
  assert_same(*out)
  assert sum(len(told.episode_lengths) for _, told in out[1]) > 0


def test_shapes_and_dtypes(walk):
  config, (_, scan, _) = walk
  segment, result = scan[0]
  lead = (config.workers.segment_length, len(WORLD_SEEDS))
  assert segment.frame.shape == (*lead, 1, 6, 1)
  assert segment.frame.dtype == bool
  assert segment.action.dtype == segment.acted_version.dtype == np.int32
  assert (segment.acted_version == 7).all()
  assert result.num_steps == lead[0] * lead[1]
  assert all(isinstance(value, float) for value in result.metrics.values())
  assert all(isinstance(getattr(segment, name), np.ndarray) for name in FIELDS)


def test_ends_obey_the_rules(walk):
  _, (_, scan, _) = walk
  steps = {name: np.concatenate([getattr(s, name) for s, _ in scan]) for name in FIELDS}
  terminal = steps["is_last"] & ~steps["is_truncated"]
  assert (steps["action"][steps["is_last"]] == 0).all()
  assert (steps["root_value"][terminal] == 0).all()
  assert (steps["action_probs"][terminal] == [1.0, 0.0, 0.0]).all()
  assert (steps["action_probs"][~terminal][:, 0] == 0).all()
  assert (steps["action"][~steps["is_last"]] > 0).all()
  np.testing.assert_array_equal(steps["is_first"][1:], steps["is_last"][:-1])
  legal = np.take_along_axis(steps["legal_actions_mask"], steps["action"][..., None], -1)[..., 0]
  assert legal[~steps["is_last"]].all()


def test_episode_figures_are_those_of_the_trajectories(walk):
  _, (_, scan, _) = walk
  reward = np.concatenate([s.last_reward for s, _ in scan])
  first, last = (np.concatenate([getattr(s, n) for s, _ in scan]) for n in ("is_first", "is_last"))
  own = []
  for lane in range(reward.shape[1]):
    total = length = 0
    for t in range(len(reward)):
      total, length = total + reward[t, lane], length + int(not first[t, lane])
      if last[t, lane]:
        own.append((float(total), int(length)))
        total = length = 0
  told = sorted(
    (float(r), int(n))
    for _, result in scan
    for r, n in zip(result.episode_returns, result.episode_lengths, strict=True)
  )
  # An episode is told in the step that is made on its last frame: both are in the same segment.
  assert sorted(own) == told


def test_a_segment_given_out_does_not_change(walk):
  """Though the rollout's state, which the segment was copied from, is given up at the next call."""
  _, (_, scan, copies) = walk
  for (segment, _), copy in zip(scan, copies, strict=True):
    for name in FIELDS:
      np.testing.assert_array_equal(getattr(segment, name), copy[name], err_msg=name)


@pytest.mark.parametrize("action", [0, 2, 3, -1])
def test_an_action_that_cannot_be_played_is_refused_when_the_segment_arrives(action):
  """The dummy, right where only left is legal, and what is out of range: a scan would play something else."""
  config, world = load_config(None, list(CONFIG)), make_walk(max_episode_steps=4, length=6)

  def stubborn(params, net_state, history, timestep, rng_key, temperature):
    history, _ = see(history, timestep, world.spec)
    probs, values = jnp.float32(timestep.legal_actions_mask), jnp.zeros(len(WORLD_SEEDS))
    output = PlannerOutput(
      action=jnp.where(timestep.is_last, 0, action).astype(jnp.int32),
      action_probs=probs,
      root_value=values,
      prior_probs=probs,
      prior_value=values,
      q_values=jnp.zeros_like(probs),
      depth_mean=values,
      depth_max=jnp.int32(values),
    )
    return push_action(history, output.action), output

  model, planner = build.build_model(config, world.spec), config.planners.train
  collector = RolloutCollector(model, config, planner, world, WORLD_SEEDS, seed=1, policy=stubborn)
  collector.set_parameters({}, {}, 0)
  said = rf"^step \d of the segment: actions\[\d\]={action}: cannot be played on a live frame"
  with pytest.raises(ValueError, match=said):  # noqa: PT012
    for _ in range(10):
      collector.run(0)


@pytest.mark.parametrize(
  ("name", "rollout", "kind"),
  [
    ("gymnax:CartPole-v1", "auto", RolloutCollector),
    ("gymnax:CartPole-v1", "scan", RolloutCollector),
    ("gymnax:CartPole-v1", "step", TrajectoryCollector),
    ("tiny:catch", "auto", TrajectoryCollector),
    ("tiny:catch", "step", TrajectoryCollector),
  ],
)
def test_the_configuration_chooses(name, rollout, kind):
  import_library(name)
  config = load_config(None, [*TINY, f"env.name={name}", f"workers.rollout={rollout}"])
  assert isinstance(build.build_collector(config, build.env_spec(config), worker=0), kind)


def test_a_scan_needs_an_env_in_jax():
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
  """The committed configuration, made small, to its end: acting, replay, updates, evaluation."""
  config = load_config(CONFIGS / config, list(SMALL))
  import_library(config.env.name)
  events = list(local.run(RunInputs(config, build.env_spec(config))))
  acted = [e for e in events if isinstance(e, Acted)]
  assert len(acted) == 5
  assert sum(len(e.episode_returns) for e in acted) > 0
  assert any(isinstance(e, Updated) and np.isfinite(e.metrics["loss/total"]) for e in events)
  (final,) = [e for e in events if isinstance(e, Evaluated) and e.is_final]
  assert len(final.result.returns) == 2
  assert isinstance(events[-1], Finished)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("gymnax/*.yaml")) + sorted(CONFIGS.glob("pgx/*.yaml")))
def test_the_committed_configurations_fit_their_envs(path):
  config = load_config(path, [])
  import_library(config.env.name)
  assert build.env_spec(config).name == config.env.name

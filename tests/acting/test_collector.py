"""Tests of the collector's segments: episode ends, and histories that replay rebuilds to the bit."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.acting.collector import HeldParameters, TrajectoryCollector
from moozi.acting.rollout import RolloutCollector
from moozi.agent.agent import Decision, make_agent
from moozi.core.records import TrajectorySample
from moozi.envs.jax.adapters import JaxVectorEnvironment
from moozi.io.config import load_config
from moozi.run import build
from tests.acting.parameters import random_parameters
from tests.envs.jax.toys import make_walk
from tests.tiny_run import TINY


def make_collector(config, spec):
  collector = build.build_collector(config, spec, worker=0)
  # With small parameters the policy is nearly uniform, so that episodes end in every way.
  collector.set_parameters(jax.tree.map(lambda x: x / 100, random_parameters(config, spec)), 0)
  return collector


@pytest.fixture(scope="module")
def corridor():
  """Acts in a corridor, where episodes terminate or are truncated after 6 steps; the history has 3 frames."""
  config = load_config(
    None,
    [
      *TINY,
      "env.name=tiny:corridor",
      "env.kwargs.length=5",
      "env.kwargs.max_episode_steps=6",
      "targets.history_length=3",
    ],
  )
  spec = build.env_spec(config)
  collector = make_collector(config, spec)
  results = [collector.run(0) for _ in range(6)]
  steps = {
    name: np.concatenate([np.asarray(getattr(segment, name)) for segment, _ in results])
    for name in TrajectorySample.__dataclass_fields__
  }
  return config, spec, results, steps, collector


def test_shapes_and_dtypes(corridor):
  config, spec, results, *_ = corridor
  segment, result = results[0]
  lead = (config.workers.segment_length, config.workers.num_envs)
  assert segment.frame.shape == (*lead, *spec.frame_shape)
  assert segment.action_probs.shape == (*lead, spec.num_actions)
  assert segment.action.dtype == np.int32
  assert segment.root_value.dtype == np.float32
  assert result.num_steps == lead[0] * lead[1]
  # Without sampled joint actions, a search has these metrics and no others.
  assert {name for name in result.metrics if name.startswith("search/")} == {
    "search/policy_entropy",
    "search/prior_entropy",
    "search/policy_kl_prior",
    "search/policy_max",
    "search/depth_mean",
    "search/depth_max",
    "search/root_value",
    "search/root_value_gain",
  }


def test_terminal_frames_have_the_dummy_and_value_zero(corridor):
  *_, steps, _ = corridor
  terminal = steps["is_last"] & ~steps["is_truncated"]
  assert terminal.any()
  assert (steps["action"][terminal] == 0).all()
  assert (steps["root_value"][terminal] == 0).all()
  np.testing.assert_array_equal(steps["action_probs"][terminal], np.eye(3)[[0] * terminal.sum()])
  assert (steps["legal_actions_mask"][terminal] == [True, False, False]).all()


def test_truncated_frames_keep_their_search(corridor):
  *_, steps, _ = corridor
  truncated = steps["is_truncated"]
  assert truncated.any()
  assert (steps["action"][truncated] == 0).all()
  assert (steps["action_probs"][truncated][:, 0] == 0).all()
  np.testing.assert_allclose(steps["action_probs"][truncated].sum(-1), 1, rtol=1e-5)


def test_dummy_is_not_played_on_live_frames(corridor):
  *_, steps, _ = corridor
  live = ~steps["is_last"]
  assert (steps["action"][live] > 0).all()
  assert (steps["action_probs"][live][:, 0] == 0).all()


def test_a_first_frame_follows_each_last_one(corridor):
  *_, steps, _ = corridor
  np.testing.assert_array_equal(steps["is_first"][1:], steps["is_last"][:-1])
  assert steps["is_first"][0].all()
  assert (steps["last_reward"][steps["is_first"]] == 0).all()


def test_episode_returns_and_lengths(corridor):
  _, _, results, steps, _ = corridor
  returns, lengths = [], []
  for lane in range(steps["frame"].shape[1]):
    total = length = 0
    for t in range(len(steps["frame"])):
      total += steps["last_reward"][t, lane]
      length += int(not steps["is_first"][t, lane])
      if steps["is_last"][t, lane]:
        returns.append(total)
        lengths.append(length)
        total = length = 0
  reported = [
    np.concatenate([getattr(r, name) for _, r in results]) for name in ("episode_returns", "episode_lengths")
  ]
  reported = collections.Counter(zip(np.round(reported[0], 3).tolist(), reported[1].tolist(), strict=True))
  own = collections.Counter(zip(np.round(np.array(returns, float), 3).tolist(), lengths, strict=True))
  # An episode is reported as soon as its last frame is stored.
  assert own == reported


def test_replay_rebuilds_the_history_of_the_worker(corridor):
  config, spec, results, steps, _ = corridor
  replay = build.build_replay(config, spec)
  for segment, _ in results:
    replay.add(segment, first_lane=0)
  length, num_lanes = config.targets.history_length, config.workers.num_envs
  seen = worker_histories(steps, length)
  per_lane = config.replay.capacity // num_lanes
  targets = replay.sample_many(20, 32)
  starts = set()
  for index in range(20):
    for row in range(32):
      lane, t = divmod(int(targets.slot[index, row]), per_lane)
      frames, actions = seen[t, lane]
      np.testing.assert_array_equal(targets.frames[index, row, :length], frames)
      np.testing.assert_array_equal(targets.history_actions[index, row, :length], actions)
      starts.add((t, lane))
  assert any(steps["is_first"][t, lane] for t, lane in starts)
  assert {t % config.workers.segment_length for t, _ in starts} == set(range(config.workers.segment_length))


def worker_histories(steps, length):
  """Returns {(t, lane): (frames, actions)}; zero frames and dummy actions fill steps before the episode."""
  out = {}
  for lane in range(steps["frame"].shape[1]):
    for t in range(len(steps["frame"])):
      if steps["is_first"][t, lane]:
        frames = [np.zeros_like(steps["frame"][t, lane])] * length
        actions = [0] * length
      frames = [*frames[1:], steps["frame"][t, lane]]
      out[t, lane] = (np.stack(frames), np.array(actions))
      actions = [*actions[1:], steps["action"][t, lane]]
  return out


@pytest.mark.slow
def test_the_same_seed_gives_the_same_segments(corridor):
  config, spec, results, *_ = corridor
  collector = make_collector(config, spec)
  for a, _ in results[:2]:
    b, _ = collector.run(0)
    for name in TrajectorySample.__dataclass_fields__:
      np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def test_segments_have_the_version_of_the_parameters(corridor):
  config, spec, _, _, collector = corridor
  collector.set_parameters(random_parameters(config, spec), 3)
  segment, result = collector.run(0)
  assert result.version == 3
  assert (segment.acted_version == 3).all()


def test_averages_are_renewed_with_a_known_version():
  held = HeldParameters()
  held.set_parameters(({"w": np.ones(1)}, {"mean": np.zeros(1)}), 3)
  held.set_parameters(({"w": np.ones(1)}, {"mean": np.ones(1)}), 3)
  params, averages = held.variables
  assert (params["w"].item(), averages["mean"].item(), held.version) == (1, 1, 3)


@pytest.mark.parametrize("kind", [TrajectoryCollector, RolloutCollector])
def test_extras_and_the_step_after(kind):
  """A collector keeps the extras if asked to; `look_ahead` gives the next segment's first decision."""
  env, length = make_walk(max_episode_steps=4, length=6), 5

  def decide(variables, history, timestep, key, temperature, position):
    legal = jnp.asarray(timestep.legal_actions_mask)
    drawn = jax.random.categorical(key, jnp.where(legal, 0.0, -jnp.inf))
    values = variables + jnp.sum(history.frames, axis=(1, 2, 3, 4)) + temperature
    extras = {"frames": history.frames, "values": values, "other": values}
    return Decision(action=drawn, action_probs=jnp.float32(legal), root_value=values, extras=extras)

  vector = JaxVectorEnvironment(env, [5, 6, 7])
  agent = make_agent(decide, env.spec, 2)
  collector = kind(agent, vector, length, lambda env_steps: env_steps / 100, 0, keeps_extras=True)
  for i in range(2):
    collector.set_parameters(np.float32(i), i)
    before, decision = collector.look_ahead(200 * i)
    segment, result = collector.run(200 * i)
    assert set(result.extras) == {"frames", "values", "other"}
    assert result.extras["frames"].shape == (length, 3, 2, *env.spec.frame_shape)
    np.testing.assert_array_equal(result.extras["frames"][:, :, -1], segment.frame)
    live = ~segment.is_last | segment.is_truncated
    np.testing.assert_array_equal(np.where(live, result.extras["values"], 0), segment.root_value)
    assert result.metrics["train/temperature"] == 2 * i
    assert set(result.metrics) >= {"train/reward", "train/last_share"}
    assert not [name for name in result.metrics if name.startswith("search/")]
    np.testing.assert_array_equal(before.frame, segment.frame[0])
    np.testing.assert_array_equal(decision.action, segment.action[0])
    np.testing.assert_array_equal(decision.extras["values"], result.extras["values"][0])

"""Tests of lost lives: the training episode ends; the frame history and the game's return continue."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from moozi.core.records import TrajectorySample
from moozi.core.seeds import child_seed
from moozi.envs import registry
from moozi.envs.vector import SyncVectorEnvironment
from moozi.io.config import load_config
from moozi.ops.history import normalize_frame, stack_history
from moozi.run import build
from tests.acting.parameters import collector_in, random_parameters
from tests.envs.environments import make_lives
from tests.tiny_run import TINY

LENGTH = 3
SMALL = [
  *TINY,
  f"targets.history_length={LENGTH}",
  "planners.train.num_simulations=2",
  "network.kind=conv_latent",
  "network.channels=2",
  "workers.num_envs=2",
  "workers.segment_length=1",
  "replay.capacity=512",
]
NUM_STEPS = 140


def act(envs, overrides=()):
  """Collects segments of one step; also records the history that the collector has after each."""
  config = load_config(None, [*SMALL, *overrides])
  env = SyncVectorEnvironment(envs)
  seed = child_seed(config.seed, "training_search", 0)
  collector = collector_in(env, config, seed)
  collector.set_parameters(random_parameters(config, env.spec), 0)
  replay = build.build_replay(config, env.spec)
  segments, results, seen = [], [], []
  for _ in range(NUM_STEPS):
    segment, result = collector.run(0)
    replay.add(segment, first_lane=0)
    segments.append(segment)
    results.append(result)
    # After a segment, the last action in the history is the one that was chosen from these frames.
    history = collector.carry
    seen.append((np.asarray(history.frames), np.asarray(history.actions)))
  steps = {
    name: np.concatenate([np.asarray(getattr(segment, name)) for segment in segments])
    for name in TrajectorySample.__dataclass_fields__
  }
  return env.spec, replay, steps, seen, results


@pytest.fixture(scope="module")
def lives():
  return act([make_lives(), make_lives()], ["network.kind=mlp"])


@pytest.fixture(scope="module")
def breakout():
  pytest.importorskip("ale_py")
  return act([registry.make("atari:Breakout", seed) for seed in (2, 3)])


@pytest.mark.parametrize("game", ["lives", pytest.param("breakout", marks=pytest.mark.slow)])
def test_learner_rebuilds_the_history_of_the_worker(game, request):
  spec, replay, steps, seen, _ = request.getfixturevalue(game)
  continued = steps["is_last"][:-1] & ~steps["is_first"][1:]
  assert continued.sum() >= 4
  target = replay.sample(600)
  per_lane = replay.lane_capacity
  across = 0
  for row in range(600):
    lane, t = divmod(int(target.slot[row]), per_lane)
    frames, actions = seen[t][0][lane], seen[t][1][lane]
    np.testing.assert_array_equal(target.frames[row, :LENGTH], frames)
    np.testing.assert_array_equal(target.history_actions[row, 1:], actions)
    if continued[max(0, t - LENGTH + 1) : t, lane].any():
      across += 1
      assert frames.reshape(LENGTH, -1).any(axis=1).all() or game == "lives"
      assert 0 in actions[:-1]
  assert across > 20

  def image(frames, actions):
    return np.asarray(
      stack_history(normalize_frame(jnp.asarray(frames), spec.frame_dtype), actions, spec.policy_groups)
    )

  lane, t = divmod(int(target.slot[0]), per_lane)
  history = seen[t][0][lane], np.asarray(target.history_actions[0, :LENGTH])
  np.testing.assert_array_equal(image(target.frames[0, :LENGTH], history[1]), image(*history))


@pytest.mark.parametrize("game", ["lives", pytest.param("breakout", marks=pytest.mark.slow)])
def test_targets_end_at_the_loss_of_a_life(game, request):
  _, replay, steps, _, _ = request.getfixturevalue(game)
  terminal = steps["is_last"] & ~steps["is_truncated"]
  assert (steps["action"][terminal] == 0).all()
  target = replay.sample(400)
  for row in range(400):
    lane, t = divmod(int(target.slot[row]), replay.lane_capacity)
    if not terminal[t, lane]:
      continue
    assert target.n_step_returns[row].tolist() == [0.0, 0.0, 0.0]
    assert target.actions[row].tolist() == [0, 0]
    assert target.consistency_mask[row] == 0


def test_returns_and_lengths_are_of_whole_games(lives):
  _, _, steps, _, results = lives
  reported = sorted(
    (float(r), int(n))
    for result in results
    for r, n in zip(result.episode_returns, result.episode_lengths, strict=True)
  )
  own = []
  for lane in range(2):
    # The last game is excluded: it may not have ended.
    for start, stop in itertools.pairwise(np.flatnonzero(steps["is_first"][:, lane])):
      game = slice(start, stop)
      # A game's return is the sum over its three lives. Its length counts actions; the agent does not act on
      # the two frames where a life is lost.
      assert steps["is_last"][game, lane].sum() == 3
      own.append(
        (float(steps["last_reward"][game, lane].sum()), int((steps["action"][game, lane] > 0).sum()))
      )
  assert len(own) >= 8
  assert len(reported) - len(own) in (0, 1, 2)
  for game in own:
    reported.remove(game)

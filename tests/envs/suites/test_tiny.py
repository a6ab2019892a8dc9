"""Tests of the small games, whose best returns are known."""

import dm_env
import numpy as np
import pytest

from moozi.envs import registry
from moozi.envs.suites import tiny
from tests.envs.contract import play


def episode_return(env, policy):
  """Plays one episode; returns its return and length. The policy maps a frame to an action."""
  step, total, length = env.reset(), 0.0, 0
  while not step.last():
    step = env.step(policy(step.observation.frame))
    total, length = total + step.reward, length + 1
  return total, length


def catch_the_ball(frame):
  """Returns the action that moves the paddle towards the ball."""
  ball = np.argwhere(frame[..., tiny.BALL])[0][1]
  paddle = np.argwhere(frame[..., tiny.PADDLE])[0][1]
  return 1 + int(np.sign(ball - paddle))


def test_catch_board():
  spec = registry.env_spec("tiny:catch")
  assert spec.frame_shape == (10, 5, 2)
  assert spec.num_env_actions == 3
  frame = registry.make("tiny:catch", seed=0).reset().observation.frame
  assert frame[0, :, tiny.BALL].sum() == frame[..., tiny.BALL].sum() == 1
  assert np.argwhere(frame[..., tiny.PADDLE]).tolist() == [[9, 2]]


def test_catch_optimal_return():
  env = registry.make("tiny:catch", seed=1)
  assert {episode_return(env, catch_the_ball) for _ in range(50)} == {(tiny.OPTIMAL_RETURN, 9)}


def test_catch_missed_balls():
  env = registry.make("tiny:catch", seed=2)
  returns = [episode_return(env, lambda frame: 2 - catch_the_ball(frame))[0] for _ in range(50)]
  assert -1.0 in returns
  assert returns.count(-1.0) > 40


def test_catch_balls_start_in_every_column():
  env = registry.make("tiny:catch", seed=3)
  columns = {int(np.argwhere(env.reset().observation.frame[..., tiny.BALL])[0][1]) for _ in range(100)}
  assert columns == set(range(5))


def test_catch_paddle_stays_on_the_board():
  env = registry.make("tiny:catch", seed=0)
  env.reset()
  for _ in range(4):
    frame = env.step(0).observation.frame
  assert np.argwhere(frame[..., tiny.PADDLE]).tolist() == [[9, 0]]


def test_catch_return_of_staying():
  env = registry.make("tiny:catch", seed=4)
  mean = np.mean([episode_return(env, lambda frame: 1)[0] for _ in range(2000)])
  assert mean == pytest.approx(-0.6, abs=0.05)


@pytest.mark.parametrize("length", [3, 8, 20])
def test_corridor_returns(length):
  env = registry.make("tiny:corridor", seed=0, length=length)
  assert episode_return(env, lambda frame: 1) == (tiny.OPTIMAL_RETURN, length - 2)
  assert episode_return(env, lambda frame: 0) == (tiny.NEAR_RETURN, 1)


def test_corridor_truncation():
  env = registry.make("tiny:corridor", seed=0, max_episode_steps=4)
  env.reset()
  steps = [env.step(a) for a in (1, 0, 1, 0)]
  assert [step.step_type for step in steps] == [dm_env.StepType.MID] * 3 + [dm_env.StepType.LAST]
  assert (steps[-1].reward, steps[-1].discount) == (0.0, 1.0)
  assert steps[-1].observation.frame[0, 1, 0]


def test_corridor_has_every_kind_of_end():
  env = registry.make("tiny:corridor", seed=0, max_episode_steps=8)
  ends = {(s.reward, s.discount) for s in play(env, 2000) if s.last()}
  assert ends == {(0.1, 0.0), (1.0, 0.0), (0.0, 1.0)}


def test_corridor_slips():
  env = registry.make("tiny:corridor", seed=0, length=4, slip_prob=0.25)
  # A step to the right in cell 1 ends at the near end with probability 0.25, else in cell 2.
  ends = []
  for _ in range(2000):
    env.reset()
    ends.append(env.step(1).last())
  assert np.mean(ends) == pytest.approx(0.25, abs=0.04)


def coin_return(env, choose):
  """Plays one episode of Coin; `choose` maps the index of the frame's true cell to an action."""
  step, total = env.reset(), 0.0
  while not step.last():
    step = env.step(choose(int(np.argwhere(step.observation.frame)[0, 1])))
    total += step.reward
  return total


def test_coin_returns():
  env = registry.make("tiny:coin", seed=1, heads_prob=0.75, safe_reward=0.3)
  assert coin_return(env, lambda cell: 0) == 0.3
  wise = [coin_return(env, lambda cell: int(cell in (tiny.COIN_START, tiny.COIN_HEADS))) for _ in range(2000)]
  assert set(wise) == {0.0, 1.0}
  assert np.mean(wise) == pytest.approx(0.75, abs=0.04)
  bold = [coin_return(env, lambda cell: 1) for _ in range(2000)]
  assert np.mean(bold) == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("length", [1, 2, 30])
def test_tmaze(length):
  env, cues, returns = registry.make("tiny:tmaze", seed=1, length=length), [], []
  for episode in range(60):
    step = env.reset()
    cues.append(int(step.observation.frame.argmax()))
    shown, total = [], 0.0
    while not step.last():
      arm = (cues[-1] + episode % 2) % 2  # the right one in even episodes
      step = env.step(arm if len(shown) == length else 1 - arm)
      shown.append(int(step.observation.frame.argmax()))
      total += step.reward
      assert step.observation.frame.sum() == 1
    assert shown == [tiny.MAZE_CORRIDOR] * (length - 1) + [tiny.MAZE_JUNCTION, tiny.MAZE_END]
    returns.append(total)
  assert returns == [1.0, -1.0] * 30
  assert 20 < cues.count(tiny.CUE_UP) < 40
  assert set(cues) == {tiny.CUE_UP, tiny.CUE_DOWN}


# --- joint actions --------------------------------------------------------------------------------------


def turn_to_targets(frame):
  """Returns the joint action that turns every dial of Dials to its target."""
  num_dials, num_positions, _ = frame.shape
  return int(np.ravel_multi_index(frame[..., 0].argmax(axis=1), (num_positions,) * num_dials))


@pytest.mark.parametrize(("num_dials", "num_positions"), [(1, 12), (3, 5), (8, 12)])
def test_dials_optimal_return(num_dials, num_positions):
  env = registry.make("tiny:dials", seed=0, num_dials=num_dials, num_positions=num_positions)
  assert env.env_spec.num_env_actions == num_positions**num_dials
  assert {episode_return(env, turn_to_targets) for _ in range(20)} == {(tiny.OPTIMAL_RETURN, 1)}


def test_dials_return_is_the_distance():
  env = registry.make("tiny:dials", seed=1, num_dials=2, num_positions=5)
  targets = env.reset().observation.frame[..., 0].argmax(axis=1)
  expected = 1 - np.abs(targets - [4, 1]).mean() / 4
  assert env.step(4 * 5 + 1).reward == pytest.approx(expected)
  assert env.env_spec.factors.name(4 * 5 + 1) == "dial 0=4 dial 1=1"


@pytest.mark.parametrize(("length", "num_keys"), [(2, 2), (6, 20), (3, 1000)])
def test_gates_optimal_return(length, num_keys):
  env = registry.make("tiny:gates", seed=0, length=length, num_keys=num_keys)
  assert env.env_spec.factors.sizes == (2, num_keys)

  def say_the_key(frame):
    return num_keys + int(frame[0, length:, 0].argmax())

  for _ in range(10):
    total, num_steps = episode_return(env, say_the_key)
    assert total == pytest.approx(1 - 0.01 * (length - 1))
    assert num_steps == length - 1


def test_gates_need_both_dimensions():
  env = registry.make("tiny:gates", seed=0, max_episode_steps=30)
  for is_forward in (0, 1):
    step = env.reset()
    for _ in range(30):
      key = int(step.observation.frame[0, 6:, 0].argmax())
      step = env.step(20 * is_forward + (key + is_forward) % 20)  # the right key without a step; a wrong key
    assert step.observation.frame[0, 0, 0]
    assert (step.last(), step.discount, step.reward) == (True, 1.0, -tiny.STEP_COST)


@pytest.mark.parametrize(("num_bins", "gap"), [(3, 1.5), (7, 0.6), (101, 0.03)])
def test_point_return_nears_the_best_with_more_bins(num_bins, gap):
  env = registry.make("tiny:point", seed=0, action_bins=num_bins)
  factors, step = env.env_spec.factors, None

  def go_to_the_origin(frame):
    return factors.joint_action(np.clip(-frame[0, 0, :2], -tiny.POINT_SPEED, tiny.POINT_SPEED))

  for _ in range(20):
    step = env.reset()
    best, total = tiny.best_point_return(step.observation.frame[0, 0, :2].tolist()), 0.0
    for _ in range(tiny.POINT_STEPS):
      assert not step.last()
      step = env.step(go_to_the_origin(step.observation.frame))
      total += step.reward
    assert step.last()
    assert best - gap <= total <= best + 1e-5


def test_best_point_return():
  assert tiny.best_point_return((0.0, 0.0)) == 0.0
  assert tiny.best_point_return((0.25, -0.1)) == 0.0
  assert tiny.best_point_return((0.1, -1.0)) == pytest.approx(-(0.75 + 0.5 + 0.25))

import sys
import warnings

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.envs import registry

pytest.importorskip("gymnasium")
from gymnasium.utils.env_checker import check_env

NAMES = ("tiny:catch", "minatar:breakout", "open_spiel:tic_tac_toe", "gymnasium:CartPole-v1")


@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_accepts_it(name):
  try:
    env = registry.make(name, seed=1)
  except UserError as error:
    pytest.skip(str(error))
  with warnings.catch_warnings():
    # gymnasium warns of observations without bounds, such as float frames.
    warnings.filterwarnings("ignore", message=".*A Box observation space m")
    check_env(env.as_gymnasium(), skip_render_check=True)


def test_steps_are_those_of_the_environment():
  plain, gym = registry.make("tiny:catch", seed=4), registry.make("tiny:catch", seed=4).as_gymnasium()
  for _ in range(3):
    step, (frame, info) = plain.reset(), gym.reset()
    while True:
      np.testing.assert_array_equal(frame, step.observation.frame)
      np.testing.assert_array_equal(info["legal_actions_mask"], step.observation.legal_actions_mask)
      assert info["to_play"] == 0
      if step.last():
        break
      step = plain.step(1)
      frame, reward, is_terminated, is_truncated, info = gym.step(1)
      assert reward == step.reward
      assert (is_terminated, is_truncated) == (step.last(), False)
  seeded, _ = gym.reset(seed=4)
  plain.seed(4)
  np.testing.assert_array_equal(seeded, plain.reset().observation.frame)


def test_a_time_limit_truncates():
  from moozi.envs.wrappers import StepCap

  gym = StepCap(registry.make("tiny:catch", seed=0), 2).as_gymnasium()
  gym.reset()
  assert gym.step(0)[2:4] == (False, False)
  assert gym.step(0)[2:4] == (False, True)


def test_two_players_and_illegal_actions():
  pytest.importorskip("pyspiel")
  gym = registry.make("open_spiel:tic_tac_toe", seed=0).as_gymnasium()
  with pytest.raises(ValueError, match="call reset"):
    gym.step(0)
  assert gym.reset()[1]["to_play"] == 0
  for player, action in enumerate((0, 3, 1, 4)):
    _, reward, _, _, info = gym.step(action)
    assert (reward, info["to_play"]) == (0, (player + 1) % 2)
  assert not info["legal_actions_mask"][[0, 1, 3, 4]].any()
  with pytest.raises(ValueError, match="illegal"):
    gym.step(4)
  assert gym.step(2)[1:4] == (1.0, True, False)
  with pytest.raises(ValueError, match="the episode is over"):
    gym.step(5)


def test_pictures(monkeypatch):
  env = registry.make("tiny:catch", seed=0)
  with pytest.raises(ValueError, match="must be 'rgb_array' or None"):
    env.as_gymnasium("human")
  picture = np.zeros((2, 2, 3), np.uint8)
  monkeypatch.setattr(env, "render", lambda: picture)
  assert env.as_gymnasium("rgb_array").render() is picture
  assert env.as_gymnasium().render() is None


def test_missing_package(monkeypatch):
  monkeypatch.setitem(sys.modules, "moozi.envs.as_gymnasium", None)
  with pytest.raises(UserError, match=r"pip install 'moozi\[gymnasium\]'"):
    registry.make("tiny:catch", seed=0).as_gymnasium()

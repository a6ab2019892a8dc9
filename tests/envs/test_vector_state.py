"""Environments taken back to where they were: each game has a seed of its own, and its actions are
replayed.
"""

import numpy as np
import pytest

from moozi.core.pytree import fields_of
from moozi.envs.vector import SyncVectorEnvironment, make_vector
from tests.envs.environments import make_lives, make_nim

ENVS = {
  "catch": lambda: make_vector("tiny:catch", {}, 3, seed=5),
  "breakout": lambda: make_vector(
    "minatar:breakout", {"sticky_action_prob": 0.2, "max_episode_steps": 30}, 3, 5
  ),
  "catch, random starts": lambda: make_vector("tiny:catch", {}, 3, seed=5, max_random_starts=4),
  "cartpole": lambda: make_vector("gymnasium:CartPole-v1", {}, 3, seed=5),
  "nim": lambda: SyncVectorEnvironment([make_nim() for _ in range(3)], lane_seeds=[1, 2, 3]),
  "lives": lambda: SyncVectorEnvironment([make_lives() for _ in range(3)], lane_seeds=[1, 2, 3]),
}


def play(env, step, rng, num_steps):
  steps = []
  for _ in range(num_steps):
    actions = [int(rng.choice(np.flatnonzero(mask))) for mask in step.legal_actions_mask]
    step = env.step(np.array(actions))
    steps.append(step)
  return steps


def assert_same(a, b):
  for name, value in fields_of(a).items():
    np.testing.assert_array_equal(value, getattr(b, name), err_msg=name)


@pytest.mark.parametrize("world", ENVS)
@pytest.mark.parametrize("num_steps", [0, 1, 17, 40])
def test_a_restored_env_goes_on_as_the_first_one_does(world, num_steps):
  env, rng = ENVS[world](), np.random.default_rng(0)
  step = env.reset()
  step = [step, *play(env, step, rng, num_steps)][-1]
  state = env.get_state()
  after = play(env, step, np.random.default_rng(1), 60)

  again = ENVS[world]()
  shown, is_new = again.set_state(state, step)
  assert not is_new.any()
  assert_same(shown, step)
  for a, b in zip(after, play(again, shown, np.random.default_rng(1), 60), strict=True):
    assert_same(a, b)


def test_games_differ_from_lane_to_lane_and_from_game_to_game():
  env = make_vector("tiny:catch", {}, 16, seed=0)
  columns = [int(np.argmax(frame[0, :, 0])) for frame in env.reset().frame]
  columns += [int(np.argmax(frame[0, :, 0])) for frame in env.reset().frame]
  assert len(set(columns)) > 3


def test_an_env_whose_chance_is_its_own_begins_a_new_game():

  env = SyncVectorEnvironment([make_lives() for _ in range(2)], lane_seeds=[1, 2])
  step = play(env, env.reset(), np.random.default_rng(0), 4)[-1]
  state = env.get_state()
  step.frame[1] += 1  # what environment 1 showed is not what it shows after a replay
  again = SyncVectorEnvironment([make_lives() for _ in range(2)], lane_seeds=[1, 2])
  shown, is_new = again.set_state(state, step)
  assert is_new.tolist() == [False, True]
  assert shown.is_first.tolist() == [False, True]
  assert again.get_state()["games"].tolist() == [state["games"][0], state["games"][1] + 1]


def test_the_state_of_other_envs_is_refused():
  env = make_vector("tiny:catch", {}, 3, seed=0)
  step = env.reset()
  with pytest.raises(ValueError, match="3 environments"):
    make_vector("tiny:catch", {}, 2, seed=0).set_state(env.get_state(), step)

"""Tests of environments whose actions have dimensions: their own actions, Gymnasium's view, and players."""

import warnings

import numpy as np
import pytest

from moozi.core import plugins
from moozi.core.errors import EnvError
from moozi.envs import registry
from moozi.envs.bots import RandomBot
from moozi.envs.checked import CheckedEnvironment
from moozi.envs.players import Seats, SeparatePlayer
from moozi.envs.table import EnvironmentTable, view_of
from moozi.envs.wrappers import RandomStarts, StepCap
from tests.envs.joint import CAR, make_car


def test_step_takes_numbers_and_own_actions():
  env = make_car()
  for number in (0, 100, CAR.num_joint_actions - 1):
    for action in (number, np.int32(number), CAR.own_action(number)):
      env.reset()
      assert env.step(action).reward == number
  wrapped = CheckedEnvironment(StepCap(RandomStarts(make_car(), 0), 3))
  wrapped.reset()
  assert wrapped.step(CAR.own_action(7)).reward == 7


def test_enumerated_and_continuous_ones():
  few = registry.make("tiny:dials", seed=0, num_dials=2)
  targets = few.reset().observation.frame[..., 0].argmax(axis=1)
  assert few.step(targets).reward == 1
  point = registry.make("tiny:point", seed=0)
  place = point.reset().observation.frame[0, 0, :2]
  with pytest.raises(ValueError, match=r"action=0.26: must be from -0.25 to 0.25 in x"):
    point.step(np.array([0.26, -0.2]))
  after = point.step(np.array([0.25, -0.2])).observation.frame[0, 0, :2]
  np.testing.assert_allclose(after, np.clip(place + np.array([0.25, -1 / 6]), -1, 1), atol=1e-5)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"gas": np.array([0.0, np.nan])}, "action=nan: must be from -1 to 1 in gas right"),
    ({"gas": np.zeros(3)}, r"action\['gas'\]: must be numbers of shape \[2\]"),
    ({"gas": "fast"}, r"action\['gas'\]: must be numbers of shape \[2\]"),
    ({"more": (2, [0, 1])}, r"action\['more'\]\[2\]: must be numbers of shape \[1\]"),
    ({"more": (2.5, [0, 1], [0])}, "action=2.5: must be one of 2, 3, 4 in gear"),
    ({"more": (5, [0, 1], [0])}, "action=5: must be from 2 to 4 in gear"),
  ],
)
def test_wrong_own_actions_change_nothing(change, message):
  env = make_car()
  env.reset()
  with pytest.raises(ValueError, match=message):
    env.step(CAR.own_action(9) | change)
  assert env._game.actions == []
  with pytest.raises(ValueError, match="action=-1: must be from 0 to 1175"):
    env.step(-1)


def test_view_of_gymnasium():
  pytest.importorskip("gymnasium")
  from gymnasium import spaces
  from gymnasium.utils.env_checker import check_env

  view = make_car().as_gymnasium()
  assert view.action_space["gas"] == spaces.Box(-1, 1, (2,), np.float32)
  gear, switches, door = view.action_space["more"]
  assert gear == spaces.Discrete(3, start=2)
  assert switches == spaces.MultiDiscrete([2, 2], np.int8)
  assert door == spaces.MultiBinary((1,))
  view.reset()
  view.action_space.seed(0)
  for _ in range(4):
    action = view.action_space.sample()
    assert view.step(action)[1] == CAR.joint_action(action)
  assert all(view.action_space.contains(CAR.own_action(i)) for i in range(CAR.num_joint_actions))
  for name in ("tiny:dials", "tiny:point"):
    with warnings.catch_warnings():
      warnings.filterwarnings("ignore", message=".*A Box observation space m")
      check_env(registry.make(name, seed=1).as_gymnasium(), skip_render_check=True)


def test_random_players_draw_every_joint_action():
  spec = registry.env_spec("tiny:point")
  bot = RandomBot(spec, seed=0)
  drawn = {bot.action(np.empty(0), np.ones(spec.mask_size, bool)) for _ in range(600)}
  assert drawn == set(range(49))


class Own:
  """Plays the same action in the form that it is given."""

  def __init__(self, action):
    self._action = action

  def action(self, observation, legal):
    return self._action


@pytest.mark.parametrize("form", [CAR.own_action, int], ids=["own", "number"])
def test_a_users_player_returns_either_form(monkeypatch, form):
  monkeypatch.setitem(plugins.PLAYERS.registered, "own", lambda spec, seed: Own(form(9)))
  env = make_car()
  player, seats = SeparatePlayer("own", env.env_spec), Seats()
  seats.start({0: (env, {0: (player, 0)})})
  view = view_of(env.reset().observation)
  assert seats.act({0: view}) == {0: 9}


def test_a_users_player_outside_the_bounds(monkeypatch):
  action = CAR.own_action(9) | {"gas": [2, 0]}
  monkeypatch.setitem(plugins.PLAYERS.registered, "own", lambda spec, seed: Own(action))
  env = make_car()
  seats = Seats()
  seats.start({0: (env, {0: (SeparatePlayer("own", env.env_spec), 0)})})
  with pytest.raises(EnvError, match="action=2: must be from -1 to 1 in gas left"):
    seats.act({0: view_of(env.reset().observation)})


def test_a_table_of_two_players():
  table = EnvironmentTable(make_car(2))
  assert table.is_deterministic
  table.reset(0)
  table.step(3)
  assert table.returns() == [3.0, -3.0]

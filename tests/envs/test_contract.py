"""Tests that the environments of all suites keep the contract, alone and in a vector.

Each case is a name, its options, and the number of steps that show every kind of step.
"""

from typing import Any

import pytest

from moozi.envs import registry
from tests.envs.contract import (
  EnvironmentContract,
  IllegalActionsContract,
  LivesContract,
  TwoPlayersContract,
)
from tests.envs.environments import need

LIBRARIES = {
  "atari": "ale_py",
  "dm_control": "dm_control",
  "gymnasium": "gymnasium",
  "gymnax": "gymnax",
  "minatar": "minatar",
  "open_spiel": "pyspiel",
  "pgx": "pgx",
}
BOX2D = ("gymnasium:LunarLander",)
MUJOCO = ("gymnasium:HalfCheetah", "gymnasium:Hopper", "gymnasium:Walker2d")
FAKES = "tests.envs.suites.user_fakes"
SEAT = {"seat": "random"}


def slow(name: str, options: dict[str, Any], num_steps: int) -> Any:
  return pytest.param((name, options, num_steps), id=name, marks=pytest.mark.slow)


def quick(name: str, options: dict[str, Any], num_steps: int) -> Any:
  return pytest.param((name, options, num_steps), id=name)


class Named:
  """Makes the environment of the case."""

  @pytest.fixture(autouse=True)
  def _choose(self, request):
    self.name, self.options, self.num_steps = request.param
    library = self.name.partition(":")[0]
    if library in LIBRARIES:
      need(LIBRARIES[library])
    for names, package in ((BOX2D, "Box2D"), (MUJOCO, "mujoco")):
      if self.name.startswith(names):
        need(package)

  def make(self):
    return registry.make(self.name, seed=0, **self.options)


@pytest.mark.parametrize(
  "_choose",
  [
    quick("tiny:catch", {}, 150),
    quick("tiny:corridor", {}, 150),
    quick("tiny:coin", {}, 150),
    quick("tiny:dials", {}, 60),
    slow("tiny:dials", {"num_dials": 2, "num_positions": 3}, 60),
    quick("tiny:gates", {"max_episode_steps": 20}, 150),
    slow("tiny:gates", {"length": 2, "num_keys": 2}, 150),
    quick("tiny:point", {}, 60),
    quick("tiny:point", {"action_bins": 0}, 60),
    slow("tiny:point", {"action_bins": 5, "max_episode_steps": 4}, 60),
    quick("tiny:tmaze", {"length": 5}, 60),
    slow("tiny:tmaze", {"length": 3, "max_episode_steps": 3}, 60),
    slow("tiny:corridor", {"length": 60, "max_episode_steps": 20}, 150),
    quick("minatar:breakout", {"sticky_action_prob": 0.0, "max_episode_steps": 1000}, 150),
    slow("minatar:asterix", {}, 150),
    slow("minatar:freeway", {}, 150),
    slow("minatar:seaquest", {"minimal_actions": False}, 150),
    slow("minatar:space_invaders", {"difficulty_ramping": False}, 60),
    quick("gymnasium:CartPole-v1", {}, 150),
    slow("gymnasium:FrozenLake-v1", {}, 150),
    slow("gymnasium:Blackjack-v1", {}, 150),
    quick("gymnasium:Pendulum-v1", {"max_episode_steps": 40}, 100),
    slow("gymnasium:Pendulum-v1", {"action_bins": 0, "max_episode_steps": 40}, 100),
    slow("gymnasium:MountainCarContinuous-v0", {"action_repeat": 4}, 300),
    slow("gymnasium:LunarLanderContinuous-v3", {}, 250),
    slow("gymnasium:HalfCheetah-v5", {"max_episode_steps": 40}, 100),
    slow("gymnasium:Hopper-v5", {"action_bins": 3}, 150),
    slow("gymnasium:Walker2d-v5", {"action_repeat": 2}, 150),
    quick("dm_control:cartpole-swingup", {"max_episode_steps": 40}, 100),
    slow("dm_control:cartpole-swingup", {"action_bins": 0, "max_episode_steps": 40}, 100),
    slow("dm_control:finger-spin", {"max_episode_steps": 30, "action_repeat": 2}, 80),
    slow("dm_control:manipulator-bring_ball", {"max_episode_steps": 30}, 80),
    slow("dm_control:reacher-easy", {"action_bins": 5, "action_repeat": 40}, 80),
    slow("dm_control:walker-walk", {"max_episode_steps": 30}, 80),
    quick("gymnax:CartPole-v1", {}, 60),
    slow("gymnax:MountainCarContinuous-v0", {"action_bins": 3, "max_episode_steps": 30}, 60),
    slow("gymnax:Pendulum-v1", {"max_episode_steps": 30}, 60),
    slow("gymnax:Pendulum-v1", {"action_bins": 0, "max_episode_steps": 30}, 60),
    slow("pgx:minatar-breakout", {}, 60),
    quick("open_spiel:kuhn_poker", SEAT, 40),
    quick("open_spiel:simplest", SEAT, 30),
    slow("open_spiel:catch", {}, 40),
    slow("atari:Pong", {"max_episode_steps": 40}, 90),
    slow(
      "atari:Breakout",
      {
        "is_testing": True,
        "colour": True,
        "sticky_action_prob": 0.25,
        "minimal_actions": False,
        "max_episode_steps": 60,
      },
      90,
    ),
    quick(f"{FAKES}:make_counter", {}, 150),
    slow(f"{FAKES}:make_seeded", {"length": 7}, 150),
    slow(f"{FAKES}:make_walk", {}, 150),
    slow(f"{FAKES}:make_catch", {}, 150),
  ],
  indirect=True,
)
class TestOnePlayer(Named, EnvironmentContract):
  pass


@pytest.mark.parametrize("_choose", [quick("atari:Breakout", {"sticky_action_prob": 0.1}, 90)], indirect=True)
class TestLives(Named, LivesContract):
  pass


@pytest.mark.parametrize(
  "_choose",
  [
    quick("open_spiel:tic_tac_toe", {"seat": 1, "others": ["random", "mcts:3"]}, 30),
    slow("open_spiel:leduc_poker", SEAT, 150),
    slow("open_spiel:uno(players=4,hand=3)", SEAT, 150),
    slow("open_spiel:stratego", SEAT, 150),
    slow("open_spiel:2048", {"max_episode_steps": 30}, 40),
    slow("gymnasium:Taxi-v4", {}, 250),
  ],
  indirect=True,
)
class TestOnePlayerWithIllegalActions(Named, IllegalActionsContract):
  pass


@pytest.mark.parametrize("_choose", [slow("open_spiel:kuhn_poker", {}, 40)], indirect=True)
class TestTwoPlayers(Named, TwoPlayersContract):
  pass


@pytest.mark.parametrize(
  "_choose",
  [
    quick("open_spiel:tic_tac_toe", {}, 40),
    slow("open_spiel:connect_four", {}, 600),  # enough for random play to fill a column
    slow("open_spiel:liars_dice", {}, 40),
    slow("open_spiel:go(board_size=5)", {"max_episode_steps": 25}, 40),
    quick("pgx:tic_tac_toe", {}, 60),
  ],
  indirect=True,
)
class TestTwoPlayersWithIllegalActions(Named, TwoPlayersContract, IllegalActionsContract):
  pass

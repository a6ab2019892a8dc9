"""Tests that lanes without an episode idle: their environments are neither reset nor stepped."""

import numpy as np
import pytest

from moozi.agent.agent import Decision
from moozi.core.errors import EnvError
from moozi.core.spec import EnvSpec
from moozi.envs.game import Game, GameEnvironment
from moozi.envs.jax.adapters import JaxDmEnvironment
from moozi.evaluation import lanes as lanes_module
from moozi.evaluation.lanes import EvaluationLanes
from moozi.io.config import load_config
from moozi.vis.evaluation_gifs import write_videos
from tests.envs.jax.toys import make_nim
from tests.tiny_run import TINY

SPEC = EnvSpec(name="test:uneven", frame_shape=(1, 1, 1), frame_dtype="float32", num_env_actions=2)


class Uneven(Game):
  """Plays episodes of 2 to 5 steps, which depend on the seed; raises in game number `fails_in`."""

  def __init__(self, fails_in: int | None = None) -> None:
    self._fails_in, self._game, self.num_steps = fails_in, 0, 0

  def seed(self, seed: int) -> None:
    self._length = 2 + seed % 4

  def reset(self) -> None:
    self._count, self._game = 0, self._game + 1

  def step(self, action: int) -> tuple[float, bool, bool]:
    if self._game == self._fails_in:
      raise ArithmeticError("the game's own error")
    self._count, self.num_steps = self._count + 1, self.num_steps + 1
    return 1.0, self._count == self._length, False

  def frame(self) -> np.ndarray:
    return np.array([[[self._count]]], np.float32)


def make_lanes(make_env, num_episodes, spec=SPEC, record=False):
  config = load_config(None, [*TINY, "evaluation.num_envs=3", "evaluation.max_random_starts=0"])
  return EvaluationLanes(config, spec, make_env, num_episodes, record=record)


def play(num_episodes, fails_in=None):
  """Returns the result of the episodes, and their games."""
  games = []

  def make_env(seed):
    games.append(Uneven(fails_in))
    return GameEnvironment(games[-1], SPEC)

  lanes = make_lanes(make_env, num_episodes)
  lanes.reset()
  while not lanes.is_done:
    lanes.step(first_actions(lanes))
  return lanes.result(version=0, env_steps=0), games


@pytest.mark.parametrize("num_episodes", [1, 3, 7])
def test_only_steps_of_episodes_are_played(num_episodes):
  result, games = play(num_episodes)
  assert sum(game.num_steps for game in games) == result.lengths.sum() == result.returns.sum()


def first_actions(lanes):
  """Returns a decision for the first action in each of three lanes."""
  action = np.where(lanes.timestep.is_last, 0, 1)
  return Decision(action=action, action_probs=np.zeros((3, 3)), root_value=np.zeros(3), extras={})


def test_game_after_the_last_episode_cannot_fail_the_evaluation():
  result, _ = play(3, fails_in=2)
  assert len(set(result.lengths)) == 3  # the first lane to finish waits for the others
  with pytest.raises(EnvError, match="the game's own error"):
    play(4, fails_in=2)


def test_positions_of_a_lane_that_never_had_an_episode():
  env = make_nim()
  lanes = make_lanes(lambda seed: JaxDmEnvironment(env), 1, env.spec)
  lanes.reset()
  assert lanes.timestep.is_last.tolist() == [False, True, True]
  assert lanes.positions().shape == (3,)


class Drawn(Uneven):
  """Draws `pictures[k]` after k actions, or the last of them; raises it if it is an exception."""

  def __init__(self, pictures) -> None:
    super().__init__()
    self._pictures = pictures

  def render(self):
    picture = self._pictures[min(self._count, len(self._pictures) - 1)]
    if isinstance(picture, Exception):
      raise picture
    return picture


def recorded(*pictures):
  """Returns the result of three recorded episodes of an environment that draws these pictures."""
  lanes = make_lanes(lambda seed: GameEnvironment(Drawn(pictures), SPEC), 3, record=True)
  lanes.reset()
  while not lanes.is_done:
    lanes.step(first_actions(lanes))
  return lanes.result(version=0, env_steps=0)


def test_pictures_of_different_sizes_and_forms(tmp_path):
  result = recorded(np.zeros((4, 6)), np.full((6, 4, 3), 9, np.int64), np.ones((700, 1, 4)))
  assert result.picture_fault == ""
  assert result.episode.pictures.shape == (len(result.episode.frames), 4, 6, 3)
  assert {tile.pictures.shape[1:] for tile in result.tiles} == {(4, 6, 3)}
  for path in write_videos(tmp_path / "a.gif", result, SPEC):
    assert path.stat().st_size > 0


@pytest.mark.parametrize("fault", [OSError("no display"), "a text", np.full((4, 6, 3), np.nan)])
def test_episode_is_played_whatever_is_drawn(fault, tmp_path):
  """A picture that fails after the first one: the frames are drawn instead."""
  result = recorded(np.zeros((4, 6, 3), np.uint8), fault)
  assert result.returns.tolist() == recorded(None).returns.tolist()
  assert result.picture_fault.startswith("env.name=test:uneven: its picture cannot be drawn: ")
  assert result.episode.pictures is None
  assert {tile.pictures for tile in result.tiles} == {None}
  assert len(write_videos(tmp_path / "a.gif", result, SPEC)) == 2


def test_memory_of_a_recorded_episode_is_bounded(monkeypatch):
  large = np.zeros((540, 961, 3), np.uint8)
  assert recorded(large).episode.pictures.shape[1:] == (179, 320, 3)
  monkeypatch.setattr(lanes_module, "_MAX_RECORD_BYTES", 2 * (179 * 320 * 3 + 4))
  assert len(recorded(large).episode.frames) == 2

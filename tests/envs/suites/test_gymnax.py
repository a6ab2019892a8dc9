"""The bridge to gymnax: each environment keeps the contract, and time limits truncate."""

import importlib.metadata
import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.envs import registry
from moozi.envs.jax.environment import JaxVectorEnvironment
from moozi.envs.suites import gymnax as gymnax_suite
from tests.envs.contract import EnvironmentContract, check_vector, random_agent_actions
from tests.envs.environments import import_gymnax

gymnax = import_gymnax()

GAMES = sorted(gymnax_suite.GAMES)


class TestBreakout(EnvironmentContract):
  num_steps = 60

  def make(self):
    return registry.make("gymnax:Breakout-MinAtar", seed=0)


class TestCartPole(EnvironmentContract):
  num_steps = 60

  def make(self):
    return registry.make("gymnax:CartPole-v1", seed=0)


@pytest.mark.slow
class TestEveryGame(EnvironmentContract):
  num_steps = 60

  @pytest.fixture(autouse=True, params=GAMES)
  def _take_game(self, request):
    self.game = request.param

  def make(self):
    return registry.make(f"gymnax:{self.game}", seed=0, max_episode_steps=50)


def test_what_is_offered_and_what_is_not_is_all_there_is():
  assert set(gymnax.registered_envs) == set(gymnax_suite.GAMES) | set(gymnax_suite.REFUSED)
  assert not set(gymnax_suite.GAMES) & set(gymnax_suite.REFUSED)


@pytest.mark.parametrize(
  ("game", "channels", "actions"),
  [
    ("Asterix", 4, ("noop", "left", "up", "right", "down")),
    ("Breakout", 4, ("noop", "left", "right")),
    ("Freeway", 7, ("noop", "up", "down")),
    ("Seaquest", 10, ("noop", "left", "up", "right", "down", "fire")),
    ("SpaceInvaders", 6, ("noop", "left", "right", "fire")),
  ],
)
def test_minatar_has_the_packages_frames_and_actions(game, channels, actions):
  game = f"{game}-MinAtar"
  spec = registry.env_spec(f"gymnax:{game}")
  assert spec.frame_shape == (10, 10, channels)
  assert spec.frame_dtype == "bool"
  assert spec.action_names == actions
  full = registry.env_spec(f"gymnax:{game}", minimal_actions=False)
  assert full.action_names == ("noop", "left", "up", "right", "down", "fire")


def frames_of_random_play(world, num_steps=80):
  """[T, B, H, W, C], of all frames that an environment shows, ends among them."""
  env, random = JaxVectorEnvironment(world, list(range(8))), np.random.default_rng(0)
  steps = [env.reset()]
  for _ in range(num_steps):
    steps.append(env.step(random_agent_actions(steps[-1], random)))
  return np.stack([step.frame for step in steps])


@pytest.mark.parametrize("game", [game for game in GAMES if not game.endswith("-MinAtar")])
def test_frames_are_kept_as_bits_just_where_they_hold_0_and_1(game, monkeypatch):
  """Against the same play with frames as gymnax has them."""
  kept = registry.make_jax_env(f"gymnax:{game}")
  monkeypatch.setattr(gymnax_suite, "_BINARY", frozenset())
  shown = gymnax_suite.make_env(game, gymnax_suite.Options())
  frames = frames_of_random_play(shown)
  assert frames.dtype == np.float32
  assert kept.spec.frame_dtype == ("bool" if np.isin(frames, (0, 1)).all() else "float32")
  if kept.spec.frame_dtype == "bool":
    np.testing.assert_array_equal(np.float32(frames_of_random_play(kept)), frames)


@pytest.mark.parametrize("game", GAMES)
def test_every_game_keeps_its_kinds_of_numbers(game):
  """Traced, not compiled: a part of the game that changes its kind is refused then."""
  world = registry.make_jax_env(f"gymnax:{game}")
  jax.eval_shape(lambda key: world.step(world.reset(key), jnp.int32(1)), jax.random.PRNGKey(0))


def test_vectors_and_boards_are_frames():
  assert registry.env_spec("gymnax:CartPole-v1").frame_shape == (1, 1, 4)
  assert registry.env_spec("gymnax:Catch-bsuite").frame_shape == (10, 5, 1)


@pytest.mark.parametrize(("max_episode_steps", "length"), [(None, 200), (7, 7), (230, 230)])
def test_gymnaxs_own_limit_truncates_and_gives_way_to_ours(max_episode_steps, length):
  """Mountain Car, whose car never gets up the hill without a push: its episodes end by the clock alone."""
  kwargs = {} if max_episode_steps is None else {"max_episode_steps": max_episode_steps}
  env = JaxVectorEnvironment(registry.make_jax_env("gymnax:MountainCar-v0", **kwargs), [0, 1])
  env.reset()
  stay = np.array([2, 2])
  for _ in range(length - 1):
    assert not env.step(stay).is_last.any()
  step = env.step(stay)
  assert step.is_truncated.all()
  assert (step.last_discount == 1.0).all()
  assert step.legal_actions_mask[:, 1:].all()
  assert env.step(stay).is_first.all()


@pytest.mark.parametrize(("game", "limit"), [("Breakout", 1000), ("Freeway", 2500), ("Asterix", 1000)])
def test_gymnaxs_limits_for_minatar(game, limit):
  assert registry.make_jax_env(f"gymnax:{game}-MinAtar").max_episode_steps == limit


def test_ends_of_the_task_are_terminal():
  steps = check_vector(JaxVectorEnvironment(registry.make_jax_env("gymnax:CartPole-v1"), [0, 1]), 80)
  ends = [bool(t) for s in steps for t in s.is_truncated[s.is_last]]
  assert len(ends) > 2
  assert not any(ends)


def test_equal_options_give_one_env():
  make = registry.make_jax_env
  assert make("gymnax:CartPole-v1") is make("gymnax:CartPole-v1", max_episode_steps=None)
  assert make("gymnax:CartPole-v1") is not make("gymnax:CartPole-v1", max_episode_steps=9)


@pytest.mark.parametrize(
  ("game", "part"),
  [("Pendulum-v1", "continuous"), ("MNISTBandit-bsuite", "downloads"), ("SimpleBandit-bsuite", "bandit")],
)
def test_what_cannot_be_played_is_refused(game, part):
  with pytest.raises(UserError, match=rf"env\.name=gymnax:{game}: .*{part}"):
    registry.make(f"gymnax:{game}", seed=0)


def test_an_unknown_game_is_told_the_nearest():
  with pytest.raises(UserError, match=r"unknown game 'breakout-minatar'.*nearest is gymnax:Breakout-MinAtar"):
    registry.make("gymnax:breakout-minatar", seed=0)


def test_a_missing_package_is_the_users_to_install(monkeypatch):
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  with pytest.raises(UserError, match=r"env\.name=gymnax:Pong-misc: the package gymnax is not installed"):
    registry.make("gymnax:Pong-misc", 0, max_episode_steps=3)


def test_an_old_version_is_the_users_to_replace(monkeypatch):
  monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.0.9")
  with pytest.raises(
    UserError, match=r"env\.name=gymnax:Pong-misc: gymnax 0\.0\.9 is too old; .*gymnax>=1\.0"
  ):
    registry.make("gymnax:Pong-misc", 0, max_episode_steps=3)

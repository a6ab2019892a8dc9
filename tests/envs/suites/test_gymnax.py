"""Tests of gymnax environments: the contract, frame dtypes and time limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.envs import registry
from moozi.envs.jax.adapters import JaxVectorEnvironment
from moozi.envs.suites import gymnax as gymnax_suite
from tests.envs.contract import EnvironmentContract, check_vector, random_agent_actions
from tests.envs.environments import need

need("gymnax")

GAMES = sorted(gymnax_suite.GAMES)


@pytest.mark.slow
class TestEveryGame(EnvironmentContract):
  num_steps = 60

  @pytest.fixture(autouse=True, params=GAMES)
  def _set_game(self, request):
    self.game = request.param

  def make(self):
    return registry.make(f"gymnax:{self.game}", seed=0, max_episode_steps=50)


def test_every_game_is_offered_or_refused():
  import gymnax

  assert set(gymnax.registered_envs) == set(gymnax_suite.GAMES) | set(gymnax_suite.REFUSED)
  assert not set(gymnax_suite.GAMES) & set(gymnax_suite.REFUSED)


def frames_of_random_play(jax_env, num_steps=80):
  """Plays eight environments at random; returns all frames, including last ones, [T, B, H, W, C]."""
  env, random = JaxVectorEnvironment(jax_env, list(range(8))), np.random.default_rng(0)
  steps = [env.reset()]
  for _ in range(num_steps):
    steps.append(env.step(random_agent_actions(steps[-1], random)))
  return np.stack([step.frame for step in steps])


@pytest.mark.slow
@pytest.mark.parametrize("game", [game for game in GAMES if not game.endswith("-MinAtar")])
def test_frames_are_bool_where_they_contain_only_0_and_1(game, monkeypatch):
  """The list of games with bool frames agrees with the float frames that gymnax returns."""
  kept = registry.make_jax_env(f"gymnax:{game}")
  monkeypatch.setattr(gymnax_suite, "_BINARY", frozenset())
  frames = frames_of_random_play(gymnax_suite.make_env(game, gymnax_suite.SUITE.options(game)()))
  assert frames.dtype == np.float32
  assert kept.spec.frame_dtype == ("bool" if np.isin(frames, (0, 1)).all() else "float32")
  if kept.spec.frame_dtype == "bool":
    np.testing.assert_array_equal(np.float32(frames_of_random_play(kept)), frames)


@pytest.mark.parametrize(
  "game", [g if g == "Catch-bsuite" else pytest.param(g, marks=pytest.mark.slow) for g in GAMES]
)
def test_game_keeps_its_dtypes(game):
  """Tracing a step raises if it turns, for example, an integer of the state into a float."""
  env = registry.make_jax_env(f"gymnax:{game}")
  jax.eval_shape(lambda key: env.step(env.reset(key), jnp.int32(1)), jax.random.PRNGKey(0))


def test_frame_shapes():
  assert registry.env_spec("gymnax:CartPole-v1").frame_shape == (1, 1, 4)
  assert registry.env_spec("gymnax:Catch-bsuite").frame_shape == (10, 5, 1)


@pytest.mark.parametrize(
  ("max_episode_steps", "length"),
  [pytest.param(None, 200, marks=pytest.mark.slow), (7, 7), pytest.param(230, 230, marks=pytest.mark.slow)],
)
def test_limit_truncates(max_episode_steps, length):
  """The car of Mountain Car never reaches the goal, so only the time limit ends episodes."""
  kwargs = {} if max_episode_steps is None else {"max_episode_steps": max_episode_steps}
  env = JaxVectorEnvironment(registry.make_jax_env("gymnax:MountainCar-v0", **kwargs), [0, 1])
  env.reset()
  stay = np.array([2, 2])
  for _ in range(length - 1):
    assert not env.step(stay).is_last.any()
  step = env.step(stay)
  assert step.is_truncated.all()
  assert step.legal_actions_mask[:, 1:].all()
  assert env.step(stay).is_first.all()


@pytest.mark.parametrize(("game", "limit"), [("Breakout", 1000), ("Freeway", 2500), ("Asterix", 1000)])
def test_limits_of_minatar(game, limit):
  assert registry.make_jax_env(f"gymnax:{game}-MinAtar").max_episode_steps == limit


def test_ends_of_the_task_are_terminal():
  steps = check_vector(lambda: JaxVectorEnvironment(registry.make_jax_env("gymnax:CartPole-v1"), [0, 1]), 80)
  ends = [bool(t) for s in steps for t in s.is_truncated[s.is_last]]
  assert len(ends) > 2
  assert not any(ends)


def test_equal_options_give_one_object():
  make = registry.make_jax_env
  assert make("gymnax:CartPole-v1") is make("gymnax:CartPole-v1", max_episode_steps=None)
  assert make("gymnax:CartPole-v1") is not make("gymnax:CartPole-v1", max_episode_steps=9)

"""Tests that MinAtar equals the package minatar, except for the documented departures."""

import subprocess
import sys

import numpy as np
import pytest

from moozi.envs import registry
from moozi.envs.suites import minatar
from tests.envs.contract import play
from tests.envs.suites.minatar_states import GYMNAX_NAMES, PGX_NAMES

GAMES = sorted(minatar.GAMES)
VERSIONS = {"gymnax": GYMNAX_NAMES, "pgx": PGX_NAMES}
FULL = ("noop", "left", "up", "right", "down", "fire")


@pytest.mark.parametrize("library", ["minatar", *(pytest.param(x, marks=pytest.mark.slow) for x in VERSIONS)])
@pytest.mark.parametrize(
  ("game", "channels", "actions"),
  [
    ("asterix", 4, ("noop", "left", "up", "right", "down")),
    ("breakout", 4, ("noop", "left", "right")),
    ("freeway", 7, ("noop", "up", "down")),
    ("seaquest", 10, FULL),
    ("space_invaders", 6, ("noop", "left", "right", "fire")),
  ],
)
def test_specs(library, game, channels, actions):
  name = VERSIONS[library][game] if library in VERSIONS else f"minatar:{game}"
  spec = registry.env_spec(name)
  assert spec.frame_shape == (10, 10, channels)
  assert spec.frame_dtype == "bool"
  assert spec.action_names == actions
  assert registry.env_spec(name, minimal_actions=False).action_names == FULL


def package_environment(game, seed, sticky_action_prob, difficulty_ramping):
  """Returns the package's own environment with the same random generator as MooZi's."""
  package = pytest.importorskip("minatar.environment")
  env = package.Environment(game, sticky_action_prob, difficulty_ramping)
  env.random = np.random.RandomState(np.random.MT19937(np.random.SeedSequence(seed)))
  env.env.random = env.random
  env.reset()
  return env


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize(
  ("sticky_action_prob", "difficulty_ramping", "minimal_actions"),
  [
    (0.1, True, True),
    (0.3, False, False),
    pytest.param(0.0, True, False, marks=pytest.mark.slow),
    pytest.param(0.3, False, True, marks=pytest.mark.slow),
  ],
)
def test_equals_the_package(game, sticky_action_prob, difficulty_ramping, minimal_actions):
  env = registry.make(
    f"minatar:{game}",
    seed=7,
    sticky_action_prob=sticky_action_prob,
    difficulty_ramping=difficulty_ramping,
    minimal_actions=minimal_actions,
  )
  other = package_environment(game, 7, sticky_action_prob, difficulty_ramping)
  package_actions = other.minimal_action_set() if minimal_actions else range(6)
  random = np.random.default_rng(0)
  step = env.reset()
  num_episodes = 0
  for _ in range(400):
    np.testing.assert_array_equal(step.observation.frame, other.state())
    if step.last():
      num_episodes += 1
      other.reset()
      other.last_action = 0
      step = env.step(0)
      continue
    action = int(random.integers(env.env_spec.num_env_actions))
    reward, is_over = other.act(package_actions[action])
    step = env.step(action)
    assert (step.reward, step.last()) == (reward, is_over)
  assert num_episodes > 0 or game in ("freeway", "seaquest")


@pytest.mark.parametrize("game", ["asterix", "seaquest", "space_invaders"])
def test_difficulty_ramping(game):
  def ramp(difficulty_ramping):
    env = registry.make(f"minatar:{game}", seed=0, difficulty_ramping=difficulty_ramping)
    env.reset()
    game_rules, random = env._game._rules, np.random.default_rng(0)
    for _ in range(1500):
      env._game.step(int(random.integers(env.env_spec.num_env_actions)))
      game_rules.terminal = False  # the player survives, until the difficulty increases
      game_rules.oxygen, game_rules.diver_count = 100, 1
    return game_rules.difficulty_ramp()

  assert ramp(True) > 0
  assert ramp(False) == 0


def test_sticky_actions_repeat_the_last_one():
  env = registry.make("minatar:breakout", seed=0, sticky_action_prob=1.0)
  step = env.reset()
  while not step.last():  # every action repeats the initial no-op, so the paddle does not move
    step = env.step(1)
    assert step.observation.frame[9, 4, 0]


@pytest.mark.parametrize("sticky_action_prob", [0.0, 0.25])
def test_sticky_actions_are_as_frequent_as_configured(sticky_action_prob):
  env = registry.make("minatar:seaquest", seed=0, sticky_action_prob=sticky_action_prob)
  rules, seen = env._game._rules, []
  act = rules.act
  rules.act = lambda action: (seen.append(action), act(action))[1]
  random, requested, step = np.random.default_rng(0), [], env.reset()
  while len(requested) < 4000:
    if step.last():
      step = env.reset()
    requested.append(int(random.integers(6)))
    step = env.step(requested[-1])
  # A sticky action differs from the requested one with probability 5/6.
  rate = np.mean(np.array(requested) != np.array(seen)) * 6 / 5
  assert rate == pytest.approx(sticky_action_prob, abs=0.03)


def test_reset_clears_the_sticky_action():
  env = registry.make("minatar:breakout", seed=0, sticky_action_prob=0.9)
  env.reset()
  env._game._last_action = 1
  env.seed(3)
  first = play(env, 8)
  env.seed(3)
  env._game._last_action = 3
  for a, b in zip(first, play(env, 8), strict=True):
    np.testing.assert_array_equal(a.observation.frame, b.observation.frame)


def test_freeway_is_truncated_by_its_clock():
  env = registry.make("minatar:freeway", seed=5, sticky_action_prob=0.0)
  other = package_environment("freeway", 5, 0.0, True)
  step, num_steps, total = env.reset(), 0, 0.0
  while not step.last():
    step = env.step(1)
    reward, is_over = other.act(2)
    num_steps, total = num_steps + 1, total + step.reward
    assert step.reward == reward
  assert is_over
  assert num_steps == 2501
  assert step.discount == 1.0
  np.testing.assert_array_equal(step.observation.frame, other.state())
  assert step.observation.legal_actions_mask.all()
  assert total > 5
  assert env.step(0).first()


@pytest.mark.parametrize("game", ["asterix", "breakout", "seaquest", "space_invaders"])
def test_other_games_are_terminal(game):
  env = registry.make(f"minatar:{game}", seed=0)
  steps = play(env, 2000)
  assert {s.discount for s in steps if s.last()} == {0.0}


@pytest.mark.parametrize("game", GAMES)
def test_step_cap_truncates(game):
  env = registry.make(f"minatar:{game}", seed=0, max_episode_steps=5)
  step = env.reset()
  for _i in range(5):
    assert not step.last()
    step = env.step(0)
  assert step.last()
  assert step.discount == 1.0


def test_imports_no_plotting_libraries():
  code = (
    "import sys; from moozi.envs import registry; registry.make('minatar:breakout', 0).reset();"
    "print([m for m in ('matplotlib', 'seaborn', 'jax', 'minatar') if m in sys.modules])"
  )
  out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
  assert out.stdout.strip() == "[]"

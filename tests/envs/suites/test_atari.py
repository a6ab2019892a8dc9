"""Tests of Atari games, also against Gymnasium's preprocessing."""

import collections
import importlib.util
import itertools

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.core.pytree import fields_of
from moozi.envs import registry
from moozi.envs.suites.atari import game as atari
from moozi.envs.suites.atari import suite
from moozi.envs.suites.atari.frames import AreaResize
from moozi.envs.suites.atari.rom import AtariOptions, list_games, load_emulator, load_facts
from moozi.envs.vector import make_vector
from tests.envs.contract import (
  assert_same,
  play,
  random_agent_actions,
  random_legal,
)

pytest.importorskip("ale_py")


# --- against Gymnasium ----------------------------------------------------------------------------------


class FixedNoops:
  """Replaces Gymnasium's random generator, so that it always draws `number` no-ops."""

  def __init__(self, number):
    self.number = number

  def integers(self, low, high):
    assert low <= self.number < high
    return self.number


def num_noops(env):
  """Returns the number of frames that the game has played; after a reset, these are the no-ops."""
  return env._game._ale.getEpisodeFrameNumber()


def gymnasium_environment(game, options, noops):
  """Returns Gymnasium's AtariPreprocessing with a fixed number of no-ops."""
  gymnasium = pytest.importorskip("gymnasium")
  pytest.importorskip("cv2")
  env = gymnasium.make(
    f"ALE/{game}-v5",
    frameskip=1,
    repeat_action_probability=0.0,
    full_action_space=not options.minimal_actions,
    disable_env_checker=True,
    max_num_frames_per_episode=None,
  )
  env = gymnasium.wrappers.AtariPreprocessing(
    env,
    noop_max=options.max_noops,
    frame_skip=options.frame_skip,
    screen_size=options.frame_size or (96 if options.colour else 84),
    grayscale_obs=not options.colour,
    grayscale_newaxis=not options.colour,
  )
  env.unwrapped.ale.setInt("random_seed", 0)
  env.unwrapped.load_game()
  env.unwrapped._np_random = FixedNoops(noops)
  return env


@pytest.mark.parametrize(
  ("game", "is_testing", "kwargs"),
  [
    pytest.param("Breakout", False, {}, marks=pytest.mark.slow),
    pytest.param("SpaceInvaders", False, {"colour": True, "minimal_actions": False}, marks=pytest.mark.slow),
    pytest.param("Breakout", True, {}, marks=pytest.mark.slow),
    pytest.param("Pong", True, {}, marks=pytest.mark.slow),
    pytest.param("Assault", True, {"frame_skip": 3, "frame_size": 64}, marks=pytest.mark.slow),
    ("Assault", True, {"frame_skip": 1, "max_noops": 5, "max_episode_steps": 400}),
    # Its screen has 250 lines.
    pytest.param("AirRaid", True, {"max_episode_steps": 100}, marks=pytest.mark.slow),
  ],
)
def test_game_equals_gymnasiums(game, is_testing, kwargs):
  env = registry.make(f"atari:{game}", seed=5, is_testing=is_testing, **kwargs)
  step = env.reset()
  noops = num_noops(env) - num_start_frames(game)
  assert 1 <= noops <= kwargs.get("max_noops", 30)
  other = gymnasium_environment(game, AtariOptions(**kwargs), noops)
  random, (frame, _) = np.random.default_rng(0), other.reset()
  num_lives = 1
  for _ in range(20_000):
    np.testing.assert_array_equal(step.observation.frame, frame)
    if step.last():
      # Here the next episode starts; in training, Gymnasium plays a no-op after a lost life.
      step = env.step(0)
      if not step.observation.is_continued:
        break
      num_lives += 1
      frame, _, _, _, _ = other.step(0)
      continue
    action = random_legal(step, random)
    step = env.step(action)
    frame, reward, is_over, _, _ = other.step(action)
    assert step.reward == reward
    assert (step.discount == 0.0 and step.last()) >= is_over
    if is_testing:
      assert (step.discount == 0.0) == is_over
  else:
    raise AssertionError("the game did not end")
  if game in ("Breakout", "SpaceInvaders") and not is_testing:
    assert num_lives == (5 if game == "Breakout" else 3)
  other.close()


def num_start_frames(game):
  """Returns the number of frames that ALE has already counted after a reset."""
  ale = load_emulator(load_facts(game).rom)
  ale.reset_game()
  return ale.getEpisodeFrameNumber()


# --- no-ops, sticky actions, seeds ----------------------------------------------------------------------


@pytest.mark.slow
def test_noops_are_uniform_from_1_and_follow_from_the_seed():
  env = registry.make("atari:Pong", seed=0, max_noops=3)

  def draw(number):
    counts = []
    for _ in range(number):
      env.reset()
      counts.append(num_noops(env))
    return counts

  counts = draw(90)
  # Of 90 uniform draws, 30 of each are expected, with a standard deviation of 4.5.
  assert sorted(collections.Counter(counts)) == [1, 2, 3]
  assert min(collections.Counter(counts).values()) > 12
  env.seed(0)
  assert draw(8) == counts[:8]
  by_seed = []
  for seed in range(8):
    env.seed(seed)
    by_seed += draw(1)
  assert len(set(by_seed)) > 1


def test_no_noops():
  env = registry.make("atari:Pong", seed=0, max_noops=0)
  for _ in range(3):
    env.reset()
    assert num_noops(env) == 0


@pytest.mark.parametrize("probability", [0.0, 0.25])
def test_sticky_actions_are_as_frequent_as_configured(probability):
  env = registry.make("atari:Breakout", seed=0, sticky_action_prob=probability)
  env.reset()
  game, played = env._game, []

  class Recorder:
    def act(self, action):
      played.append(action)
      return 0.0

  game._ale = Recorder()
  for i in range(8000):
    game._act(i)  # all requested actions differ, so two equal ones are a sticky action
  num_sticky = sum(a == b for a, b in itertools.pairwise(played))
  # With probability 0.25, 2000 sticky actions are expected; 200 is five standard deviations.
  assert abs(num_sticky - 8000 * probability) < 200


def test_emulator_is_made_at_the_first_reset(monkeypatch):
  registry.env_spec("atari:Pong")  # needs an emulator of its own, so it is cached first
  loaded = []
  monkeypatch.setattr(atari, "load_emulator", lambda rom: loaded.append(rom) or load_emulator(rom))
  env = registry.make("atari:Pong", seed=0)
  env.seed(4)
  assert env.env_spec.num_env_actions == 6
  assert loaded == []
  env.reset()
  env.reset()
  assert loaded == ["pong"]


@pytest.mark.slow
def test_games_resume_to_the_bit():
  """The restored environments replay the current games: no-ops, sticky actions and lost lives."""
  kwargs = {"sticky_action_prob": 0.25, "frame_size": 42}

  def make():
    return make_vector("atari:Breakout", kwargs, 2, seed=7)

  vector, random = make(), np.random.default_rng(0)
  steps = [vector.reset()]
  for _ in range(120):
    steps.append(vector.step(random_agent_actions(steps[-1], random)))
  assert any(step.is_last.any() for step in steps)
  other = make()
  shown, is_new = other.set_state(vector.get_state(), steps[-1])
  assert not is_new.any()
  for _ in range(40):
    actions = random_agent_actions(shown, random)
    shown, expected = other.step(actions), vector.step(actions)
    for name, value in fields_of(expected).items():
      np.testing.assert_array_equal(value, getattr(shown, name), err_msg=name)


# --- lives, firing, the cap -----------------------------------------------------------------------------


def games_of(env, num_games):
  """Plays complete games at random; returns for each game a list of its episodes."""
  random = np.random.default_rng(1)
  games, step = [], env.reset()
  while True:
    if step.first():
      if not step.observation.is_continued:
        if len(games) == num_games:
          return games
        games.append([])
      games[-1].append([])
    games[-1][-1].append(step)
    step = env.step(random_legal(step, random))


def test_lost_lives_end_training_episodes_only():
  (training,) = games_of(registry.make("atari:Breakout", seed=0), 1)
  assert len(training) == 5
  assert all(episode[-1].discount == 0.0 for episode in training)
  ((testing,),) = games_of(registry.make("atari:Breakout", seed=0, is_testing=True), 1)
  ((whole,),) = games_of(registry.make("atari:Breakout", seed=0, episodic_life=False), 1)
  assert_same(whole, testing)


def test_noop_step_continues_after_a_lost_life():
  env = registry.make("atari:Breakout", seed=0)
  random, step = np.random.default_rng(0), env.reset()
  while not step.last():
    step = env.step(random_legal(step, random))
  ale = env._game._ale
  assert ale.lives() == 4
  before = ale.getEpisodeFrameNumber()
  assert env.step(3).observation.is_continued
  assert ale.getEpisodeFrameNumber() == before + 4
  assert ale.lives() == 4


class Reference:
  """Plays Breakout directly on ALE; repeats each action for four frames."""

  def __init__(self, noops):
    self.ale = load_emulator("breakout")
    self.ale.reset_game()
    for _ in range(noops):
      self.ale.act(0)
    self.resize = AreaResize(210, 160, 84)

  def play(self, *actions):
    for action in actions:
      screens = []
      for _ in range(4):
        self.ale.act(action)
        screens.append(self.ale.getScreenGrayscale()[..., None])
    return self.resize(np.maximum(screens[-2], screens[-1]))


FIRE, RIGHT = 1, 3  # ALE's action numbers; in Breakout these are actions 1 and 2


@pytest.mark.parametrize("is_testing", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_fire_on_reset(is_testing):
  env = registry.make("atari:Breakout", seed=5, is_testing=is_testing, fire_on_reset=True)
  step = env.reset()
  reference = Reference(num_noops(env) - 8)  # the frames played, minus eight for FIRE and RIGHT
  frame = reference.play(FIRE, RIGHT)
  num_steps, num_resets = 0, 1
  while not reference.ale.game_over():
    np.testing.assert_array_equal(step.observation.frame, frame)
    assert num_steps < 1000
    num_steps += 1
    if step.last():
      step, frame = env.step(0), reference.play(0, FIRE, RIGHT)
      assert step.observation.is_continued
      num_resets += 1
    else:
      lives = reference.ale.lives()
      step, frame = env.step(0), reference.play(0)
      if is_testing and 0 < reference.ale.lives() < lives:
        frame = reference.play(FIRE, RIGHT)
  assert step.last()
  assert num_resets == (1 if is_testing else 5)


def test_opening_actions():
  for game, opening in (("Breakout", (1, 3)), ("Freeway", ()), ("Pong", (1, 3))):
    facts = load_facts(game)
    assert facts.opening(AtariOptions(fire_on_reset=True)) == opening
    assert facts.opening(AtariOptions()) == ()
  # FIRE exists in Freeway only with all actions.
  assert load_facts("Freeway").opening(AtariOptions(fire_on_reset=True, minimal_actions=False)) == (1, 2)


@pytest.mark.slow
def test_cap_counts_the_opening_of_a_life_but_not_of_a_game():
  def play_noops(cap):
    env = registry.make("atari:Breakout", seed=5, fire_on_reset=True, max_episode_steps=cap)
    step, count = env.reset(), 0
    while not step.last():
      step, count = env.step(0), count + 1
    return env, step, count

  _, _, lost_at = play_noops(None)
  env, step, count = play_noops(lost_at - 1)
  assert (count, step.discount) == (lost_at - 1, 1.0)
  for left in range(5):
    env, step, count = play_noops(lost_at + left)
    assert (count, step.discount) == (lost_at, 0.0)
    # Continuing a game takes three steps: a no-op, FIRE and the action after it. With at most three steps
    # left before the cap, a new game starts instead.
    step = env.step(0)
    assert step.observation.is_continued == (left == 4)
    assert env._game._num_steps == (lost_at + 3 if left == 4 else 0)
  step = env.step(0)
  assert step.last()
  assert step.discount == 1.0


@pytest.mark.slow
def test_cap_counts_the_opening_within_a_game():
  def play_noops(cap):
    env = registry.make(
      "atari:Breakout", seed=5, fire_on_reset=True, episodic_life=False, max_episode_steps=cap
    )
    step, lives = env.reset(), 5
    while not step.last() and lives == 5:
      step = env.step(0)
      lives = env._game._ale.lives()
    return step, env._game._num_steps

  _, steps = play_noops(None)  # the step that loses the first life, FIRE and RIGHT
  for cap in (steps - 2, steps - 1, steps):
    step, num_steps = play_noops(cap)
    assert (step.last(), step.discount, num_steps) == (True, 1.0, cap)
  step, num_steps = play_noops(steps + 1)
  assert (step.last(), num_steps) == (False, steps)


def test_cap_counts_all_lives_of_a_game():
  env = registry.make("atari:Breakout", seed=0, max_episode_steps=100)
  for game in games_of(env, 3):
    num_steps = sum(len(episode) for episode in game) - 1
    assert game[-1][-1].discount == 1.0
    assert num_steps == 100
    assert len(game) > 1


def test_life_lost_on_the_step_of_the_cap_is_terminal():
  (episode, *_) = games_of(registry.make("atari:Breakout", seed=0), 1)[0]
  cap = len(episode) - 1
  env, random = registry.make("atari:Breakout", seed=0, max_episode_steps=cap), np.random.default_rng(1)
  step = env.reset()
  while not step.last():
    step = env.step(random_legal(step, random))
  assert env._game._num_steps == cap
  assert env._game._ale.lives() == 4
  assert step.discount == 0.0
  assert not env.will_continue
  assert not env.reset().observation.is_continued
  assert env._game._ale.lives() == 5


# --- rewards, pictures, options -------------------------------------------------------------------------


@pytest.mark.parametrize(
  ("is_testing", "options", "expected"),
  [
    (False, {"clip_rewards": True}, {0.0, 1.0}),
    (True, {"clip_rewards": True}, {0.0, 21.0}),
    (False, {}, {0.0, 21.0}),
  ],
)
def test_rewards_are_clipped_in_training_only(is_testing, options, expected):
  env = registry.make("atari:Assault", seed=0, is_testing=is_testing, **options)
  assert {step.reward for step in play(env, 200)} - {None} == expected


def test_testing_changes_nothing_else():
  options = AtariOptions(clip_rewards=True, sticky_action_prob=0.25, frame_skip=2, max_noops=7)
  testing = suite.for_testing(options).model_dump()
  assert testing == options.model_dump() | {"episodic_life": False, "clip_rewards": False}


def test_render():
  env = registry.make("atari:Breakout", seed=0)
  env.reset()
  picture = env.render()
  assert picture.shape == (210, 160, 3)
  assert picture.dtype == np.uint8
  # The six rows of bricks have six colors.
  assert len({tuple(picture[y, 80]) for y in range(58, 94, 6)}) == 6


@pytest.mark.parametrize(
  ("kwargs", "shape", "num_actions"),
  [
    ({}, (84, 84, 1), 6),
    ({"colour": True}, (96, 96, 3), 6),
    ({"frame_size": 64, "minimal_actions": False}, (64, 64, 1), 18),
  ],
)
def test_specs(kwargs, shape, num_actions):
  spec = registry.env_spec("atari:Pong", **kwargs)
  assert (spec.frame_shape, spec.num_env_actions) == (shape, num_actions)
  assert spec.frame_dtype == "uint8"
  assert spec.action_names[:4] == (
    ("noop", "fire", "right", "left") if num_actions == 6 else ("noop", "fire", "up", "right")
  )


def test_games_are_gymnasiums():
  gymnasium = pytest.importorskip("gymnasium")
  importlib.import_module("ale_py")
  names = {name[4:-3] for name in gymnasium.registry if name.startswith("ALE/") and name.endswith("-v5")}
  assert set(list_games()) == names
  assert len(names) > 100


@pytest.mark.parametrize(
  ("key", "value"),
  [
    ("frame_size", 161),
    ("frame_size", 0),
    ("frame_skip", 0),
    ("max_noops", -1),
    ("sticky_action_prob", 1.5),
    ("colour", 1),
    ("num_threads", -1),
    ("max_episode_steps", 0),
  ],
)
def test_wrong_options(key, value):
  with pytest.raises(UserError, match=rf"env\.kwargs\.{key}={value}: "):
    registry.make("atari:Pong", seed=0, **{key: value})


@pytest.mark.slow
@pytest.mark.parametrize("game", sorted(list_games()))
def test_every_game_is_a_function_of_its_seed_and_actions(game):
  env = registry.make(f"atari:{game}", seed=0, max_episode_steps=60)
  first = play(env, 80)
  for num_steps in (37, 111):
    play(env, num_steps, seed=num_steps)
    env.seed(0)
    assert_same(play(env, 80), first)

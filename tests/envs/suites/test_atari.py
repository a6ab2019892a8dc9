"""The bridge to ALE: its conventions, and its frames against Gymnasium's own preprocessing."""

import collections
import importlib.util

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.envs import registry
from moozi.envs.suites.atari import environment as atari
from moozi.envs.suites.atari.chance import GameChance, GameSeeds
from moozi.envs.suites.atari.frames import AreaResize
from tests.envs.contract import EnvironmentContract, assert_same, play, random_legal

pytest.importorskip("ale_py")


class TestBreakout(EnvironmentContract):
  goes_on_after_a_life_lost = True

  def make(self):
    return registry.make("atari:Breakout", seed=0)


class TestPongCut(EnvironmentContract):
  num_steps = 90

  def make(self):
    return registry.make("atari:Pong", seed=0, max_episode_steps=40)


class TestColouredStickyFullActions(EnvironmentContract):
  num_steps = 90

  def make(self):
    return registry.make(
      "atari:Breakout",
      seed=0,
      is_testing=True,
      colour=True,
      sticky_action_prob=0.25,
      minimal_actions=False,
      max_episode_steps=60,
    )


class TestAssault(EnvironmentContract):
  """One of the games that remember what was played before a reset (`ALEInterface.reset_game`)."""

  num_steps = 90

  def make(self):
    return registry.make("atari:Assault", seed=0, max_episode_steps=30)


class TestAssaultWithoutReseeding(EnvironmentContract):
  num_steps = 60

  def make(self):
    return registry.make("atari:Assault", seed=0, max_episode_steps=40, reseed=False, max_noops=3)


# --- against Gymnasium --------------------------------------------------------------------------------


class NumberOfNoops:
  """Stands in for Gymnasium's generator: its no-ops shall be as many as ours."""

  def __init__(self, number):
    self.number = number

  def integers(self, low, high):
    assert low <= self.number < high
    return self.number


def gymnasium_environment(game, seed, options):
  """Gymnasium's AtariPreprocessing on the first game that an environment of ours plays with this seed."""
  gymnasium = pytest.importorskip("gymnasium")
  pytest.importorskip("cv2")
  env = gymnasium.make(
    f"ALE/{game}-v5",
    frameskip=1,
    repeat_action_probability=options.sticky_action_prob,
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
  game_seed = GameSeeds(seed, options.max_noops).draw()
  chance = GameChance(game_seed, options.max_noops, options.sticky_action_prob)
  env.unwrapped.ale.setInt("random_seed", game_seed)
  env.unwrapped.load_game()
  env.unwrapped._np_random = NumberOfNoops(chance.num_noops())
  return env


@pytest.mark.parametrize(
  ("game", "is_testing", "kwargs"),
  [
    ("Breakout", True, {}),
    ("Breakout", False, {}),
    ("Pong", True, {}),
    ("Breakout", False, {"sticky_action_prob": 0.25, "minimal_actions": False}),
    ("SpaceInvaders", False, {"colour": True, "sticky_action_prob": 0.25}),
    ("Assault", True, {"frame_skip": 3, "frame_size": 64}),
    ("Assault", True, {"frame_skip": 1, "max_noops": 5, "max_episode_steps": 400}),
    ("AirRaid", True, {"max_episode_steps": 100}),  # a screen of 250 lines
  ],
)
def test_frames_are_gymnasiums_pixel_for_pixel_over_a_game(game, is_testing, kwargs):
  other = gymnasium_environment(game, 5, atari.Options(**kwargs))
  env = registry.make(f"atari:{game}", seed=5, is_testing=is_testing, **kwargs)
  random = np.random.default_rng(0)
  step, (frame, _) = env.reset(), other.reset()
  num_lives = 1
  for _ in range(20_000):
    np.testing.assert_array_equal(step.observation.frame, frame)
    if step.last():
      # In training, a life lost: the game goes on, and theirs is told to do nothing meanwhile.
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


# --- the conventions ----------------------------------------------------------------------------------


def test_games_begin_with_1_to_30_noops_alike_often():
  seeds = GameSeeds(0, 30)
  counts = collections.Counter(GameChance(seeds.draw(), 30, 0.0).num_noops() for _ in range(3000))
  assert sorted(counts) == list(range(1, 31))
  # 100 each; the standard deviation is 10.
  assert all(60 < count < 140 for count in counts.values())
  assert GameChance(7, 0, 0.0).num_noops() == 0


def test_actions_stick_as_often_as_asked():
  chance = GameChance(3, 30, 0.25)
  # 20,000 frames: the standard deviation is 61.
  assert abs(sum(chance.sticks() for _ in range(20_000)) - 5000) < 250
  assert not any(GameChance(3, 30, 0.0).sticks() for _ in range(100))


def num_frames_of_start(env):
  env.reset()
  return env._game._ale.getEpisodeFrameNumber()


def test_each_training_episode_has_a_fresh_seed_and_a_test_episode_its_own():
  env = registry.make("atari:Pong", seed=0)
  training = [num_frames_of_start(env) for _ in range(12)]
  assert len(set(training)) > 5
  assert {1 <= n <= 30 for n in training} == {True}
  env.seed(0)
  assert [num_frames_of_start(env) for _ in range(12)] == training
  testing = []
  for seed in range(12):
    env.seed(seed)
    testing.append(num_frames_of_start(env))
  assert len(set(testing)) > 5


def test_no_noops_where_none_are_asked_for():
  env = registry.make("atari:Pong", seed=0, max_noops=0)
  assert [num_frames_of_start(env) for _ in range(3)] == [0, 0, 0]


def test_no_emulator_before_the_first_reset(monkeypatch):
  registry.env_spec("atari:Pong")  # read once in a process, from an emulator that is thrown away
  made = []
  load = atari.load_emulator
  monkeypatch.setattr(atari, "load_emulator", lambda rom: made.append(rom) or load(rom))
  env = registry.make("atari:Pong", seed=0)
  env.seed(4)
  assert env.env_spec.num_env_actions == 6
  assert made == []
  env.reset()
  env.reset()
  assert made == ["pong"]


def games_of(env, num_games):
  """Random play of whole games: for each, its episodes as lists of steps."""
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


def test_training_ends_episodes_where_a_life_is_lost_and_testing_does_not():
  training = games_of(registry.make("atari:Breakout", seed=0), 2)
  assert [len(game) for game in training] == [5, 5]
  for game in training:
    assert all(episode[-1].discount == 0.0 for episode in game)
  testing = games_of(registry.make("atari:Breakout", seed=0, is_testing=True), 2)
  assert [len(game) for game in testing] == [1, 1]
  whole = games_of(registry.make("atari:Breakout", seed=0, episodic_life=False), 1)
  assert_same(whole[0][0], testing[0][0])


def test_a_step_without_action_goes_on_after_a_life_lost():
  env = registry.make("atari:Breakout", seed=0)
  ale, random, step = None, np.random.default_rng(0), env.reset()
  while not step.last():
    step = env.step(random_legal(step, random))
  ale = env._game._ale
  assert ale.lives() == 4
  before = ale.getEpisodeFrameNumber()
  assert env.step(3).observation.is_continued
  assert ale.getEpisodeFrameNumber() == before + 4
  assert ale.lives() == 4


class ByHand:
  """Breakout's first game of a seed, played on the emulator itself: an action for four frames at a time."""

  def __init__(self, seed):
    self.ale = atari.load_emulator("breakout")
    self.ale.reset_game()
    for _ in range(GameChance(GameSeeds(seed, 30).draw(), 30, 0.0).num_noops()):
      self.ale.act(0)
    self.resize = AreaResize(210, 160, 84)

  def play(self, *actions):
    for action in actions:
      screens = []
      for _ in range(4):
        self.ale.act(action)
        screens.append(self.ale.getScreenGrayscale()[..., None])
    return self.resize(np.maximum(screens[-2], screens[-1]))


FIRE, RIGHT = 1, 3  # ALE's; Breakout's second and third action


@pytest.mark.parametrize("is_testing", [False, True])
def test_a_reset_fires_and_plays_the_action_after_it_in_each_life(is_testing):
  env, hand = registry.make("atari:Breakout", seed=5, is_testing=is_testing, fire_on_reset=True), ByHand(5)
  step, frame = env.reset(), hand.play(FIRE, RIGHT)
  num_steps, num_resets = 0, 1
  while not hand.ale.game_over():
    np.testing.assert_array_equal(step.observation.frame, frame)
    assert num_steps < 1000
    num_steps += 1
    if step.last():
      step, frame = env.step(0), hand.play(0, FIRE, RIGHT)
      assert step.observation.is_continued
      num_resets += 1
    elif is_testing and num_steps % 50 == 0:
      step, frame = env.step(1), hand.play(FIRE)  # nobody fires for it where lives are not episodes
    else:
      step, frame = env.step(0), hand.play(0)
  assert step.last()
  assert num_resets == (1 if is_testing else 5)


def test_firing_shows_the_ball_and_nothing_is_fired_where_nothing_can_be():
  frames = [
    registry.make("atari:Breakout", seed=5, fire_on_reset=f).reset().observation.frame for f in (False, True)
  ]
  assert (frames[0] != frames[1]).any()
  # Freeway has no fire among its actions.
  for game, opening in (("Breakout", (1, 3)), ("Freeway", ()), ("Pong", (1, 3))):
    facts = atari.load_facts(game)
    assert facts.opening(atari.Options(fire_on_reset=True)) == opening
    assert facts.opening(atari.Options()) == ()
  assert atari.load_facts("Freeway").opening(atari.Options(fire_on_reset=True, minimal_actions=False)) == (
    1,
    2,
  )


def test_firing_for_a_new_game_is_not_of_its_steps_and_for_a_new_life_is():
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
    # One step without action, two of firing: with three left or fewer there is no game to go on with.
    step = env.step(0)
    assert step.observation.is_continued == (left == 4)
    assert env._game._num_steps == (lost_at + 3 if left == 4 else 0)
  step = env.step(0)
  assert step.last()
  assert step.discount == 1.0


def test_the_step_cap_counts_a_game_with_all_its_lives():
  env = registry.make("atari:Breakout", seed=0, max_episode_steps=100)
  for game in games_of(env, 3):
    num_steps = sum(len(episode) for episode in game) - 1
    assert game[-1][-1].discount == 1.0
    assert num_steps == 100
    assert len(game) > 1


def test_a_life_lost_on_the_step_of_the_cap_is_an_end_and_a_new_game_follows():
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


@pytest.mark.parametrize("is_testing", [False, True])
def test_rewards_are_clipped_in_training_only(is_testing):
  env = registry.make("atari:Assault", seed=0, is_testing=is_testing, clip_rewards=True)
  rewards = {step.reward for step in play(env, 300)} - {None}
  assert rewards == ({0.0, 21.0} if is_testing else {0.0, 1.0})


def test_rewards_are_not_clipped_unless_asked():
  assert {step.reward for step in play(registry.make("atari:Assault", seed=0), 300)} >= {0.0, 21.0}


def test_testing_changes_nothing_else():
  options = atari.Options(clip_rewards=True, sticky_action_prob=0.25, frame_skip=2, max_noops=7)
  testing = atari.for_testing(options).model_dump()
  assert testing == options.model_dump() | {"episodic_life": False, "clip_rewards": False}


def test_render_is_the_screen_in_colour():
  env = registry.make("atari:Breakout", seed=0)
  env.reset()
  picture = env.render()
  assert picture.shape == (210, 160, 3)
  assert picture.dtype == np.uint8
  # The bricks: six rows of six colours.
  assert len({tuple(picture[y, 80]) for y in range(58, 94, 6)}) == 6


# --- names and options --------------------------------------------------------------------------------


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


def test_the_games_are_gymnasiums():
  gymnasium = pytest.importorskip("gymnasium")
  importlib.import_module("ale_py")
  theirs = {name[4:-3] for name in gymnasium.registry if name.startswith("ALE/") and name.endswith("-v5")}
  assert set(atari.list_games()) == theirs
  assert len(theirs) > 100


@pytest.mark.parametrize(
  ("name", "nearest"),
  [("atari:Brekout", "Breakout"), ("atari:pong", "Pong"), ("atari:", ""), ("atari:../x", "")],
)
def test_an_unknown_game_is_refused_with_the_nearest_name(name, nearest):
  with pytest.raises(UserError) as error:
    registry.make(name, seed=0)
  message = str(error.value)
  assert message.startswith(f"env.name={name}: unknown game")
  assert f"the nearest is atari:{nearest}" in message
  assert "\n" not in message


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


def test_a_missing_package_is_one_line(monkeypatch):
  find = importlib.util.find_spec
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ale_py" else find(name))
  with pytest.raises(UserError) as error:
    registry.make("atari:Pong", seed=0)
  assert str(error.value) == (
    'env.name=atari:…: the package ale-py is not installed; pip install "moozi[atari]" brings it (GPL)'
  )
  (world,) = registry.list_environments("atari")
  assert world.name == "atari:…"
  assert world.summary.startswith("the package ale-py is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("game", sorted(atari.list_games()))
def test_every_game_is_a_function_of_its_seed_and_actions(game):
  env = registry.make(f"atari:{game}", seed=0, max_episode_steps=60)
  first = play(env, 80)
  for num_steps in (37, 111):
    play(env, num_steps, seed=num_steps)
    env.seed(0)
    assert_same(play(env, 80), first)

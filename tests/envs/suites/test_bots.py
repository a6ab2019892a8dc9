"""Tests of OpenSpiel's searches in users' own games, and of the checks of games that searches copy."""

import copy
import functools

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.envs.bots import make_bot
from moozi.envs.game import Game, GameEnvironment
from moozi.envs.table import EnvironmentTable
from moozi.envs.wrappers import RandomStarts

pytest.importorskip("pyspiel")
pytestmark = pytest.mark.usefixtures("folder")
HERE = "tests.envs.suites.test_bots"


class Nim(Game):
  """Players take 1 to 3 of the stones in turn; who takes the last one wins `stake`."""

  max_moves = 10

  def __init__(self, stones=10, stake=1.0):
    self._all, self._stake = stones, stake

  def seed(self, seed):
    pass

  def reset(self):
    self._left, self._player = [self._all], 0

  def step(self, action):
    self._left[0] -= action + 1
    self._player = 1 - self._player
    return self._stake * (self._left[0] == 0), self._left[0] == 0, False

  def frame(self):
    return np.eye(1, 11, self._left[0], dtype=bool)[None]

  def legal_actions_mask(self):
    return np.arange(3) < self._left[0]

  def to_play(self):
    return self._player


class Endless(Nim):
  max_moves = None


class SharedCopy(Nim):
  """The copies share the list of stones."""

  def clone(self):
    return copy.copy(self)


class NoCopy(Nim):
  def clone(self):
    raise TypeError("cannot pickle\na lock")


class OwnBot(Nim):
  def make_bot(self, kind, simulations, seed):
    return kind, simulations, seed, self._left[0]


class RandomStart(Nim):
  def seed(self, seed):
    self._random = np.random.default_rng(seed)

  def reset(self):
    super().reset()
    self._left = [int(self._random.integers(5, 11))]


class RandomLoss(RandomStart):
  """Every start is the same, but stones vanish at random."""

  def reset(self):
    Nim.reset(self)

  def step(self, action):
    if self._left[0] > 4:
      self._left[0] -= int(self._random.integers(2))
    return super().step(action)


def make(game="Nim", is_perfect_information=True, max_episode_steps=None, **kwargs):
  spec = EnvSpec(
    name="nim",
    frame_shape=(1, 1, 11),
    frame_dtype="bool",
    num_env_actions=3,
    num_players=2,
    is_perfect_information=is_perfect_information,
  )
  return GameEnvironment(globals()[game](**kwargs), spec, max_episode_steps)


@functools.cache
def is_won(stones):
  """Whether the player to move wins, by exhaustive search."""
  return any(not is_won(stones - take) for take in range(1, min(3, stones) + 1))


@pytest.mark.parametrize(("stake", "most"), [(1.0, 10), (5.0, 7), (0.25, 6)])
def test_mcts_keeps_every_won_position_of_an_own_game(stake, most):
  for stones in range(1, most + 1):
    env = make(stones=stones, stake=stake)
    step = env.reset()
    action = make_bot(env, "mcts", 300, stones).action(*step.observation[:2])
    assert not is_won(stones) or not is_won(stones - action - 1), stones


@pytest.mark.parametrize("stake", [1.0, 5.0, 0.25])
def test_alpha_beta_keeps_every_won_position_of_an_own_game(stake):
  for stones in range(1, 9):
    env = make(stones=stones, stake=stake)
    step = env.reset()
    action = make_bot(env, "alpha_beta", stones, 0).action(*step.observation[:2])
    assert not is_won(stones) or not is_won(stones - action - 1), stones


def test_mcts_searches_the_current_state_and_leaves_it():
  env = RandomStarts(make(), 3, seed=1)
  bot, step = make_bot(env, "mcts", 30, 0), env.reset()
  while not step.last():
    before, legal = step.observation.frame.copy(), step.observation.legal_actions_mask
    found = bot.search()
    assert sorted(a for a, _, _ in found) == np.flatnonzero(legal).tolist()
    assert all(value is None or abs(value) <= 1 for _, _, value in found)
    np.testing.assert_array_equal(env._env._game.frame(), before)
    step = env.step(bot.action(before, legal))


def test_mcts_wins_at_the_table_of_a_registered_game():
  table = registry.make_table(f"{HERE}:make")
  assert isinstance(table, EnvironmentTable)
  for seed in range(4):
    table.reset(seed)
    bots = [make_bot(table, *kind, seed) for kind in (("mcts", 200), ("random", 1))]
    while not table.is_over:
      table.step(bots[table.to_play].action(table.frame(), table.legal_actions_mask()))
    assert table.returns() == [1.0, -1.0]


@pytest.mark.parametrize("wrap", [lambda env: RandomStarts(env, 0), EnvironmentTable])
@pytest.mark.parametrize("kind", ["mcts", "random", "expert"])
def test_a_games_own_bot_comes_first(wrap, kind):
  env = make("OwnBot")
  env.reset()
  assert make_bot(wrap(env), kind, 3, 4) == (kind, 3, 4, 10)


@pytest.mark.parametrize(
  ("env", "message"),
  [
    (lambda: make("Endless"), r"^mcts: nim has no such player; .*: set max_moves of the moozi.Game"),
    (lambda: make(is_perfect_information=False), "^mcts: would see what is hidden in nim"),
    (lambda: make("NoCopy"), r"^mcts: nim cannot be copied \(`clone`\): cannot pickle a lock$"),
  ],
)
def test_games_that_mcts_cannot_search(env, message):
  with pytest.raises(UserError, match=message):
    make_bot(env(), "mcts", 10, 0)


@pytest.mark.parametrize(
  ("game", "message"),
  [
    ("SharedCopy", "a step of a copy .* changes the environment"),
    ("NoCopy", "its first steps failed: .*TypeError"),
    ("RandomStart", "with another seed, the same actions lead to another state"),
    ("RandomLoss", "with another seed, the same actions lead to another state"),
  ],
)
def test_games_that_no_search_can_copy_are_refused(game, message):
  with pytest.raises(UserError, match=message):
    registry.env_spec(f"{HERE}:make", game=game)


def test_copies_may_ignore_a_step_cap():
  assert registry.env_spec(f"{HERE}:make", max_episode_steps=2).num_players == 2


def test_a_game_with_chance_is_allowed_without_max_moves(monkeypatch):
  monkeypatch.setattr(RandomLoss, "max_moves", None)
  assert registry.env_spec(f"{HERE}:make", game="RandomLoss").num_players == 2

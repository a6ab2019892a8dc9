"""Tests of environments in which the agent plays one seat of a game, and other players the rest."""

import collections
import types

import numpy as np
import pytest

from moozi.core import plugins
from moozi.core.config import Config, uses
from moozi.core.errors import EnvError, UserError
from moozi.envs import registry
from moozi.envs.seats import SeatGame
from moozi.envs.suites.open_spiel.environment import OpenSpielOptions, rules_of
from moozi.envs.suites.open_spiel.table import OpenSpielTable
from tests.envs.contract import play, random_legal

pytest.importorskip("pyspiel")


# --- rewards and ends


class ScriptedState:
  """A scripted state: `line` has (player, returns after that player's move) for each move."""

  def __init__(self, line, start):
    self.line, self.num_moves, self.start = line, 0, start

  def current_player(self):
    return self.line[self.num_moves][0] if not self.is_terminal() else -4

  def is_terminal(self):
    return self.num_moves == len(self.line)

  def returns(self):
    return self.line[self.num_moves - 1][1] if self.num_moves else self.start

  def legal_actions(self):
    return [] if self.is_terminal() else [0]

  def apply_action(self, action):
    assert not self.is_terminal()
    self.num_moves += 1


def scripted(seat, *lines, num_seats=3):
  """Returns a `SeatGame` whose episodes play the lines in turn, repeatedly."""
  states = iter(lines * 100)
  game = types.SimpleNamespace(new_initial_state=lambda: ScriptedState(next(states), [0.0] * num_seats))
  rules = types.SimpleNamespace(
    game=game,
    num_seats=num_seats,
    spec=types.SimpleNamespace(
      name="scripted", is_factored=False, factors=None, intervals=None, num_env_actions=2
    ),
    legal_actions_mask=lambda state: np.ones(1, bool),
    hides_moves=False,
    is_deterministic=False,
    next_player=lambda state, mover: mover if state.is_terminal() else state.current_player(),
  )
  return SeatGame(OpenSpielTable(rules, None), seat, ["random"])


def rewards_of(game):
  game.reset()
  out, is_terminal = [], False
  while not is_terminal:
    reward, is_terminal, _ = game.step(0)
    out.append(reward)
  return out


def test_reward_sums_what_the_seat_gains_until_its_next_decision():
  line = [
    (0, [0, 1, 0]),
    (1, [0, 1, 5]),
    (2, [0, 3, 5]),
    (0, [2, 2, 5]),
    (1, [2, 2, 5]),
    (1, [2, 4, 5]),
    (2, [-1, 9, 0]),
  ]
  # Seat 1 decides at moves 2, 5 and 6. Its gain of 1 before its first decision counts too.
  assert rewards_of(scripted(1, line)) == [2, 0, 7]
  assert rewards_of(scripted(0, line)) == [0, -1]
  assert rewards_of(scripted(2, line)) == [5, -5]


def test_game_that_ends_at_the_seats_own_move():
  assert rewards_of(scripted(0, [(1, [0, 0]), (0, [1, -1])], num_seats=2)) == [1]


def test_game_that_ends_before_the_seats_turn_is_not_shown():
  over, other = [(0, [1, -1])], [(0, [0, 0]), (1, [-2, 2])]
  game = scripted(1, over, over, other, num_seats=2)
  assert rewards_of(game) == [2]


def test_seat_that_never_decides():
  with pytest.raises(UserError, match="seat 1 has no decision in 1000 games"):
    scripted(1, *([[(0, [1, -1])]] * 30), num_seats=2)


@pytest.mark.parametrize(
  "name", ["kuhn_poker", "leduc_poker", "kuhn_poker(players=3)", "uno(players=3,hand=2,max_turns=30)"]
)
def test_returns_are_the_seats_own(name):
  env, random = registry.make(f"open_spiel:{name}", seed=3, seat="random"), np.random.default_rng(0)
  for _ in range(30):
    step, total = env.reset(), 0.0
    while not step.last():
      assert env._game._table._state.current_player() == env._game.seat
      step = env.step(random_legal(step, random))
      total += step.reward
    assert step.discount == 0.0
    assert total == pytest.approx(env._game._table._state.returns()[env._game.seat])


# --- seats and frames


def test_seat_is_drawn_for_each_episode_and_shown():
  env, seats = registry.make("open_spiel:uno(players=4,hand=1)", seed=0, seat="random"), collections.Counter()
  for _ in range(400):
    step = env.reset()
    seats[env._game.seat] += 1
    assert np.flatnonzero(step.observation.frame[0, 0, -4:]).tolist() == [env._game.seat]
    assert step.observation.to_play == 0
  assert len(seats) == 4
  assert min(seats.values()) > 60


def test_fixed_seat():
  env = registry.make("open_spiel:kuhn_poker", seed=0, seat=1)
  for _ in range(10):
    assert env.reset().observation.frame[..., -1].all()


def test_spec():
  spec = registry.env_spec("open_spiel:kuhn_poker(players=3)", seat=2)
  own = registry.env_spec("open_spiel:kuhn_poker")
  assert (spec.num_players, spec.num_seats, spec.is_perfect_information) == (1, 3, False)
  assert (own.num_players, own.num_seats) == (2, 0)
  assert registry.env_spec("open_spiel:kuhn_poker", seat=0).frame_shape == own.frame_shape


def test_frames_are_those_of_self_play():
  """Frames are equal, so an agent that was trained in self-play can play a seat, and vice versa."""
  env = registry.make("open_spiel:tic_tac_toe", seed=0, seat=1)
  step = env.reset()
  rules = rules_of("tic_tac_toe", OpenSpielOptions())
  np.testing.assert_array_equal(step.observation.frame, rules.frame(env._game._table._state, 1))


def test_seed_gives_the_same_deals_in_every_seat():
  deals = []
  for seat in (0, 1, "random"):
    env = registry.make("open_spiel:leduc_poker", seed=7, seat=seat)
    deals.append([])
    for _ in range(5):
      env.reset()
      deals[-1].append(env._game._table._state.history()[:2])
      env.seed(len(deals[-1]))
  assert deals[0] == deals[1] == deals[2]


# --- the other players


def returns_against(others, num_episodes=40, **kwargs):
  env, random, out = (
    registry.make("open_spiel:tic_tac_toe", seed=0, seat="random", others=others, **kwargs),
    None,
    [],
  )
  random = np.random.default_rng(0)
  for _ in range(num_episodes):
    step = env.reset()
    while not step.last():
      step = env.step(random_legal(step, random))
    out.append(step.reward)
  return np.array(out)


def test_stronger_players_win_more():
  assert returns_against("mcts:60").mean() < -0.4 < returns_against("random").mean()


def test_others_in_tests_are_others():
  kwargs = {"seat": 0, "others": "random", "test_others": "mcts:5"}
  env = registry.make("open_spiel:tic_tac_toe", seed=0, is_testing=True, **kwargs)
  assert env.env_spec == registry.env_spec("open_spiel:tic_tac_toe", **kwargs)
  assert returns_against("random", test_others="mcts:60").mean() > -0.4  # test_others is not used in training
  options = registry.options_of("open_spiel:tic_tac_toe", kwargs)
  assert options["test_others"] == ["mcts:5"]


@pytest.mark.parametrize("key", ["others", "test_others"])
def test_a_wrong_player_is_named_with_its_option(key):
  kwargs = {"seat": 0, key: ["random", "mine:nobody"]}
  with pytest.raises(UserError, match=rf"^env\.kwargs\.{key}\[1\]=mine:nobody: "):
    registry.make("open_spiel:tic_tac_toe", seed=0, is_testing=True, **kwargs)


@pytest.fixture
def players():
  """Yields the registered players; restores them after the test."""
  before = dict(plugins.PLAYERS.registered)
  yield plugins.PLAYERS.registered
  plugins.PLAYERS.registered.clear()
  plugins.PLAYERS.registered.update(before)


def test_player_is_made_for_each_episode_and_seat(players):
  """The maker is called for each episode and seat, so it may return a different player each time."""
  made, seen = [], []

  class First:
    def action(self, observation, legal):
      seen.append(observation)
      return int(np.flatnonzero(legal)[0])

  def pool(spec, seed):
    made.append((spec, seed))
    return First()

  players["pool"] = pool
  env = registry.make("open_spiel:kuhn_poker(players=3)", seed=0, seat=1, others="pool")
  made.clear()
  env.reset()
  assert [spec for spec, _ in made] == [env.env_spec] * 2
  assert len({seed for _, seed in made}) == 2
  play(env, 20)
  # Each of the other players sees its own frame, which shows its seat.
  assert {int(frame[0, 0, -3:].argmax()) for frame in seen} == {0, 2}
  made.clear()
  env.seed(5)
  env.reset()
  env.seed(5)
  env.reset()
  assert made[:2] == made[2:]


def test_names_are_drawn_evenly(players):
  counts = collections.Counter()

  def counted(name):
    def make(spec, seed):
      counts[name] += 1
      return types.SimpleNamespace(action=lambda observation, legal: int(np.flatnonzero(legal)[0]))

    return make

  players |= {name: counted(name) for name in ("one", "two")}
  env = registry.make("open_spiel:simplest", seed=0, seat=0, others=["one", "two", "two"])
  counts.clear()
  for _ in range(300):
    env.reset()
  assert 60 < counts["one"] < 140
  assert counts.total() == 300


@pytest.mark.parametrize(
  ("player", "error", "message"),
  [
    (lambda spec, seed: None, UserError, "must return an object with action"),
    (
      lambda spec, seed: types.SimpleNamespace(action=lambda observation, legal: 7),
      EnvError,
      r"env.kwargs.others\[0\]=bad: plays 7; must be one of \[0, 1\]",
    ),
    (
      lambda spec, seed: types.SimpleNamespace(action=lambda observation, legal: 1 // 0),
      EnvError,
      "ZeroDivisionError",
    ),
  ],
)
def test_bad_players(players, player, error, message):
  players["bad"] = player
  with pytest.raises(error, match=message):
    registry.make("open_spiel:kuhn_poker", seed=0, seat=1, others="bad").reset()


@pytest.mark.parametrize(
  ("game", "kwargs", "message"),
  [
    (
      "kuhn_poker",
      {"seat": 2},
      "env.kwargs.seat=2: open_spiel:kuhn_poker has 2 seats; must be random, or from 0 to 1",
    ),
    ("kuhn_poker", {"seat": -1}, "env.kwargs.seat=-1: "),
    ("kuhn_poker", {"seat": "both"}, "env.kwargs.seat='both': "),
    (
      "kuhn_poker",
      {"seat": 0, "others": "self"},
      "env.kwargs.others='self': .*must be random, mcts, alpha_beta, mcts:SIM",
    ),
    ("kuhn_poker", {"seat": 0, "others": "mcts:0"}, "env.kwargs.others='mcts:0': "),
    ("kuhn_poker", {"seat": 0, "others": []}, "env.kwargs.others="),
    ("kuhn_poker", {"seat": 0, "others": ["random", "nobody"]}, "'nobody' must be random"),
    ("kuhn_poker", {"seat": 0, "others": "mcts"}, r"env.kwargs.others\[0\]=mcts: would see what is hidden"),
    ("kuhn_poker", {"seat": 0, "others": "no_module_of:mine"}, "there is no module no_module_of"),
    ("catch", {"seat": 0}, "env.name=open_spiel:catch: has one player; env.kwargs.seat must be all"),
    (
      "uno(players=3)",
      {},
      "3 players; self-play is for two players .* env.kwargs.seat=random lets the agent",
    ),
    ("tic_tac_toe", {"others": 3}, "env.kwargs.others=3: Input should be a valid tuple"),
    ("stratego", {}, "hides a player's move from the other"),
    ("leduc_poker", {}, "a player may move twice in a row"),
  ],
)
def test_errors(game, kwargs, message):
  with pytest.raises(UserError, match=message) as error:
    registry.make(f"open_spiel:{game}", seed=0, **kwargs)
  assert "\n" not in str(error.value)


def test_code_of_players_is_named():
  """A run whose `others` name code is opened only with allow_code."""

  def code(**kwargs):
    return uses.code_keys(Config(env={"name": "open_spiel:kuhn_poker", "kwargs": {"seat": 0, **kwargs}}))

  assert code(others=["random", "mcts:100"], test_others="mcts") == []
  assert code(others=["random", "mine:make"]) == ["env.kwargs.others[1]=mine:make"]
  assert code(test_others="mine:make") == ["env.kwargs.test_others[0]=mine:make"]
  assert code(others=3) == []

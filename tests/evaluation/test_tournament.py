import collections

import numpy as np
import pytest

from moozi.core import plugins
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.envs.players import SeparatePlayer
from moozi.envs.table import EnvironmentTable, Table
from moozi.evaluation import tournament
from moozi.evaluation.ratings import standings
from moozi.evaluation.tournament import blocks, default_plies, open_game, play, schedule

pytest.importorskip("pyspiel")


def tic_tac_toe():
  return registry.make_table("open_spiel:tic_tac_toe")


SPEC = tic_tac_toe().spec


def players(*names, spec=SPEC):
  return {name: SeparatePlayer(name, spec) for name in names}


class Highest(Table):
  """Each of three seats chooses a number in turn, which is its return. The game has hidden information."""

  num_seats = 3
  spec = EnvSpec(
    name="highest",
    frame_shape=(1, 1, 1),
    frame_dtype="float32",
    num_env_actions=5,
    is_perfect_information=False,
  )
  is_deterministic = False

  def reset(self, seed):
    self.actions, self.is_over = [], False

  @property
  def to_play(self):
    return len(self.actions)

  def frame(self):
    return np.full((1, 1, 1), self.to_play, np.float32)

  def legal_actions_mask(self):
    return np.ones(5, bool)

  def step(self, action):
    self.actions.append(action)
    self.is_over = len(self.actions) == 3

  def returns(self):
    return [float(x) for x in self.actions]


def test_every_pair_plays_each_opening_from_both_sides():
  tables = schedule(["a", "b", "c"], 2, 3, seed=0)
  assert [table[0].players for table in tables] == [("a", "b"), ("a", "c"), ("b", "c")]
  assert [(m.players, m.opening) for m in tables[0][:3]] == [
    (("a", "b"), 0),
    (("b", "a"), 0),
    (("a", "b"), 1),
  ]


@pytest.mark.parametrize("players", ["ab", "abc", "abcde"])
def test_with_three_seats_everybody_plays_every_seat(players):
  tables = schedule(list(players), 3, 20, seed=0)
  seats = collections.Counter(
    (s, name) for table in tables for m in table for s, name in enumerate(m.players)
  )
  assert len(set(seats.values())) <= len(players)
  for name in players:
    assert len({seats[s, name] for s in range(3)}) == 1
  orders = {m.players for m in tables[0]}
  assert len(orders) == (6 if len(players) > 2 else 3)


def test_too_few_players():
  with pytest.raises(UserError, match="random: an arena needs at least two players"):
    schedule(["random"], 2, 1, 0)


def test_blocks_leave_out_what_is_done():
  tables = schedule(["a", "b"], 2, 5, 0)
  made = blocks(tables, done={tables[0][0], *tables[0][2:4]}, num_openings=2)
  assert [[(m.players[0], m.opening) for m in block] for block in made] == [
    [("b", 0), ("a", 2), ("b", 2)],
    [("a", 3), ("b", 3), ("a", 4), ("b", 4)],
  ]


def test_games_depend_on_the_pairing_only():
  entrants = players("random", "mcts:5")
  (pairings,) = schedule(list(entrants), 2, 4, seed=3)
  together = play(pairings, tic_tac_toe, entrants, 3, 2)
  apart = [play([pairing], tic_tac_toe, entrants, 3, 2)[0] for pairing in reversed(pairings)]
  assert together == apart[::-1]
  assert [g.actions[:2] for g in together[::2]] == [g.actions[:2] for g in together[1::2]]
  assert len({g.actions[:2] for g in together}) > 1
  assert {sum(g.returns) for g in together} == {0.0}
  other = play(pairings, tic_tac_toe, entrants, 4, 2)
  assert [g.actions for g in other] != [g.actions for g in together]


def test_a_player_against_itself_scores_one_half():
  entrants = {"random": SeparatePlayer("random", SPEC), "random #2": SeparatePlayer("random", SPEC)}
  (pairings,) = schedule(list(entrants), 2, 150, seed=0)
  games = play(pairings, tic_tac_toe, entrants, 0, 1)
  score = standings(games, list(entrants), "random", True).scores[0][1]
  assert score.low <= 0.5 <= score.high
  assert score.high - score.low < 0.25


class Watcher:
  """Plays the first legal action, and records what it observes."""

  def __init__(self, spec, seed):
    self.seen = []
    Watcher.made.append(self)

  def action(self, observation, legal):
    return int(np.flatnonzero(legal)[0])

  def observe(self, observation, legal, action):
    self.seen.append((float(observation.sum() + legal.sum()), action))


def test_players_see_the_others_moves_but_no_hidden_frames(monkeypatch):
  Watcher.made = []
  monkeypatch.setitem(plugins.PLAYERS.registered, "watcher", Watcher)
  for make, is_hidden in ((Highest, True), (tic_tac_toe, False)):
    entrants = players("random", "watcher", spec=make().spec)
    (table,) = schedule(list(entrants), make().num_seats, 1, seed=0)
    Watcher.made.clear()
    games = play(table, make, entrants, 0, 0)
    seats = [(g, s) for g in games for s, name in enumerate(g.pairing.players) if name == "watcher"]
    for player, (game, seat) in zip(Watcher.made, seats, strict=True):
      others = [a for ply, a in enumerate(game.actions) if ply % len(game.returns) != seat]
      assert [action for _, action in player.seen] == others
      assert all(total == 0 for total, _ in player.seen) == is_hidden


def test_hidden_moves_are_not_shown(monkeypatch):
  Watcher.made = []
  monkeypatch.setitem(plugins.PLAYERS.registered, "watcher", Watcher)
  entrants = players("random", "watcher", spec=registry.make_table("open_spiel:phantom_ttt").spec)
  (table,) = schedule(list(entrants), 2, 1, seed=0)
  (game, _) = play(table, lambda: registry.make_table("open_spiel:phantom_ttt"), entrants, 0, 0)
  assert len(game.actions) > 4
  assert [player.seen for player in Watcher.made] == [[], []]


def test_three_seats_are_ranked():
  entrants = {name: SeparatePlayer("random", Highest.spec) for name in "abcd"}
  games = play([m for t in schedule("abcd", 3, 3, 0) for m in t], Highest, entrants, 0, 0)
  assert len(games) == 4 * 3 * 3
  found = standings(games, "abcd", "a", False)
  assert sum(found.overall[i].value for i in range(4)) == pytest.approx(2)


def test_opening_plies():
  assert default_plies(tic_tac_toe) == 2  # one makes nine starts
  assert default_plies(lambda: registry.make_table("open_spiel:connect_four")) == 4
  assert default_plies(lambda: registry.make_table("open_spiel:kuhn_poker")) == 0
  # Pieces are hidden, but without chance all games of two players would be the same.
  assert default_plies(lambda: registry.make_table("open_spiel:stratego")) == 4
  with pytest.raises(
    UserError, match="--opening-plies=9: every game of open_spiel:tic_tac_toe ends within 9"
  ):
    open_game(tic_tac_toe(), 0, 0, 9)
  table = tic_tac_toe()
  assert len(open_game(table, 0, 0, 6)) == 6
  assert not table.is_over


@pytest.mark.parametrize("name", ["open_spiel:tic_tac_toe", "open_spiel:kuhn_poker"])
def test_a_table_agrees_with_the_environment(name):
  table, other = registry.make_table(name), EnvironmentTable(registry.make(name, 0))
  random = np.random.default_rng(0)
  for seed in range(20):
    table.reset(seed)
    other.reset(seed)
    while not table.is_over:
      assert table.to_play == other.to_play
      np.testing.assert_array_equal(table.frame(), other.frame())
      np.testing.assert_array_equal(table.legal_actions_mask(), other.legal_actions_mask())
      action = int(random.choice(np.flatnonzero(table.legal_actions_mask())))
      table.step(action)
      other.step(action)
    assert other.is_over
    np.testing.assert_allclose(table.returns(), other.returns())


def test_one_player_has_no_table():
  with pytest.raises(
    UserError, match="tiny:catch: has one player; players meet only in games of two or more"
  ):
    registry.make_table("tiny:catch")


def test_an_endless_game_is_stopped(monkeypatch):
  monkeypatch.setattr(tournament, "MAX_STEPS", 2)
  games = play(
    schedule("ab", 3, 1, 0)[0], Highest, dict.fromkeys("ab", SeparatePlayer("random", Highest.spec)), 0, 0
  )
  assert {len(g.actions) for g in games} == {2}

"""Tests of players: their contract, what observers receive, and who sits where."""

import numpy as np
import pytest

from moozi.core import plugins
from moozi.core.errors import EnvError, UserError
from moozi.envs import registry
from moozi.envs.players import Seats, SeparatePlayer, make_player
from moozi.envs.table import View
from tests.envs.players import check_player, play

pytest.importorskip("pyspiel")


def make_table(name="tic_tac_toe"):
  return registry.make_table(f"open_spiel:{name}")


class Recalling:
  """Plays a legal action that depends on its seed and on all that it has seen; records its calls."""

  def __init__(self, spec, seed):
    self.sum, self.calls = seed, []

  def follow(self, position):
    self.position = position

  def action(self, observation, legal):
    self.calls.append("action")
    actions = np.flatnonzero(legal)
    return int(actions[self.sum % len(actions)])

  def observe(self, observation, legal, action):
    self.calls.append("observe")
    self.sum += action + int(legal.sum()) + int(observation.sum())


@pytest.fixture
def recalling(monkeypatch):
  made = []
  monkeypatch.setitem(
    plugins.PLAYERS.registered, "recalling", lambda *x: made.append(Recalling(*x)) or made[-1]
  )
  return made


@pytest.mark.parametrize("name", ["random", "mcts:5", "recalling"])
@pytest.mark.parametrize("game", ["tic_tac_toe", "kuhn_poker(players=3)", "phantom_ttt"])
@pytest.mark.usefixtures("recalling")
def test_contract(name, game):
  table = make_table(game)
  if name == "mcts:5" and not table.spec.is_perfect_information:
    with pytest.raises(UserError, match="mcts:5: would see what is hidden"):
      make_player(name, table.spec).check(table)
    return
  check_player(lambda: make_player(name, table.spec), lambda: make_table(game))


def test_every_move_is_acted_on_or_observed(recalling):
  player = SeparatePlayer("recalling", make_table().spec)
  (moves,) = play(make_table, [player, player], [3], num_games=1)
  assert len(recalling) == 2
  for seat, made in enumerate(recalling):
    assert made.calls == ["action" if mover == seat else "observe" for mover, _ in moves]
  assert recalling[0].position().tolist()[: len(moves)] == [action for _, action in moves]


def test_an_empty_seat_is_played_from_outside(recalling):
  table, seats = make_table(), Seats()
  table.reset(0)
  seats.start({7: (table, {1: (SeparatePlayer("recalling", table.spec), 0)})})
  assert seats.play({7: table}) == {}
  seats.observe({7: table.view()}, {7: 4})
  table.step(4)
  assert list(seats.play({7: table})) == [7]
  seats.start({7: (table, {})})
  table.reset(0)
  table.step(0)
  assert seats.play({7: table}) == {}, "a new game has new seats"
  assert recalling[0].calls == ["observe", "action"]


def test_a_move_in_another_game_is_not_observed(recalling):
  tables, seats = {i: make_table() for i in range(2)}, Seats()
  player = SeparatePlayer("recalling", tables[0].spec)
  for table in tables.values():
    table.reset(0)
  seats.start({i: (table, {1: (player, i)}) for i, table in tables.items()})
  seats.observe({1: tables[1].view()}, {1: 3})
  assert [made.calls for made in recalling] == [[], ["observe"]]


@pytest.mark.parametrize("action", [9, -1, 0.5, None, "a"])
def test_illegal_actions_are_errors(monkeypatch, action):
  class Wrong:
    def action(self, observation, legal):
      return action

  monkeypatch.setitem(plugins.PLAYERS.registered, "wrong", lambda *_: Wrong())
  player = make_player("wrong", make_table().spec, "evaluation.opponent")
  player.reset({(0, 0): (make_table(), 0)})
  view = View(0, lambda: np.zeros((3, 3, 3), bool), lambda: np.ones(9, bool))
  with pytest.raises(EnvError, match=r"^evaluation.opponent=wrong: plays .*; must be one of \[0, 1, 2"):
    player.act({(0, 0): view})

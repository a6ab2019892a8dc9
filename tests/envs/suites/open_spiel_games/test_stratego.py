"""Tests of Stratego's rules in given positions and in a played game, and of what the players see."""

import numpy as np
import pytest

from moozi.envs.suites.open_spiel.games.stratego import (
  BOARDS,
  EMPTY,
  MARKS,
  NUM_KINDS,
  NUM_SETUP,
  move_action,
)
from tests.envs.suites.open_spiel_games.playing import load, names_of, play, views

SMALL_ARMY = ["F", "S", "2", "2", "2", "3", "3", "6", "9", "10", "B", "B"]


def position(rows, to_move=0, max_moves=200, moved=(), known=()):
  """Returns a state on the small board with these pieces: player 0's as `10`, player 1's as `10'`.

  Args:
    rows: six rows from player 0's view, `.` for an empty cell and `~` for a lake.
    moved, known: cells of the pieces that have moved or are known, as player 0 names them.
  """
  state = load(f"stratego(max_moves={max_moves})").new_initial_state()
  signs = rows.split()
  assert len(signs) == 36
  for cell, sign in enumerate(signs):
    assert (sign == "~") == (cell in BOARDS["small"].lakes)
    if sign not in ".~":
      state.owner[cell], state.kind[cell] = int(sign.endswith("'")), MARKS.index(sign.rstrip("'"))
  state.num_set_up, state.left = 24, [[0] * NUM_KINDS, [0] * NUM_KINDS]
  state._player = to_move
  for name in moved:
    state.moved[cell_of(name)] = True
  for name in known:
    state.known[cell_of(name)] = True
  return state


def cell_of(name):
  return (6 - int(name[1])) * 6 + "abcdef".index(name[0])


def piece(state, name):
  """Returns the piece on a cell, which is named from player 0's view."""
  cell = cell_of(name)
  return "." if state.owner[cell] < 0 else MARKS[state.kind[cell]] + "'" * state.owner[cell]


OPEN = """
  F' .  .  .  .  .
  .  .  .  .  .  .
  .  ~  .  .  ~  .
  .  ~  .  .  ~  .
  .  .  .  .  .  .
  F  .  .  .  .  .
"""


def with_pieces(**pieces):
  """Returns the rows of OPEN with pieces added, such as c3="9" and c4="10'"."""
  signs = OPEN.split()
  for name, sign in pieces.items():
    signs[cell_of(name)] = sign
  return " ".join(signs)


# --- armies and setup


def test_armies():
  assert {name: sum(board.army) for name, board in BOARDS.items()} == {"small": 12, "barrage": 8, "full": 40}
  full = dict(zip(MARKS, BOARDS["full"].army, strict=True))
  # Source: Milton Bradley, Stratego.
  assert full == {
    "F": 1,
    "S": 1,
    "2": 8,
    "3": 5,
    "4": 4,
    "5": 4,
    "6": 4,
    "7": 3,
    "8": 2,
    "9": 1,
    "10": 1,
    "B": 6,
  }
  for board in BOARDS.values():
    assert {board.num_cells - 1 - cell for cell in board.lakes} == board.lakes
    own = range(board.num_cells - board.num_setup, board.num_cells)
    assert not set(own) & board.lakes
    assert sum(board.army) <= board.num_setup


def test_players_set_up_in_turn():
  state = load("stratego").new_initial_state()
  for i, mark in enumerate(SMALL_ARMY):
    for player in (0, 1):
      assert state.current_player() == player
      assert set(names_of(state)) == {f"place {m}" for m in SMALL_ARMY[i:]}
      play(state, f"place_{mark}")
  assert state.is_set_up
  assert state.current_player() == 0
  # Each player fills the front row from the left, then the back row; player 1 sits opposite.
  assert str(state).splitlines()[:2] == ["  B'  B' 10'  9'  6'  3'", "  3'  2'  2'  2'  S'  F'"]
  assert str(state).splitlines()[4:6] == ["   F   S   2   2   2   3", "   3   6   9  10   B   B"]


def test_cells_may_be_left_empty_with_a_small_army():
  state = load("stratego(board=barrage)").new_initial_state()
  for _ in range(32):
    assert EMPTY in state.legal_actions()
    play(state, "place_nothing place_nothing")
  assert EMPTY not in state.legal_actions()  # eight pieces are left for eight cells
  for mark in ["F", "S", "2", "2", "3", "9", "10", "B"]:
    play(state, f"place_{mark} place_{mark}")
  assert state.is_set_up


# --- moves


def test_moves_of_one_cell():
  state = position(with_pieces(c4="9", a1="F", b1="B"))
  # The general at c4: lakes are at b3, b4, e3 and e4. Flag and bomb do not move.
  assert set(names_of(state)) == {"c4-c3", "c4-c5", "c4-d4"}


def test_scout_moves_far_and_stops_at_pieces():
  state = position(with_pieces(a3="2", a5="9'", c2="2", c6="B'", e2="6"))
  names = {name for name in names_of(state) if name[0] != "e"}
  assert {n for n in names if n[0] == "a"} == {"a3-a2", "a3-a4", "a3-a5"}  # the lake is at b3, a flag at a1
  assert {n for n in names if n.startswith("c2-c")} == {"c2-c1", "c2-c3", "c2-c4", "c2-c5", "c2-c6"}
  assert {n for n in names if n[3] == "c" or n.startswith("c2")} >= {"c2-a2", "c2-b2", "c2-d2"}
  assert "c2-e2" not in names


def test_player_1_moves_from_its_own_side():
  state = position(with_pieces(b5="9'", c3="9"), to_move=1)
  # Player 0's b5 is player 1's e2.
  assert set(names_of(state)) == {"e2-d2", "e2-e1", "e2-f2"}
  play(state, "e2-d2")
  assert piece(state, "c5") == "9'"


def test_move_actions():
  board, actions = BOARDS["small"], set()
  for start in range(36):
    for end in range(36):
      if start != end and (start // 6 == end // 6 or start % 6 == end % 6):
        actions.add(move_action(board, start, end))
  assert actions == set(range(NUM_SETUP, load("stratego").num_distinct_actions()))
  with pytest.raises(ValueError, match="along a row or a column"):
    move_action(board, 0, 7)
  names = load("stratego").action_names()
  assert len(set(names)) == len(names)


# --- attacks


@pytest.mark.parametrize(
  ("attacker", "target", "wins"),
  [
    ("10", "9", 1),
    ("9", "10", -1),
    ("6", "6", 0),
    ("S", "10", 1),
    ("10", "S", 1),
    ("S", "9", -1),
    ("2", "S", 1),
    ("S", "S", 0),
    ("3", "B", 1),
    ("10", "B", -1),
    ("S", "B", -1),
    ("2", "B", -1),
    ("2", "3", -1),
    ("3", "2", 1),
    ("10", "10", 0),
  ],
)
def test_attacks(attacker, target, wins):
  # The other pieces let both players move.
  state = position(with_pieces(c3=attacker, c4=f"{target}'", f1="6", f6="6'"))
  play(state, "c3-c4")
  assert piece(state, "c3") == "."
  assert piece(state, "c4") == {1: attacker, 0: ".", -1: f"{target}'"}[wins]
  fallen = [[MARKS[k] for k, n in enumerate(state.fallen[p]) for _ in range(n)] for p in (0, 1)]
  assert fallen == [[attacker] * (wins <= 0), [target] * (wins >= 0)]
  assert not state.is_terminal()
  if wins:
    assert state.known[cell_of("c4")]


@pytest.mark.parametrize("attacker", ["S", "2", "3", "10"])
def test_who_takes_the_flag_wins(attacker):
  state = position(with_pieces(a5=attacker, f6="6'"))
  play(state, "a5-a6")
  assert state.is_terminal()
  assert state.returns() == [1, -1]


def test_player_1_takes_the_flag():
  state = position(with_pieces(a2="3'", f1="6"), to_move=1)
  play(state, "f5-f6")
  assert state.returns() == [-1, 1]


def test_a_player_who_cannot_move_loses():
  state = position(with_pieces(c3="10", c4="9'", b6="B'"))
  play(state, "c3-c4")
  assert state.is_terminal()
  assert state.returns() == [1, -1]


def test_draw_if_neither_can_move():
  state = position(with_pieces(c3="9", c4="9'"))
  play(state, "c3-c4")
  assert state.is_terminal()
  assert state.returns() == [0, 0]


def test_draw_after_the_last_move():
  state = position(with_pieces(c3="9", f6="9'"), max_moves=3)
  play(state, "c3-c2 a1-b1 c2-c3")
  assert state.is_terminal()
  assert state.returns() == [0, 0]


def test_a_hand_played_game():
  """Sets up both armies, and plays eight moves with four attacks."""
  state = load("stratego").new_initial_state()
  for mark in ["2", "S", "10", "6", "3", "2", "F", "B", "2", "9", "3", "B"]:
    play(state, f"place_{mark} place_{mark}")
  # Player 0 from the left: front row a2 … f2 (2 S 10 6 3 2), back row a1 … f1 (F B 2 9 3 B).
  assert names_of(state).keys() == {
    *("a2-a3", "a2-a4", "a2-a5", "c2-c3", "d2-d3", "f2-f3", "f2-f4", "f2-f5"),
  }
  play(state, "c2-c3 d2-d3")  # the marshal, and player 1's captain in the same column
  play(state, "c3-c4")  # attacks player 1's captain, which player 0 sees at c4 and which falls
  assert piece(state, "c4") == "10"
  assert state.fallen[1][6] == 1
  play(state, "e2-d2 c4-c5")  # a miner of player 1 follows; the marshal takes it
  assert state.fallen[1][3] == 1
  play(state, "a2-a5")  # player 1's scout attacks player 0's scout at f2: both fall
  assert state.fallen[0][2] == state.fallen[1][2] == 1
  play(state, "c5-d5 b2-c2")  # the marshal attacks the other marshal: both fall
  assert state.fallen[0][10] == state.fallen[1][10] == 1
  assert state.num_moves == 8
  assert not state.is_terminal()


# --- views


def random_state(seed, num_moves=30):
  random = np.random.default_rng(seed)
  state = load("stratego").new_initial_state()
  while not state.is_set_up or state.num_moves < num_moves:
    state.apply_action(int(random.choice(state.legal_actions())))
    if state.is_terminal():
      return random_state(seed + 1000, num_moves)
  return state


def shuffle_hidden(state, player, random):
  """Permutes at random the kinds of the other player's pieces that `player` does not know."""
  cells = [c for c, owner in enumerate(state.owner) if owner == 1 - player and not state.known[c]]
  kinds = random.permutation([state.kind[c] for c in cells]).tolist()
  for cell, kind in zip(cells, kinds, strict=True):
    state.kind[cell] = kind


@pytest.mark.parametrize("num_moves", [0, 30])
def test_views_show_nothing_hidden(num_moves):
  random, num_changed = np.random.default_rng(0), 0
  for seed in range(5):
    state = random_state(seed, num_moves)
    for player in (0, 1):
      other = state.clone()
      shuffle_hidden(other, player, random)
      before, after = views(state), views(other)
      assert after[player] == before[player]
      if other.kind != state.kind:
        num_changed += 1
        assert after[1 - player][0] != before[1 - player][0]
        assert after[1 - player][1] != before[1 - player][1]
  assert num_changed > 5


def test_setting_up_is_hidden():
  """During setup, a player sees neither the other's pieces nor which cells stay empty."""
  for name, options in (("stratego", ("F", "10")), ("stratego(board=barrage)", ("nothing", "10"))):
    seen = set()
    for option in options:
      state = play(load(name).new_initial_state(), f"place_{option}")
      seen.add(views(state)[1])
      assert views(state)[0] not in seen
    assert len(seen) == 1


def test_views_show_what_is_open():
  rows = with_pieces(c3="9", c4="6'", d5="9'", f1="6")
  state = position(rows)
  start = views(state)
  for changed in (
    position(rows, moved=["d5"]),
    position(rows, known=["d5"]),
    position(rows, known=["c3"]),
    position(rows.replace("9'", ".")),
    position(rows, to_move=1),
  ):
    assert views(changed)[0][1] != start[0][1]
  for changed in (position(rows, moved=["d5"]), position(rows, known=["d5"]), position(rows, known=["c3"])):
    assert views(changed)[0][0] != start[0][0]
  play(state, "c3-c4")
  tensor = np.array(views(state)[1][0]).reshape(load("stratego").observation_tensor_shape())
  # Player 1 sees the general that has attacked (kind 9) at d3 in its own view.
  assert tensor[NUM_KINDS + 9, 3, 3] == 1
  assert tensor[2 * NUM_KINDS].sum() == 2  # the other's flag and captain are unknown
  assert tensor[29].nonzero() == ([2], [3]) or tensor[29].argmax() == 2 * 6 + 3  # the move started at d4


def test_a_scout_that_moves_far_is_known():
  state = position(with_pieces(c2="2", f1="6", f6="6'"))
  near, far = play(state.clone(), "c2-c3"), play(state.clone(), "c2-c4")
  assert not near.known[cell_of("c3")]
  assert far.known[cell_of("c4")]
  assert far.moved[cell_of("c4")]


def test_players_views_are_turned():
  """In a position that is the same from both sides, both players have the same tensor."""
  state = position(with_pieces(a6=".", f6="F'", c3="9", d4="9'"))
  first, second = (np.array(tensor) for tensor, _ in views(state))
  np.testing.assert_array_equal(first, second)

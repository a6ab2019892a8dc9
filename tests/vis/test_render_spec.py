"""Tests of render specs: planes match the packages', and boards are drawn alike for both players."""

import numpy as np
import pytest

from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.vis.action_names import action_name, action_names
from moozi.vis.boards import board_text, player_on_board
from moozi.vis.frames import draw_frame, facts_of, vector_text
from moozi.vis.render_spec import _RENDER_SPECS, board_of, owner_of, player_name, render_spec_of, view_of

# For each game, the maximum number of cells that a move changes; all others must be drawn as before.
BOARDS = {
  "open_spiel:tic_tac_toe": 1,
  "open_spiel:mnk": 1,
  "open_spiel:gomoku": 1,
  "open_spiel:connect_four": 1,
  "open_spiel:othello": 64,
  "open_spiel:small_othello": 36,
  "open_spiel:go(board_size=5)": 25,
  "open_spiel:hex(board_size=4)": 16,
  "open_spiel:breakthrough": 2,
  "open_spiel:clobber": 2,
  "open_spiel:lines_of_action": 2,
  "open_spiel:chess": 4,
  "pgx:tic_tac_toe": 1,
  "pgx:connect_four": 1,
  "pgx:chess": 4,
  "pgx:animal_shogi": 2,
}


def owners(observation, spec):
  """Returns the owner of the piece in each cell, [rows, columns]; -1 if the cell is empty."""
  board = render_spec_of(spec).board
  cells = board_of(observation.frame, board, observation.to_play)
  of = [owner_of(piece, board, observation.to_play) for piece in board.pieces]
  return np.array([[-1 if i < 0 else of[i] for i in row] for row in cells])


@pytest.mark.parametrize(
  "name",
  [pytest.param(n, marks=pytest.mark.slow) if n.startswith("pgx") else n for n in BOARDS],
)
def test_move_changes_only_movers_pieces(name):
  env = registry.make(name, seed=0)
  spec, random = env.env_spec, np.random.default_rng(0)
  step = env.reset()
  assert render_spec_of(spec).kind == "board"
  before, num_gained = owners(step.observation, spec), 0
  for _ in range(12):
    mover = step.observation.to_play
    legal = np.flatnonzero(step.observation.legal_actions_mask)
    step = env.step(int(random.choice(legal)))
    if step.last():
      break
    after = owners(step.observation, spec)
    changed = before != after
    assert changed.sum() <= BOARDS[name]
    # Any new piece belongs to the player who moved.
    assert (after[changed & (after >= 0)] == mover).all()
    num_gained += int((changed & (after == mover)).sum())
    before = after
  assert num_gained > 3


@pytest.mark.parametrize(
  ("name", "game"), [("minatar", g) for g in ("asterix", "breakout", "freeway", "seaquest", "space_invaders")]
)
def test_minatar_plane_names(name, game):
  from moozi.envs.suites.minatar import load_game

  channels = load_game(game).Env().channels
  names = render_spec_of(registry.env_spec(f"{name}:{game}")).names
  assert len(names) == len(channels)
  for word in ("paddle", "ball", "trail", "brick", "player", "enemy", "gold", "car", "diver", "cannon"):
    if word in channels:
      assert names[channels[word]] == word


@pytest.mark.parametrize(
  "name",
  [
    "open_spiel:kuhn_poker",
    "open_spiel:catch",
    "open_spiel:deep_sea",
    "open_spiel:cliff_walking",
    "gymnasium:Blackjack-v1",
    "gymnasium:CartPole-v1",
    "gymnasium:MountainCar-v0",
    "gymnasium:MountainCarContinuous-v0",
    "gymnasium:Pendulum-v1",
    "gymnasium:Acrobot-v1",
    "gymnasium:FrozenLake-v1",
    "gymnasium:CliffWalking-v1",
    "gymnasium:Taxi-v4",
  ],
)
def test_listed_render_spec_matches_env(name):
  """A render spec that does not match its environment's frames would be ignored silently."""
  library, _, game = name.partition(":")
  render_spec, spec = _RENDER_SPECS[library, game.partition("-v")[0]], registry.env_spec(name)
  assert render_spec_of(spec) is render_spec
  assert len(render_spec.action_names) in (0, spec.num_env_actions)


@pytest.mark.parametrize(
  "game", ["simplest", "leduc_poker", "uno", "uno(players=3)", "stratego", "small_othello"]
)
def test_listed_render_spec_matches_a_seats_frames(game):
  spec = registry.env_spec(f"open_spiel:{game}", seat="random")
  assert render_spec_of(spec) is _RENDER_SPECS["open_spiel", game.partition("(")[0]]
  names = action_names(spec)
  assert len(set(names)) == spec.num_actions
  assert not [name for name in names if name.startswith("action ")]


@pytest.mark.parametrize("game", ["kuhn_poker(players=3)", "leduc_poker(players=3)"])
def test_facts_of_two_players_are_not_those_of_three(game):
  assert render_spec_of(registry.env_spec(f"open_spiel:{game}", seat=0)).kind == "vector"


def first_frame(game, seat, seed=0):
  env = registry.make(f"open_spiel:{game}", seed=seed, seat=seat)
  return env.reset().observation.frame, env.env_spec


def test_cards_are_shown():
  frame, spec = first_frame("uno(players=3)", seat=0)
  shown = dict(facts_of(frame[0, 0].astype(float), spec))
  assert len(shown["hand"].split()) >= 6  # seven cards; the second of two equal ones is shown too
  assert set(shown["hand"].split()) <= set(action_names(spec))
  assert shown["top"] in action_names(spec)
  assert [shown[f"{who} cards"] for who in ("own", "next player's", "second next's", "third next's")] == [
    *("7", "7", "7", "-"),
  ]
  assert (shown["drew last"], shown["to move"]) == ("-", "self")
  picture = draw_frame(frame, spec, 240)
  assert picture.shape[1] == 240
  assert vector_text(frame, spec).startswith(f"top {shown['top']}, hand ")
  frame, spec = first_frame("leduc_poker", seat=0)
  assert dict(facts_of(frame[0, 0].astype(float), spec))["card"] in ("J", "Q", "K")


def test_hidden_pieces_are_shown_as_such():
  """Each player sees its own army at the bottom; the other player's pieces are unknown."""
  for seat in (0, 1):
    env = registry.make("open_spiel:stratego", seed=0, seat=seat)
    step, random = env.reset(), np.random.default_rng(seat)
    for _ in range(12):
      step = env.step(int(random.choice(np.flatnonzero(step.observation.legal_actions_mask))))
    frame = step.observation.frame
    assert view_of(frame, env.env_spec, 0) == seat
    rows = [line.split() for line in board_text(frame, env.env_spec).splitlines()]
    own, other = ("F", "?'") if seat == 0 else ("f", "?")
    assert sum(row.count(own) for row in rows[4:]) == 1
    assert sum(row.count(other) for row in rows) >= 10
    assert [row[1] for row in rows[2:4]] == ["~", "~"]
    draw_frame(frame, env.env_spec, 120)


def test_view_of():
  frame, spec = first_frame("uno(players=4)", seat=3)
  assert view_of(frame, spec, 0) == 3
  spec = registry.env_spec("open_spiel:othello")
  assert view_of(frame, spec, 1) == 1
  frame, spec = first_frame("othello", seat=1)
  assert view_of(frame, spec, 0) == 1


def make_spec(shape, dtype, name="test:environment", num_players=1, **kwargs):
  return EnvSpec(
    name=name, frame_shape=shape, frame_dtype=dtype, num_env_actions=2, num_players=num_players, **kwargs
  )


@pytest.mark.parametrize(
  ("shape", "dtype", "kind"),
  [
    ((84, 84, 1), "uint8", "image"),
    ((10, 5, 1), "float32", "image"),
    ((9, 9, 5), "float32", "planes"),
    ((9, 9, 5), "bool", "planes"),
    ((1, 1, 7), "float32", "vector"),
  ],
)
def test_unlisted_env_is_drawn_by_shape(shape, dtype, kind):
  assert render_spec_of(make_spec(shape, dtype)).kind == kind


def test_listed_env_with_other_frames():
  assert render_spec_of(make_spec((3, 3, 2), "bool", "open_spiel:tic_tac_toe", 2)).kind == "planes"
  assert render_spec_of(make_spec((10, 10, 3), "bool", "minatar:breakout")).names == ()


@pytest.mark.parametrize(
  ("name", "size", "kind"),
  [
    ("open_spiel:gomoku", 3 * 15**2 + 1, "board"),
    ("open_spiel:gomoku(size=19)", 3 * 19**2 + 1, "vector"),
    ("gymnasium:FrozenLake-v1", 16, "board"),
    ("gymnasium:FrozenLake-v1", 64, "vector"),
  ],
)
def test_a_board_of_another_size_is_drawn_as_a_vector(name, size, kind):
  assert render_spec_of(make_spec((1, 1, size), "float32", name)).kind == kind


def test_egocentric_planes_are_the_movers():
  for option, is_relative in (("", False), ("(egocentric_obs_tensor=true)", True)):
    spec = registry.env_spec(f"open_spiel:connect_four{option}")
    assert render_spec_of(spec).board.is_relative is is_relative


def test_names_of_actions_and_players():
  cartpole = make_spec((1, 1, 4), "float32", "gymnasium:CartPole-v1", action_names=("0", "1"))
  plain = make_spec((1, 1, 4), "float32")
  half = make_spec((1, 1, 4), "float32", action_names=("up",))
  for spec, names in (
    (cartpole, ("end", "left", "right")),
    (plain, ("end", "action 0", "action 1")),
    (half, ("end", "up", "action 1")),
  ):
    assert action_names(spec) == tuple(action_name(spec, a) for a in range(3)) == names
  assert player_name(registry.env_spec("open_spiel:connect_four"), 1) == "yellow"
  assert player_name(plain, 0) == "player 0"


def test_connect_four_text():
  env = registry.make("open_spiel:connect_four", seed=0)
  env.reset()
  for column in (3, 3, 0):
    step = env.step(column)
  text = board_text(step.observation.frame, env.env_spec, step.observation.to_play)
  assert text.splitlines()[-2:] == [". . . o . . .", "x . . x . . ."]


@pytest.mark.parametrize(
  "name", ["open_spiel:tic_tac_toe", pytest.param("pgx:tic_tac_toe", marks=pytest.mark.slow)]
)
def test_tic_tac_toe_text(name):
  env = registry.make(name, seed=0)
  env.reset()
  for action in (4, 0, 8):
    step = env.step(action)
  text = board_text(step.observation.frame, env.env_spec, step.observation.to_play)
  assert text == "O . .\n. X .\n. . X"


# --- boards of users' own games


def own_spec(planes, dtype="bool", places="cells", **kwargs):
  shape = (2, 3, planes)
  num_actions = {"cells": 7, "columns": 3}[places]
  fields = {"name": "own", "num_players": 2, "action_places": places} | kwargs
  return EnvSpec(frame_shape=shape, frame_dtype=dtype, num_env_actions=num_actions, **fields)


def own_frame(spec, **cells):
  """Returns a frame; each keyword `p0` … is a plane and its set cells (row, column)."""
  frame = np.zeros(spec.frame_shape, spec.frame_dtype)
  for plane, places in cells.items():
    for row, column in places:
      frame[row, column, int(plane[1:])] = 1
  return frame


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float32"])
def test_pieces_of_mover_planes_keep_their_owner(dtype):
  spec = own_spec(2, dtype, mover_planes=(0, 1))
  first, second = [(0, 0), (1, 2)], [(0, 1)]
  of_first = own_frame(spec, p0=first, p1=second)
  of_second = own_frame(spec, p0=second, p1=first)
  assert board_text(of_first, spec, 0) == board_text(of_second, spec, 1) == "X O .\n. . X"
  np.testing.assert_array_equal(draw_frame(of_first, spec, 90, 0), draw_frame(of_second, spec, 90, 1))
  assert [player_name(spec, i) for i in (0, 1)] == ["X", "O"]


def test_pieces_of_player_planes_keep_their_owner():
  spec = own_spec(3, player_planes=(1, 0, 2))
  everywhere = [(row, column) for row in range(2) for column in range(3)]
  for to_play, mover in ((0, []), (1, everywhere)):
    assert board_text(own_frame(spec, p1=[(0, 0)], p0=[(0, 1)], p2=mover), spec, to_play) == "X O .\n. . ."


def test_several_planes_of_a_player_have_letters():
  names = ("man", "king", "man", "king", "mine")
  spec = own_spec(5, mover_planes=((0, 1), (2, 3)), frame_names=names)
  frame = own_frame(spec, p0=[(0, 0)], p1=[(0, 1)], p2=[(1, 0)], p3=[(1, 1)], p4=[(1, 2)])
  assert board_text(frame, spec, 0) == "M K .\nm k I"
  assert board_text(frame, spec, 1) == "m k .\nM K I"
  assert [player_name(spec, i) for i in (0, 1)] == ["orange", "blue"]


def test_planes_of_nobody():
  chomp = own_spec(1)
  assert board_text(own_frame(chomp, p0=[(0, 0)]), chomp) == "# . .\n. . ."
  assert player_name(chomp, 1) == "player 1"
  unnamed = own_spec(3)
  assert board_text(own_frame(unnamed, p0=[(0, 0)], p2=[(1, 1)]), unnamed) == "0 . .\n. 2 ."
  # A plane without a name, such as one that is 1 everywhere, is not drawn on a board of players.
  walls = own_spec(4, mover_planes=(0, 1), frame_names=("", "", "wall", ""))
  frame = own_frame(walls, p0=[(0, 0)], p1=[(0, 1)], p2=[(0, 2)], p3=[(1, 0), (0, 0)])
  assert board_text(frame, walls, 1) == "O X W\n. . ."


def test_columns_of_an_own_game_have_discs():
  spec = own_spec(2, places="columns", mover_planes=(0, 1))
  board = render_spec_of(spec).board
  assert (board.ground, board.names) == ("holes", ("red", "yellow"))
  assert board_text(own_frame(spec, p0=[(1, 2)]), spec, 1) == ". . .\n. . o"


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"mover_planes": (0, 2)}, r"mover_planes=\(0, 2\): must be different planes of frames of \(2, 3, 2\)"),
    ({"mover_planes": (1, 1)}, r"mover_planes=\(1, 1\): must be different planes"),
    ({"mover_planes": (-1, 0)}, r"mover_planes=\(-1, 0\): must be different planes"),
    ({"mover_planes": (0, 1), "num_players": 1}, "must be None with num_players=1"),
    ({"mover_planes": (0, 1), "player_planes": (0, 1, 1)}, "must be None with player_planes="),
    ({"frame_names": ("a",)}, "frame_names: 1 names; must be 2, one for each plane or vector entry"),
    ({"frame_names": "ab"}, "frame_names='ab': must be a tuple of texts"),
    ({"frame_names": ("a", "\x1b[2J")}, r"frame_names: '\\x1b\[2J' has characters that cannot be printed"),
    ({"action_names": tuple("abcdefgh")}, "action_names: 8 names for 7 actions"),
    ({"action_names": (0, 1)}, r"action_names=\(0, 1\): must be a tuple of texts"),
  ],
)
def test_impossible_fields_of_an_own_spec_are_refused(fields, message):
  with pytest.raises(ValueError, match=message):
    own_spec(2, **fields)


def test_names_of_a_vector():
  short = make_spec((1, 1, 2), "float32", frame_names=("x", "speed"))
  assert vector_text(np.array([[[0.5, -2.0]]], np.float32), short) == "x 0.5, speed -2"
  names = tuple(f"room {i}" for i in range(20))
  long = make_spec((1, 1, 20), "float32", frame_names=names)
  vector = np.zeros((1, 1, 20), np.float32)
  vector[0, 0, [3, 17]] = 1, 0.25
  assert vector_text(vector, long) == "room 3 1, room 17 0.25"


@pytest.mark.parametrize(
  ("game", "names"),
  [
    ("connect_four", ["red (x)", "yellow (o)"]),
    ("tic_tac_toe", ["X", "O"]),
    ("kuhn_poker", ["player 0", "player 1"]),
  ],
)
def test_players_are_named_with_their_letters_on_the_board(game, names):
  spec = registry.env_spec(f"open_spiel:{game}")
  assert [player_on_board(spec, i) for i in range(2)] == names

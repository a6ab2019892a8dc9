"""One frame, drawn in its environment's way."""

import numpy as np
import pytest

from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.vis.boards import draw_board
from moozi.vis.frames import PALETTE, plane_colours, render_frame
from moozi.vis.pictures import draw_frame, legend_of
from moozi.vis.render_spec import render_spec_of
from moozi.vis.vectors import draw_vector, vector_text


def play(name, actions, **kwargs):
  env = registry.make(name, seed=0, **kwargs)
  step = env.reset()
  for action in actions:
    step = env.step(action)
  return env.env_spec, step.observation


def near(picture, colour, tolerance=12):
  return (np.abs(picture.astype(int) - colour).max(axis=-1) <= tolerance).astype(int)


def test_discs_lie_in_their_columns():
  spec, seen = play("open_spiel:connect_four", [3, 3, 0])
  picture = draw_frame(seen.frame, spec, 240, seen.to_play)
  side = 240 // 7
  assert picture.shape == (6 * side, 7 * side, 3)
  red, yellow = render_spec_of(spec).board.colours
  # The middle of each cell: red first, at the bottom of columns 3 and 0, yellow on red in column 3.
  middles = picture[side // 2 :: side, side // 2 :: side]
  assert np.argwhere(near(middles, red)).tolist() == [[5, 0], [5, 3]]
  assert np.argwhere(near(middles, yellow)).tolist() == [[4, 3]]


def test_marks_are_told_apart_by_shape_too():
  spec, seen = play("open_spiel:tic_tac_toe", [0, 4])
  picture = draw_frame(seen.frame, spec, 90)
  orange, blue = render_spec_of(spec).board.colours
  cross, ring = near(picture[:30, :30], orange, 40), near(picture[30:60, 30:60], blue, 40)
  assert cross[15, 15] == 1
  assert ring[15, 15] == 0
  assert ring.sum() > 50
  assert near(picture[60:], orange, 40).sum() == near(picture[60:], blue, 40).sum() == 0


def test_a_board_is_drawn_from_one_side_whoever_is_to_move():
  spec = EnvSpec(
    name="pgx:tic_tac_toe", frame_shape=(3, 3, 2), frame_dtype="bool", num_env_actions=9, num_players=2
  )
  mine = np.zeros((3, 3, 2), bool)
  mine[1, 1, 0] = True
  theirs = mine[..., ::-1].copy()
  np.testing.assert_array_equal(draw_board(mine, spec, 60, 0), draw_board(theirs, spec, 60, 1))
  assert (draw_board(mine, spec, 60, 0) != draw_board(mine, spec, 60, 1)).any()


def test_only_boards_are_drawn_as_boards():
  spec, seen = play("minatar:breakout", [])
  with pytest.raises(ValueError, match="no board"):
    draw_board(seen.frame, spec, 100)


def test_facts_are_in_words():
  spec, seen = play("open_spiel:kuhn_poker", [1])
  text = vector_text(seen.frame, spec)
  assert text.startswith("player 1, card ")
  assert text.endswith("move 1 bet")
  picture = draw_frame(seen.frame, spec, 200)
  assert picture.shape[1] == 200
  other, then = play("open_spiel:kuhn_poker", [0])
  assert (draw_frame(then.frame, other, 200) != picture).any()


def test_bars_have_names_and_lengths():
  spec = EnvSpec(
    name="gymnasium:CartPole-v1", frame_shape=(1, 1, 4), frame_dtype="float32", num_env_actions=2
  )
  frame = np.array([[[1.0, -1.0, 0.0, np.inf]]], np.float32)
  picture = draw_vector(frame, spec, 240)
  line = picture.shape[0] // 4
  lengths = [
    [int(near(picture[i * line + line // 2], c, 0)[96:].sum()) for c in (PALETTE[3], PALETTE[1])]
    for i in range(4)
  ]
  half, full = lengths[0][0], lengths[3][0]
  assert lengths[0][1] == lengths[1][0] == 0
  assert lengths[1][1] == pytest.approx(half, abs=1)
  assert full == pytest.approx(2 * half, abs=3)
  assert lengths[2] == [0, 0]
  assert vector_text(frame[..., :], spec).startswith("position 1, speed -1, angle 0")


def test_long_vectors_are_fields_of_cells():
  spec = EnvSpec(name="test:long", frame_shape=(1, 1, 100), frame_dtype="bool", num_env_actions=2)
  frame = np.zeros((1, 1, 100), bool)
  frame[0, 0, 37] = True
  picture = draw_frame(frame, spec, 100)
  assert picture.shape == (100, 100, 3)
  assert np.argwhere(near(picture[5::10, 5::10], PALETTE[3], 0)).tolist() == [[3, 7]]
  assert vector_text(frame, spec) == "set: 37"


def test_planes_and_own_pictures_are_enlarged_by_whole_numbers_and_reduced_to_size():
  spec, seen = play("minatar:breakout", [])
  np.testing.assert_array_equal(draw_frame(seen.frame, spec, 125), render_frame(seen.frame, spec, 12))
  own = np.random.default_rng(0).integers(0, 256, (210, 160, 3)).astype(np.uint8)
  assert draw_frame(seen.frame, spec, 120, picture=own).shape == (120, 91, 3)
  assert draw_frame(seen.frame, spec, 430, picture=own).shape == (420, 320, 3)
  assert draw_frame(seen.frame, spec, 5).shape == (5, 5, 3)


@pytest.mark.parametrize("name", ["open_spiel:tic_tac_toe", "open_spiel:kuhn_poker", "minatar:breakout"])
def test_a_strangers_frame_is_refused(name):
  spec = registry.env_spec(name)
  with pytest.raises(ValueError, match="frame: "):
    draw_frame(np.zeros((2, 2, 1), bool), spec, 100)


def test_the_legend_names_each_colour():
  spec = registry.env_spec("minatar:seaquest")
  legend = legend_of(spec, 240)
  assert legend.shape[1] == 240
  for colour in plane_colours(10):
    assert near(legend, colour.astype(int), 0).sum() >= 100, "a swatch of ten by ten"
  assert legend_of(registry.env_spec("open_spiel:tic_tac_toe"), 240) is None

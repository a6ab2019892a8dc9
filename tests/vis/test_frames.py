"""Tests of drawn frames: colors and sizes."""

import itertools

import numpy as np
import pytest

from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.vis.boards import draw_board
from moozi.vis.frames import (
  BACKGROUND,
  PALETTE,
  draw_frame,
  draw_vector,
  plane_colors,
  render_frame,
  vector_text,
)
from moozi.vis.render_spec import render_spec_of


def make_spec(frame_shape, frame_dtype):
  return EnvSpec(name="test:frames", frame_shape=frame_shape, frame_dtype=frame_dtype, num_env_actions=2)


@pytest.mark.parametrize(
  "name", [w.name for library in ("minatar", "tiny") for w in registry.list_environments(library)]
)
def test_every_env_has_picture(name):
  env = registry.make(name, seed=0)
  height, width, _ = env.env_spec.frame_shape
  if height == width == 1:
    pytest.skip("a vector is shown as text")
  picture = render_frame(env.reset().observation.frame, env.env_spec, 4)
  assert picture.shape == (4 * height, 4 * width, 3)
  assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 1


def test_images_are_unchanged():
  random = np.random.default_rng(0)
  rgb = random.integers(0, 256, (5, 4, 3)).astype(np.uint8)
  np.testing.assert_array_equal(render_frame(rgb, make_spec((5, 4, 3), "uint8"), 1), rgb)
  grey = rgb[..., :1]
  np.testing.assert_array_equal(
    render_frame(grey, make_spec((5, 4, 1), "uint8")), np.repeat(grey, 3, axis=-1)
  )
  stacked = np.concatenate([rgb, 255 - grey], axis=-1)
  newest = render_frame(stacked, make_spec((5, 4, 4), "uint8"))
  np.testing.assert_array_equal(newest, np.repeat(255 - grey, 3, axis=-1))


def test_float_frames():
  picture = render_frame(np.array([[[-1.0], [0.0], [1.0]]], np.float32), make_spec((1, 3, 1), "float32"))
  assert picture[0, :, 0].tolist() == [0, 127, 255]
  flat = render_frame(np.full((1, 3, 1), 7, np.float32), make_spec((1, 3, 1), "float32"))
  assert (flat == 0).all()
  planes = np.array([[[0.0, 1.0], [0.0, 0.0]]], np.float32)
  picture = render_frame(planes, make_spec((1, 2, 2), "float32"))
  assert picture.tolist() == [[list(PALETTE[1]), list(BACKGROUND)]]


@pytest.mark.parametrize(
  ("frame", "scale", "message"),
  [
    (np.zeros((2, 2, 2), bool), 0, "scale=0"),
    (np.zeros((2, 2, 1), bool), 1, "frame: bool"),
    (np.zeros((2, 2, 2), np.uint8), 1, "frame: uint8"),
  ],
)
def test_wrong_frame_raises(frame, scale, message):
  with pytest.raises(ValueError, match=message):
    render_frame(frame, make_spec((2, 2, 2), "bool"), scale)


def test_many_planes_have_distinct_colors():
  colors = plane_colors(25)
  assert colors.shape == (25, 3)
  assert len(np.unique(colors, axis=0)) == 25


# Matrices that convert linear RGB to how color-blind viewers see it (Vienot, Brettel and Mollon 1999).
SEEN = {
  "all cones": np.eye(3),
  "protanope": np.array([[0.1124, 0.8876, 0.0], [0.1124, 0.8876, 0.0], [0.004, -0.004, 1.0]]),
  "deuteranope": np.array([[0.2928, 0.7072, 0.0], [0.2928, 0.7072, 0.0], [-0.0223, 0.0223, 1.0]]),
}


@pytest.mark.parametrize("eyes", SEEN)
def test_colors_are_distinct_under_color_blindness(eyes):
  colors = np.array([*PALETTE, BACKGROUND]) / 255
  seen = np.clip((colors**2.2) @ SEEN[eyes].T, 0, 1) ** (1 / 2.2)
  for (i, a), (j, b) in itertools.combinations(enumerate(seen), 2):
    assert np.linalg.norm(a - b) > 0.2, (i, j)


# --- draw_frame


def play(name, actions, **kwargs):
  env = registry.make(name, seed=0, **kwargs)
  step = env.reset()
  for action in actions:
    step = env.step(action)
  return env.env_spec, step.observation


def test_board_orientation_is_fixed():
  spec = EnvSpec(
    name="pgx:tic_tac_toe", frame_shape=(3, 3, 2), frame_dtype="bool", num_env_actions=9, num_players=2
  )
  mine = np.zeros((3, 3, 2), bool)
  mine[1, 1, 0] = True
  theirs = mine[..., ::-1].copy()
  np.testing.assert_array_equal(draw_board(mine, spec, 60, 0), draw_board(theirs, spec, 60, 1))
  assert (draw_board(mine, spec, 60, 0) != draw_board(mine, spec, 60, 1)).any()


def test_draw_board_needs_board():
  spec, seen = play("minatar:breakout", [])
  with pytest.raises(ValueError, match="has no board"):
    draw_board(seen.frame, spec, 100)


def test_facts_are_text():
  spec, seen = play("open_spiel:kuhn_poker", [1])
  text = vector_text(seen.frame, spec)
  assert text.startswith("player 1, card ")
  assert text.endswith("move 1 bet")
  picture = draw_frame(seen.frame, spec, 200)
  assert picture.shape[1] == 200
  other, then = play("open_spiel:kuhn_poker", [0])
  assert (draw_frame(then.frame, other, 200) != picture).any()


def uno_hand(spec, num_cards):
  """Returns a frame of Uno with a hand of different cards, the first ones in their order."""
  facts = render_spec_of(spec).facts
  vector = np.zeros(spec.frame_shape, spec.frame_dtype)
  start = len(facts[0].values)
  vector[0, 0, start : start + 2 * num_cards : 2] = 1  # each card has two entries
  return vector


@pytest.mark.parametrize("size", [48, 128, 240, 280])
def test_pictures_of_facts_have_one_size(size):
  spec = registry.env_spec("open_spiel:uno(players=4)", seat="random")
  hands = [uno_hand(spec, count) for count in (1, 6, 7, 20, 40)]
  assert [len(vector_text(hand, spec).split()) for hand in hands] == [2, 7, 8, 21, 41]
  pictures = [draw_vector(hand, spec, size) for hand in hands]
  assert len({picture.shape for picture in pictures}) == 1
  assert max(pictures[0].shape) <= size
  assert all((a != b).any() for a, b in itertools.combinations(pictures[:4], 2))
  for name in ("kuhn_poker", "leduc_poker", "simplest"):
    other = registry.env_spec(f"open_spiel:{name}", seat="random")
    assert max(draw_vector(np.zeros(other.frame_shape, bool), other, size).shape) <= size


def test_sizes():
  spec, seen = play("minatar:breakout", [])
  np.testing.assert_array_equal(draw_frame(seen.frame, spec, 125), render_frame(seen.frame, spec, 12))
  own = np.random.default_rng(0).integers(0, 256, (210, 160, 3)).astype(np.uint8)
  assert draw_frame(seen.frame, spec, 120, picture=own).shape == (120, 91, 3)
  assert draw_frame(seen.frame, spec, 430, picture=own).shape == (420, 320, 3)
  assert draw_frame(seen.frame, spec, 5).shape == (5, 5, 3)


@pytest.mark.parametrize("name", ["open_spiel:tic_tac_toe", "open_spiel:kuhn_poker", "minatar:breakout"])
def test_frame_of_other_env_raises(name):
  spec = registry.env_spec(name)
  with pytest.raises(ValueError, match="frame: "):
    draw_frame(np.zeros((2, 2, 1), bool), spec, 100)

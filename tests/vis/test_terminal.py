"""Tests of frames and steps in a terminal."""

import io
import types

import numpy as np
import pytest
from rich.console import Console

from moozi.envs import registry
from moozi.vis.terminal import frame_text, frame_view, half_blocks, step_line, step_lines, step_view


def show(renderable, width=80):
  console = Console(width=width, height=40, file=io.StringIO(), force_terminal=True, color_system="truecolor")
  console.print(renderable)
  return console.file.getvalue()


def plain(renderable, width=80):
  console = Console(width=width, height=40, file=io.StringIO(), no_color=True, force_terminal=False)
  console.print(renderable)
  return console.file.getvalue()


def test_half_blocks():
  picture = np.zeros((4, 3, 3), np.uint8)
  picture[0, 0] = (255, 0, 0)
  picture[1, 0] = (0, 255, 0)
  picture[2:, :] = (0, 0, 255)
  text = half_blocks(picture, 80, 40)
  assert text.plain == "▀▀▀\n▀▀▀"
  spans = [(s.start, s.end, s.style.color.name, s.style.bgcolor.name) for s in text.spans]
  assert spans == [
    (0, 1, "#ff0000", "#00ff00"),
    (1, 3, "#000000", "#000000"),
    (4, 7, "#0000ff", "#0000ff"),
  ]


def test_half_blocks_odd_height():
  text = half_blocks(np.full((3, 2, 3), 9, np.uint8), 80, 40)
  assert text.plain == "▀▀\n▀▀"
  assert text.spans[-1].style.bgcolor is None


@pytest.mark.parametrize(
  ("columns", "rows", "size"), [(20, 40, (20, 10)), (80, 5, (10, 5)), (80, 40, (40, 20))]
)
def test_half_blocks_fit_space(columns, rows, size):
  lines = half_blocks(np.zeros((40, 40, 3), np.uint8), columns, rows).plain.splitlines()
  assert (len(lines[0]), len(lines)) == size


def seen_of(name, actions):
  env = registry.make(name, seed=0)
  step = env.reset()
  for action in actions:
    step = env.step(action)
  return env.env_spec, step.observation


def view_of(name, actions, rows=20):
  spec, seen = seen_of(name, actions)
  return frame_view(seen.frame, spec, seen.to_play, None, 60, rows)


def test_frame_view():
  planes = plain(view_of("minatar:breakout", []))
  assert "▀" * 40 in planes
  assert "■ paddle  ■ ball  ■ trail  ■ brick" in planes
  assert "▀" in plain(view_of("open_spiel:tic_tac_toe", [4]))
  # Chess pieces are letters, because a few pixels would be hard to read.
  chess = plain(view_of("open_spiel:chess", []))
  assert "R N B Q K B N R" in chess
  assert "card " in plain(view_of("open_spiel:kuhn_poker", []))


def test_frame_text():
  spec, seen = seen_of("tiny:corridor", [1])
  assert frame_text(seen.frame, spec, 0) == ". . w . . . . ."
  spec, seen = seen_of("open_spiel:connect_four", [3])
  assert frame_text(seen.frame, spec, 1).splitlines()[-1] == ". . . x . . ."
  spec, seen = seen_of("minatar:breakout", [])
  lines = frame_text(seen.frame, spec, 0).splitlines()
  assert lines[1] == " ".join("r" * 10)
  assert lines[9].count("p") == 1


def make_step(**changes):
  spec, seen = seen_of("open_spiel:tic_tac_toe", [4])
  step = {
    "frame": seen.frame,
    "picture": None,
    "choices": None,
    "to_play": 1,
    "seat": 0,
    "reward": 0.0,
    "action": 3,
    "root_value": -0.25,
    "action_probs": np.array([0, 0.1, 0, 0.7, 0, 0, 0, 0.2, 0, 0]),
  }
  return spec, types.SimpleNamespace(**step | changes)


def test_step_lines():
  spec, step = make_step()
  assert step_lines(step, spec) == ["O to move (opponent)", "reward +0", "value -0.250", "action (0,2)"]
  line = step_line(step, spec)
  assert line.endswith("action (0,2); policy (0,2) 0.70 (2,0) 0.20 (0,0) 0.10")
  assert step_lines(make_step(seat=1)[1], spec)[0] == "O to move (agent)"
  assert step_lines(make_step(seat=None)[1], spec)[0] == "O to move"
  assert step_line(make_step(action=0)[1], spec).endswith(", end")
  assert "value not searched" in step_lines(make_step(root_value=float("nan"))[1], spec)


def test_step_view():
  spec, step = make_step()
  text = plain(step_view(step, spec, ["first line"], 80, 20))
  assert "first line" in text
  assert f"(0,2) {'█' * 14}{'·' * 6} 0.70" in text
  assert f"(2,0) {'█' * 4}{'·' * 16} 0.20" in text
  assert "end" not in text

"""Tests that one picture of each kind equals the one stored in tests/golden/pictures.

After an intended change, `python -m tests.vis.test_golden_pictures` rewrites the files; look at them.
"""

import dataclasses
import io
import pathlib
import tempfile
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from moozi.core.actor_report import Span, Stretch
from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.vis.evaluation_gifs import tile_images
from moozi.vis.frames import draw_frame, legend_of, render_frame
from moozi.vis.gif import episode_images
from moozi.vis.latent_space import write_latent_picture
from moozi.vis.search_tree import tree_svg
from moozi.vis.timeline_figure import timeline_png
from tests.vis.trees import make_tree

FOLDER = pathlib.Path(__file__).parents[1] / "golden" / "pictures"
BREAKOUT = "minatar:breakout"


def played(name: str, actions: list[int], size: int = 160) -> np.ndarray:
  """Draws the frame after these actions."""
  env = registry.make(name, seed=0)
  step = env.reset()
  for action in actions:
    step = env.step(action)
  return draw_frame(step.observation.frame, env.env_spec, size, step.observation.to_play)


def planes() -> np.ndarray:
  """A cell has the color of its first plane; large cells have a grid, small ones have none."""
  spec = EnvSpec(name="test:planes", frame_shape=(4, 9, 9), frame_dtype="bool", num_env_actions=2)
  first = np.arange(36).reshape(4, 9, 1) % 10  # of one cell in ten, no plane is set
  frame = np.arange(9) >= first
  large, small = (render_frame(frame, spec, scale) for scale in (12, 3))
  return np.concatenate([large, np.tile(small, (1, 4, 1))])


def vector(name: str, values: np.ndarray, size: int) -> np.ndarray:
  frame = values[None, None]
  spec = EnvSpec(
    name=name, frame_shape=frame.shape, frame_dtype=str(frame.dtype), num_env_actions=2, frame_names=()
  )
  return draw_frame(frame, spec, size)


def grey() -> np.ndarray:
  spec = EnvSpec(name="test:grey", frame_shape=(4, 6, 1), frame_dtype="float32", num_env_actions=2)
  return render_frame(np.linspace(-1, 3, 24, dtype=np.float32).reshape(4, 6, 1), spec, 8)


def step_of_episode(name: str, actions: list[int], shown: int, **changes) -> np.ndarray:
  """Draws one step of a GIF. Its reward is an error of float32, and its value was not searched."""
  env = registry.make(name, seed=0)
  seen = [env.reset(), *(env.step(action - 1) for action in actions)]
  spec, num = env.env_spec, len(seen)
  values = np.where(np.arange(num) == 1, np.nan, 0.25)
  probs = np.tile(np.linspace(0, 1, spec.num_actions), (num, 1))
  return episode_images(
    frames=np.stack([step.observation.frame for step in seen]),
    to_play=np.array([step.observation.to_play for step in seen]),
    actions=np.array([*actions, 0]),
    rewards=np.array([0.0, -7e-15, *[0.1] * (num - 2)]),
    root_values=values,
    action_probs=probs,
    spec=spec,
    **changes,
  )[shown]


def tiles() -> np.ndarray:
  """Draws the last step of three episodes, of which the first has ended."""
  env = registry.make(BREAKOUT, seed=0)
  frames = np.stack([env.reset().observation.frame, *(env.step(0).observation.frame for _ in range(3))])
  lengths = (2, 4, 4)
  return tile_images(
    frames=[frames[:n] for n in lengths],
    returns=[np.linspace(0, n, n) for n in lengths],
    to_play=[np.zeros(n, np.int32) for n in lengths],
    pictures=[None] * 3,
    spec=env.env_spec,
  )[3]


def timeline() -> np.ndarray:
  """One update fills the first half, many samples half of the next quarter; of the rest, nothing is known."""
  calls = [Span("sample", t, t + 0.005) for t in np.arange(5, 7.5, 0.01)]
  spans = (Span("update", 0, 5), *calls)
  tracks = {
    "parameter_server": [Stretch(since_s=0, until_s=7.5, spans=spans)],
    "worker $x^": [Stretch(since_s=2, until_s=10, spans=(Span("own $_{", 3, 4),))],
  }
  return np.asarray(Image.open(io.BytesIO(timeline_png(tracks, "a title $t_{"))).convert("RGB"))


def latent_space() -> np.ndarray:
  random = np.random.default_rng(0)
  encoded = np.cumsum(random.standard_normal((12, 6)), axis=0).astype(np.float32)
  starts = np.arange(3) * 3
  unrolled = encoded[starts][:, None] + random.standard_normal((3, 5, 6)) / 4
  drift = np.abs(random.standard_normal((3, 5)))
  unrolled[-1, 3:] = drift[-1, 3:] = np.nan
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "latent.png"
    arrays = (encoded, starts, unrolled.astype(np.float32), drift, 2 * drift)
    write_latent_picture(path, *arrays, "a title with $", trained_steps=2)
    with Image.open(path) as image:
      return np.asarray(image.convert("RGB"))


PICTURES: dict[str, Callable[[], np.ndarray]] = {
  "planes": planes,
  "legend": lambda: legend_of(registry.env_spec("minatar:seaquest"), 240),
  "grey": grey,
  "marks": lambda: played("open_spiel:tic_tac_toe", [0, 4]),
  "discs": lambda: played("open_spiel:connect_four", [3, 3, 0]),
  "stones": lambda: played("open_spiel:go(board_size=5)", [6, 12, 7]),
  "felt": lambda: played("open_spiel:othello", [19]),
  "hexes": lambda: played("open_spiel:hex(board_size=4)", [5, 6]),
  "letters": lambda: played("open_spiel:chess", [], 240),
  "numbers": lambda: played("open_spiel:2048", []),
  "facts": lambda: played("open_spiel:kuhn_poker", [1]),
  "bars": lambda: vector("gymnasium:CartPole-v1", np.float32([1.0, -1.0, np.nan, np.inf]), 240),
  "cells": lambda: vector("test:long", np.arange(100) == 37, 100),
  "gif_of_one_player": lambda: step_of_episode(
    BREAKOUT,
    [2, 1, 1],
    1,
    length=900,
    chance_probs=np.tile(np.float32([0, 0.1, 0.7, 0, 0, 0.2, 0, 0]), (4, 1)),
  ),
  "gif_of_two_players": lambda: step_of_episode("open_spiel:tic_tac_toe", [1, 5, 9], 3, seat=0),
  "gif_of_own_pictures": lambda: step_of_episode(
    BREAKOUT, [2, 1], 2, pictures=np.arange(3 * 80 * 60 * 3).reshape(3, 80, 60, 3).astype(np.uint8)
  ),
  "tiles": tiles,
  "timeline": timeline,
  "latent_space": latent_space,
}
# Matplotlib's text differs a little between its releases.
BY_MATPLOTLIB = ("timeline", "latent_space")


@pytest.mark.parametrize("name", PICTURES)
def test_picture_equals_golden(name):
  picture = PICTURES[name]()
  with Image.open(FOLDER / f"{name}.png") as image:
    golden = np.asarray(image.convert("RGB"))
  assert picture.shape == golden.shape
  differs = (np.abs(picture.astype(int) - golden) > 24).any(axis=-1)
  assert differs.mean() <= (0.01 if name in BY_MATPLOTLIB else 1e-4)


def search_tree() -> str:
  """Draws a search tree of two players with a chance node, of which some nodes are left out."""
  tree = make_tree(12, seed=2)
  is_chance = np.zeros(tree.num_nodes, bool)
  is_chance[tree.depth == 1] = True
  tree = dataclasses.replace(tree, is_chance=is_chance)
  names = ("dummy", "left", "right", "fire")
  return tree_svg(tree, names, signed_discount=-0.5, caption=["tiny:catch <&>"], action=1, max_nodes=9)


def test_search_tree_equals_golden():
  assert search_tree() == (FOLDER / "search_tree.svg").read_text("utf-8")


def write() -> None:
  FOLDER.mkdir(exist_ok=True)
  for name, draw in PICTURES.items():
    image = Image.fromarray(draw())
    if name in BY_MATPLOTLIB:
      image = image.quantize(128)
    image.save(FOLDER / f"{name}.png", optimize=True)
  (FOLDER / "search_tree.svg").write_text(search_tree(), "utf-8")


if __name__ == "__main__":
  write()

"""Tests of GIFs of episodes."""

import weakref

import numpy as np
import pytest
from PIL import Image

from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.vis.frames import PALETTE
from moozi.vis.gif import LazyImages, episode_images, write_gif


def make_images(num_images=5, height=20, width=30):
  images = np.zeros((num_images, height, width, 3), np.uint8)
  for i in range(num_images):
    images[i, :, 5 * i : 5 * i + 5] = (255, 40 * i, 0)
  return list(images)


def test_gif_round_trip(tmp_path):
  images = make_images()
  path = write_gif(tmp_path / "gifs" / "a.gif", images, fps=12)
  with Image.open(path) as read:
    assert read.n_frames == 5
    assert read.info["loop"] == 0
    durations = []
    for i, image in enumerate(images):
      read.seek(i)
      durations.append(read.info["duration"])
      difference = np.asarray(read.convert("RGB")).astype(int) - image
      assert np.abs(difference).max() <= 8
  assert durations == [80, 80, 80, 80, 1000]
  assert [p.name for p in path.parent.iterdir()] == ["a.gif"]


def test_single_image(tmp_path):
  with Image.open(write_gif(tmp_path / "a.gif", make_images(1), fps=1)) as read:
    assert read.size == (30, 20)


def test_failed_write_leaves_nothing(tmp_path, monkeypatch):
  (tmp_path / "a.gif").write_bytes(b"old")

  def fail(source, target):
    raise OSError("no space left")

  monkeypatch.setattr("os.replace", fail)
  with pytest.raises(OSError, match="no space"):
    write_gif(tmp_path / "a.gif", make_images(), fps=5)
  assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a.gif", b"old")]


@pytest.mark.parametrize(
  ("images", "fps", "message"),
  [
    ([], 5, "images is empty"),
    (make_images(), 0, "fps=0"),
    (make_images(), 51, "fps=51"),
    (make_images(2) + make_images(1, 21), 5, r"images\[2\]"),
    ([np.zeros((4, 4, 3))], 5, r"images\[0\]: float64"),
    ([np.zeros((4, 4), np.uint8)], 5, r"images\[0\]"),
  ],
)
def test_invalid_images_raise(tmp_path, images, fps, message):
  with pytest.raises(ValueError, match=message):
    write_gif(tmp_path / "a.gif", images, fps)
  assert not list(tmp_path.iterdir())


def test_pictures_are_not_all_held(tmp_path):
  alive, most = set(), [0]

  def draw(i):
    picture = np.full((20, 30, 3), 50 * (i % 5), np.uint8)
    alive.add(i)
    most[0] = max(most[0], len(alive))
    weakref.finalize(picture, alive.discard, i)
    return picture

  with Image.open(write_gif(tmp_path / "a.gif", LazyImages(100, draw), fps=12)) as read:
    assert read.n_frames == 100
  # At no time are more images in memory than those that the palette is computed from.
  assert most[0] <= 12


def make_episode(spec, num_steps=3, **changes):
  episode = {
    "frames": np.zeros((num_steps, *spec.frame_shape), spec.frame_dtype),
    "actions": np.ones(num_steps, np.int32),
    "rewards": np.zeros(num_steps, np.float32),
    "root_values": np.zeros(num_steps, np.float32),
    "action_probs": np.full((num_steps, spec.num_actions), 1 / spec.num_actions, np.float32),
  }
  return episode | changes


SPEC = registry.env_spec("minatar:breakout")


@pytest.mark.parametrize(
  "pictures",
  [np.zeros((2, 8, 8, 3), np.uint8), np.zeros((3, 8, 8), np.uint8), np.zeros((3, 8, 8, 3))],
)
def test_mismatched_pictures_raise(pictures):
  with pytest.raises(ValueError, match=r"pictures: .*must be uint8\[3, h, w, 3\]"):
    episode_images(**make_episode(SPEC), spec=SPEC, pictures=pictures)


def test_colors_are_constant_over_frames(tmp_path):
  env = registry.make("minatar:breakout", seed=0)
  frames = np.stack([env.reset().observation.frame, *(env.step(0).observation.frame for _ in range(4))])
  images = episode_images(**make_episode(SPEC, 5, frames=frames), spec=SPEC)
  with Image.open(write_gif(tmp_path / "a.gif", images, fps=10)) as read:
    bricks, paddles = set(), set()
    for i in range(5):
      read.seek(i)
      picture = np.asarray(read.convert("RGB"))[10:250, 10:250]
      bricks.add(tuple(picture[30, 3].tolist()))
      paddles.add(tuple(picture[220, 24 * 4 + 3].tolist()))
  assert len(bricks) == len(paddles) == 1
  assert np.abs(np.subtract(bricks.pop(), PALETTE[3])).max() <= 8
  assert np.abs(np.subtract(paddles.pop(), PALETTE[0])).max() <= 8


@pytest.mark.parametrize(
  ("frame_shape", "frame_dtype", "num_env_actions", "action_names"),
  [
    ((1, 1, 4), "float32", 2, ("left", "right")),
    ((9, 9, 4), "bool", 82, ()),
    ((84, 84, 1), "uint8", 18, tuple(f"a long name of action {i}" for i in range(18))),
    ((210, 160, 3), "uint8", 4, ()),
    ((1, 1, 500), "float32", 2, ()),
  ],
)
def test_other_frame_shapes(tmp_path, frame_shape, frame_dtype, num_env_actions, action_names):
  spec = EnvSpec(
    name="test:other",
    frame_shape=frame_shape,
    frame_dtype=frame_dtype,
    num_env_actions=num_env_actions,
    action_names=action_names,
  )
  images = episode_images(**make_episode(spec, 2), spec=spec)
  assert images[0].shape[0] < 500
  assert images[0].shape[1] < 800
  write_gif(tmp_path / "a.gif", images, fps=10)


@pytest.mark.parametrize(
  ("name", "value"),
  [
    ("actions", np.ones(2, np.int32)),
    ("rewards", np.zeros((3, 1))),
    ("root_values", np.zeros(4)),
    ("action_probs", np.zeros((3, 3))),
    ("chance_probs", np.zeros((2, 8))),
    ("frames", np.zeros((3, 10, 10, 3), bool)),
  ],
)
def test_mismatched_arrays_raise(name, value):
  with pytest.raises(ValueError, match=name.removesuffix("s")):
    episode_images(**make_episode(SPEC, **{name: value}), spec=SPEC)


# --- LazyImages


def make_lazy(num_pictures=5):
  drawn = []

  def draw(i):
    drawn.append(i)
    return np.full((2, 2, 3), i, np.uint8)

  return LazyImages(num_pictures, draw), drawn


def test_lazy_images_draw_on_read():
  pictures, drawn = make_lazy()
  assert len(pictures) == 5
  assert not drawn
  assert pictures[3][0, 0, 0] == 3
  assert pictures[-1][0, 0, 0] == 4
  assert drawn == [3, 4]


def test_lazy_images_are_a_sequence():
  pictures, _ = make_lazy()
  assert [int(p[0, 0, 0]) for p in pictures] == [0, 1, 2, 3, 4]
  assert [int(p[0, 0, 0]) for p in pictures[::2]] == [0, 2, 4]
  assert [int(p[0, 0, 0]) for p in pictures[1:4][::-1]] == [3, 2, 1]
  assert not make_lazy(0)[0]


@pytest.mark.parametrize("index", [5, -6])
def test_lazy_images_index_error(index):
  with pytest.raises(IndexError):
    make_lazy()[0][index]

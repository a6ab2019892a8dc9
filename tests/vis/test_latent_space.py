"""The picture of the hidden space, and the projector's files."""

import csv

import numpy as np
import pytest
from PIL import Image

from moozi.vis import latent_space
from moozi.vis.latent_space import (
  latent_picture,
  principal_components,
  reduced_states,
  write_latent_picture,
)
from moozi.vis.projector import write_projector


def test_components_are_those_of_the_covariance():
  random = np.random.default_rng(0)
  states = random.standard_normal((200, 5)) @ np.diag([3.0, 1.0, 0.1, 0.2, 5.0]) + 7
  project = principal_components(states)
  values, vectors = np.linalg.eigh(np.cov(states.T))
  for i in range(2):
    expected = vectors[:, -1 - i]
    expected = expected * np.sign(expected[np.abs(expected).argmax()])
    np.testing.assert_allclose(project.components[i], expected, atol=1e-9)
    assert project.shares[i] == pytest.approx(values[-1 - i] / values.sum())
  np.testing.assert_allclose(project(states).mean(axis=0), 0, atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 3), (2, 1), (4, 1)])
def test_few_states_have_components_too(shape):
  states = np.random.default_rng(0).standard_normal(shape)
  out = principal_components(states)(states)
  assert out.shape == (shape[0], 2)
  assert np.isfinite(out).all()


def test_fewer_numbers_keep_the_distances_where_they_can(monkeypatch):
  random = np.random.default_rng(0)
  states = (random.standard_normal((40, 5)) @ random.standard_normal((5, 300)) + 3).astype(np.float32)
  distances = np.linalg.norm(states[:, None] - states, axis=-1)
  # Forty points, or the twenty that the components are found by: either span the five dimensions.
  for most_fitted in (1000, 20):
    monkeypatch.setattr(latent_space, "_MOST_FITTED", most_fitted)
    out, share = reduced_states(states, 8)
    assert out.shape == (40, 8)
    assert share == pytest.approx(1.0)
    np.testing.assert_allclose(np.linalg.norm(out[:, None] - out, axis=-1), distances, rtol=1e-3, atol=1e-3)
  out, share = reduced_states(states, 2)
  assert out.shape == (40, 2)
  assert 0.3 < share < 0.99


def test_small_states_and_few_of_them_stay():
  states = np.random.default_rng(0).standard_normal((3, 8))
  assert reduced_states(states, 8)[0] is states
  assert reduced_states(states, 6)[0].shape == (3, 3), "three points have no more components"


def make_paths(num_steps=12, num_starts=3, unroll_steps=4):
  random = np.random.default_rng(0)
  encoded = np.cumsum(random.standard_normal((num_steps, 6)), axis=0).astype(np.float32)
  starts = np.arange(num_starts) * 3
  unrolled = encoded[starts][:, None] + random.standard_normal((num_starts, unroll_steps + 1, 6)) / 4
  drift = np.abs(random.standard_normal((num_starts, unroll_steps + 1)))
  unrolled[-1, 3:] = np.nan
  drift[-1, 3:] = np.nan
  return encoded, starts, unrolled.astype(np.float32), drift, 2 * drift


def test_both_panels_are_drawn(tmp_path):
  encoded, starts, unrolled, drift, rest = make_paths()
  picture = latent_picture(encoded, starts, unrolled, drift, rest, "a title", 2)
  path = write_latent_picture(tmp_path / "new" / "latent.png", picture)
  with Image.open(path) as read:
    np.testing.assert_array_equal(np.asarray(read), picture)
  again = latent_picture(encoded, starts, unrolled, drift, rest, "a title", 2)
  np.testing.assert_array_equal(picture, again)
  moved = unrolled.copy()
  moved[1, 2] += 1
  left = latent_picture(encoded, starts, moved, drift, rest, "a title", 2) != picture
  assert left[:, :640].any()
  assert not left[:, 640:].any()
  right = latent_picture(encoded, starts, unrolled, drift * 1.5, rest, "a title", 2) != picture
  assert right[:, 640:].any()
  assert not right[:, :640].any()


def test_paths_of_one_step_and_without_unrolls_are_drawn():
  encoded = np.zeros((1, 4), np.float32)
  unrolled = np.full((1, 3, 4), np.nan, np.float32)
  unrolled[0, 0] = 0
  drift = np.array([[0.0, np.nan, np.nan]])
  picture = latent_picture(encoded, np.array([0]), unrolled, drift, drift, "one", 5)
  assert picture.dtype == np.uint8


def make_projector(folder, num_points=10, size=(20, 12)):
  random = np.random.default_rng(0)
  vectors = random.standard_normal((num_points, 3)).astype(np.float32)
  metadata = {"step": range(num_points), "name": [f"a\tb {i}\n" for i in range(num_points)]}
  pictures = [np.full((*size, 3), i, np.uint8) for i in range(num_points)]
  return write_projector(folder, vectors, metadata, pictures), vectors


def test_files_read_back(tmp_path):
  folder, vectors = make_projector(tmp_path / "projector")
  np.testing.assert_allclose(np.loadtxt(folder / "tensors.tsv", delimiter="\t"), vectors, rtol=1e-6)
  with open(folder / "metadata.tsv", encoding="utf-8", newline="") as file:
    rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
  assert rows[0] == ["step", "name"]
  assert rows[1:] == [[str(i), f"a b {i}"] for i in range(10)]
  with Image.open(folder / "sprite.png") as sprite:
    sheet = np.asarray(sprite)
  assert sheet.shape == (80, 48, 3)
  assert [int(sheet[20 * (i // 4), 12 * (i % 4), 0]) for i in range(10)] == list(range(10))


def test_tensorboard_itself_serves_them(tmp_path):
  from tensorboard.plugins import base_plugin
  from tensorboard.plugins.projector.projector_plugin import ProjectorPlugin
  from werkzeug.test import Client

  folder, vectors = make_projector(tmp_path / "projector")
  plugin = ProjectorPlugin(base_plugin.TBContext(logdir=str(folder)))
  routes = plugin.get_plugin_apps()

  def get(route, **query):
    response = Client(routes[route]).get(route, query_string=query)
    assert response.status_code == 200, response.text
    return response

  name = "hidden states"
  assert get("/runs").json == ["."]
  (embedding,) = get("/info", run=".").json["embeddings"]
  assert embedding["tensorName"] == name
  assert embedding["sprite"]["singleImageDim"] == [12, 20]
  tensor = np.frombuffer(get("/tensor", run=".", name=name).data, np.float32)
  np.testing.assert_allclose(tensor.reshape(10, 3), vectors, rtol=1e-6)
  assert get("/metadata", run=".", name=name).text.splitlines()[0] == "step\tname"
  assert get("/sprite_image", run=".", name=name).data == (folder / "sprite.png").read_bytes()


def test_a_sheet_that_is_too_large_is_reduced(tmp_path):
  folder, _ = make_projector(tmp_path / "projector", num_points=5, size=(4000, 3000))
  with Image.open(folder / "sprite.png") as sprite:
    assert max(sprite.size) <= 8192
  assert "single_image_dim: 2047" in (folder / "projector_config.pbtxt").read_text()


@pytest.mark.parametrize(
  ("vectors", "metadata", "num_pictures", "message"),
  [
    (np.zeros((0, 3)), {"a": [], "b": []}, 0, "vectors: shape"),
    (np.full((1, 3), np.nan), {"a": [1], "b": [1]}, 1, "finite"),
    (np.zeros((1, 3)), {"a": [1]}, 1, "two or more"),
    (np.zeros((1, 3)), {"a": [1], "b": [1, 2]}, 1, "b has 2 values"),
    (np.zeros((1, 3)), {"a": [1], "b": [1]}, 2, "pictures: 2"),
  ],
)
def test_what_does_not_fit_is_refused(tmp_path, vectors, metadata, num_pictures, message):
  pictures = [np.zeros((2, 2, 3), np.uint8)] * num_pictures
  with pytest.raises(ValueError, match=message):
    write_projector(tmp_path / "projector", vectors, metadata, pictures)
  assert not list(tmp_path.iterdir())

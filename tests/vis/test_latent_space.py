"""Tests of the picture of the latent space and of the projector's files."""

import csv

import numpy as np
import pytest
from PIL import Image

from moozi.vis import latent_space
from moozi.vis.latent_space import (
  principal_components,
  reduced_states,
  write_latent_picture,
  write_projector,
)


def test_principal_components():
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
def test_few_states(shape):
  states = np.random.default_rng(0).standard_normal(shape)
  out = principal_components(states)(states)
  assert out.shape == (shape[0], 2)
  assert np.isfinite(out).all()


def test_reduced_states_keep_distances(monkeypatch):
  random = np.random.default_rng(0)
  states = (random.standard_normal((40, 5)) @ random.standard_normal((5, 300)) + 3).astype(np.float32)
  distances = np.linalg.norm(states[:, None] - states, axis=-1)
  # The principal components are fitted to all forty points or to twenty; either way they span 5 dimensions.
  for max_fitted in (1000, 20):
    monkeypatch.setattr(latent_space, "_MAX_FITTED", max_fitted)
    out, share = reduced_states(states, 8)
    assert out.shape == (40, 8)
    assert share == pytest.approx(1.0)
    np.testing.assert_allclose(np.linalg.norm(out[:, None] - out, axis=-1), distances, rtol=1e-3, atol=1e-3)
  out, share = reduced_states(states, 2)
  assert out.shape == (40, 2)
  assert 0.3 < share < 0.99


def test_small_states_are_unchanged():
  states = np.random.default_rng(0).standard_normal((3, 8))
  assert reduced_states(states, 8)[0] is states
  assert reduced_states(states, 6)[0].shape == (3, 3)


def draw(path, *arrays, trained_steps=2):
  write_latent_picture(path, *arrays, "a title with $", trained_steps)
  with Image.open(path) as image:
    return np.asarray(image.convert("RGB")).astype(int)


def test_single_step(tmp_path):
  encoded = np.zeros((1, 4), np.float32)
  unrolled = np.full((1, 3, 4), np.nan, np.float32)
  unrolled[0, 0] = 0
  drift = np.array([[0.0, np.nan, np.nan]])
  draw(tmp_path / "latent.png", encoded, np.array([0]), unrolled, drift, drift, trained_steps=5)


def make_projector(folder, num_points=10, size=(20, 12)):
  random = np.random.default_rng(0)
  vectors = random.standard_normal((num_points, 3)).astype(np.float32)
  metadata = {"step": range(num_points), "name": [f"a\tb {i}\n" for i in range(num_points)]}
  pictures = [np.full((*size, 3), i, np.uint8) for i in range(num_points)]
  write_projector(folder, vectors, metadata, pictures)
  return folder, vectors


def test_projector_round_trip(tmp_path):
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


def test_tensorboard_serves_projector(tmp_path):
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


def test_large_sprite_is_scaled_down(tmp_path, monkeypatch):
  monkeypatch.setattr(latent_space, "_MAX_SPRITE_PIXELS", 82)
  folder, _ = make_projector(tmp_path / "projector", num_points=5, size=(40, 30))
  with Image.open(folder / "sprite.png") as sprite:
    assert max(sprite.size) <= 82
  assert "single_image_dim: 20\n    single_image_dim: 27\n" in (folder / "projector_config.pbtxt").read_text()


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
def test_invalid_arguments_raise(tmp_path, vectors, metadata, num_pictures, message):
  pictures = [np.zeros((2, 2, 3), np.uint8)] * num_pictures
  with pytest.raises(ValueError, match=message):
    write_projector(tmp_path / "projector", vectors, metadata, pictures)
  assert not list(tmp_path.iterdir())

"""Tests of the timeline picture, in which the height of a color is the share of its span kind."""

import io

import numpy as np
import pytest
from PIL import Image

from moozi.core.actor_report import Span, Stretch
from moozi.vis import timeline as module
from moozi.vis.timeline import column_shares, timeline_png


def stretch(since_s, until_s, *spans):
  return Stretch(since_s=since_s, until_s=until_s, spans=tuple(Span(*span) for span in spans))


def test_column_shares():
  track = [
    stretch(0, 5, ("update", 0.5, 1.0), ("update", 1.0, 1.25), ("publish", 1.5, 1.75), ("update", 1.75, 4.5)),
    stretch(8, 10, ("update", 9.0, 10.0)),
  ]
  shares = column_shares(track, np.linspace(0, 10, 11))
  np.testing.assert_allclose(shares["update"], [0.5, 0.5, 1, 1, 0.5, 0, 0, 0, 0, 1], atol=1e-12)
  np.testing.assert_allclose(shares["publish"], [0, 0.25, *[0] * 8], atol=1e-12)
  assert column_shares([stretch(0, 1)], np.linspace(0, 10, 11)) == {}
  # Unix times are about 1.8e9 s, where float32 would be too coarse.
  late = [stretch(1.8e9, 1.8e9 + 10, ("update", 1.8e9 + 0.5, 1.8e9 + 1.25))]
  shares = column_shares(late, np.linspace(0, 10, 11) + 1.8e9)
  np.testing.assert_allclose(shares["update"], [0.5, 0.25, *[0] * 8], atol=1e-6)


def pixels(timeline, title="first"):
  with Image.open(io.BytesIO(timeline_png(timeline, title))) as image:
    return np.asarray(image.convert("RGB"))


def rgb(color):
  return tuple(bytes.fromhex(color[1:]))


def test_colors_fill_their_shares():
  # One update fills the first 5 s; many samples fill half of the next 2.5 s. Of the rest, nothing is known.
  calls = [("sample", t, t + 0.005) for t in np.arange(5, 7.5, 0.01)]
  picture = pixels({"parameter_server": [stretch(0, 7.5, ("update", 0, 5), *calls), stretch(10, 10.01)]})

  def area(color):
    # The lowest 45 rows, the legend, are excluded.
    return int((picture[:-45] == rgb(color)).all(axis=-1).sum())

  update, sample, idle = (area(c) for c in (module._COLORS["update"], module._COLORS["sample"], module._IDLE))
  assert update > 5000
  assert sample == pytest.approx(update / 4, rel=0.1)
  assert idle == pytest.approx(sample, rel=0.1)
  assert picture.shape[1] == 1400


def test_other_kinds_have_colors():
  track = [stretch(0, 9, *((f"own {i}", i, i + 1) for i in range(5)), ("update", 5, 6))]
  colors = module._colors({"a": track})
  assert list(colors) == ["update", *(f"own {i}" for i in range(5))]
  assert set(list(colors.values())[1:]) == set(module._OTHER_COLORS)


@pytest.mark.slow
def test_many_actors_and_odd_names():
  names = [f"a kind with a long name $\\frac$ {i}" for i in range(12)]
  track = [stretch(0, 12, *((name, i, i + 1) for i, name in enumerate(names)))]
  picture = pixels({f"worker $x^ {i}": track for i in range(20)}, "t$_{" * 500)
  assert picture.shape[0] > 800
  assert picture.shape[1] == 1400


def test_single_moment():
  assert pixels({"a": [stretch(1.8e9, 1.8e9 + 1e-6, ("update", 1.8e9, 1.8e9 + 1e-6))]}).shape[1] == 1400

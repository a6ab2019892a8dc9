"""Tests of the timeline picture, in which the height of a color is the share of its span kind."""

import numpy as np

from moozi.core.actor_report import Span, Stretch
from moozi.vis import timeline_figure as module
from moozi.vis.timeline_figure import column_shares, timeline_png


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


def test_other_kinds_have_colors():
  track = [stretch(0, 9, *((f"own {i}", i, i + 1) for i in range(5)), ("update", 5, 6))]
  colors = module._colors({"a": track})
  assert list(colors) == ["update", *(f"own {i}" for i in range(5))]
  assert set(list(colors.values())[1:]) == set(module._OTHER_COLORS)


def test_single_moment():
  moment = stretch(1.8e9, 1.8e9 + 1e-6, ("update", 1.8e9, 1.8e9 + 1e-6))
  assert timeline_png({"a": [moment]}, "first").startswith(b"\x89PNG")

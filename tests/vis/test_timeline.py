"""The timeline as a picture: what is bright is busy."""

import io

import numpy as np
from PIL import Image

from moozi.core.actor_report import Span, Stretch
from moozi.vis import timeline as module
from moozi.vis.timeline import timeline_picture, timeline_png


def stretch(since_s, until_s, *spans):
  return Stretch(since_s=since_s, until_s=until_s, spans=tuple(Span(*span) for span in spans))


# 1126 columns in 11.26 s: a column to each hundredth of a second.
SECONDS = (module._WIDTH - module._LEFT - module._RIGHT) / 100
TIMELINE = {
  "parameter_server": [stretch(0, SECONDS, ("update", 0, 2), ("publish", 2, 4))],
  "replay_buffer": [
    stretch(0, 5),
    stretch(8, SECONDS, *(("sample", t, t + 0.005) for t in np.arange(8, 10, 0.01))),
  ],
}


def rows(picture, num_actors=2):
  """The rows' middles, [W, 3] each."""
  bottom = len(picture) - module._BOTTOM
  step = module._ROW + module._GAP
  begin = bottom - num_actors * step
  middles = [begin + i * step + module._ROW - 2 for i in range(num_actors)]
  return [picture[y, module._LEFT : module._WIDTH - module._RIGHT].astype(int) for y in middles]


def test_a_column_has_the_color_of_what_was_done_in_it():
  server, replay = rows(timeline_picture(TIMELINE, "first"))
  assert server[50].tolist() == list(module._COLOURS["update"])
  assert server[350].tolist() == list(module._COLOURS["publish"])
  assert server[730].tolist() == list(module._IDLE)
  assert replay[150].tolist() == list(module._IDLE)
  # Nothing is known of the replay buffer between 5 s and 8 s.
  assert replay[650].tolist() == list(module.PAPER)
  # Half of each column's time.
  half = (np.array(module._IDLE) + module._COLOURS["sample"]) / 2
  np.testing.assert_allclose(replay[950], half, atol=1)


def test_the_shares_of_a_column_add_up():
  edges = np.linspace(0, 10, 11)
  intervals = [(0.5, 1.0), (1.0, 1.25), (1.75, 4.5), (9.0, 10.0)]
  expected = [0.5, 0.5, 1, 1, 0.5, 0, 0, 0, 0, 1]
  np.testing.assert_allclose(module._coverage(edges, intervals), expected, atol=1e-12)
  assert not module._coverage(edges, []).any()
  # On a wall clock of today.
  late = [(a + 1.8e9, b + 1.8e9) for a, b in intervals]
  np.testing.assert_allclose(module._coverage(edges + 1.8e9, late), expected, atol=1e-6)


def test_kinds_that_nobody_knows_have_colors_too():
  track = [stretch(0, 9, *((f"own {i}", i, i + 1) for i in range(5)), ("update", 5, 6))]
  kinds = module._kinds({"a": track})
  assert list(kinds) == ["update", *(f"own {i}" for i in range(5))]
  assert set(list(kinds.values())[1:]) == set(module._OTHERS)


def test_many_kinds_take_several_lines_and_many_actors_a_taller_sheet():
  small = timeline_picture(TIMELINE, "t")
  names = [f"a kind of work with a long name, number {i}" for i in range(12)]
  track = [stretch(0, 12, *((name, i, i + 1) for i, name in enumerate(names)))]
  large = timeline_picture({f"training_worker_{i}": track for i in range(20)}, "t" * 500)
  assert len(large) >= len(small) + 18 * (module._ROW + module._GAP) + 2 * module._LEGEND_LINE
  assert large.shape[1] == module._WIDTH


def test_a_moment_can_be_drawn():
  moment = {"a": [stretch(1.8e9, 1.8e9 + 1e-6, ("update", 1.8e9, 1.8e9 + 1e-6))]}
  assert timeline_picture(moment, "t").shape[1] == module._WIDTH


def test_the_png_is_the_picture():
  with Image.open(io.BytesIO(timeline_png(TIMELINE, "first", 3.0))) as image:
    np.testing.assert_array_equal(np.array(image), timeline_picture(TIMELINE, "first", 3.0))

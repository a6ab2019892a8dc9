"""Tests that each experiment's page has a picture, and that pictures show the committed results."""

import re

import numpy as np
import PIL.Image
import pytest

from experiments.lib import pictures
from experiments.lib.pictures import Panel, curves, digest_of, dots, pictures_of, save
from experiments.lib.tables import EXPERIMENTS
from moozi.core.errors import UserError

pytestmark = pytest.mark.usefixtures("configurations_are_read_once")
PAGES = sorted(EXPERIMENTS.glob("*/README.md"))
WITHOUT = {
  "offline": "two returns",
  "replay_memory": "the table's rows differ by a factor of forty or not at all",
}
"""The pages without a picture, and why."""

FILES = [
  pytest.param(page.parent.name, file, id=f"{page.parent.name}-{file.removeprefix('results/')}")
  for page in PAGES
  for file in pictures_of(page.parent.name)
]
POINTS = (np.arange(4.0) * 1e6, np.array([0.0, 1.0, 4.0, 2.0]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_a_page_has_a_picture_after_its_commands(page):
  parts = page.read_text("utf-8").rstrip().split("\n\n")
  shown = [part for part in parts if re.fullmatch(r"!\[[^]]+\]\([^)]+\)", part)]
  if page.parent.name in WITHOUT:
    assert not shown
    return
  commands = next(place for place, part in enumerate(parts) if part.startswith("    "))
  assert commands < parts.index(shown[0])
  for part in shown:
    assert (page.parent / part.rpartition("(")[2].removesuffix(")")).is_file()


def test_all_committed_pictures_are_drawn_from_results():
  known = {EXPERIMENTS / page.parent.name / file for page in PAGES for file in pictures_of(page.parent.name)}
  assert set(EXPERIMENTS.glob("*/results/**/*.png")) == known


@pytest.mark.parametrize(("name", "file"), FILES)
def test_a_committed_picture_shows_the_committed_results(name, file):
  path = EXPERIMENTS / name / file
  with PIL.Image.open(path) as picture:
    stored = picture.text.get(pictures.DATA)
  assert stored == digest_of(pictures_of(name)[file]()), f"run python -m experiments.lib.pictures {name}"
  assert path.stat().st_size < 60_000


def test_a_digest_changes_with_points_labels_and_rows():
  def of(label: str = "a", y: float = 2.0, **options) -> str:
    points = (POINTS[0], np.array([0.0, 1.0, 4.0, y]))
    return digest_of(curves(Panel(curves={label: [points]}, **options)))

  rows = {"": {"a": [1.0, 2.0], "b": [3.0]}}
  others = [
    of(),
    of("b"),
    of(y=2.01),
    of(y=3.0),
    of(title="c"),
    of(x="wall_s"),
    of(marks={1e6: "change"}),
    of(levels={"goal": 1.0}),
    digest_of(dots(rows, "return")),
    digest_of(dots({"": {"a": [1.0, 2.0], "c": [3.0]}}, "return")),
  ]
  assert len(set(others)) == len(others)
  assert of(y=2.0001) == of()  # three digits are compared


def test_a_panel_has_each_run_and_their_mean():
  later = (POINTS[0] + 1e6, POINTS[1] + 2)
  (axis,) = curves(Panel(curves={"two": [POINTS, later], "one": [POINTS]}, dots={"one": [POINTS]})).axes
  first, second, mean, one, dot = axis.lines
  np.testing.assert_allclose(first.get_xydata(), np.transpose([POINTS[0] / 1e6, POINTS[1]]))
  np.testing.assert_allclose(second.get_xdata(), [1, 2, 3, 4])
  # The mean is over the steps that both runs have.
  np.testing.assert_allclose(mean.get_xdata()[[0, -1]], [1, 3])
  np.testing.assert_allclose(mean.get_ydata()[[0, -1]], [(1 + 2) / 2, (2 + 6) / 2])
  assert mean.get_linewidth() > 2 * first.get_linewidth()
  assert (mean.get_label(), one.get_label()) == ("two", "one")
  assert dot.get_color() == one.get_color() != mean.get_color()


def test_a_saved_picture_is_small_and_has_its_digest(tmp_path):
  figure = curves(Panel(curves={"a": [POINTS]}))
  save(figure, tmp_path / "a.png")
  with PIL.Image.open(tmp_path / "a.png") as picture:
    assert picture.text == {pictures.DATA: digest_of(figure)}
    assert picture.width == 700
    blue = np.abs(np.asarray(picture.convert("RGB"), int) - (0x00, 0x72, 0xB2)).max(-1) < 24
  assert blue.sum() > 300
  assert (tmp_path / "a.png").stat().st_size < 30_000


def test_variants_without_runs_are_refused(tmp_path):
  with pytest.raises(UserError, match="no results of plain"):
    pictures.points_of(tmp_path, ["plain"])


def test_an_experiment_without_pictures_is_refused(capsys):
  assert pictures.main(["offline"]) == 2
  assert "error: offline: has no pictures; choose from asterix_ablation, atari" in capsys.readouterr().err

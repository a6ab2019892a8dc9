"""`moozi latent`."""

import numpy as np
import pytest
from PIL import Image

from tests.commands.conftest import make_run

EPISODE_0 = "step_000000064_episode_0"


@pytest.mark.parametrize("kind", ["catch", "board"])
def test_picture_and_projector_are_written(runs, door, tmp_path, kind):
  out = tmp_path / "out"
  status, told, _ = door("latent", runs[kind], "--out", out, "--episode", "1", "--unroll", "3")
  assert status == 0
  assert str(out / "latent.png") in told
  assert "evaluation episode 1\n" in told
  assert "principal components" not in told
  assert f"--logdir {out / 'projector'}" in told
  with Image.open(out / "latent.png") as picture:
    assert picture.size == (1100, 560)
  vectors = np.loadtxt(out / "projector" / "tensors.tsv", delimiter="\t")
  lines = (out / "projector" / "metadata.tsv").read_text().splitlines()
  rows = [dict(zip(lines[0].split("\t"), line.split("\t"), strict=True)) for line in lines[1:]]
  assert len(vectors) == len(rows)
  encoded = [row for row in rows if row["kind"] == "encoded"]
  assert [int(row["step"]) for row in encoded] == list(range(len(encoded)))
  # Each unroll goes three steps on, or to the end.
  for row in rows[len(encoded) :]:
    assert int(row["step"]) == int(row["start"]) + int(row["k"]) < len(encoded)
  assert sum(int(row["start"]) == 0 for row in rows[len(encoded) :]) == min(3, len(encoded) - 1)


def test_what_is_large_is_made_smaller_and_told(runs, door, tmp_path, monkeypatch):
  monkeypatch.setattr("moozi.commands.latent._MOST_NUMBERS", 6)
  status, told, _ = door("latent", runs["catch"], "--out", tmp_path, "--steps", "4")
  assert status == 0
  assert "evaluation episode 0, its first 4 steps\n" in told
  assert "6 principal components of 16 numbers a state, " in told
  assert np.loadtxt(tmp_path / "projector" / "tensors.tsv", delimiter="\t").shape[1] == 6
  lines = (tmp_path / "projector" / "metadata.tsv").read_text().splitlines()
  assert sum(line.startswith("encoded") for line in lines) == 4


def test_the_place_is_in_the_run_by_default(runs, door):
  assert door("latent", runs["catch"])[0] == 0
  assert (runs["catch"] / "latent" / "step_000000064_episode_0" / "latent.png").is_file()
  assert door("latent", runs["catch"], "--steps", "3")[0] == 0
  assert (runs["catch"] / "latent" / "step_000000064_episode_0_first_3" / "latent.png").is_file()


def test_a_value_that_was_not_searched_is_left_out(runs, door, tmp_path):
  assert door("latent", runs["clock"], "--out", tmp_path)[0] == 0
  lines = (tmp_path / "projector" / "metadata.tsv").read_text().splitlines()
  rows = [dict(zip(lines[0].split("\t"), line.split("\t"), strict=True)) for line in lines[1:]]
  # Four steps, and the frame after them; unrolls that come there stand for the same frame.
  assert {row["step"] for row in rows if not row["value"]} == {"4"}
  assert all(np.isfinite(float(row["value"])) for row in rows if row["step"] != "4")


@pytest.mark.parametrize(
  "names", [("latent",), ("latent", EPISODE_0), ("latent", EPISODE_0, "projector")], ids=len
)
def test_links_in_a_run_are_not_followed_for_writing(refused, tmp_path, monkeypatch, names):
  run = make_run(tmp_path, "linked")
  link = run.joinpath(*names)
  link.parent.mkdir(parents=True, exist_ok=True)
  link.symlink_to(tmp_path / "elsewhere")
  # It is refused before anything is played.
  monkeypatch.delattr("moozi.commands.latent._paths")
  assert f"{link}: is a link" in refused("latent", run)
  assert not (tmp_path / "elsewhere").exists()


def test_links_in_the_place_of_files_are_replaced(door, tmp_path):
  run, mine = make_run(tmp_path, "linked"), tmp_path / "mine"
  mine.write_text("mine")
  folder = run / "latent" / EPISODE_0
  (folder / "projector").mkdir(parents=True)
  names = ["latent.png"]
  names += [f"projector/{n}" for n in ("tensors.tsv", "metadata.tsv", "sprite.png", "projector_config.pbtxt")]
  for name in names:
    (folder / name).symlink_to(mine)
  assert door("latent", run)[0] == 0
  assert mine.read_text() == "mine"
  assert [name for name in names if (folder / name).is_symlink()] == []
  assert sum(path.is_file() for path in folder.rglob("*")) == len(names), "and nothing half-written stays"


def test_ppo_has_no_model(runs, refused):
  assert "has no model to unroll; `moozi watch` shows it play" in refused("latent", runs["ppo"])


def test_a_run_without_a_checkpoint_says_what_makes_one(runs, refused):
  assert "holds no checkpoint; `moozi train` leaves one" in refused("latent", runs["empty"])


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (["--episode", "-1"], "--episode=-1: must be a whole number from 0"),
    (["--episode", "100000"], "--episode=100000: must be a whole number from 0 to 99999"),
    (["--unroll", "0"], "--unroll=0"),
    (["--steps", "1"], "--steps=1: must be at least 2"),
    (["--steps", "5000"], "--steps=5000: must be at most 1000"),
    (["--unroll", "5000"], "--unroll=5000: must be at most 1000"),
  ],
)
def test_what_cannot_be_is_refused(runs, refused, arguments, message):
  assert message in refused("latent", runs["catch"], *arguments)


def test_a_place_that_cannot_be_written_is_refused(runs, refused, tmp_path):
  (tmp_path / "file").write_text("")
  assert "cannot be written" in refused("latent", runs["catch"], "--out", tmp_path / "file" / "out")

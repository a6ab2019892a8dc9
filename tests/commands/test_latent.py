import numpy as np
import pytest
from PIL import Image

import moozi
from moozi.commands import latent
from tests.commands.conftest import make_run

EPISODE_0 = "step_000000064_episode_0"


@pytest.fixture(scope="module")
def paths(runs):
  """Returns the encoded and unrolled states of an episode's first four steps."""
  return latent._paths(moozi.load(runs["catch"]), 0, 4, 2)


@pytest.fixture
def played(monkeypatch, paths):
  """Makes `moozi latent` use `paths` instead of playing an episode."""
  monkeypatch.setattr(latent, "_paths", lambda *_: paths)


@pytest.mark.parametrize("kind", ["catch", "board"])
@pytest.mark.slow
def test_latent(runs, cli, tmp_path, kind):
  out = tmp_path / "out"
  status, shown, _ = cli("latent", runs[kind], "--out", out, "--episode", "1", "--unroll", "3")
  assert status == 0
  assert str(out / "latent.png") in shown
  assert "evaluation episode 1\n" in shown
  assert "principal components" not in shown
  assert f"--logdir {out / 'projector'}" in shown
  with Image.open(out / "latent.png") as picture:
    assert picture.size == (1300, 600)
  vectors = np.loadtxt(out / "projector" / "tensors.tsv", delimiter="\t")
  lines = (out / "projector" / "metadata.tsv").read_text().splitlines()
  rows = [dict(zip(lines[0].split("\t"), line.split("\t"), strict=True)) for line in lines[1:]]
  assert len(vectors) == len(rows)
  encoded = [row for row in rows if row["kind"] == "encoded"]
  assert [int(row["step"]) for row in encoded] == list(range(len(encoded)))
  # Near the end of the episode, unrolls are cut at the last frame.
  for row in rows[len(encoded) :]:
    assert int(row["step"]) == int(row["start"]) + int(row["k"]) < len(encoded)
  assert sum(int(row["start"]) == 0 for row in rows[len(encoded) :]) == min(3, len(encoded) - 1)


@pytest.mark.slow
def test_large_states_are_reduced(runs, cli, tmp_path, monkeypatch, played):
  monkeypatch.setattr("moozi.commands.latent._MAX_STATE_SIZE", 6)
  status, shown, _ = cli("latent", runs["catch"], "--out", tmp_path, "--steps", "4")
  assert status == 0
  assert "evaluation episode 0, first 4 steps\n" in shown
  assert "6 principal components of 16 numbers per state, " in shown
  assert np.loadtxt(tmp_path / "projector" / "tensors.tsv", delimiter="\t").shape[1] == 6
  lines = (tmp_path / "projector" / "metadata.tsv").read_text().splitlines()
  assert sum(line.startswith("encoded") for line in lines) == 4


@pytest.mark.slow
def test_default_folder(runs, cli, played):
  assert cli("latent", runs["catch"])[0] == 0
  assert (runs["catch"] / "latent" / "step_000000064_episode_0" / "latent.png").is_file()
  assert cli("latent", runs["catch"], "--steps", "3")[0] == 0
  assert (runs["catch"] / "latent" / "step_000000064_episode_0_first_3" / "latent.png").is_file()


@pytest.mark.slow
def test_missing_value_is_empty(runs, cli, tmp_path):
  assert cli("latent", runs["clock"], "--out", tmp_path)[0] == 0
  lines = (tmp_path / "projector" / "metadata.tsv").read_text().splitlines()
  rows = [dict(zip(lines[0].split("\t"), line.split("\t"), strict=True)) for line in lines[1:]]
  # Step 4, the last frame, has no value, whether encoded or unrolled.
  assert {row["step"] for row in rows if not row["value"]} == {"4"}
  assert all(np.isfinite(float(row["value"])) for row in rows if row["step"] != "4")


@pytest.mark.parametrize(
  "names", [("latent",), ("latent", EPISODE_0), ("latent", EPISODE_0, "projector")], ids=len
)
def test_links_are_not_followed(refused, tmp_path, monkeypatch, names):
  run = make_run(tmp_path, "linked")
  link = run.joinpath(*names)
  link.parent.mkdir(parents=True, exist_ok=True)
  link.symlink_to(tmp_path / "elsewhere")
  # The command must fail before it plays.
  monkeypatch.delattr("moozi.commands.latent._paths")
  assert f"{link}: is a link" in refused("latent", run)
  assert not (tmp_path / "elsewhere").exists()


def test_links_at_files_are_replaced(cli, tmp_path, played):
  run, mine = make_run(tmp_path, "linked"), tmp_path / "mine"
  mine.write_text("mine")
  folder = run / "latent" / EPISODE_0
  (folder / "projector").mkdir(parents=True)
  names = ["latent.png"]
  names += [f"projector/{n}" for n in ("tensors.tsv", "metadata.tsv", "sprite.png", "projector_config.pbtxt")]
  for name in names:
    (folder / name).symlink_to(mine)
  assert cli("latent", run)[0] == 0
  assert mine.read_text() == "mine"
  assert [name for name in names if (folder / name).is_symlink()] == []
  assert sum(path.is_file() for path in folder.rglob("*")) == len(names)


def test_ppo_has_no_model(runs, refused):
  assert "`moozi latent` needs an algorithm with one" in refused("latent", runs["ppo"])


def test_run_without_checkpoint(runs, refused):
  assert "holds no checkpoint; `moozi train` saves one" in refused("latent", runs["empty"])


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (["--episode", "-1"], "'--episode': -1: must be an integer from 0"),
    (["--episode", "1" * 10], "must be an integer from 0 to 999,999,999"),
    (["--unroll", "0"], "'--unroll': 0: must be an integer from 1"),
    (["--steps", "1"], "'--steps': 1: must be an integer from 2"),
    (["--steps", "5000"], "must be an integer from 2 to 1,000"),
    (["--unroll", "5000"], "must be an integer from 1 to 1,000"),
  ],
)
def test_bad_arguments(runs, refused, arguments, message):
  assert message in refused("latent", runs["catch"], *arguments)


def test_unwritable_output(runs, refused, tmp_path, played):
  (tmp_path / "file").write_text("")
  assert "cannot be written" in refused("latent", runs["catch"], "--out", tmp_path / "file" / "out")

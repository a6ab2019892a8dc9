"""Tests of the run directory."""

import json
from datetime import datetime
from pathlib import Path

import pytest

from moozi.core.config import Config, EnvConfig, RunConfig
from moozi.core.errors import UserError
from moozi.io.run_directory import SUMMARY_KEYS, RunDirectory, check_name, read_run_config


def config_for(tmp_path: Path, name: str | None) -> Config:
  return Config(run=RunConfig(dir=str(tmp_path / "runs"), name=name), env=EnvConfig(name="tiny:catch"))


def test_new_run_has_folders_and_config(tmp_path):
  config = config_for(tmp_path, "first")
  run = RunDirectory.create(config)
  assert run.path == tmp_path / "runs" / "first"
  assert sorted(p.name for p in run.path.iterdir()) == [
    "checkpoints",
    "config.yaml",
    "gifs",
    "logs",
  ]
  assert run.load_config() == config
  assert RunDirectory.open(run.path) == run
  assert run.log_path("driver") == run.path / "logs" / "driver.log"
  assert run.name == "first"


def test_generated_names_are_unique(tmp_path):
  now = datetime(2026, 11, 21, 9, 30)
  names = [RunDirectory.create(config_for(tmp_path, None), now).path.name for _ in range(3)]
  assert names == [
    "tiny-catch-20261121-093000",
    "tiny-catch-20261121-093000-2",
    "tiny-catch-20261121-093000-3",
  ]
  assert RunDirectory(tmp_path / "runs" / names[1]).load_config().run.name == names[1]


def test_run_is_never_overwritten(tmp_path):
  run = RunDirectory.create(config_for(tmp_path, "first"))
  (run.path / "metrics.jsonl").write_text("kept")
  with pytest.raises(UserError, match=r"run\.name=first.*never overwritten"):
    RunDirectory.create(config_for(tmp_path, "first"))
  assert (run.path / "metrics.jsonl").read_text() == "kept"


def test_existing_link_or_file_is_refused(tmp_path):
  (tmp_path / "runs").mkdir()
  (tmp_path / "elsewhere").mkdir()
  (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere")
  (tmp_path / "runs" / "dangling").symlink_to(tmp_path / "not_there")
  (tmp_path / "runs" / "file").write_text("")
  for name in ("link", "dangling", "file"):
    with pytest.raises(UserError, match="never overwritten"):
      RunDirectory.create(config_for(tmp_path, name))
  assert not list((tmp_path / "elsewhere").iterdir())
  assert not (tmp_path / "not_there").exists()


@pytest.mark.parametrize(
  "name",
  [
    "",
    ".",
    "..",
    "../x",
    "a/b",
    "/tmp/x",
    "a\\b",
    ".hidden",
    "a/../../x",
    "-rf",
    "a b",
    "a\nb",
    "a\0b",
    "~",
    "ü",
    "x" * 121,
  ],
)
def test_invalid_names_are_refused(tmp_path, name):
  with pytest.raises(UserError, match=r"run\.name="):
    RunDirectory.create(config_for(tmp_path, name))
  assert not (tmp_path / "runs").exists()
  assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a", "first-run_2", "v1.0+x", "seed=3", "x" * 120, "7"])
def test_valid_names(name):
  assert check_name(name) == name


def test_uncreatable_run_dir_is_reported(tmp_path):
  (tmp_path / "file").write_text("")
  for folder in (tmp_path / "file", tmp_path / "file" / "below"):
    config = Config(run=RunConfig(dir=str(folder), name="x"))
    with pytest.raises(UserError, match=r"run\.dir="):
      RunDirectory.create(config)


def test_open_refuses_other_folders(tmp_path):
  (tmp_path / "file").write_text("")
  with pytest.raises(UserError, match="no such folder; a run directory is needed, which `moozi train` makes"):
    RunDirectory.open(tmp_path / "missing")
  with pytest.raises(UserError, match="is not a folder"):
    RunDirectory.open(tmp_path / "file")
  with pytest.raises(UserError, match=r"it has no config\.yaml and no checkpoints; `moozi train` makes"):
    RunDirectory.open(tmp_path)
  with pytest.raises(UserError, match=r"cannot be read|no such folder"):
    RunDirectory.open("a\0b")


def test_summary(tmp_path):
  run = RunDirectory.create(config_for(tmp_path, "first"))
  with pytest.raises(UserError, match="the run has not ended"):
    run.read_summary()
  summary = dict.fromkeys(SUMMARY_KEYS, 1.5)
  with pytest.raises(ValueError, match="sample_reuse"):
    run.write_summary({k: v for k, v in summary.items() if k != "sample_reuse"})
  run.write_summary(summary | {"test_return_std": float("nan"), "env": "tiny:catch"})
  assert json.loads(run.summary_path.read_text())["test_return_std"] is None
  assert run.read_summary()["env"] == "tiny:catch"
  run.summary_path.write_bytes(b"\x80\x04}.")
  with pytest.raises(UserError, match="cannot be read"):
    run.read_summary()


def test_saved_config_cannot_have_a_base(tmp_path):
  (tmp_path / "other.yaml").write_text("seed: 3\n")
  path = tmp_path / "config.yaml"
  path.write_text("base: other.yaml\n")
  with pytest.raises(UserError, match="not a resolved configuration"):
    read_run_config(path)


def test_home_in_the_folder_of_runs(tmp_path, monkeypatch):
  monkeypatch.setenv("HOME", str(tmp_path))
  for folder, wanted in (("~/runs", tmp_path / "runs"), ("~nobody_here/runs", Path("~nobody_here/runs"))):
    assert Config(run={"dir": folder}).run.folder == wanted

"""Tests of `moozi configs`, of configuration names in `moozi train`, and of `python -m moozi`."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from moozi.cli import main
from moozi.commands import train
from moozi.io import config_files
from moozi.io.config import load_config
from moozi.io.config_files import list_configs

INFOS = list_configs()
NAMES = [info.name for info in INFOS]
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("columns", [pytest.param(20, marks=pytest.mark.slow), 80, 150])
def test_list_fits_the_terminal(cli, monkeypatch, columns):
  monkeypatch.setenv("COLUMNS", str(columns))
  status, out, err = cli("configs")
  assert (status, err) == (0, "")
  table = out.partition("\n\n")[0].splitlines()
  assert all(len(line) <= columns or line in NAMES for line in table)
  text = re.search(r"^tiny/catch\b(.*?)^\S", out, re.DOTALL | re.MULTILINE)[1]
  words = " ".join(text.split())
  assert ("1.0, 20 of 20 runs" if columns == 150 else "time: 97 s return: 1.0, 20 of 20 runs") in words
  assert ("MinAtar Asterix" in out) == (columns == 150)
  assert "…" not in out  # nothing is cut
  assert all(name in out for name in NAMES)


def test_words_choose_configurations(cli, refused, monkeypatch):
  monkeypatch.setattr(config_files, "list_configs", lambda: INFOS)  # each call reads all files

  def names(*words):
    return [info["name"] for info in json.loads(cli("configs", "--json", *words)[1])]

  assert names("minatar/") == [name for name in NAMES if "minatar/" in name]
  assert names("PONG", "100k") == ["atari/100k/pong"]
  assert "tiny/catch" in names("paddle")  # a word of the description
  assert cli("configs", "catch")[1].startswith("tiny/catch")
  assert "minatr: no configuration has this" in refused("configs", "minatr")
  assert "?[2Jx: no configuration" in refused("configs", "\x1b[2Jx")
  assert "CONFIG: missing" in refused("configs", "show")
  assert "CONFIG: missing" in refused("configs", "show", "seed=1")


def test_list_as_json(cli):
  status, out, _ = cli("configs", "--json")
  assert status == 0
  infos = {info["name"]: info for info in json.loads(out)}
  assert infos["tiny/catch"] | {"path": ""} == {
    "name": "tiny/catch",
    "path": "",
    "summary": "Catch: the paddle must catch a falling ball. "
    "The best return is 1; random play has about -0.6.",
    "env": "tiny:catch",
    "extra": None,
    "is_installed": True,
    "hardware": None,
    "time": "97 s",
    "curve": None,
    "reached": "1.0, 20 of 20 runs",
    "measured": ["experiments/minatar_two_cores/README.md"],
  }
  assert infos["minatar/asterix"]["extra"] == "minatar"
  assert Path(infos["tiny/corridor"]["path"]) == ROOT / "config/tiny/corridor.yaml"


def test_list_says_which_package_is_missing(cli, monkeypatch):
  monkeypatch.setitem(config_files.PACKAGES, "minatar", "no_such_module")
  monkeypatch.setenv("COLUMNS", "200")
  out = cli("configs")[1]
  assert re.search(r"^minatar/asterix .* moozi\[minatar\], not installed", out, re.MULTILINE)
  assert not re.search(r"^tiny/catch .*not installed", out, re.MULTILINE)


def test_shown_file_loads_again(cli, tmp_path):
  status, out, _ = cli("configs", "show", "minatar/breakout", "seed=3", "learner.batch_size=64")
  assert status == 0
  path = tmp_path / "mine.yaml"
  path.write_text(out)
  assert load_config(path) == load_config("minatar/breakout", ["seed=3", "learner.batch_size=64"])


def test_show_refuses_what_train_refuses(refused):
  assert "did you mean minatar/breakout" in refused("configs", "show", "minatar/brekout")
  assert "learner.batch_size" in refused("configs", "show", "tiny/catch", "learner.bach_size=3")
  assert "--json: is for the list; `moozi configs show`" in refused("configs", "--json", "show", "tiny/catch")


def test_train_takes_a_name_in_any_folder(cli, refused, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(train, "_run_training", lambda *_: 0)
  assert cli("train", "tiny/catch", "run.name=first")[0] == 0
  assert (tmp_path / "runs/first/config.yaml").is_file()
  assert "did you mean tiny/catch?" in refused("train", "tiny/cach")


def test_missing_config_recommends_an_existing_one(refused, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (named,) = re.findall(r"such as ([a-z_/]+)", refused("train"))
  info = next(info for info in list_configs() if info.name == named)
  assert info.extra is None  # the suggested configuration needs no optional package


def test_without_a_command_prints_the_help(cli):
  _, help_text, _ = cli("--help")
  assert cli() == (2, "", help_text)


@pytest.mark.parametrize(("arguments", "status"), [((), 2), (("--help",), 0), (("--version",), 0)])
def test_python_m_moozi(arguments, status, tmp_path):
  """`python -m moozi` prints the same program name as `moozi`."""
  command = [sys.executable, "-m", "moozi", *arguments]
  environment = os.environ | {"PYTHONPATH": str(ROOT)}
  done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
  assert done.returncode == status
  text = done.stdout + done.stderr
  assert text.startswith("moozi " if "--version" in arguments else "Usage: moozi [OPTIONS] COMMAND")
  assert "__main__" not in text


def test_main_takes_arguments(capsys):
  with pytest.raises(SystemExit) as caught:
    main(["configs", "show", "tiny/catch"])
  assert caught.value.code == 0
  assert "name: tiny:catch" in capsys.readouterr().out

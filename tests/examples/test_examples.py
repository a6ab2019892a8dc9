"""Runs the files of examples/ by the command in their docstrings, and from Python."""

import ast
import json
import re
import runpy
import sys
from pathlib import Path

import pytest

import moozi
from moozi.io.config import load_config
from tests.tiny_run import TINY

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NAMES = (
  "environment",
  "board_game",
  "wrapper",
  "network",
  "search",
  "loss",
  "algorithm",
  "player",
  "callback",
)
SHORT = (
  *TINY,
  *("runtime=local", "logging.tensorboard=false", "logging.progress=none", "evaluation.gif=false"),
  *("max_env_steps=96", "evaluation.final_episodes=2", "evaluation.max_episode_steps=20"),
)


@pytest.fixture(autouse=True)
def examples(folder, monkeypatch):
  """Changes to the folder of the examples and yields it."""
  monkeypatch.chdir(EXAMPLES)
  yield EXAMPLES
  for name in NAMES:
    sys.modules.pop(name, None)


def needs(name):
  if name == "player":
    pytest.importorskip("pyspiel")
  if name == "wrapper":
    pytest.importorskip("gymnasium")


def arguments_of(name):
  """Returns the configuration and the overrides of the command `moozi train …` in the example's docstring."""
  docstring = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text()))
  command = re.search(r"`moozi train (.+?)`", docstring, re.S)[1].split()
  return command[0], command[1:]


def train(cli, name, tmp_path):
  config, overrides = arguments_of(name)
  # The example with a player needs a two-player game, but TINY's environment is Catch.
  board = ["env.name=open_spiel:tic_tac_toe"] if name == "player" else []
  status, _, err = cli("train", config, *SHORT, *board, f"run.dir={tmp_path}", "run.name=run", *overrides)
  assert status == 0, err
  return tmp_path / "run"


def check(name, run):
  """Asserts that the run made updates and used the example's plug-in."""
  summary = json.loads((run / "summary.json").read_text())
  assert summary["learner_steps"] > 0
  assert summary["test_episodes"] == 2
  if name == "loss":
    assert re.search(r'"loss/(loss.make|entropy)"', (run / "metrics.jsonl").read_text())
  if name == "callback":
    assert (run / "returns.csv").read_text().startswith("96,")
  if name in ("environment", "board_game", "wrapper"):
    names = ("environment:make", "hallway", "board_game:make", "chomp", "wrapper:Room", "room")
    assert summary["env"] in names


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short(name):
  assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= (80 if name == "algorithm" else 40)


def test_the_page_shows_the_files():
  shown = re.findall(r"```python\n(.*?)```\n", (ROOT / "docs" / "plugins.md").read_text(), re.S)
  assert shown == [(EXAMPLES / f"{name}.py").read_text() for name in NAMES]


def test_every_example_is_tested():
  assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == sorted(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_from_the_command_line(cli, refused, tmp_path, name):
  needs(name)
  run = train(cli, name, tmp_path)
  check(name, run)
  assert "imports a Python module" in refused("evaluate", run)
  status, _, err = cli("evaluate", run, "--allow-code", "--episodes", "2")
  assert status == 0, err


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_from_python(monkeypatch, tmp_path, name):
  needs(name)
  train = moozi.train

  def short(config, **settings):
    """Makes the example's call of `moozi.train` with small settings."""
    text = (*SHORT, f"run.dir={tmp_path}", "run.name=run", "env.name=open_spiel:tic_tac_toe")
    return train(load_config(config, text if name == "player" else text[:-1]), **settings)

  monkeypatch.setattr(moozi, "train", short)
  runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
  check(name, tmp_path / "run")


@pytest.mark.slow
def test_board_game_with_true_rules_in_the_arena(cli, tmp_path):
  # With this reach of a target, the first update is after 100 steps.
  settings = (*SHORT, f"run.dir={tmp_path}", "env.name=board_game:make", "targets.n_step=20")
  status, _, err = cli(
    *("train", "alphazero/boards/tic_tac_toe", *settings),
    *("max_env_steps=128", "targets.unroll_steps=0", "run.name=az"),
  )
  assert status == 0, err
  arguments = (
    f"run:{tmp_path / 'az'}",
    "random",
    "--games",
    "4",
    "--allow-code",
    "--out",
    tmp_path / "arena",
  )
  status, out, err = cli("arena", "board_game:make", *arguments)
  assert status == 0, err
  assert "chomp: 4 games" in out

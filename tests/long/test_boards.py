"""Tests that trained agents of two-player games lose to no opponent, by a walk of the game tree."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspiel")
ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "config"


def train(folder: Path, config: str, *overrides: str) -> Path:
  command = [
    sys.executable,
    "-m",
    "moozi.cli",
    "train",
    str(CONFIG / config),
    f"run.dir={folder}",
    "run.name=run",
  ]
  subprocess.run(
    [*command, "runtime=local", "logging.progress=none", "evaluation.gif=false", *overrides],
    check=True,
    capture_output=True,
    timeout=1500,
  )
  return folder / "run"


def walk(run: Path, *arguments: str) -> list[dict]:
  """Walks the game tree against a run's agent; returns the results of both seats."""
  done = subprocess.run(
    [sys.executable, "-m", "experiments.boards.perfect_play", str(run), "--json", *arguments],
    capture_output=True,
    text=True,
    check=False,
    cwd=ROOT,
  )
  assert done.returncode in (0, 1), done.stderr
  assert done.stdout, done.stderr
  return json.loads(done.stdout)["seats"]


@pytest.mark.learning
def test_nim_is_won_from_the_winning_seat(tmp_path):
  """In misère Nim with piles of two and three, perfect play wins for the first player."""
  run = train(
    tmp_path,
    "boards/tic_tac_toe.yaml",
    "env.name=open_spiel:nim(pile_sizes=2;3)",
    "max_env_steps=20000",
    "workers.num_envs=16",
    "replay.min_steps_to_learn=1000",
    "learner.batch_size=64",
    "evaluation.final_episodes=40",
  )
  first, _ = walk(run)
  assert first["wins"] > 0
  assert first["losses"] == 0
  assert json.loads((run / "summary.json").read_text())["test_score"] > 0.7


@pytest.mark.learning
def test_alphazero_never_loses_at_tic_tac_toe(tmp_path):
  run = train(tmp_path, "alphazero/boards/tic_tac_toe.yaml")
  for seat in walk(run):
    assert seat["wins"] > 0
    assert seat["losses"] == 0


@pytest.mark.learning
def test_tabular_q_learning_is_never_beaten_at_tic_tac_toe(tmp_path):
  run = train(tmp_path, "q_learning/boards/tic_tac_toe.yaml")
  assert [seat["losses"] for seat in walk(run, "--checkpoint", "last")] == [0, 0]
  assert all(seat["wins"] > 50 for seat in walk(run))


@pytest.mark.learning
def test_kuhn_poker_beats_random_play_from_both_seats(tmp_path):
  run = train(tmp_path, "boards/kuhn_poker.yaml")
  done = subprocess.run(
    [sys.executable, "-m", "moozi.cli", "evaluate", str(run), "--episodes", "20000", "--json"],
    capture_output=True,
    text=True,
    check=True,
  )
  result = json.loads(done.stdout)
  for seat in (0, 1):
    assert result[f"return_mean_seat_{seat}"] - result[f"return_margin_seat_{seat}"] > 0

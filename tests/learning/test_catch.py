"""Learning, in worlds small enough to be sure of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = Path(__file__).parents[2] / "config" / "tiny" / "catch.yaml"


def train(folder: Path, *overrides: str) -> dict:
  command = [sys.executable, "-m", "moozi.cli", "train", str(CONFIG), f"run.dir={folder}", "run.name=catch"]
  result = subprocess.run(
    [*command, "logging.progress=none", "evaluation.gif=false", *overrides],
    capture_output=True,
    text=True,
    timeout=560,
    check=False,
  )
  assert result.returncode == 0, result.stderr
  return json.loads((folder / "catch" / "summary.json").read_text())


def test_catch_in_one_process(tmp_path):
  assert train(tmp_path, "runtime=local")["test_return_mean"] >= 0.95


def test_catch_through_ray(tmp_path):
  assert train(tmp_path, "runtime=ray", "ray.num_cpus=4")["test_return_mean"] >= 0.95


@pytest.mark.learning
@pytest.mark.parametrize("seed", range(1, 6))
def test_catch_for_other_seeds(tmp_path, seed):
  assert train(tmp_path, "runtime=local", f"seed={seed}")["test_return_mean"] >= 0.95


@pytest.mark.learning
def test_corridor_finds_the_far_reward(tmp_path):
  corridor = CONFIG.parent / "corridor.yaml"
  command = [
    sys.executable,
    "-m",
    "moozi.cli",
    "train",
    str(corridor),
    f"run.dir={tmp_path}",
    "run.name=corridor",
  ]
  subprocess.run(
    [*command, "runtime=local", "logging.progress=none"], check=True, timeout=560, capture_output=True
  )
  assert json.loads((tmp_path / "corridor" / "summary.json").read_text())["test_return_mean"] == 1.0

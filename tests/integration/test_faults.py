"""Faults injected into whole runs, through the command line, in one process."""

import os
import subprocess
import sys
from pathlib import Path

from moozi.io.metrics import read_metrics
from tests.runtime.conftest import TINY

ROOT = Path(__file__).parents[2]


def train(folder: Path, *overrides: str, timeout_s: float = 240, **kwargs) -> subprocess.CompletedProcess:
  """`moozi train` of a tiny run called one, to its end."""
  config = folder / "config.yaml"
  config.write_text("runtime: local\n")
  command = [
    sys.executable,
    "-m",
    "moozi.cli",
    "train",
    str(config),
    *TINY,
    f"run.dir={folder}",
    "run.name=one",
  ]
  options = ["evaluation.final_episodes=1", "evaluation.gif=false", "logging.tensorboard=false"]
  environment = os.environ | {"PYTHONPATH": str(ROOT)}
  return subprocess.run(
    [*command, *options, *overrides],
    capture_output=True,
    text=True,
    timeout=timeout_s,
    env=environment,
    check=False,
    **kwargs,
  )


def assert_one_line(done: subprocess.CompletedProcess, said: str) -> None:
  """The run ended with status 2 and one line of error."""
  assert done.returncode == 2, done.stderr
  assert "Traceback" not in done.stderr
  (line,) = [line for line in done.stderr.splitlines() if line.startswith("moozi: error: ")]
  assert said in line


def test_a_loss_that_stays_infinite_ends_the_run_in_one_line_and_keeps_its_folder(tmp_path):
  done = train(
    tmp_path,
    "learner.learning_rate.peak=1e30",
    "learner.optimizer=adam",
    "learner.max_skipped_updates=7",
    "logging.period_s=1e-9",
    "max_env_steps=100000",
  )
  assert_one_line(done, "is not finite: 7 updates in a row were skipped")
  log = (tmp_path / "one" / "logs" / "driver.log").read_text()
  assert log.count("is skipped: ") == 7
  assert "the run ends: " in log
  lines = read_metrics(tmp_path / "one" / "metrics.jsonl")
  assert lines[-1]["faults/skipped_updates"] in (5, 6)

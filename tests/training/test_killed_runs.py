"""Tests that a run that was killed and resumed equals one that was never stopped."""

import signal
import subprocess
import sys

import numpy as np
import pytest

from moozi.io.checkpoints import path_of, read_checkpoint_info
from moozi.io.metrics import read_metrics
from moozi.io.state_file import read_state
from tests.tiny_run import RESUMABLE


def assert_same_run(first, second):
  """Asserts that two runs have the same last checkpoint, to the bit, and the same curves."""

  def checkpoint(path):
    info = read_checkpoint_info(path_of(path / "checkpoints", "step_000000320"))
    assert info.learner_steps > 50
    return {name: np.asarray(value).tobytes() for name, value in read_state(info.path, info.digest).items()}

  def curves(path):
    keys = ("env_steps", "learner_steps", "loss/total", "train/episodes", "train/return_mean")
    return [[tick.get(key) for key in keys] for tick in read_metrics(path / "metrics.jsonl")]

  assert checkpoint(first) == checkpoint(second)
  assert curves(first) == curves(second)
  assert len(curves(second)) >= 2


KILLED = """
import os, signal, sys
from moozi import cli
from moozi.io.checkpoints import CheckpointStore

save = CheckpointStore.save

def save_and_kill(self, training, meta, *rest, **options):
  path = save(self, training, meta, *rest, **options)
  if meta["env_steps"] == 160:
    os.kill(os.getpid(), signal.SIGKILL)
  return path

CheckpointStore.save = save_and_kill
cli.main(sys.argv[1:])
"""


@pytest.mark.slow
def test_killed_process_resumes_to_the_bit(cli, tmp_path):
  config = tmp_path / "config.yaml"
  config.write_text("seed: 0\n")
  options = [*RESUMABLE, "logging.period_s=1e9", "checkpoint.milestones_env_steps=160", f"run.dir={tmp_path}"]
  arguments = ["train", config, *options, "max_env_steps=320"]
  command = [sys.executable, "-c", KILLED, *map(str, arguments), "run.name=killed"]
  assert subprocess.run(command, timeout=300, check=False).returncode == -signal.SIGKILL
  assert not (tmp_path / "killed" / "summary.json").exists()
  assert "step_000000160" in cli("train", "--resume", tmp_path / "killed")[2]
  assert cli(*arguments, "run.name=whole")[0] == 0
  assert_same_run(tmp_path / "killed", tmp_path / "whole")

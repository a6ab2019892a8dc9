"""Tests of the start of training and of a closed terminal."""

import os
import pty
import subprocess
import sys

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.io.checkpoints import list_checkpoints, save_checkpoint
from moozi.io.config import load_config
from moozi.io.run_directory import RunDirectory
from moozi.training import start
from moozi.training.checks import check_learns


def test_run_without_an_update_is_refused():
  """Segments have 1024 steps, an update of 256 samples needs 64 to 1024 steps, learning starts at 5000."""
  common = ["learner.batch_size=256", "learner.updates_per_call=1", "replay.min_steps_to_learn=5000"]
  common += ["workers.num_envs=64", "workers.segment_length=16"]
  for overrides, least in (
    (["max_env_steps=100"], "5,184"),
    (["max_env_steps=5120"], "5,184"),
    (["max_env_steps=6144", "learner.samples_per_step=0.2"], "6,400"),
  ):
    config = load_config(None, [*common, *overrides])
    with pytest.raises(UserError, match=rf"^max_env_steps=\d+: the first update is after {least} steps"):
      check_learns(config)
    check_learns(config.model_copy(update={"algorithm": "ppo"}))
  common += ["runtime=local"]
  workers = ["workers.num_workers=4", "workers.num_envs=16", "max_env_steps=5121"]
  config = load_config(
    None, [*common, *workers, "replay.min_steps_to_learn=5120", "learner.samples_per_step=0.2"]
  )
  with pytest.raises(UserError, match="is after 6,400 steps"):
    check_learns(config)
  for overrides in (["max_env_steps=5121"], ["max_env_steps=6145", "learner.samples_per_step=0.2"]):
    check_learns(load_config(None, [*common, *overrides]))


def test_a_batch_needs_steps_whose_targets_are_complete():
  """64 lanes need 15 further steps each, so the first 256 targets are complete after 64 × 19 steps."""
  common = ["runtime=local", "replay.min_steps_to_learn=1024", "learner.batch_size=256"]
  common += ["workers.num_workers=1", "workers.num_envs=64", "workers.segment_length=16"]
  common += ["targets.unroll_steps=5", "targets.n_step=10", "learner.updates_per_call=8"]
  with pytest.raises(UserError, match="the first update is after 2,560 steps"):
    check_learns(load_config(None, [*common, "max_env_steps=2048"]))
  check_learns(load_config(None, [*common, "max_env_steps=2560"]))


def test_newest_checkpoint_and_the_command_that_resumes_are_named(tmp_path):
  run = RunDirectory.create(load_config(None, [f"run.dir={tmp_path}/a b", "run.name=one"]))
  assert start._describe_newest(run) == f"{run.path} has no checkpoint yet, so it cannot be resumed"
  for step in (10, 200):
    meta = {"env_steps": step, "learner_steps": 3}
    save_checkpoint(run.resume_path, f"step_{step}", {"x": np.zeros(2)}, meta)
  assert start._describe_newest(run) == (
    f"the newest checkpoint is step_200; continue with: moozi train --resume '{tmp_path}/a b/one'"
  )


@pytest.mark.slow
def test_closed_terminal_ends_with_a_checkpoint(tmp_path):
  """When a terminal is closed, the kernel sends SIGHUP to its foreground processes."""
  ours, theirs = pty.openpty()
  command = [sys.executable, "-m", "moozi.cli", "train", "config/tiny/catch.yaml", "runtime=local"]
  command += [
    f"run.dir={tmp_path}",
    "run.name=one",
    "max_env_steps=100000000",
    "checkpoint.period_s=100000",
    "checkpoint.first_s=null",
  ]

  # This program makes the terminal its own and then runs the command. JAX warns of forks, so `preexec_fn`
  # is not used.
  take = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
  )
  process = subprocess.Popen(
    [sys.executable, "-c", take, *command], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
  )
  os.close(theirs)
  try:
    shown = b""
    while b"acting starts" not in shown:
      shown += os.read(ours, 4096)
    os.close(ours)
    assert process.wait(60) == 0
  finally:
    process.kill()
  (last, *_) = reversed(list_checkpoints(tmp_path / "one" / "checkpoints"))
  assert (tmp_path / "one" / "resume" / last.path.name).is_file()
  assert '"reason": "stopped"' in (tmp_path / "one" / "summary.json").read_text()

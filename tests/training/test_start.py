"""Tests of the start of training and of a closed terminal."""

import os
import pty
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.envs.registry import env_spec
from moozi.io.checkpoints import list_checkpoints, save_checkpoint
from moozi.io.config import load_config
from moozi.io.run_directory import RunDirectory
from moozi.training import start
from moozi.training.checks import check_learns
from moozi.training.network_size import network_size
from tests.tiny_run import TINY


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


@pytest.mark.parametrize(("progress", "is_shown"), [("plain", True), ("none", False)])
def test_the_size_of_the_network_is_shown_and_logged_before_the_run_begins(
  tmp_path, capsys, monkeypatch, progress, is_shown
):
  def refuse(inputs):
    print("begins", file=sys.stderr)
    raise UserError("no resources")
    yield

  monkeypatch.setattr(start, "algorithm_of", lambda config: SimpleNamespace(run=refuse))
  config = load_config(None, [*TINY, f"run.dir={tmp_path}", f"logging.progress={progress}"])
  run = RunDirectory.create(config)
  with pytest.raises(UserError, match="no resources"):
    next(start.train_events(config, env_spec(config.env.name), run, None, start.Stop()))
  # By hand: a hidden state of 16 entries, heads of 16 units, 61 categories, 4 actions.
  dynamics, prediction = (16 + 4) * 16 + 16 * 16 + 16 * 16 + 16 * 61, 16 * 2 * 16 + 16 * (61 + 4)
  size = network_size(config, env_spec(config.env.name))
  line = (
    f"network: {size.num_parameters:,} parameters, {dynamics + prediction:,} multiply-adds in a simulation"
  )
  assert capsys.readouterr().err == (f"{line}\nbegins\n" if is_shown else "begins\n")
  assert line in run.log_path("driver").read_text()


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

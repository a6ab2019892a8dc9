"""A last checkpoint that cannot be written decides the status of a run that evaluates at its end."""

import pytest

from moozi.io.checkpoints import list_checkpoints
from tests.baselines.ppo.conftest import TINY as PPO
from tests.integration.runs import finish, kill_started, popen

pytestmark = pytest.mark.slow

# Each process of the run imports it. The disk is full for the checkpoint of the last step only.
FULL = """
import errno
import pathlib

from moozi.io.checkpoints import format


def make(config, run_path):
  write = format.write_synced

  def full(path, *rest):
    if "step_000000320" in str(path) and not pathlib.Path("free").exists():
      raise OSError(errno.ENOSPC, "No space left on device")
    return write(path, *rest)

  format.write_synced = full
  return lambda event: None
"""
QUIET = ("logging.progress=none", "callbacks=[full:make]")
RUNS = {
  "ppo": (*PPO, "runtime=local"),
}
LOST = "the last checkpoint, at 320 environment steps, cannot be written: No space left on device; "


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "full.py").write_text(FULL)
  (tmp_path / "base.yaml").write_text("{}\n")
  yield tmp_path
  kill_started()


def moozi(*arguments):
  """Returns the command's status, output and errors."""
  process = popen(*arguments)
  out, err = finish(process, 500)
  return process.returncode, out, err


@pytest.mark.parametrize("kind", RUNS)
def test_run(here, kind):
  status, out, err = moozi("train", "base.yaml", *RUNS[kind], *QUIET, "run.dir=.", "run.name=one")
  assert (status, LOST in err.splitlines()[-1], "Traceback" in err) == (2, True, False), err
  assert "return:" not in out
  run = here / "one"
  assert not (run / "summary.json").exists()
  saved = [info.env_steps for info in list_checkpoints(run / "resume")]
  assert saved == [128, 256]
  (here / "free").touch()
  status, out, err = moozi("train", "--resume", run, "--allow-code")
  assert (status, "return:" in out) == (0, True), err
  assert list_checkpoints(run / "resume")[-1].env_steps == 320

"""A last checkpoint that cannot be written decides the status of every kind of run, and of a sweep."""

import pytest

from moozi.io.checkpoints import list_checkpoints
from tests.baselines.ppo.conftest import TINY as PPO
from tests.baselines.q_learning.conftest import TABLE
from tests.baselines.q_learning.conftest import TINY as Q_LEARNING
from tests.integration.runs import finish, kill_started, popen
from tests.tiny_run import RESUMABLE, TINY

pytestmark = pytest.mark.slow

# Each process of the run imports it. The disk is full for the checkpoint of the last step only.
FULL = """
import errno
import pathlib

from moozi.io import state_file


def make(config, run_path):
  write = state_file.write_bytes

  def full(path, *rest):
    if "step_000000320" in str(path) and not pathlib.Path("free").exists():
      raise OSError(errno.ENOSPC, "No space left on device")
    return write(path, *rest)

  state_file.write_bytes = full
  return lambda event: None
"""
QUIET = ("logging.progress=none", "callbacks=[full:make]")
RUNS = {
  "ppo": (*PPO, "runtime=local"),
  "q_learning": (*Q_LEARNING, "runtime=local"),
  "table": (*Q_LEARNING, TABLE, "runtime=local"),
  "ray": (*TINY, "checkpoint.milestones_env_steps=64", "ray.num_cpus=4"),
}
SAVED = {"ppo": [128, 256], "q_learning": [128, 224], "table": [128, 224]}
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
  if kind == "ray":  # when a state is saved depends on the pace of its actors; the first can be the last
    assert 320 not in saved
  else:
    assert saved == SAVED[kind]
  (here / "free").touch()
  if saved:
    status, out, err = moozi("train", "--resume", run, "--allow-code")
    assert (status, "return:" in out) == (0, True), err
    assert list_checkpoints(run / "resume")[-1].env_steps == 320


def test_sweep(here):
  """The command fails with its run, whose checkpoint it names; the same command resumes it."""
  keys = dict(setting.split("=", 1) for setting in (*RESUMABLE, *QUIET))
  settings = "".join(f"  {key}: {value}\n" for key, value in keys.items())
  (here / "lost.yaml").write_text(
    f"config: base.yaml\nseeds: 1\noverrides:\n{settings}  run.dir: .\nvariants:\n  default:\n"
  )
  status, out, err = moozi("sweep", "lost.yaml")
  assert (status, LOST in out + err, "Traceback" in out + err) == (1, True, False), (out, err)
  (here / "free").touch()
  status, out, err = moozi("sweep", "lost.yaml")
  assert (status, "resumed at" in out) == (0, True), (out, err)


def test_seeds(here):
  """The runs of all seeds are tried; no run counts as finished until the same command has resumed it."""
  command = ("train", "base.yaml", *RUNS["table"], *QUIET, "run.dir=.", "--seeds=2")
  status, out, err = moozi(*command)
  assert (status, "Traceback" in out + err) == (1, False), err
  assert "not done: base-seed1, base-seed2\n" in out
  assert [LOST in line for line in err.splitlines()] == [True, True]
  assert not list(here.glob("*/summary.json"))
  (here / "free").touch()
  status, out, err = moozi(*command)
  assert (status, out.count("resumed at")) == (0, 2), (out, err)
  assert len(list(here.glob("*/summary.json"))) == 2

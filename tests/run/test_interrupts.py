"""Tests that a stop signal ends a command from its first imports on, with a line and the signal's status."""

import importlib
import os
import signal
import subprocess
import sys
import time

import pytest

from moozi.run import interrupts
from moozi.run.interrupts import Interrupts
from moozi.run.signals import NUMBERS

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}

# Sends itself a signal when a module is about to be imported, then runs the command.
_COMMAND = """
import os, sys
from importlib.machinery import PathFinder
class Sender:
  def find_spec(self, name, path=None, target=None):
    if name == sys.argv[1]:
      sys.meta_path.remove(self)
      os.kill(os.getpid(), int(sys.argv[2]))
sys.meta_path.insert(0, Sender())
from moozi.cli import main
main(sys.argv[3:])
"""


def run_command(module: str, number: int, *arguments: object) -> subprocess.CompletedProcess:
  command = [sys.executable, "-c", _COMMAND, module, str(int(number)), *map(str, arguments)]
  return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def wait_after(function) -> None:
  """Calls a function and then waits for a signal that was sent in it."""
  function()
  end = time.monotonic() + 60
  while time.monotonic() < end:
    time.sleep(0.01)


@pytest.fixture
def default_handlers():
  """The tests themselves may run under nohup."""
  before = {number: signal.signal(number, signal.SIG_DFL) for number in NUMBERS}
  signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  for number, handler in before.items():
    signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_signal_raises_and_has_its_status(default_handlers, capfd, number):
  assert Interrupts().status == 130
  with pytest.raises(KeyboardInterrupt), Interrupts() as active:
    signal.raise_signal(number)
  assert active.status == STATUS[number]
  assert capfd.readouterr().err == f"\nmoozi: {number.name} received; stopping\n"
  assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
  assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_signal_in_an_import_is_raised_after_the_outermost_import(default_handlers, tmp_path, monkeypatch):
  """An error raised in the import of a C extension ends the process with SIGSEGV."""
  (tmp_path / "imported_first.py").write_text(
    "import signal\nsignal.raise_signal(signal.SIGTERM)\n"
    "import imported_second\nimport time\ntime.sleep(0.2)\nDONE = True\n"
  )
  (tmp_path / "imported_second.py").write_text("DONE = True\n")
  monkeypatch.syspath_prepend(tmp_path)
  with pytest.raises(KeyboardInterrupt), Interrupts() as active:
    wait_after(lambda: importlib.import_module("imported_first"))
  module = sys.modules["imported_first"]
  assert module.DONE
  assert module.imported_second.DONE
  assert active.status == 143


def test_waiting_signal_is_raised_before_other_handlers_are_set(default_handlers, tmp_path, monkeypatch):
  (tmp_path / "imported_third.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.setattr(interrupts, "_RETRY_S", 1e6)
  with Interrupts():
    interrupts.check()
    importlib.import_module("imported_third")
    with pytest.raises(KeyboardInterrupt):
      interrupts.check()
    interrupts.check()
  interrupts.check()


def test_waiting_signal_reaches_a_handler_that_is_set_meanwhile_once(default_handlers, tmp_path, monkeypatch):
  (tmp_path / "imported_fourth.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
  monkeypatch.syspath_prepend(tmp_path)
  received = []
  with Interrupts():
    with monkeypatch.context() as patch:
      patch.setattr(interrupts, "_RETRY_S", 0.3)
      importlib.import_module("imported_fourth")
      before = signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    end = time.monotonic() + 60
    while not received and time.monotonic() < end:
      time.sleep(0.01)
    time.sleep(0.2)
    signal.signal(signal.SIGINT, before)
  assert received == [signal.SIGINT]


def test_error_is_not_raised_in_a_finalizer_which_would_ignore_it(default_handlers):
  class Closing:
    def __del__(self):
      signal.raise_signal(signal.SIGINT)

  with pytest.raises(KeyboardInterrupt), Interrupts():
    wait_after(Closing)


def test_second_signal_ends_at_once(default_handlers, monkeypatch):
  class Ended(BaseException):
    pass

  def end(status):
    raise Ended(status)

  monkeypatch.setattr(os, "_exit", end)
  with Interrupts():
    with pytest.raises(KeyboardInterrupt):
      signal.raise_signal(signal.SIGINT)
    with pytest.raises(Ended, match="143"):
      signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_ignored_signal_stays_ignored(default_handlers, number):
  """nohup ignores SIGHUP; a shell without job control ignores SIGINT in a background command."""
  signal.signal(number, signal.SIG_IGN)
  with Interrupts() as active:
    signal.raise_signal(number)
    assert active.number is None
  assert signal.getsignal(number) == signal.SIG_IGN


def test_forked_child_is_ended_by_sigterm_and_its_parent_is_not_told():
  """An environment ends its processes with SIGTERM and waits for them, as `multiprocessing` does."""
  code = """
import os, signal, time
from moozi.commands.signals import stop_at_signals
from moozi.run.interrupts import Interrupts

class Stop:
  is_set = False
  def set(self):
    self.is_set = True

def ended():
  pids = []
  for _ in range(2):
    pid = os.fork()
    if not pid:
      time.sleep(20)
      os._exit(7)
    pids.append(pid)
  for pid in pids:
    os.kill(pid, signal.SIGTERM)
  return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]

with Interrupts():
  print(ended())
  stop = Stop()
  with stop_at_signals(stop):
    print(ended(), stop.is_set)
    time.sleep(0.3)
  print("alive")
"""
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
  )
  assert (done.stdout, done.stderr, done.returncode) == ("[-15, -15]\n[-15, -15] False\nalive\n", "", 0)


def test_import_sets_no_handlers():
  code = """
import signal
names = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
before = [signal.getsignal(name) for name in names]
import moozi, moozi.cli, moozi.commands.app, moozi.commands.train, moozi.commands.signals
assert [signal.getsignal(name) for name in names] == before
"""
  subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_command_is_ended_while_it_imports_its_commands(number):
  done = run_command("typer", number, "envs")
  assert done.returncode == STATUS[number]
  assert (done.stdout, done.stderr) == ("", f"\nmoozi: {number.name} received; stopping\n")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
  "module",
  [
    *("numpy", "numpy._core._multiarray_umath", "jax", "jaxlib", "jaxlib.cpu_feature_guard", "jaxlib._jax"),
    *("moozi.training.start", "moozi.envs.suites.tiny"),
  ],
)
def test_train_is_ended_while_it_imports_and_leaves_no_folder(tmp_path, module, number):
  settings = ("tiny/catch", f"run.dir={tmp_path}/runs", "runtime=local")
  done = run_command(module, number, "train", *settings)
  assert done.returncode == STATUS[number], done.stderr
  assert (done.stdout, done.stderr) == ("", f"\nmoozi: {number.name} received; stopping\n")
  assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
  "arguments",
  [
    ("evaluate", "zoo:catch"),
    ("inspect", "zoo:catch"),
    ("watch", "zoo:catch"),
    ("play", "zoo:catch"),
    ("latent", "zoo:catch"),
    ("report", "zoo:catch"),
    ("arena", "open_spiel:tic_tac_toe", "mcts:5", "random"),
    ("sweep", "config/sweep.yaml"),
    ("train", "tiny/catch", "--seeds", "2"),
  ],
  ids=lambda arguments: arguments[0],
)
def test_every_command_is_ended_while_it_imports_numpy(tmp_path, arguments):
  done = run_command("numpy", signal.SIGINT, *arguments)
  assert done.returncode == 130, done.stderr
  assert (done.stdout, done.stderr) == ("", "\nmoozi: SIGINT received; stopping\n")

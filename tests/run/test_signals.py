"""Tests that stop signals are acknowledged at once, even in C code or while signals are blocked."""

import signal
import subprocess
import sys
import time

import pytest

_SCRIPT = """
import contextlib, hashlib, signal, sys, time
from moozi.run import signals
received = []
for number in (signal.SIGINT, signal.SIGTERM):
  signal.signal(number, lambda number, frame: received.append(number))
with signals.acknowledged():
  print("ready", flush=True)
{block}
print(received, flush=True)
"""
# During this call of C code, Python runs no signal handlers.
_IN_C = """  hashlib.pbkdf2_hmac("sha256", b"", b"", 200_000_000)"""
_BLOCKED = """
  with signals.blocked():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # as Ray's core does
    print("blocked", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def start():
  processes = []

  def run(block: str) -> subprocess.Popen:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-c", _SCRIPT.format(block=block)]
    processes.append(subprocess.Popen(command, text=True, **pipes))
    assert processes[-1].stdout.readline() == "ready\n"
    return processes[-1]

  yield run
  for process in processes:
    process.kill()
    process.communicate()


def test_first_signal_is_acknowledged_and_second_ends_while_in_c_code(start):
  process = start(_IN_C)
  time.sleep(0.3)
  begin = time.monotonic()
  process.send_signal(signal.SIGINT)
  assert process.stderr.readline() == "\n"
  assert process.stderr.readline() == "moozi: SIGINT received; stopping\n"
  assert time.monotonic() - begin < 5
  process.send_signal(signal.SIGTERM)
  assert process.wait(timeout=20) == 128 + signal.SIGTERM


def test_blocked_signal_is_acknowledged_in_the_block_and_handled_after_it(start):
  process = start(_BLOCKED)
  assert process.stdout.readline() == "blocked\n"
  process.send_signal(signal.SIGINT)
  assert process.stderr.readline() == "\n"
  assert process.stderr.readline() == "moozi: SIGINT received; stopping\n"
  out, error = process.communicate("\n", timeout=20)
  assert out == f"[{int(signal.SIGINT)}]\n"
  assert error == ""  # the signal must not be acknowledged twice
  assert process.returncode == 0


def test_closed_standard_error_is_no_fault(start):
  process = start(
    _BLOCKED.replace('print("blocked", flush=True)', "import os; os.close(2); print(1, flush=True)")
  )
  assert process.stdout.readline() == "1\n"
  process.send_signal(signal.SIGTERM)
  out, _ = process.communicate("\n", timeout=20)
  assert out == f"[{int(signal.SIGTERM)}]\n"


def test_block_ends_while_a_forked_child_runs(start):
  """A child of a user's environment or callback has the pipe of signals too."""
  child = "    os.closerange(1, 3)\n    sys.stdin.read()\n    os._exit(0)"
  process = start(f"  import os\n  if not os.fork():\n{child}")
  assert process.wait(timeout=20) == 0
  assert process.stdout.readline() == "[]\n"

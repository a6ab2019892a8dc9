"""Tests of printing: closed, full and odd standard streams, in processes of their own."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from moozi.io import output
from moozi.io.output import can_draw, notice, say

ROOT = Path(__file__).resolve().parents[2]
# What `moozi.cli.main` does around a command.
PROGRAM = """
import sys
from moozi.core.errors import UserError
from moozi.io.output import discard_output, notice, prepare_streams, say
prepare_streams()
try:
  notice("remark")
  for i in range(int(sys.argv[1])):
    say("result é \\udce9 \\x1b[2J", i)
  with open(sys.argv[2], "w") as file:
    file.write(str(file.fileno()))
except UserError as error:
  notice(f"error: {error}")
  sys.exit(2)
except BrokenPipeError:
  discard_output()
"""


def run(redirection: str, tmp_path: Path, lines: int = 1, **env: str) -> subprocess.CompletedProcess:
  place = tmp_path / "number"
  (tmp_path / "program.py").write_text(PROGRAM)
  command = f'"$0" program.py {lines} "{place}" {redirection}'
  settings = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "0", **env}
  return subprocess.run(
    ["bash", "-c", command, sys.executable], cwd=tmp_path, env=settings, capture_output=True, check=False
  )


@pytest.mark.parametrize(
  ("redirection", "status", "out", "err"),
  [
    ("", 0, "result é ? ?[2J\n0\n", "remark\n"),
    (">&-", 0, "", "remark\n"),
    ("2>&-", 0, "result é ? ?[2J\n0\n", ""),
    ("<&- >&- 2>&-", 0, "", ""),
    (
      ">/dev/full",
      2,
      "",
      "remark\nerror: standard output: cannot be written: No space left on device\n",
    ),
    ("2>/dev/full", 0, "result é ? ?[2J\n0\n", ""),
    (">/dev/full 2>/dev/full", 2, "", ""),
  ],
)
def test_closed_and_full_streams(tmp_path, redirection, status, out, err):
  done = run(redirection, tmp_path)
  assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (status, out, err)
  if status == 0:
    # No file of the program has the number of a standard stream, into which a library may print.
    assert int((tmp_path / "number").read_text()) > 2


@pytest.mark.parametrize("arguments", ["--help", "configs --help"])
def test_help_on_a_full_device(arguments):
  command = f"{sys.executable} -m moozi {arguments} > /dev/full"
  done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=300)
  assert (done.returncode, done.stderr) == (
    2,
    "moozi: error: standard output: cannot be written: No space left on device\n",
  )


def test_reader_that_exits_early(tmp_path):
  done = run("| head -1; exit ${PIPESTATUS[0]}", tmp_path, lines=100_000)
  assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (0, "result é ? ?[2J\n", "remark\n")
  assert run("2>&1 | head -1; exit ${PIPESTATUS[0]}", tmp_path, lines=100_000).returncode == 0


def test_output_of_ascii_only(tmp_path):
  done = run("", tmp_path, PYTHONIOENCODING="ascii")
  assert (done.returncode, done.stdout) == (0, b"result ? ? ?[2J\n0\n")


def test_text_from_outside_is_printed_without_control_characters(capsys):
  say("\x1b[2J", Path("a\u202eb"), end="\x1b")
  notice("\x07\x00", start="\r", end="")
  assert capsys.readouterr() == ("?[2J\na?b\x1b", "\r??")


@pytest.mark.parametrize(
  ("term", "draws"), [("xterm", True), ("", True), ("dumb", False), ("Unknown", False)]
)
def test_dumb_terminals_are_not_drawn_on(monkeypatch, term, draws):
  master, slave = pty.openpty()
  monkeypatch.setenv("TERM", term)
  with os.fdopen(slave, "w") as stream:
    assert can_draw(stream) == draws
  os.close(master)
  with open(os.devnull) as stream:
    assert not can_draw(stream)


def test_programs_without_streams_print_nothing(monkeypatch):
  monkeypatch.setattr(sys, "stdout", None)
  monkeypatch.setattr(sys, "stderr", None)
  say("a")
  notice("b")


def test_only_this_module_prints():
  """Each print is a place where text from outside could reach a terminal, or a full disk end a run."""
  found = []
  for path in (ROOT / "moozi").rglob("*.py"):
    text = path.read_text("utf-8")
    lines = [
      line
      for line in text.splitlines()
      if re.search(r"(?<![\w.\"`])print\(|\becho\(|std(out|err)\.write", line)
    ]
    found += [(path.relative_to(ROOT).as_posix(), line.strip()) for line in lines]
  assert {path for path, _ in found} <= {"moozi/io/output.py"}, found
  assert output.__file__

import logging
import sys
import warnings

import pytest

from moozi.core.errors import one_line
from moozi.io.logs import log_stream, print_lines, setup_logging
from tests.envs import hostile


@pytest.fixture(autouse=True)
def restore_logging():
  root, ours = logging.getLogger(), logging.getLogger("moozi")
  handlers, level = root.handlers[:], ours.level
  # An earlier run in this process may have turned on the capture of warnings.
  logging.captureWarnings(False)
  yield
  for handler in [h for h in root.handlers if h not in handlers]:
    root.removeHandler(handler)
    handler.close()
  ours.setLevel(level)
  logging.captureWarnings(False)


def test_records_and_warnings_are_written_once(tmp_path):
  path = tmp_path / "logs" / "worker_0.log"
  setup_logging(path)
  setup_logging(path)
  logging.getLogger("moozi.worker").info("seen")
  logging.getLogger("moozi.worker").debug("not seen")
  logging.getLogger("elsewhere").info("not seen")
  with warnings.catch_warnings():
    warnings.simplefilter("always")
    logging.captureWarnings(True)
    warnings.warn("careful", stacklevel=1)
  text = path.read_text()
  assert text.count("INFO moozi.worker: seen") == 1
  assert "careful" in text
  assert "not seen" not in text


def test_second_path_switches_files_and_appends(tmp_path):
  for path in (tmp_path / "a.log", tmp_path / "b.log", tmp_path / "a.log"):
    setup_logging(path)
    logging.getLogger("moozi").info("to %s", path.name)
  assert (tmp_path / "a.log").read_text().count("to a.log") == 2
  assert (tmp_path / "b.log").read_text().count("\n") == 1


def test_log_stream(tmp_path):
  assert log_stream() is sys.stderr
  setup_logging(tmp_path / "a.log")
  assert log_stream().fileno() > 2
  log_stream().write("as it is\n")
  log_stream().flush()
  assert (tmp_path / "a.log").read_text() == "as it is\n"


def test_half_of_a_surrogate_pair_is_escaped(tmp_path, capfd):
  """The text of a user's error may hold one; no file can encode it."""
  setup_logging(tmp_path / "a.log")
  (handler,) = [h for h in logging.getLogger().handlers if getattr(h, "baseFilename", "").endswith("a.log")]
  error = ValueError("\ud800")
  # The record passes this handler only: pytest-xdist cannot send a captured one.
  handler.handle(logging.LogRecord("a", logging.ERROR, "a.py", 1, "\udfff", (), (ValueError, error, None)))
  text = (tmp_path / "a.log").read_text("utf-8")
  assert "\\udfff" in text
  assert "ValueError: \\ud800" in text
  assert "Logging error" not in capfd.readouterr().err
  assert one_line("\ud800 é") == "\\ud800 é"


@pytest.mark.parametrize(
  ("error", "text"),
  [
    (ValueError("a\nb"), "ValueError: a b"),
    (hostile.MuteError(), "MuteError: MuteError"),
    (UnicodeError("\ud800"), "UnicodeError: \\ud800"),
    (hostile.Panic(), "Panic: Panic"),
  ],
)
def test_without_a_log_file_a_record_is_one_line_on_stderr(monkeypatch, capsys, error, text):
  monkeypatch.setattr(logging.getLogger(), "handlers", [])
  monkeypatch.setattr(logging, "lastResort", logging.lastResort)
  print_lines()
  try:
    raise error
  except BaseException:
    logging.getLogger("elsewhere").exception("a callback\n failed\x1b[2J")
  logging.getLogger("elsewhere").warning("no error")
  logging.getLogger("elsewhere").info("not seen")
  assert capsys.readouterr() == ("", f"a callback failed?[2J: {text}\nno error\n")

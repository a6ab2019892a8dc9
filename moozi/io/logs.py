"""Writes a process's log file."""

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from moozi.core.errors import one_line, reason_of
from moozi.io.output import notice

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def setup_logging(path: Path) -> None:
  """Appends this process's log records and Python's warnings to a file.

  A second call with the same path changes nothing; a call with another path switches to that file. Records of
  `moozi` are written from INFO up, those of other packages from WARNING up.
  """
  root = logging.getLogger()
  for handler in [h for h in root.handlers if isinstance(h, _ActorLogHandler)]:
    if handler.baseFilename != str(path.absolute()):
      root.removeHandler(handler)
      handler.close()
  if not any(isinstance(h, _ActorLogHandler) for h in root.handlers):
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = _ActorLogHandler(path, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(logging.Formatter(_FORMAT))
    root.addHandler(handler)
  logging.getLogger("moozi").setLevel(logging.INFO)
  logging.captureWarnings(True)


def print_lines() -> None:
  """Makes records that have no log file appear on standard error, as one line without a traceback."""
  logging.lastResort = _LineHandler(logging.WARNING)  # type: ignore[assignment]


@contextlib.contextmanager
def log_to(path: Path) -> Iterator[None]:
  """Appends log records and warnings to a file as `setup_logging` does, until the end of the block."""
  had_handler = any(isinstance(h, _ActorLogHandler) for h in logging.getLogger().handlers)
  setup_logging(path)
  try:
    yield
  finally:
    # If the process had a log file before the block, such as an actor's, logging continues.
    if not had_handler:
      close_logging()


def close_logging() -> None:
  """Undoes `setup_logging`: closes the log file, and lets Python print warnings again."""
  root = logging.getLogger()
  for handler in [h for h in root.handlers if isinstance(h, _ActorLogHandler)]:
    root.removeHandler(handler)
    handler.close()
  logging.captureWarnings(False)


def log_stream() -> IO[str]:
  """Returns a stream for output that bypasses logging: the log file if there is one, else standard error."""
  for handler in logging.getLogger().handlers:
    if isinstance(handler, _ActorLogHandler) and handler.stream is not None:
      return handler.stream
  return sys.stderr


class _LineHandler(logging.Handler):
  def emit(self, record: logging.LogRecord) -> None:
    try:
      text, error = one_line(record.getMessage()), record.exc_info and record.exc_info[1]
      notice(f"{text}: {type(error).__name__}: {one_line(error)}" if error else text)
    except Exception:
      self.handleError(record)


class _ActorLogHandler(logging.FileHandler):
  """A FileHandler that reports a full disk once, on standard error.

  The class also marks the handler of `setup_logging` among the root logger's handlers.
  """

  _has_failed = False

  def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
    """Handles an error of `emit`: reports the first OSError, and ignores later ones."""
    error = sys.exc_info()[1]
    if not isinstance(error, OSError):
      super().handleError(record)
    elif not self._has_failed:
      self._has_failed = True
      with contextlib.suppress(OSError):
        notice(f"moozi: {self.baseFilename} cannot be written: {reason_of(error)}")

"""Prints to the standard streams: text from outside cannot control the terminal.

`say` prints results to standard output, and `notice` prints remarks to standard error. Both replace
characters that are not printable. `notice` ignores a stream that cannot be written.
"""

import contextlib
import os
import sys
from typing import IO, TextIO

from moozi.core.errors import UserError, reason_of
from moozi.core.text import printable


def prepare_streams() -> None:
  """Replaces closed standard streams by the null device, and makes output streams write `?` for characters
  that they cannot encode.

  Without the null device, the next file that is opened would have the number of a closed descriptor, and
  libraries would print into it.
  """
  for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
    if not _is_open(descriptor):
      _discard(descriptor)
    if getattr(sys, name) is None:
      setattr(sys, name, os.fdopen(os.dup(descriptor), mode, encoding="utf-8", closefd=True))
    elif name != "stdin" and hasattr(stream := getattr(sys, name), "reconfigure"):
      stream.reconfigure(errors="replace")


def say(*lines: object, end: str = "\n") -> None:
  """Prints lines to standard output.

  Raises: UserError: standard output cannot be written, such as on a full disk. BrokenPipeError: its reader
    has exited, as in `moozi envs | head`.
  """
  try:
    _write(sys.stdout, lines, end)
  except BrokenPipeError:
    raise
  except OSError as error:
    _discard(1)
    raise UserError(f"standard output: cannot be written: {reason_of(error)}") from None


def check_output() -> None:
  """Flushes standard output, such as after a help text of the argument parser. Raises as `say`."""
  say(end="")


def notice(*lines: object, start: str = "", end: str = "\n") -> None:
  """Prints lines to standard error; does nothing if it cannot be written.

  Args:
    start: printed first, unchanged; "\\r" moves the cursor to the start of the terminal's line.
  """
  try:
    _write(sys.stderr, lines, end, start)
  except (OSError, ValueError):
    # Python would try again at exit, and end with status 120.
    with contextlib.suppress(OSError, ValueError):
      _discard(2)


def can_draw(stream: IO[str]) -> bool:
  """Returns whether the stream is a terminal that can move its cursor; one with TERM=dumb cannot."""
  return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def discard_output() -> None:
  """Discards the remaining output after the reader of a pipe has exited."""
  for descriptor in (1, 2):
    _discard(descriptor)


def _write(stream: TextIO | None, lines: tuple[object, ...], end: str, start: str = "") -> None:
  if stream is None:  # a program without standard streams that uses the API
    return
  stream.write(start + "\n".join(printable(str(line)) for line in lines) + end)
  stream.flush()


def _is_open(descriptor: int) -> bool:
  try:
    os.fstat(descriptor)
  except OSError:
    return False
  return True


def _discard(descriptor: int) -> None:
  null = os.open(os.devnull, os.O_RDWR)
  if null != descriptor:
    os.dup2(null, descriptor)
    os.close(null)

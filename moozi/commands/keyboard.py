"""Reads single keys from a terminal, without Enter."""

import os
import select
import sys
import termios
import tty

# Names of arrow keys by the last character of their escape sequences.
_SEQUENCES = {"A": "up", "B": "down", "C": "right", "D": "left"}
_ESCAPE_WAIT_S = 0.05
END = "end of input"


class Keyboard:
  """Reads keys inside a `with` block; the end of the block restores the terminal.

  Without a terminal, there are no keys.
  """

  def __init__(self) -> None:
    self._saved: list | None = None
    self.has_terminal = sys.stdin.isatty()

  def __enter__(self) -> "Keyboard":
    if self.has_terminal:
      self._fd = sys.stdin.fileno()
      self._saved = termios.tcgetattr(self._fd)
      # In cbreak mode, Ctrl-C still interrupts. TCSADRAIN keeps keys that were pressed during the start.
      tty.setcbreak(self._fd, termios.TCSADRAIN)
    return self

  def __exit__(self, *_: object) -> None:
    if self._saved is not None:
      termios.tcsetattr(self._fd, termios.TCSADRAIN, self._saved)
      self._saved = None

  def read(self, timeout_s: float | None) -> str | None:
    """Returns the next key, or None at a timeout.

    A key is a character, up, down, left, right, enter, escape, END, or "other" for another special key. If
    `timeout_s` is None, waits until a key is pressed. Without a terminal, returns None after the timeout, or
    at once if `timeout_s` is None.
    """
    if self._saved is None:
      if timeout_s:
        select.select([], [], [], timeout_s)
      return None
    if not self._is_ready(timeout_s):
      return None
    key = self._next()
    if key in ("\r", "\n"):
      return "enter"
    if key != "\x1b":
      return key
    if not self._is_ready(_ESCAPE_WAIT_S) or self._next() not in ("[", "O"):
      return "escape"
    code = self._next()
    while code.isdigit() or code == ";":
      code = self._next()
    return END if code == END else _SEQUENCES.get(code, "other")

  def _is_ready(self, timeout_s: float | None) -> bool:
    return bool(select.select([self._fd], [], [], timeout_s)[0])

  def _next(self) -> str:
    try:
      byte = os.read(self._fd, 1)
    except OSError:  # the terminal was closed
      return END
    return byte.decode("latin-1") if byte and byte != b"\x04" else END

"""Handles the signals that end a run with a checkpoint."""

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

from moozi.run.signals import HANGUP, NUMBERS, acknowledged

if TYPE_CHECKING:
  from moozi.training.start import Stop


@contextlib.contextmanager
def stop_at_signals(stop: "Stop") -> Iterator[None]:
  """In this block, the first SIGINT, SIGTERM or SIGHUP (a closed terminal) sets `stop`.

  A message acknowledges the signal at once, and the second signal ends the process (`run.signals`).
  """
  stop.note = "ending with a checkpoint; a second signal ends immediately"
  # Determined now, because `isatty` returns False after the terminal is closed.
  terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

  def on_signal(number: int, frame: FrameType | None) -> None:
    if number == HANGUP:
      _leave(terminals)
    stop.set()

  saved = {}
  for number in NUMBERS:
    # If nohup ignores SIGHUP, it stays ignored, so that the run continues after its terminal is closed.
    if number != HANGUP or signal.getsignal(number) != signal.SIG_IGN:
      saved[number] = signal.signal(number, on_signal)
  try:
    with acknowledged():
      yield
  finally:
    for number, handler in saved.items():
      signal.signal(number, handler)


def _leave(terminals: list[int]) -> None:
  """Redirects output of a closed terminal to os.devnull, because writing to the terminal would raise."""
  null = os.open(os.devnull, os.O_WRONLY)
  for descriptor in terminals:
    os.dup2(null, descriptor)

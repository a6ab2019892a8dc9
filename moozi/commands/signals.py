"""Handles the signals that end a run with a checkpoint."""

import contextlib
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

from moozi.run.signals import HANGUP, acknowledged, handled, leave, open_terminals

if TYPE_CHECKING:
  from moozi.training.start import Stop


@contextlib.contextmanager
def stop_at_signals(stop: "Stop") -> Iterator[None]:
  """In this block, the first SIGINT, SIGTERM or SIGHUP (a closed terminal) sets `stop`.

  A message acknowledges the signal at once, and the second signal ends the process (`run.signals`).
  """
  stop.note = "ending with a checkpoint; a second signal ends immediately"
  terminals = open_terminals()

  def on_signal(number: int, frame: FrameType | None) -> None:
    if number == HANGUP:
      leave(terminals)
    stop.set()

  # If nohup ignores SIGHUP, it stays ignored, so that the run continues after its terminal is closed.
  with handled(on_signal, respected=(HANGUP,)), acknowledged():
    yield

"""Displays the progress of a run: a live table or plain lines."""

import contextlib
import sys
from collections.abc import Mapping
from typing import IO, Any, Literal

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from moozi.core.text import printable
from moozi.io.output import can_draw

# (label, name of the scalar, format). A scalar that no tick has had yet is not shown.
FIGURES: tuple[tuple[str, str, str], ...] = (
  ("steps/s", "system/env_steps_per_s", ",.0f"),
  ("updates/s", "system/updates_per_s", ".1f"),
  ("return", "train/return_mean", "z.2f"),
  ("evaluation return", "test/return_mean", "z.2f"),
  ("loss", "loss/total", "z.3f"),
  ("value", "loss/value", ".3f"),
  ("policy", "loss/policy", "z.3f"),
  ("reward", "loss/reward", "z.3f"),
  ("consistency", "loss/consistency", ".3f"),
  ("staleness", "train/staleness", ".1f"),
  ("sample reuse", "train/sample_reuse", ".2f"),
)
_PLAIN_PERIOD_S = 10.0
_PAIR_WIDTH = 27  # columns of a terminal for a label and its number


class Progress:
  """Displays the progress of a run. This base class shows nothing.

  An OSError of the stream, such as on a full disk, is ignored, so that it does not end a run.
  """

  def __init__(self, max_env_steps: int, max_wall_s: float | None) -> None:
    self._max_env_steps, self._max_wall_s = max_env_steps, max_wall_s
    self._latest: dict[str, float] = {}
    self._smooth_rate: float | None = None

  def update(self, *, env_steps: int, learner_steps: int, wall_s: float, scalars: Mapping[str, Any]) -> None:
    """Shows a tick. A scalar that the tick lacks keeps its last value."""
    self._latest |= {name: float(scalars[name]) for _, name, _ in FIGURES if scalars.get(name) is not None}
    rate = self._latest.get("system/env_steps_per_s")
    if rate is not None:
      self._smooth_rate = 0.7 * self._smooth_rate + 0.3 * rate if self._smooth_rate else rate
    out = [("env steps", f"{env_steps:,}"), ("updates", f"{learner_steps:,}")]
    out += [(label, f"{self._latest[name]:{form}}") for label, name, form in FIGURES if name in self._latest]
    out.append(("elapsed", format_seconds(wall_s)))
    left = seconds_left(env_steps, wall_s, self._smooth_rate, self._max_env_steps, self._max_wall_s)
    if left is not None:
      out.append(("left", format_seconds(left)))
    share = max(env_steps / self._max_env_steps, 0 if self._max_wall_s is None else wall_s / self._max_wall_s)
    with contextlib.suppress(OSError):
      self._show(out, min(share, 1.0), wall_s)

  def note(self, text: str) -> None:
    """Shows a line of text, which stays on the screen."""

  def close(self) -> None:
    """Ends the display; a second call does nothing."""

  def _show(self, figures: list[tuple[str, str]], share: float, wall_s: float) -> None:
    """Shows (label, value) pairs and the completed share of the run."""


class _Plain(Progress):
  """Prints at most one line of numbers every 10 s, for files and pipes."""

  def __init__(self, stream: IO[str], *limits: Any) -> None:
    super().__init__(*limits)
    self._stream, self._last_s = stream, -_PLAIN_PERIOD_S

  def _show(self, figures: list[tuple[str, str]], share: float, wall_s: float) -> None:
    if wall_s - self._last_s >= _PLAIN_PERIOD_S:
      self._last_s = wall_s
      self.note(" | ".join(f"{label} {value}" for label, value in figures))

  def note(self, text: str) -> None:
    with contextlib.suppress(OSError):
      self._stream.write(f"{printable(text)}\n")
      self._stream.flush()


class _Live(Progress):
  """Redraws a table in place; `close` leaves the last table on the screen."""

  def __init__(self, title: str, stream: IO[str], force: bool, *limits: Any) -> None:
    super().__init__(*limits)
    self._title = title
    console = Console(file=stream, force_terminal=True if force else None, highlight=False)
    # Refreshed by `update` only: a refresh thread would take time from busy cores.
    self._live = Live(console=console, auto_refresh=False, transient=False)
    with contextlib.suppress(OSError):
      self._live.start()

  def _show(self, figures: list[tuple[str, str]], share: float, wall_s: float) -> None:
    cells = [cell for pair in figures for cell in pair]
    grid = Table.grid(padding=(0, 2))
    width = self._live.console.width
    pairs = max(1, min(3, width // _PAIR_WIDTH))
    for _ in range(pairs):
      # On a narrow terminal, a label is wrapped, and no number is cut.
      grid.add_column(style="dim", no_wrap=pairs > 1)
      grid.add_column(justify="right", no_wrap=True)
    for i in range(0, len(cells), 2 * pairs):
      grid.add_row(*cells[i : i + 2 * pairs])
    outer = Table.grid()
    outer.add_row(Text.assemble((printable(self._title), "bold"), f"  {share:.0%}"))
    outer.add_row(ProgressBar(total=1.0, completed=share, width=min(60, width)))
    outer.add_row(grid)
    self._live.update(outer, refresh=True)

  def note(self, text: str) -> None:
    with contextlib.suppress(OSError):
      self._live.console.print(printable(text), markup=False)

  def close(self) -> None:
    with contextlib.suppress(OSError):
      self._live.stop()


def make_progress(
  mode: Literal["auto", "live", "plain", "none"],
  title: str,
  max_env_steps: int,
  max_wall_s: float | None = None,
  stream: IO[str] | None = None,
) -> Progress:
  """Returns the display of a run on `stream`, by default standard error.

  Mode `auto` is `live` on a terminal that can move its cursor, and `plain` elsewhere; mode `none` shows
  nothing.
  """
  stream = stream or sys.stderr
  if mode == "none":
    return Progress(max_env_steps, max_wall_s)
  if mode == "live" or (mode == "auto" and can_draw(stream)):
    return _Live(title, stream, mode == "live", max_env_steps, max_wall_s)
  return _Plain(stream, max_env_steps, max_wall_s)


def seconds_left(
  env_steps: int, wall_s: float, steps_per_s: float | None, max_env_steps: int, max_wall_s: float | None
) -> float | None:
  """Estimates the seconds until a run reaches one of its limits.

  Returns None if `steps_per_s` is None or 0 (unknown) and `max_wall_s` is None.
  """
  ends = [] if max_wall_s is None else [max_wall_s - wall_s]
  if steps_per_s is not None and steps_per_s > 0:
    ends.append((max_env_steps - env_steps) / steps_per_s)
  return max(0.0, min(ends)) if ends else None


def format_seconds(seconds: float) -> str:
  """Formats seconds: 3723 as `1:02:03`, 62 as `1:02`."""
  minutes, s = divmod(int(seconds), 60)
  hours, m = divmod(minutes, 60)
  return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"

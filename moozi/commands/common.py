"""Shared code of the commands: options, results, progress, and redirection of output."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import moozi.api  # noqa: F401 - registers trained agents as players
from moozi.core.errors import UserError
from moozi.io.output import can_draw, notice, say


def integer(text: str, *names: str, minimum: int = 1, maximum: int = 10**9 - 1, metavar: str = "N") -> Any:
  """Returns an option that takes an integer in a range; `text` is its help."""

  def parse(value: str) -> int:
    # Typer's own range error does not show the value.
    with contextlib.suppress(ValueError):
      if minimum <= int(value) <= maximum:
        return int(value)
    raise typer.BadParameter(f"{value}: must be an integer from {minimum} to {maximum:,}")

  return typer.Option(*names, metavar=metavar, parser=parse, help=text)


def output(default: str, metavar: str = "DIR") -> Any:
  """Returns the option --out; `default` is the default output path within the run."""
  return typer.Option(
    "--out", metavar=metavar, help=f"Output path. Default: RUN/{default}; for a zoo agent: ./{default}."
  )


Run = Annotated[
  Path,
  typer.Argument(metavar="RUN", help="A run directory, such as runs/first, or zoo:NAME."),
]
Checkpoint = Annotated[
  str | None,
  typer.Option(
    "--checkpoint", help="A name, a path, an environment step (takes the nearest), best, or last (default)."
  ),
]
Episode = Annotated[
  int, integer("Number of the evaluation episode, from 0.", "--episode", minimum=0, metavar="I")
]
Simulations = Annotated[
  int | None, integer("Simulations per search. Default: planners.test.", "--simulations")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout and nothing else.")]
AllowCode = Annotated[
  bool,
  typer.Option(
    "--allow-code",
    help="Allow the run, and the runs that play against it, to import the modules that they name.",
  ),
]


def number_of(option: str, text: str, low: float, high: float, unit: str) -> float:
  """Returns an option's value. Raises UserError if the text is not a number from `low` to `high`."""
  with contextlib.suppress(ValueError):
    if low <= float(text) <= high:
      return float(text)
  raise UserError(f"{option}={text}: must be a number of {unit} from {low:g} to {high:g}")


def show_steps(episode: int) -> Callable[[int], None]:
  """Returns a callback that shows how many steps of an episode have been played."""
  return lambda step: print_progress(f"{step} steps of episode {episode}")


def describe_human_normalized(score: float) -> str:
  return f"human-normalized score: {score:z.3f} (random play 0, human 1)"


def print_results(results: Any, paths: Mapping[str, Path], as_json: bool) -> None:
  """Prints results as JSON (their `to_json`), or as text and then the paths of their files."""
  if as_json:
    say(json.dumps(results.to_json(), allow_nan=False))
  else:
    say(results, *paths.values())


@contextlib.contextmanager
def progress_bar(unit: str) -> Iterator[Callable[[int, int], None]]:
  """Shows a bar on standard error if it is a terminal; yields a function of the number done and the total."""
  from rich.console import Console
  from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

  columns = (TextColumn(unit), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
  with Progress(*columns, console=Console(file=sys.stderr), disable=not can_draw(sys.stderr)) as bar:

    def show(done: int, total: int) -> None:
      if not bar.task_ids:
        bar.add_task(unit, completed=done, total=total)  # the rate is that of this call's own work
      bar.update(bar.task_ids[0], completed=done)

    yield show


def print_progress(text: str) -> None:
  """Replaces the last line of standard error, if that is a terminal; a line break in `text` ends the line."""
  if can_draw(sys.stderr):
    notice("" if text == "\n" else text, start="" if text == "\n" else "\r", end=text if text == "\n" else "")


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
  """Redirects the standard output of a `with` block to standard error, including that of C libraries."""
  sys.stdout.flush()
  saved = os.dup(1)
  os.dup2(2, 1)
  try:
    with contextlib.redirect_stdout(sys.stderr):
      yield
  finally:
    os.dup2(saved, 1)
    os.close(saved)

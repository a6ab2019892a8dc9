"""What commands share: how a run is opened, how numbers are read, where output goes."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moozi.core.errors import UserError

if TYPE_CHECKING:
  from moozi.core.config import Config
  from moozi.io.run_directory import RunDirectory

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, such as runs/first.")]
Checkpoint = Annotated[
  str | None,
  typer.Option("--checkpoint", help="A name, a path, an environment step (the nearest one), best, or last."),
]
Simulations = Annotated[
  str | None,
  typer.Option(
    "--simulations", metavar="N", help="Of each search; those of the run's testing planner if not given."
  ),
]
AllowCode = Annotated[
  bool,
  typer.Option(
    "--allow-code",
    help="Let the run's own environment, a Python module it names, be imported, and its "
    "Ray cluster be joined.",
  ),
]


def open_run(path: Path, allow_code: bool) -> "tuple[RunDirectory, Config]":
  """A run and its configuration: the one way in for every command that reads what a run left.

  A run directory may come from anywhere. Nothing in it is code but the name of a user's own environment,
  which is
  let in only where the user says so; the address of a Ray cluster is `moozi train --resume`'s to ask about.

  Raises: UserError: not a run, or a run in a user's own environment without `--allow-code`.
  """
  from moozi.envs.registry import is_code
  from moozi.io.run_directory import RunDirectory

  directory = RunDirectory.open(path)
  settings = directory.load_config()
  if is_code(settings.env.name) and not allow_code:
    raise UserError(
      f"{path}: env.name={settings.env.name} would import a Python module of that name and run its code; "
      "--allow-code allows it, if you trust this run"
    )
  return directory, settings


def count_of(option: str, text: str | None) -> int | None:
  """A whole number of at least 1; None where the option was not given."""
  if text is None:
    return None
  if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= 1):
    raise UserError(f"{option}={text}: must be a whole number of at least 1")
  return int(text)


@contextlib.contextmanager
def stdout_on_stderr() -> Iterator[None]:
  """Whatever is printed meanwhile, by libraries in C too, goes to standard error."""
  sys.stdout.flush()
  saved = os.dup(1)
  os.dup2(2, 1)
  try:
    with contextlib.redirect_stdout(sys.stderr):
      yield
  finally:
    os.dup2(saved, 1)
    os.close(saved)

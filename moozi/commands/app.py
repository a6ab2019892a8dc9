"""The command line: its commands, exit statuses, and one-line errors.

Each command is a module in `moozi/commands`, which checks its input before it creates or starts anything.
Commands import JAX and Ray inside their functions, to keep `moozi --help` fast.
"""

from collections.abc import Sequence
from typing import Annotated

import typer

from moozi.commands.arena import arena
from moozi.commands.card import card
from moozi.commands.compare import compare
from moozi.commands.configs import configs
from moozi.commands.envs import list_environments
from moozi.commands.evaluate import evaluate
from moozi.commands.inspect import inspect
from moozi.commands.latent import latent
from moozi.commands.plan import plan
from moozi.commands.play import play
from moozi.commands.reanalyze import reanalyze
from moozi.commands.report import report
from moozi.commands.surgery import surgery
from moozi.commands.sweep import sweep
from moozi.commands.system_errors import describe
from moozi.commands.timeline import timeline
from moozi.commands.train import train
from moozi.commands.trajectories import list_trajectories
from moozi.commands.watch import watch
from moozi.commands.zoo import zoo
from moozi.core.errors import UserError
from moozi.io.logs import print_lines
from moozi.io.output import check_output, discard_output, notice, prepare_streams, say

# The base class of usage errors, which Typer's own copy of click does not export.
_UsageError: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

app = typer.Typer(
  name="moozi",
  help="MuZero: planning with a learned model.",
  no_args_is_help=True,
  add_completion=False,
  rich_markup_mode=None,
  pretty_exceptions_enable=False,
)


def run(arguments: Sequence[str] | None = None) -> int:
  """Runs the command line and returns its exit status.

  The status is that of the command, 2 after a user error, without arguments, or after an error that
  `system_errors.describe` knows, and 130 after a stop signal that the command does not handle itself. Other
  errors are raised.

  Args:
    arguments: the arguments after the program's name; None: those in `sys.argv`.
  """
  prepare_streams()
  print_lines()
  try:
    status = app(
      args=None if arguments is None else list(arguments), prog_name="moozi", standalone_mode=False
    )
  except UserError as e:
    # Ray wraps an error of another process and adds the traceback as text. Only the cause is printed.
    return _fail(str(getattr(e, "cause", e)))
  except _UsageError as e:
    if (
      type(e).__name__ == "NoArgsIsHelpError"
    ):  # a command was called without arguments; its help is printed unchanged
      notice(e.format_message())  # type: ignore[attr-defined]
      return 2
    return _fail(e.format_message())  # type: ignore[attr-defined]
  except (typer.Abort, KeyboardInterrupt):
    return 130
  except BrokenPipeError:
    # The reader of the output exited (`moozi envs | head`). Python would report the broken pipe again when it
    # flushes the output at exit.
    discard_output()
    return 0
  except Exception as e:
    if (text := _describe_output(e) or describe(e)) is None:
      raise
    return _fail(text)
  return status if isinstance(status, int) else 0


def _describe_output(error: Exception) -> str | None:
  """Returns why a help text, which the argument parser prints, cannot be printed; None for other errors."""
  if isinstance(error, OSError):
    try:
      check_output()
    except UserError as again:
      return str(again)
  return None


def _fail(message: str) -> int:
  notice(f"moozi: error: {' '.join(message.split())}")
  return 2


def _print_version(is_requested: bool) -> None:
  if is_requested:
    from moozi import __version__

    say(f"moozi {__version__}")
    raise typer.Exit


@app.callback()
def _options(
  version: Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
  ] = False,
) -> None:
  """MuZero: planning with a learned model."""


app.command("train")(train)
app.command("evaluate")(evaluate)
app.command("inspect")(inspect)
app.command("reanalyze")(reanalyze)
app.command("trajectories")(list_trajectories)
app.command("surgery")(surgery)
app.command("report")(report)
app.command("compare")(compare)
app.command("arena")(arena)
app.command("sweep")(sweep)
app.command("timeline")(timeline)
app.command("plan")(plan)
app.command("envs")(list_environments)
app.command("configs")(configs)
app.command("watch")(watch)
app.command("play")(play)
app.command("latent")(latent)
app.command("card")(card)
app.command("zoo")(zoo)

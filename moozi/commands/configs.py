"""`moozi configs`: the configurations that come with MooZi."""

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import typer

from moozi.core.errors import UserError

if TYPE_CHECKING:
  from moozi.io.config_files import ConfigInfo

# The minimum width of a terminal in columns for a table with descriptions.
_WIDE = 120

AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON list to stdout and nothing else.")]
configs = typer.Typer()


@configs.callback(invoke_without_command=True)
def list_configurations(context: typer.Context, as_json: AsJson = False) -> None:
  """List the configurations: what they need, how long they took and what they reached."""
  if context.invoked_subcommand is not None:
    if as_json:
      raise UserError("--json: is for the list; `moozi configs show` prints YAML")
    return
  from moozi.io.config_files import list_configs

  infos = list_configs()
  if as_json:
    print(json.dumps([dataclasses.asdict(info) | {"path": str(info.path)} for info in infos], indent=2))
  else:
    _print_table(infos)


@configs.command("show")
def show(
  arguments: Annotated[
    list[str],
    typer.Argument(
      metavar="CONFIG [KEY=VALUE]...", help="A configuration or a YAML file, and values that override it."
    ),
  ],
) -> None:
  """Print a configuration with every key, as a starting point for a file of your own."""
  from moozi.io.config import config_to_dict, load_config
  from moozi.io.plain_data import dump_yaml

  name, *overrides = arguments
  config = load_config(name, overrides)
  print(f"# Printed by `moozi configs show {' '.join(arguments)}`.")
  print(dump_yaml(config_to_dict(config)), end="")


def _print_table(infos: "list[ConfigInfo]") -> None:
  from rich.console import Console
  from rich.table import Table

  console = Console(markup=False, highlight=False)
  is_wide = console.width >= _WIDE
  table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
  table.add_column("name", no_wrap=True)
  if is_wide:
    table.add_column("description", ratio=3)
  for heading in ("needs", "time", "return"):
    table.add_column(heading, ratio=2)
  for info in infos:
    description = [info.summary] if is_wide else []
    table.add_row(info.name, *description, _needs(info), info.time or "–", info.reached or "–")
  with console.capture() as captured:
    console.print(table)
  # Removes rich's padding, which terminals and files do not need.
  print("\n".join(line.rstrip() for line in captured.get().splitlines()))
  print("\nmoozi train NAME trains one of them; moozi configs show NAME prints its settings.")
  print("Times and mean returns are of one run unless stated.")
  print("A comment in each file names their source.")


def _needs(info: "ConfigInfo") -> str:
  package = [info.extra if info.is_installed else f"moozi[{info.extra}], not installed"] if info.extra else []
  return "; ".join([*filter(None, package), *([info.hardware] if info.hardware else [])]) or "–"

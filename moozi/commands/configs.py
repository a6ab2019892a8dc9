"""The command `moozi configs`: the configurations that come with MooZi."""

import dataclasses
import json
import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from moozi.core.errors import UserError
from moozi.core.text import shell_command
from moozi.io.output import say

if TYPE_CHECKING:
  from moozi.io.config_files import ConfigInfo

# The minimum width of a terminal in columns for a table with descriptions.
_WIDE = 120

AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON list to stdout and nothing else.")]


def configs(
  words: Annotated[
    list[str] | None,
    typer.Argument(
      metavar="WORD... | show CONFIG [KEY=VALUE]...",
      help="List the configurations whose name, environment or description has the words, or show one.",
    ),
  ] = None,
  as_json: AsJson = False,
) -> int:
  """List the configurations: what they need, how long they took and what they reached.

  `moozi configs show CONFIG` prints one with every key, as a starting point for a file of your own.
  """
  from moozi.io.config_files import list_configs

  words = words or []
  if words[:1] == ["show"]:
    if as_json:
      raise UserError("--json: is for the list; `moozi configs show` prints YAML")
    _show(words[1:])
    return 0
  infos = [info for info in list_configs() if all(_has(info, word) for word in words)]
  if not infos:
    raise UserError(f"{' '.join(words)}: no configuration has this in its name, environment or description")
  if as_json:
    say(json.dumps([dataclasses.asdict(info) | {"path": str(info.path)} for info in infos], indent=2))
  else:
    _print_table(infos)
  return 0


def _has(info: "ConfigInfo", word: str) -> bool:
  return word.lower() in f"{info.name} {info.env} {info.summary}".lower()


def _show(arguments: list[str]) -> None:
  from moozi.io.config import config_to_dict, load_config
  from moozi.io.plain_data import dump_yaml

  if not arguments or "=" in arguments[0]:
    raise UserError("CONFIG: missing; must be a configuration that `moozi configs` lists, or a YAML file")
  name, *overrides = arguments
  config = load_config(name, overrides)
  say(f"# Printed by `{shell_command('moozi', 'configs', 'show', *arguments)}`.")
  say(dump_yaml(config_to_dict(config)), end="")


def _print_table(infos: "list[ConfigInfo]") -> None:
  from rich.console import Console
  from rich.table import Table

  console = Console(markup=False, highlight=False)
  if console.width < _WIDE:
    _print_blocks(infos, console.width)
  else:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("name", no_wrap=True)
    table.add_column("description", ratio=3)
    for heading in ("needs", "time", "return"):
      table.add_column(heading, ratio=2)
    for info in infos:
      table.add_row(info.name, info.summary, _needs(info), info.time or "–", info.reached or "–")
    with console.capture() as captured:
      console.print(table)
    # Removes rich's padding, which terminals and files do not need.
    say("\n".join(line.rstrip() for line in captured.get().splitlines()))
  say("\nmoozi train NAME trains one of them; moozi configs show NAME prints its settings.")
  say("Times and mean returns are of one run unless stated.")
  say("A comment in each file names their source.")


def _print_blocks(infos: "list[ConfigInfo]", width: int) -> None:
  """Prints the name of each configuration, and below it what it needs, its time and its return.

  A configuration without these has its description.
  """
  for info in infos:
    say(info.name)
    parts = ((_needs(info), "needs "), (info.time or "–", "time: "), (info.reached or "–", "return: "))
    texts = [label + text for text, label in parts if text != "–"]
    for text in texts or [info.summary]:
      say(textwrap.fill(text, max(width, 20), initial_indent="  ", subsequent_indent="    "))


def _needs(info: "ConfigInfo") -> str:
  package = [info.extra if info.is_installed else f"moozi[{info.extra}], not installed"] if info.extra else []
  return "; ".join([*filter(None, package), *([info.hardware] if info.hardware else [])]) or "–"

"""Writes the tables of games, options and configurations into the environments' pages.

    python scripts/make_environment_pages.py

The lists are those of the installed packages, whose versions `constraints.txt` has.
"""

import ast
import functools
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from moozi.core.text import extra_of
from moozi.envs import registry
from moozi.io.config_files import list_configs

# The list is read several times, and reads every file.
_configs = functools.cache(list_configs)

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
  "atari": "docs/atari.md",
  "dm_control": "docs/control.md",
  "gymnasium": "docs/gymnasium.md",
  "gymnax": "docs/jax_environments.md",
  "minatar": "docs/minatar.md",
  "open_spiel": "docs/boards.md",
  "pgx": "docs/jax_environments.md",
  "tiny": "docs/environments.md",
}
"""The page of each library."""


def libraries() -> str:
  """Returns the table of all libraries: what each has, an example of a name, its extra and its page."""
  rows = ["| library | games | what | example of a name | extra |", f"|{5 * '---|'}"]
  for info in registry.list_libraries():
    known = (c for c in _configs() if c.env.startswith(f"{info.name}:"))
    example = min(known, key=lambda c: c.name.startswith("ppo/")).env  # the first, but of a baseline last
    page = PAGES[info.name].removeprefix("docs/")
    link = "#tiny" if page == "environments.md" else page
    extra = "none" if info.name == "tiny" else f"`{extra_of(info.name)}`"
    cells = [f"[`{info.name}`]({link})", f"{info.num_games}", info.summary, f"`{example}`", extra]
    rows.append(f"| {' | '.join(cells)} |")
  return "\n".join(rows)


def games(library: str, has_specs: bool = False) -> str:
  """Returns the table of a library's games; `has_specs` adds their frames and actions by default."""
  rows = ["| `env.name` | game |", "|---|---|"]
  if has_specs:
    rows = ["| `env.name` | game | frame | actions |", "|---|---|---|---|"]
  for info in registry.list_environments(library):
    cells = [f"`{info.name}`", info.summary]
    if has_specs:
      spec = registry.env_spec(info.name)
      actions = spec.actions_text if spec.factors is not None else ", ".join(spec.action_names)
      cells += [" × ".join(map(str, spec.frame_shape)), actions]
    rows.append(f"| {' | '.join(cells)} |")
  return "\n".join(rows)


def names(library: str) -> str:
  """Returns the names of a library's games in one paragraph, without the library's name."""
  found = (info.name.partition(":")[2] for info in registry.list_environments(library))
  return textwrap.fill(", ".join(f"`{name}`" for name in found), 118)


def options(library: str) -> str:
  """Returns the table of a library's options, with the games that have them unless all have all."""
  infos = registry.list_environments(library)
  groups: dict[tuple[str, str], list[str]] = {}
  for info in infos:
    for key, text in info.options.items():
      groups.setdefault((key, text), []).append(info.name.partition(":")[2])
  shared = all(len(names) == len(infos) for names in groups.values())
  head = ["key of `env.kwargs`", "default", "meaning"] + ["games"] * (not shared)
  rows = [f"| {' | '.join(head)} |", f"|{len(head) * '---|'}"]
  for (key, text), found in groups.items():
    meaning, _, default = text.rpartition("; default ")
    cells = [f"`{key}`", f"`{_as_yaml(default)}`", meaning]
    if not shared:
      cells.append("all" if len(found) == len(infos) else ", ".join(f"`{name}`" for name in found))
    rows.append(f"| {' | '.join(cells)} |")
  return "\n".join(rows)


def configurations(*libraries: str) -> str:
  """Returns the table of the configurations of libraries: what they took, and what they reached."""
  rows = ["| configuration | what | time | return |", "|---|---|---|---|"]
  for config in _configs():
    if config.env.partition(":")[0] in libraries:
      cells = [f"[`{config.name}`](../config/{config.name}.yaml)", config.summary]
      rows.append(f"| {' | '.join(cells)} | {config.time or '–'} | {config.reached or 'not measured'} |")
  return "\n".join(rows)


def _as_yaml(default: str) -> str:
  """Returns a default as a configuration writes it: `null` for `None`."""
  try:
    value: Any = ast.literal_eval(default)
  except (SyntaxError, ValueError):
    return default
  value = list(value) if isinstance(value, tuple) else value
  return yaml.safe_dump(value, default_flow_style=True, width=200).removesuffix("...\n").strip()


BLOCKS: dict[str, dict[str, Callable[[], str]]] = {
  "docs/environments.md": {
    "libraries": libraries,
    "tiny games": lambda: games("tiny", has_specs=True),
    "tiny options": lambda: options("tiny"),
    "tiny configurations": lambda: configurations("tiny"),
  },
  "docs/minatar.md": {
    "games": lambda: games("minatar", has_specs=True),
    "options": lambda: options("minatar"),
    "configurations": lambda: configurations("minatar"),
  },
  "docs/atari.md": {"options": lambda: options("atari"), "games": lambda: names("atari")},
  "docs/boards.md": {"options": lambda: options("open_spiel"), "games": lambda: games("open_spiel")},
  "docs/control.md": {
    "games": lambda: games("dm_control"),
    "options": lambda: options("dm_control"),
    "configurations": lambda: configurations("dm_control"),
  },
  "docs/gymnasium.md": {
    "games": lambda: games("gymnasium"),
    "options": lambda: options("gymnasium"),
    "configurations": lambda: configurations("gymnasium"),
  },
  "docs/jax_environments.md": {
    "gymnax games": lambda: games("gymnax"),
    "gymnax options": lambda: options("gymnax"),
    "pgx games": lambda: games("pgx"),
    "pgx options": lambda: options("pgx"),
    "configurations": lambda: configurations("gymnax", "pgx"),
  },
}
"""For each page, the blocks between markers of these names."""


if __name__ == "__main__":
  sys.path.append(str(ROOT))
  from experiments.lib.tables import write_between_markers

  for path, blocks in BLOCKS.items():
    for name, block in blocks.items():
      write_between_markers(ROOT / path, name, block())

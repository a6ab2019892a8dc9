"""The command `moozi envs`."""

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import typer

from moozi.commands.common import AsJson
from moozi.io.output import say

if TYPE_CHECKING:
  from moozi.envs.registry import EnvironmentInfo, LibraryInfo


def list_environments(
  library: Annotated[
    str | None,
    typer.Argument(
      metavar="[LIBRARY[:GAME]]",
      help="List this library's games and their options, or describe one game.",
    ),
  ] = None,
  as_json: AsJson = False,
) -> int:
  """List libraries of environments, the games of one library, or the frames and actions of one game."""
  from moozi.envs import registry

  if library is not None and ":" in library:
    _describe(library, as_json)
    return 0
  libraries = registry.list_libraries(library)
  if as_json:
    out = []
    for info in libraries:
      games = [dataclasses.asdict(env) for env in registry.list_environments(info.name)]
      out.append(dataclasses.asdict(info) | {"games": games if info.num_games is not None else []})
    say(json.dumps({"libraries": out}))
  elif library is None:
    _print_libraries(libraries)
  else:
    if libraries[0].missing is not None:
      say(f"{library}: {libraries[0].missing}")
    if libraries[0].num_games is not None:
      _print_games(registry.list_environments(library))
  return 0


def _describe(name: str, as_json: bool) -> None:
  """Prints an environment's frames, actions and options."""
  from moozi.envs import registry

  info, spec = registry.describe_environment(name)
  if as_json:
    say(json.dumps(dataclasses.asdict(info) | {"actions": spec.actions_text, "spec": spec.to_dict()}))
    return
  _print_games([info])
  players = f"; {spec.num_players} players" if spec.num_players > 1 else ""
  say(f"    frames: {' × '.join(map(str, spec.frame_shape))}, {spec.frame_dtype}{players}")
  say(f"    {spec.actions_text}")


def _print_libraries(libraries: "list[LibraryInfo]") -> None:
  """Prints a line per library."""
  texts = max(len(info.summary) for info in libraries)
  say(f"{'library':<10}  games  {'':<{texts}}  status")
  for info in libraries:
    number = "–" if info.num_games is None else info.num_games
    say(f"{info.name:<10}  {number:>5}  {info.summary:<{texts}}  {info.missing or 'installed'}")
  say("`moozi envs LIBRARY` lists games and options, `moozi envs LIBRARY:GAME` frames and actions.")
  say("env.name=my_module:make_env is an environment of your own.")


def _print_games(envs: "list[EnvironmentInfo]") -> None:
  """Prints a line per game, and below each group of games in a row with the same options, the options."""
  width = max(len(env.name) for env in envs)
  for i, env in enumerate(envs):
    say(f"{env.name:<{width}}  {env.summary}")
    if i + 1 == len(envs) or envs[i + 1].options != env.options:
      for key, text in env.options.items():
        say(f"    env.kwargs.{key}: {text}")

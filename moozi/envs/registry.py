"""Worlds by name, `library:game`, and their options, checked."""

import dataclasses
import difflib
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from moozi.core.config import Section
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs import catch, corridor, minatar
from moozi.envs.environment import Environment


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorldInfo:
  """One line of the list of worlds.

  Attributes:
    name: `library:game`.
    summary: what it is, in a few words.
    options: for each key of env.kwargs, its default and what it does.
  """

  name: str
  summary: str
  options: dict[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _World:
  """How one name is made."""

  summary: str
  options: type[Section]
  make_spec: Callable[[str, Any], EnvSpec]
  make_environment: Callable[[str, Any], Environment]


def _worlds() -> dict[str, _World]:
  out = {
    f"minatar:{game}": _World(
      summary=summary,
      options=minatar.Options,
      make_spec=minatar.make_spec,
      make_environment=minatar.make_environment,
    )
    for game, summary in minatar.GAMES.items()
  }
  out["tiny:catch"] = _World(
    summary="catch a falling ball; optimal return 1",
    options=catch.Options,
    make_spec=catch.make_spec,
    make_environment=catch.make_environment,
  )
  out["tiny:corridor"] = _World(
    summary="walk past a small reward to a larger one; optimal return 1",
    options=corridor.Options,
    make_spec=corridor.make_spec,
    make_environment=corridor.make_environment,
  )
  return out


def list_worlds() -> list[WorldInfo]:
  """Every world there is, in order of name, whether or not its package is installed."""
  return [
    WorldInfo(
      name=name,
      summary=world.summary,
      options={key: _describe(world.options, key) for key in world.options.model_fields},
    )
    for name, world in sorted(_worlds().items())
  ]


def make(name: str, seed: int, **kwargs: Any) -> Environment:
  """The world `name`, seeded.

  Args:
    name: `library:game`.
    seed: non-negative; the world's episodes are a function of it.
    **kwargs: the world's own options (`env.kwargs`).

  Raises: UserError: where the name or an option is not known, or an option's value is not allowed.
  """
  world = _find(name)
  environment = world.make_environment(name.partition(":")[2], _check(name, world, kwargs))
  environment.seed(seed)
  return environment


def world_spec(name: str, **kwargs: Any) -> EnvSpec:
  """The facts of the world `name` under these options. Raises UserError as `make` does."""
  world = _find(name)
  return world.make_spec(name.partition(":")[2], _check(name, world, kwargs))


def _find(name: str) -> _World:
  worlds = _worlds()
  if name in worlds:
    return worlds[name]
  library, _, game = name.partition(":")
  games = [w.partition(":")[2] for w in worlds if w.partition(":")[0] == library]
  # A bare game's name is the commonest slip: it is compared with games, not with whole names.
  by_key = {w if ":" in name else w.partition(":")[2]: w for w in worlds}
  nearest = by_key[difflib.get_close_matches(name, by_key, n=1, cutoff=0.0)[0]]
  if games:
    what, allowed = f"unknown game {game!r} of {library}", games
  else:
    what, allowed = f"unknown library {library!r}", sorted({w.partition(":")[0] for w in worlds})
  raise UserError(f"env.name={name}: {what}; allowed are {', '.join(allowed)}; the nearest is {nearest}")


def _check(name: str, world: _World, kwargs: dict[str, Any]) -> Section:
  fields = world.options.model_fields
  for key, value in kwargs.items():
    if key not in fields:
      nearest = difflib.get_close_matches(key, fields, n=1, cutoff=0.0)[0]
      raise UserError(
        f"env.kwargs.{key}={value!r}: unknown option of {name}; allowed are {', '.join(fields)}; "
        f"the nearest is {nearest}"
      )
    # pydantic reads true as 1 and "no" as false; a user who wrote either meant something else.
    is_flag = fields[key].annotation is bool
    if isinstance(value, bool) != is_flag:
      allowed = "true or false" if is_flag else "a number"
      raise UserError(f"env.kwargs.{key}={value!r}: must be {allowed} ({_describe(world.options, key)})")
  try:
    return world.options(**kwargs)
  except ValidationError as error:
    first = error.errors()[0]
    key = str(first["loc"][0]) if first["loc"] else "?"
    raise UserError(
      f"env.kwargs.{key}={kwargs.get(key)!r}: {first['msg']} ({_describe(world.options, key)})"
    ) from None


def _describe(options: type[Section], key: str) -> str:
  field = options.model_fields[key]
  return f"{field.description}; default {field.default}"

"""Environments by name, `library:game`, and their options, checked."""

import dataclasses
import difflib
import importlib
import types
import typing
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from moozi.core.config import Section
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Environment
from moozi.envs.suite import Suite
from moozi.envs.suites import user as own
from moozi.envs.vector_protocol import VectorEnvironment

# Where each library's SUITE is. Imported when asked for: their packages are large.
_MODULES = {
  "atari": "moozi.envs.suites.atari.environment",
  "gymnasium": "moozi.envs.suites.gymnasium",
  "gymnax": "moozi.envs.suites.gymnax",
  "minatar": "moozi.envs.suites.minatar",
  "open_spiel": "moozi.envs.suites.open_spiel.environment",
  "pgx": "moozi.envs.suites.pgx",
  "tiny": "moozi.envs.suites.tiny.suite",
}
# Libraries that import a module named in the name of a game.
_NAMES_MODULES = ("gymnasium",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvironmentInfo:
  """One line of the list of environments.

  Attributes:
    name: `library:game`; `library:…` where the library's package is not installed.
    summary: what it is, in a few words, or what to install.
    options: for each key of env.kwargs, its default and what it does.
  """

  name: str
  summary: str
  options: dict[str, str]


def list_environments(library: str | None = None) -> list[EnvironmentInfo]:
  """Every environment there is, or those of one library, in order of name.

  A library whose package is not installed, and whose games only the package knows, has one line.

  Raises: UserError: where the library is not known.
  """
  if library is not None and library not in _MODULES:
    raise UserError(f"unknown library {library!r}; allowed are {', '.join(sorted(_MODULES))}")
  return [env for name in sorted(_MODULES) if library in (None, name) for env in _envs_of(name)]


def _envs_of(name: str) -> list[EnvironmentInfo]:
  library = _load(name)
  try:
    games = library.list_games()
  except UserError as error:
    return [EnvironmentInfo(name=f"{name}:…", summary=str(error).partition(": ")[2], options={})]
  return [
    EnvironmentInfo(name=f"{name}:{game}", summary=games[game], options=_describe_all(library.options(game)))
    for game in sorted(games)
  ]


def make(name: str, /, seed: int, is_testing: bool = False, **kwargs: Any) -> Environment:
  """The environment `name`, seeded.

  Args:
    name: `library:game`.
    seed: non-negative; the environment's episodes are a function of it.
    is_testing: make it as it is tested on (where a library tells the two apart).
    **kwargs: the environment's own options (`env.kwargs`).

  Raises: UserError: where the name or an option is not known, or an option's value is not allowed.
  """
  library, game, options = _resolve(name, kwargs)
  environment = library.make_environment(game, library.for_testing(options) if is_testing else options)
  environment.seed(seed)
  return environment


def make_fast_vector(name: str, seeds: Sequence[int], /, **kwargs: Any) -> VectorEnvironment | None:
  """Environments called `name` side by side, one for each seed, where the library has its own way; else
  None.
  """
  library, game, options = _resolve(name, kwargs)
  return None if library.make_vector is None else library.make_vector(game, options, list(seeds))


def make_jax_env(name: str, /, **kwargs: Any) -> Any | None:
  """The environment `name` as an `envs.jax.rules.JaxEnvironment`, where its rules are written in JAX; else
  None.
  """
  library, game, options = _resolve(name, kwargs)
  return None if library.make_jax_env is None else library.make_jax_env(game, options)


def env_spec(name: str, /, **kwargs: Any) -> EnvSpec:
  """The facts of the environment `name` under these options. Raises UserError as `make` does."""
  library, game, options = _resolve(name, kwargs)
  return library.make_spec(game, options)


def is_code(name: str) -> bool:
  """Whether making this environment would import a module that the name itself names: a user's own
  environment.

  Looks at the text alone. What opens a run that somebody else may have made asks before it makes its
  environment.
  """
  library, _, game = name.partition(":")
  if library not in _MODULES:
    return bool(game)
  # gymnasium:MODULE:ID imports MODULE.
  return library in _NAMES_MODULES and ":" in game


def _resolve(name: str, kwargs: dict[str, Any]) -> tuple[Suite, str, Any]:
  """The library, the game as the user wrote it, and its options, checked."""
  library_name, _, game = name.partition(":")
  if library_name not in _MODULES:
    if is_code(name) and own.is_there(name):
      return own.SUITE, name, own.Options(kwargs=kwargs)
    known = ", ".join(sorted(_MODULES))
    _refuse(name, f"unknown library {library_name!r}; allowed are {known}", _all_names())
  library = _load(library_name)
  games = library.list_games()
  listed = library.listed_name(game)
  if listed not in games and not library.is_game(listed):
    known = ", ".join(games) if len(games) <= 12 else f"those that `moozi envs {library_name}` lists"
    names = {f"{library_name}:{g}": f"{library_name}:{g}" for g in games}
    _refuse(name, f"unknown game {listed!r} of {library_name}; allowed are {known}", names)
  return library, game, _check(name, library.options(listed), kwargs)


def _refuse(name: str, what: str, by_key: dict[str, str]) -> typing.NoReturn:
  # Compared without regard to case, which is all that tells some games' names from one another's.
  lower = {key.lower(): full for key, full in by_key.items()}
  nearest = lower[difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.0)[0]]
  raise UserError(f"env.name={name}: {what}; the nearest is {nearest}")


def _all_names() -> dict[str, str]:
  """Every environment's name, also by its game alone: a bare game's name is the commonest slip."""
  out: dict[str, str] = {}
  for library in _MODULES:
    try:
      games = _load(library).list_games()
    except UserError:
      continue
    for game in games:
      out[f"{library}:{game}"] = f"{library}:{game}"
      out.setdefault(game, f"{library}:{game}")
  return out


def _load(library: str) -> Suite:
  out: Suite = importlib.import_module(_MODULES[library]).SUITE
  return out


def _check(name: str, options: type[Section], kwargs: dict[str, Any]) -> Section:
  fields = options.model_fields
  for key, value in kwargs.items():
    if key not in fields:
      nearest = difflib.get_close_matches(key, fields, n=1, cutoff=0.0)[0]
      raise UserError(
        f"env.kwargs.{key}={value!r}: unknown option of {name}; allowed are {', '.join(fields)}; "
        f"the nearest is {nearest}"
      )
    # pydantic reads true as 1 and "no" as false; a user who wrote either meant something else.
    kinds = _kinds(fields[key].annotation)
    if isinstance(value, bool) != (bool in kinds):
      allowed = "true or false" if bool in kinds else "a number" if kinds & {int, float} else "no flag"
      raise UserError(f"env.kwargs.{key}={value!r}: must be {allowed} ({_describe(options, key)})")
  try:
    return options(**kwargs)
  except ValidationError as error:
    first = error.errors()[0]
    key = str(first["loc"][0]) if first["loc"] else "?"
    raise UserError(
      f"env.kwargs.{key}={kwargs.get(key)!r}: {first['msg']} ({_describe(options, key)})"
    ) from None


def _kinds(annotation: Any) -> set[Any]:
  """The plain types in an annotation: of `Annotated[float, …] | None`, float and None's."""
  if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
    return {kind for part in typing.get_args(annotation) for kind in _kinds(part)}
  return {annotation} if isinstance(annotation, type) else set()


def _describe_all(options: type[Section]) -> dict[str, str]:
  return {key: _describe(options, key) for key in options.model_fields}


def _describe(options: type[Section], key: str) -> str:
  field = options.model_fields.get(key)
  return "" if field is None else f"{field.description}; default {field.default}"

"""A suite: the environments of one library, as the registry lists and makes them."""

import dataclasses
import difflib
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from moozi.core.config import Section
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Environment, VectorEnvironment
from moozi.envs.table import Table

S = TypeVar("S", bound=Section)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReferenceScores:
  """The published returns of random play and of a human in one game."""

  random: float
  human: float

  def normalize(self, mean_return: float) -> float:
    """Returns the human-normalized score: 0 for random play, 1 for the human."""
    return (mean_return - self.random) / (self.human - self.random)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
  """The functions that list and make the environments of one library. Each suite's module defines SUITE.

  Every function may raise UserError where the library's package is not installed; the error says how to
  install it.

  Attributes:
    summary: what the library has, in a few words.
    package: the Python package that the library's extra installs (`core.text.extra_of`); None if MooZi has
      the games itself.
    list_games: returns the games' names, each with a short summary.
    options: maps a game's listed name to the class of its options (`env.kwargs`).
    make_spec: maps (game, options) to the environment's specification.
    make_environment: maps (game, options) to an environment.
    listed_name: maps a game as the user writes it to its listed name (`go(board_size=9)` to `go`).
    is_game: returns whether an unlisted game can be made.
    for_testing: maps the options of training environments to those of evaluation environments.
    with_wrappers: adds `env.wrappers` to the options; None if the suite's environments are not wrapped.
    make_vector: maps (game, options, seeds) to the suite's own vectorized environment, or to None if the
      suite has none for these options.
    make_jax_env: maps (game, options) to an `envs.jax.rules.JaxEnvironment`, whose whole rollout can be
      compiled; None if the rules are not in JAX. Equal arguments give the same object.
    make_table: maps (game, options) to a `Table`; None: the registry wraps a two-player environment.
    reference_scores: maps a game to the returns of random play and of a human; None if there are none.
  """

  summary: str
  package: str | None
  list_games: Callable[[], Mapping[str, str]]
  options: Callable[[str], type[Section]]
  make_spec: Callable[[str, Any], EnvSpec]
  make_environment: Callable[[str, Any], Environment]
  listed_name: Callable[[str], str] = lambda game: game
  is_game: Callable[[str], bool] = lambda game: False
  for_testing: Callable[[Any], Any] = lambda options: options
  with_wrappers: Callable[[Any, tuple[str, ...]], Any] | None = None
  make_vector: Callable[[str, Any, list[int]], VectorEnvironment | None] | None = None
  make_jax_env: Callable[[str, Any], Any] | None = None
  make_table: Callable[[str, Any], Table] | None = None
  reference_scores: Callable[[str], ReferenceScores | None] = lambda game: None


def check_options(name: str, options: type[S], kwargs: dict[str, Any]) -> S:
  """Returns the options of environment `name`. Raises UserError for an unknown key and a wrong value."""
  fields = options.model_fields
  for key, value in kwargs.items():
    if key not in fields:
      nearest = difflib.get_close_matches(key, fields, n=1, cutoff=0.0)[0]
      raise UserError(
        f"env.kwargs.{key}={value!r}: unknown option of {name}; must be one of {', '.join(fields)}; "
        f"the nearest is {nearest}"
      )
    # pydantic would convert true to 1 and "no" to false, which is not what the user meant.
    kinds = _kinds(fields[key].annotation)
    if isinstance(value, bool) != (bool in kinds):
      allowed = "true or false" if bool in kinds else "a number" if kinds & {int, float} else "no flag"
      raise UserError(f"env.kwargs.{key}={value!r}: must be {allowed} ({describe_option(options, key)})")
  try:
    return options(**kwargs)
  except ValidationError as error:
    first = error.errors()[0]
    key = str(first["loc"][0]) if first["loc"] else "?"
    raise UserError(
      f"env.kwargs.{key}={kwargs.get(key)!r}: {first['msg']} ({describe_option(options, key)})"
    ) from None


def _kinds(annotation: Any) -> set[Any]:
  """Returns the plain types in an annotation, such as float and NoneType for `Annotated[float, …] | None`."""
  if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
    return {kind for part in typing.get_args(annotation) for kind in _kinds(part)}
  return {annotation} if isinstance(annotation, type) else set()


def describe_option(options: type[Section], key: str) -> str:
  """Returns an option's description and its default; "" if there is no such option."""
  field = options.model_fields.get(key)
  return "" if field is None else f"{field.description}; default {field.default}"

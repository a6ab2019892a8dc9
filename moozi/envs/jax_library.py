"""What the libraries of JAX worlds share. Imports no JAX itself: it is there when worlds are listed."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from moozi.core.config import Section
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Environment
from moozi.envs.library import Library


def make_library(
  games: Mapping[str, str],
  options: Callable[[str], type[Section]],
  make_world: Callable[[str, Any], Any],
  listed_name: Callable[[str], str],
) -> Library:
  """The `Library` of worlds written in JAX.

  Args:
    games, options, listed_name: as `Library` has them.
    make_world: (game, options) to a JaxWorld. May raise UserError.
  """
  # One object for equal arguments: functions that are compiled for a world are compiled once.
  cached = functools.cache(make_world)

  def make_spec(game: str, given: Any) -> EnvSpec:
    spec: EnvSpec = cached(game, given).spec
    return spec

  def make_environment(game: str, given: Any) -> Environment:
    from moozi.envs.jax_environment import JaxEnvironment

    return JaxEnvironment(cached(game, given))

  def make_vector(game: str, given: Any, seeds: list[int]) -> Any:
    from moozi.envs.jax_environment import JaxVectorEnvironment

    return JaxVectorEnvironment(cached(game, given), seeds)

  return Library(
    list_games=lambda: games,
    options=options,
    make_spec=make_spec,
    make_environment=make_environment,
    listed_name=listed_name,
    make_vector=make_vector,
    make_jax_world=cached,
  )

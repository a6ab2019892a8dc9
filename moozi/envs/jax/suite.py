"""What the libraries of JAX environments share. Imports no JAX itself: it is there when environments are
listed.
"""

import functools
import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from moozi.core.config import Section
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Environment
from moozi.envs.suite import Suite
from moozi.envs.vector_protocol import VectorEnvironment

MINATAR_ACTION_NAMES = ("noop", "left", "up", "right", "down", "fire")
"""All six, in the package's order."""

# What the options that both have do.
STICKY_ACTION_PROB = "chance that the last action is played again instead"
MINIMAL_ACTIONS = "only the actions that matter; false keeps all six"
MAX_EPISODE_STEPS = "truncate an episode after so many steps"


def make_library(
  name: str,
  games: Mapping[str, str],
  refused: Mapping[str, str],
  options: Callable[[str], type[Section]],
  make_env: Callable[[str, Any], Any],
) -> Suite:
  """The `Suite` of environments written in JAX.

  Args:
    name: the library's, before the colon.
    games, options: as `Suite` has them.
    refused: the games that are not offered, each with why.
    make_env: (game, options) to a JaxEnvironment. May raise UserError.
  """
  # One object for equal arguments: what is compiled with the environment as a static argument is compiled
  # once.
  cached = functools.cache(make_env)

  def listed_name(game: str) -> str:
    if game in refused:
      raise UserError(f"env.name={name}:{game}: {refused[game]}; `moozi envs {name}` lists what is offered")
    return game

  def make_spec(game: str, given: Any) -> EnvSpec:
    spec: EnvSpec = cached(game, given).spec
    return spec

  def make_environment(game: str, given: Any) -> Environment:
    from moozi.envs.jax.environment import JaxDmEnvironment

    return JaxDmEnvironment(cached(game, given))

  def make_vector(game: str, given: Any, seeds: list[int]) -> VectorEnvironment:
    from moozi.envs.jax.environment import JaxVectorEnvironment

    return JaxVectorEnvironment(cached(game, given), seeds)

  return Suite(
    list_games=lambda: games,
    options=options,
    make_spec=make_spec,
    make_environment=make_environment,
    listed_name=listed_name,
    make_vector=make_vector,
    make_jax_env=cached,
  )


def check_package(name: str, game: str, oldest: str) -> None:
  """Raises UserError where the package `name` is not installed, or is older than version `oldest`."""
  where = f"env.name={name}:{game}"
  if importlib.util.find_spec(name) is None:
    raise UserError(f'{where}: the package {name} is not installed; pip install "moozi[{name}]" brings it')
  version = importlib.metadata.version(name)
  if _numbers(version) < _numbers(oldest):
    raise UserError(
      f'{where}: {name} {version} is too old; pip install "{name}>={oldest}" brings one that is not'
    )


def _numbers(version: str) -> tuple[int, ...]:
  """The first two numbers of a version; 0 in the place of what is none."""
  return tuple(int(part) if part.isdigit() else 0 for part in [*version.split("."), "0"][:2])

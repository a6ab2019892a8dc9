"""The code that the suites of JAX environments share.

Listing environments loads this module, so it imports no JAX.
"""

import functools
import importlib.metadata
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from moozi.core.config import Section
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.core.text import missing_package, shell_command
from moozi.envs.environment import Environment, VectorEnvironment
from moozi.envs.suite import Suite

MINATAR_ACTION_NAMES = ("noop", "left", "up", "right", "down", "fire")
"""MinAtar's six actions, in the order of the package."""

# Descriptions of options that the suites of gymnax and pgx share.
STICKY_ACTION_PROB = "probability that the last action is repeated"
MINIMAL_ACTIONS = "only the actions with an effect; false keeps all six"
MAX_EPISODE_STEPS = "truncate an episode after this number of steps"


def make_suite(
  name: str,
  summary: str,
  games: Mapping[str, str],
  refused: Mapping[str, str],
  options: Callable[[str], type[Section]],
  make_env: Callable[[str, Any], Any],
) -> Suite:
  """Makes the `Suite` of one library of environments written in JAX.

  Args:
    name: the library's name before the colon; also the name of its Python package.
    refused: the games that are not offered, each with the reason.
    make_env: maps (game, options) to a JaxEnvironment. May raise UserError.
  """
  # Equal arguments give one object: a jitted function whose static argument is the environment is compiled
  # only once.
  make_env = functools.cache(make_env)

  def listed_name(game: str) -> str:
    if game in refused:
      raise UserError(f"env.name={name}:{game}: {refused[game]}; `moozi envs {name}` lists the games")
    return game

  def make_spec(game: str, options: Any) -> EnvSpec:
    spec: EnvSpec = make_env(game, options).spec
    return spec

  def make_environment(game: str, options: Any) -> Environment:
    from moozi.envs.jax.adapters import JaxDmEnvironment

    return JaxDmEnvironment(make_env(game, options))

  def make_vector(game: str, options: Any, seeds: list[int]) -> VectorEnvironment:
    from moozi.envs.jax.adapters import JaxVectorEnvironment

    return JaxVectorEnvironment(make_env(game, options), seeds)

  return Suite(
    summary=summary,
    package=name,
    list_games=lambda: games,
    options=options,
    make_spec=make_spec,
    make_environment=make_environment,
    listed_name=listed_name,
    make_vector=make_vector,
    make_jax_env=make_env,
  )


def check_package(name: str, game: str, oldest: str) -> None:
  """Raises UserError where the package `name` is not installed, or is older than version `oldest`."""
  where = f"env.name={name}:{game}"
  if importlib.util.find_spec(name) is None:
    raise missing_package(where, name)
  version = importlib.metadata.version(name)
  if _release(version) < _release(oldest):
    upgrade = shell_command("pip", "install", f"{name}>={oldest}")
    raise UserError(f"{where}: {name} {version} is too old; {upgrade} upgrades it")


def _release(version: str) -> tuple[int, ...]:
  """Returns the first two numbers of a version; a part that is not a number counts as 0."""
  return tuple(int(part) if part.isdigit() else 0 for part in [*version.split("."), "0"][:2])

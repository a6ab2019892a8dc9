"""The library `tiny`: environments small enough to know the best return of."""

from typing import Any

from moozi.core.config import Section
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Environment
from moozi.envs.suite import Suite
from moozi.envs.suites.tiny import catch, corridor

_MODULES: dict[str, Any] = {"catch": catch, "corridor": corridor}


def _list_games() -> dict[str, str]:
  return {
    "catch": "catch a falling ball; optimal return 1",
    "corridor": "walk past a small reward to a larger one; optimal return 1",
  }


def _options(game: str) -> type[Section]:
  options: type[Section] = _MODULES[game].Options
  return options


def _make_spec(game: str, options: Any) -> EnvSpec:
  spec: EnvSpec = _MODULES[game].make_spec(game, options)
  return spec


def _make_environment(game: str, options: Any) -> Environment:
  environment: Environment = _MODULES[game].make_environment(game, options)
  return environment


SUITE = Suite(
  list_games=_list_games, options=_options, make_spec=_make_spec, make_environment=_make_environment
)

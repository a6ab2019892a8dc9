"""What a library of environments tells the registry: its games, their options, and how an environment is
made.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from moozi.core.config import Section
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Environment
from moozi.envs.vector_protocol import VectorEnvironment


def _as_written(game: str) -> str:
  return game


def _is_listed_only(game: str) -> bool:
  return False


def _as_given(options: Section) -> Section:
  return options


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
  """How the environments of one library are listed and made. Each library's module has one, called SUITE.

  Every function may raise UserError where the library's package is not installed, and says what to install.

  Attributes:
    list_games: the names of the games there are, each with a few words on it.
    options: the options of a game (`env.kwargs`), by its listed name.
    make_spec: (game, options) to the facts of the environment.
    make_environment: (game, options) to an environment.
    listed_name: a game as the user writes it to its listed name (`go(board_size=9)` is `go`).
    is_game: whether a game that is not listed can be made all the same; it has the options of any.
    for_testing: the options of an environment that is tested on, from those of one that is trained on.
    make_vector: (game, options, seeds) to environments side by side, with the face of
      `SyncVectorEnvironment`, where
      the library has a faster way than one by one.
    make_jax_env: (game, options) to an `envs.jax.rules.JaxEnvironment`, where the rules are written in JAX:
      the
      whole rollout can be compiled then. Equal arguments give the same object.
  """

  list_games: Callable[[], Mapping[str, str]]
  options: Callable[[str], type[Section]]
  make_spec: Callable[[str, Any], EnvSpec]
  make_environment: Callable[[str, Any], Environment]
  listed_name: Callable[[str], str] = _as_written
  is_game: Callable[[str], bool] = _is_listed_only
  for_testing: Callable[[Any], Any] = _as_given
  make_vector: Callable[[str, Any, list[int]], VectorEnvironment | None] | None = None
  make_jax_env: Callable[[str, Any], Any] | None = None

"""A user's own environments. `env.name` is their function: `my_module:make_env`, or a registered name.

Making such an environment runs the user's code. `core.config.uses.code_keys` recognizes `module:function`
without importing anything, for commands that open runs of unknown origin.
"""

import contextlib
import functools
import logging
import sys
import types
from collections.abc import Callable
from typing import Any, TypeGuard

import dm_env
import numpy as np
from pydantic import Field

from moozi.core import plugins, user_code
from moozi.core.config import Section
from moozi.core.errors import EnvMakeError, UserError, as_exceptions
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Environment, check_seed
from moozi.envs.game import GameEnvironment
from moozi.envs.own_rewards import counting_own_rewards, record_rewards
from moozi.envs.own_table import OwnTable
from moozi.envs.seats import SeatGame, SeatOptions
from moozi.envs.suite import Suite, check_options
from moozi.envs.suites import dm_env as dm_env_suite
from moozi.envs.table import EnvironmentTable, Table
from moozi.envs.trial import check_same_spec, spec_of_variants
from moozi.envs.wrappers import EnvironmentWrapper, apply_wrappers, depend_on_testing

_log = logging.getLogger("moozi.envs")

# Parameters of `registry.make` itself; a function that has them receives them.
_RESERVED = ("seed", "is_testing")
# Keys of env.kwargs for the agent's seat at a user's table, unless the function takes them itself.
_SEAT_KEYS = tuple(SeatOptions.model_fields)


class UserOptions(Section):
  kwargs: dict[str, Any] = Field({}, description="keyword arguments of the function")
  wrappers: tuple[str, ...] = Field(
    (), description="functions that wrap the environment, the innermost first"
  )
  is_testing: bool = Field(False, description="whether the environment is for evaluation")


def make_spec(name: str, options: UserOptions) -> EnvSpec:
  """Returns the environment's specification. Plays a trial episode to find errors before a run starts.

  If the function or a wrapper takes `is_testing`, the environment for evaluation plays one too.
  """
  plugin = plugins.ENVIRONMENTS.get(name)
  return spec_of_variants(
    lambda is_testing: make_environment(name, options.model_copy(update={"is_testing": is_testing})),
    plugin,
    has_variants=user_code.takes(plugin.function, "is_testing") or depend_on_testing(options.wrappers),
  )


def make_environment(name: str, options: UserOptions) -> Environment:
  """Makes an environment with the user's function.

  If the function returns a `Table`, the agent plays one of the table's seats (`SeatOptions`).

  Raises: UserError: the module cannot be imported or has no such function, the function takes other arguments
    or fails, or its result is not a supported environment.
  """
  plugin = plugins.ENVIRONMENTS.get(name)
  _check_arguments(name, plugin.function, _own_kwargs(plugin.function, options.kwargs))
  make = functools.partial(_make, name, plugin, options)
  if user_code.takes(plugin.function, "seed"):
    return _MadePerSeed(lambda seed: make(seed=seed))
  environment, is_seeded = make()
  if not is_seeded:
    _warn_unseeded(name)
  return environment


@functools.cache
def _warn_unseeded(name: str) -> None:
  _log.warning(
    "%s has no seed: neither the function nor its environment takes a seed; random draws are not repeatable",
    name,
  )


class _MadePerSeed(EnvironmentWrapper):
  """Makes a new environment for each seed."""

  def __init__(self, make: Callable[[int], tuple[Environment, bool]]) -> None:
    self._make = make
    super().__init__(make(0)[0])

  def seed(self, seed: int) -> None:
    seed, spec = check_seed(seed), self.env_spec
    self._env.close()
    # 31 bits, which any generator accepts.
    try:
      self._env, _ = self._make(int(np.random.SeedSequence(seed).generate_state(1)[0] >> 1))
    except UserError as error:
      raise EnvMakeError(str(error)) from error
    self._env.seed(seed)
    check_same_spec(spec, self.env_spec, "the seed", "with another seed")


def _check_arguments(name: str, function: Callable[..., Any], kwargs: dict[str, Any]) -> None:
  """Raises UserError if the function does not take `kwargs`, or if they have a key that the run sets."""
  signature = user_code.signature_of(function)
  if signature is None:
    return
  for key in _RESERVED:
    if key in kwargs:
      raise UserError(
        f"env.kwargs.{key}={kwargs[key]!r}: not allowed; {name} receives the {key} of each environment from "
        f"the run if it has a parameter {key}"
      )
  try:
    signature.bind(**kwargs, **{key: 0 for key in _RESERVED if user_code.takes(function, key)})
  except TypeError as error:
    kind = type(function)
    own = function.__name__ if issubclass(kind, types.FunctionType | type) else kind.__name__
    raise UserError(f"env.kwargs={kwargs}: {name} is {own}{signature}: {error}") from error


def _make(name: str, plugin: user_code.Plugin, options: UserOptions, **seed: int) -> tuple[Environment, bool]:
  """Makes an environment with the user's function; returns it, and whether it can be seeded."""
  return _environment_of(name, plugin, options, _call(plugin, options, seed))


def _environment_of(
  name: str, plugin: user_code.Plugin, options: UserOptions, made: Any
) -> tuple[Environment, bool]:
  """Returns the environment of the function's result, and whether it can be seeded."""
  if _is_table(made):
    return _seat_of(name, plugin, made, options), True
  with plugin.errors("making the environment failed"):
    try:
      _check_arguments(name, plugin.function, options.kwargs)
      rewards = record_rewards(f"env.name={name}", made, has_wrappers=bool(options.wrappers))
      env, is_seeded = _as_env(name, apply_wrappers(made, options.wrappers, options.is_testing))
      return counting_own_rewards(env, rewards, options.is_testing), is_seeded
    except BaseException:
      with contextlib.suppress(Exception), as_exceptions():
        made.close()
      raise


def make_table(name: str, options: UserOptions) -> Table:
  """Returns the table that the user's function makes, or that of the two-player environment that it makes."""
  plugin = plugins.ENVIRONMENTS.get(name)
  _check_arguments(name, plugin.function, _own_kwargs(plugin.function, options.kwargs))
  takes_seed = user_code.takes(plugin.function, "seed")
  made = _call(plugin, options, {"seed": 0} if takes_seed else {})
  if _is_table(made):  # it receives its seeds in `reset`
    _check_unwrapped(name, options)
    return OwnTable(plugin, made)
  environment = _environment_of(name, plugin, options, made)[0]
  if takes_seed:  # each seed makes another environment
    environment.close()
    environment = make_environment(name, options)
  return EnvironmentTable(environment)


def _is_table(made: Any) -> TypeGuard[Table]:
  """Returns whether a user's object is a table. `isinstance` may run the object's own code."""
  return issubclass(type(made), Table)


def _call(plugin: user_code.Plugin, options: UserOptions, seed: dict[str, int]) -> Any:
  """Returns what the user's function makes."""
  function = plugin.function
  testing = {"is_testing": options.is_testing} if user_code.takes(function, "is_testing") else {}
  with plugin.errors("making the environment failed"):
    return function(**_own_kwargs(function, options.kwargs), **seed, **testing)


def _own_kwargs(function: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
  """Returns the arguments without the keys of a seat that the function does not take."""
  signature = user_code.signature_of(function)
  if signature is None or any(x.kind is x.VAR_KEYWORD for x in signature.parameters.values()):
    return kwargs
  return {key: x for key, x in kwargs.items() if key not in _SEAT_KEYS or user_code.takes(function, key)}


def _seat_of(name: str, plugin: user_code.Plugin, made: Table, options: UserOptions) -> Environment:
  """Returns the environment of one seat at a user's table."""
  _check_unwrapped(name, options)
  # A function with **kwargs receives these keys too.
  keys = [key for key in _SEAT_KEYS if not user_code.takes(plugin.function, key)]
  seats = check_options(name, SeatOptions, {key: x for key, x in options.kwargs.items() if key in keys})
  is_test = options.is_testing and seats.test_others is not None
  others = seats.test_others if is_test and seats.test_others is not None else seats.others
  table = OwnTable(plugin, made)
  game = SeatGame(table, seats.seat, others, "test_others" if is_test else "others", options.allows_code)
  return GameEnvironment(game, table.spec)


def _check_unwrapped(name: str, options: UserOptions) -> None:
  if options.wrappers:
    raise UserError(f"env.wrappers={list(options.wrappers)}: {name} makes a table, which is not wrapped")


def _as_env(name: str, made: Any) -> tuple[Environment, bool]:
  """Wraps the function's result; returns the environment, and whether it can be seeded."""
  if isinstance(made, Environment):
    return made, True
  if isinstance(made, dm_env.Environment):
    return dm_env_suite.wrap(name, made), callable(getattr(made, "seed", None))
  gymnasium = sys.modules.get("gymnasium")
  if gymnasium is not None and isinstance(made, gymnasium.Env):
    from moozi.envs.suites import gymnasium as gymnasium_suite

    return gymnasium_suite.wrap(name, made), True
  raise UserError(
    f"env.name={name}: it makes {type(made).__module__}.{type(made).__qualname__}; "
    "it must be a dm_env.Environment, a gymnasium.Env or a moozi.Table"
  )


SUITE = Suite(
  summary="environments of the user",
  package=None,
  list_games=dict,
  options=lambda game: UserOptions,
  make_spec=make_spec,
  make_environment=make_environment,
  make_table=make_table,
  for_testing=lambda options: options.model_copy(update={"is_testing": True}),
  with_wrappers=lambda options, wrappers: options.model_copy(update={"wrappers": wrappers}),
)

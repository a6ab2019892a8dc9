"""A user's own environments, made by the function `my_module:make_env` or one that is registered by name.

Making such an environment runs the user's code. `core.plugins.code_keys` recognizes `module:function` without
importing anything, for commands that open runs of unknown origin.
"""

import contextlib
import functools
import inspect
import logging
import sys
from collections.abc import Callable
from dataclasses import astuple, fields
from typing import Any

import dm_env
import numpy as np
from pydantic import Field

from moozi.core import plugins
from moozi.core.config import Section
from moozi.core.errors import EnvMakeError, UserError
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Bot, Environment, check_seed
from moozi.envs.suite import Suite
from moozi.envs.suites import dm_env as dm_env_suite
from moozi.envs.trial import spec_after_trial
from moozi.envs.validation import one_line
from moozi.envs.wrappers import EnvironmentWrapper, apply_wrappers

_log = logging.getLogger("moozi.envs")

# Parameters of `registry.make` itself.
_RESERVED = frozenset({"seed", "is_testing"})


class Options(Section):
  kwargs: dict[str, Any] = Field({}, description="keyword arguments of the function")
  wrappers: tuple[str, ...] = Field(
    (), description="functions that wrap the environment, the innermost first"
  )


def make_spec(name: str, options: Options) -> EnvSpec:
  """Returns the environment's specification. Plays a trial episode to find errors before a run starts."""
  return spec_after_trial(make_environment(name, options), plugins.ENVIRONMENTS.get(name))


def make_environment(name: str, options: Options) -> Environment:
  """Makes an environment with the user's function.

  Raises: UserError: the module cannot be imported or has no such function, the function takes other arguments
    or fails, or its result is not a supported environment.
  """
  plugin = plugins.ENVIRONMENTS.get(name)
  takes_seed = _check_arguments(name, plugin.function, options.kwargs)
  make = functools.partial(_make, name, plugin, options)
  if takes_seed:
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


class _FollowingBot:
  """The bot of the current environment of a `_MadePerSeed`, which makes another one for each seed."""

  def __init__(self, owner: "_MadePerSeed", *arguments: Any) -> None:
    self._owner, self._arguments = owner, arguments
    self._env, self._bot = owner.made, owner.made.make_bot(*arguments)

  def action(self, legal_actions_mask: np.ndarray) -> int:
    return self._current().action(legal_actions_mask)

  def __getattr__(self, name: str) -> Any:
    return getattr(self._current(), name)  # such as `search`

  def _current(self) -> Bot:
    if self._env is not self._owner.made:
      self._env, self._bot = self._owner.made, self._owner.made.make_bot(*self._arguments)
    return self._bot


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
    if self.env_spec != spec:
      pairs = zip(fields(spec), astuple(spec), astuple(self.env_spec), strict=True)
      field, was, now = next((field.name, a, b) for field, a, b in pairs if a != b)
      raise UserError(
        f"env.name={spec.name}: the spec must not depend on the seed; {field} was {one_line(was, 80)} and is "
        f"{one_line(now, 80)} with another seed"
      )

  @property
  def made(self) -> Environment:
    """The environment of the last seed."""
    return self._env

  def make_bot(self, kind: str, simulations: int, seed: int) -> Bot:
    return _FollowingBot(self, kind, simulations, seed)


def _check_arguments(name: str, function: Callable[..., Any], kwargs: dict[str, Any]) -> bool:
  """Returns whether the function takes a seed. Raises UserError if it does not take `kwargs`."""
  try:
    signature = inspect.signature(function)
  except (TypeError, ValueError):
    return False
  kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
  takes_seed = "seed" in signature.parameters and signature.parameters["seed"].kind in kinds
  for key in _RESERVED & kwargs.keys():
    raise UserError(
      f"env.kwargs.{key}={kwargs[key]!r}: not allowed; the run sets the {key} of each environment of {name}"
    )
  try:
    signature.bind(**kwargs, **({"seed": 0} if takes_seed else {}))
  except TypeError as error:
    raise UserError(f"env.kwargs={kwargs}: {name} is {function.__name__}{signature}: {error}") from error
  return takes_seed


def _make(name: str, plugin: plugins.Plugin, options: Options, **seed: int) -> tuple[Environment, bool]:
  """Makes an environment with the user's function; returns it, and whether it can be seeded."""
  with plugin.errors("making the environment failed"):
    made = plugin.function(**options.kwargs, **seed)
    try:
      return _as_env(name, apply_wrappers(made, options.wrappers))
    except BaseException:
      with contextlib.suppress(Exception, SystemExit):
        made.close()
      raise


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
    "it must be a dm_env.Environment or a gymnasium.Env"
  )


SUITE = Suite(
  summary="environments of the user",
  package=None,
  list_games=dict,
  options=lambda game: Options,
  make_spec=make_spec,
  make_environment=make_environment,
  with_wrappers=lambda options, wrappers: options.model_copy(update={"wrappers": wrappers}),
)

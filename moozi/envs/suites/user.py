"""A user's own environments: `my_package.my_module:make_env` names a function that makes one.

Making such an environment runs the user's code. `registry.is_code` recognizes such names without importing
anything, for commands that open runs of unknown origin.
"""

import contextlib
import difflib
import functools
import importlib
import importlib.machinery
import importlib.util
import inspect
import logging
import os
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import astuple, fields
from typing import Any

import dm_env
import numpy as np
from pydantic import Field

from moozi.core.config import Section
from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Environment, check_seed
from moozi.envs.suite import Suite
from moozi.envs.suites import dm_env as dm_env_suite
from moozi.envs.validation import one_line
from moozi.envs.wrappers import EnvironmentWrapper

_log = logging.getLogger("moozi.envs")

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
# Parameters of `registry.make` itself.
_RESERVED = frozenset({"seed", "is_testing"})
# Maximum length of the trial episode before a run starts.
_TRIAL_STEPS = 200


class Options(Section):
  kwargs: dict[str, Any] = Field({}, description="keyword arguments of the function")


def is_name(name: str) -> bool:
  """Whether the name has the form `package.module:function`."""
  return _NAME.fullmatch(name) is not None


def is_found(name: str) -> bool:
  """Whether the package of `module:function` can be found. Does not run its code.

  If the package is in the current folder, adds that folder to Python's path.
  """
  if not is_name(name):
    return False
  package = name.partition(":")[0].partition(".")[0]
  if package in sys.modules:
    return True
  folder = os.getcwd()
  if importlib.machinery.PathFinder.find_spec(package, [folder]) is not None:
    # The current folder comes first, as with `python -m`. A local Ray's processes run in the same folder.
    if folder not in sys.path:
      sys.path.insert(0, folder)
    importlib.invalidate_caches()
    return True
  return importlib.util.find_spec(package) is not None


def describe_missing(name: str) -> str:
  """Describes where the package of `module:function`, which `is_found` does not find, was searched."""
  package = name.partition(":")[0].partition(".")[0]
  # Modules and packages of the current folder, the most likely place of a misspelt one.
  modules = [module.name for module in pkgutil.iter_modules([os.getcwd()])]
  if nearest := difflib.get_close_matches(package, modules, n=1):
    return f"there is no module {package}; the nearest in the current folder is {nearest[0]}"
  return (
    f"there is no module {package} in the current folder ({os.getcwd()}) or on Python's path (sys.path); "
    "start moozi in the module's folder, or add that folder to PYTHONPATH"
  )


def make_spec(name: str, options: Options) -> EnvSpec:
  """Returns the environment's specification. Plays a trial episode to find errors before a run starts."""
  environment = make_environment(name, options)
  try:
    with _user_errors(name, "its first steps failed"):
      environment.seed(0)
      random, step = np.random.default_rng(0), environment.reset()
      for _ in range(_TRIAL_STEPS):
        step = environment.step(int(random.choice(np.flatnonzero(step.observation.legal_actions_mask))))
        if step.last():
          break
  except UserError:
    with contextlib.suppress(Exception, SystemExit):
      environment.close()
    raise
  with _user_errors(name, "closing it failed"):
    environment.close()
  return environment.env_spec


@contextlib.contextmanager
def _user_errors(name: str, what: str) -> Iterator[None]:
  """Turns errors of the user's code, and its `sys.exit`, into a UserError of one line."""
  try:
    yield
  except UserError:
    raise
  except (Exception, SystemExit) as error:
    raise UserError(f"env.name={name}: {what}: {_describe_error(name, error)}") from error


def make_environment(name: str, options: Options) -> Environment:
  """The environment that the user's function makes.

  Raises: UserError: the module cannot be imported or has no such function, the function takes other arguments
    or fails, or its result is not a supported environment.
  """
  function = _load(name)
  takes_seed = _check_arguments(name, function, options.kwargs)
  make = functools.partial(_make, name, function, options.kwargs)
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


class _MadePerSeed(EnvironmentWrapper):
  """Makes a new environment for each seed."""

  def __init__(self, make: Callable[[int], tuple[Environment, bool]]) -> None:
    self._make = make
    super().__init__(make(0)[0])

  def seed(self, seed: int) -> None:
    seed, spec = check_seed(seed), self.env_spec
    self._env.close()
    # 31 bits, which any generator accepts.
    self._env, _ = self._make(int(np.random.SeedSequence(seed).generate_state(1)[0] >> 1))
    self._env.seed(seed)
    if self.env_spec != spec:
      pairs = zip(fields(spec), astuple(spec), astuple(self.env_spec), strict=True)
      field, was, now = next((field.name, a, b) for field, a, b in pairs if a != b)
      raise UserError(
        f"env.name={spec.name}: the spec must not depend on the seed; {field} was {one_line(was, 80)} and is "
        f"{one_line(now, 80)} with another seed"
      )


def _load(name: str) -> Callable[..., Any]:
  module_name, _, attribute = name.partition(":")
  try:
    module = importlib.import_module(module_name)
  except (Exception, SystemExit) as error:
    if (
      isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}.")
    ):
      raise UserError(f"env.name={name}: there is no module {error.name}") from error
    raise UserError(
      f"env.name={name}: the module {module_name} cannot be imported: {_describe_error(name, error)}"
    ) from error
  if not hasattr(module, attribute):
    functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
    nearest = difflib.get_close_matches(attribute, functions, n=1)
    hint = f"; the nearest is {nearest[0]}" if nearest else ""
    raise UserError(f"env.name={name}: the module {module_name} has no {attribute}{hint}")
  function = getattr(module, attribute)
  if not callable(function):
    raise UserError(
      f"env.name={name}: {attribute} is a {type(function).__name__}; it must be a function that makes an "
      f"environment"
    )
  return function  # type: ignore[no-any-return]


def _check_arguments(name: str, function: Callable[..., Any], kwargs: dict[str, Any]) -> bool:
  """Whether the function takes a seed. Raises UserError where it does not take the user's arguments."""
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


def _make(
  name: str, function: Callable[..., Any], kwargs: dict[str, Any], **seed: int
) -> tuple[Environment, bool]:
  """The environment that the user's function makes, and whether it can be seeded."""
  with _user_errors(name, "making the environment failed"):
    made = function(**kwargs, **seed)
    try:
      return _as_env(name, made)
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


def _describe_error(name: str, error: BaseException) -> str:
  """Describes an error in one line, with the last place in the user's own files from its traceback."""
  files = _user_files(name)
  places = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(files)]
  where = f"{places[-1].filename}:{places[-1].lineno}: " if places else ""
  return one_line(f"{where}{type(error).__name__}: {error}", 500)


def _user_files(name: str) -> tuple[str, ...]:
  """The folders of the user's package, or the file of the user's module."""
  try:
    spec = importlib.util.find_spec(name.partition(":")[0].partition(".")[0])
  except ValueError:  # a module without a spec
    return ()
  if spec is None:
    return ()
  folders = tuple(f"{folder}{os.sep}" for folder in spec.submodule_search_locations or ())
  return folders or ((spec.origin,) if spec.origin else ())


SUITE = Suite(
  summary="environments of the user",
  package=None,
  list_games=dict,
  options=lambda game: Options,
  make_spec=make_spec,
  make_environment=make_environment,
)

"""Plug-ins: the user's own functions, which the configuration names.

A key such as `network.kind` accepts a built-in name, a name registered by a decorator (`register_network`),
the name of an entry point of an installed package, or `module:function`. Only the last imports a module that
the value itself names; `code_keys` lists such values, for commands that open a run of unknown origin.
"""

import ast
import contextlib
import dataclasses
import difflib
import fnmatch
import functools
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import os
import pkgutil
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from moozi.core.errors import EnvHung, UserError, as_exceptions, one_line

if TYPE_CHECKING:
  from moozi.core.config import Config

F = TypeVar("F", bound=Callable[..., Any])

_CODE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_NAME = re.compile(r"[^\W\d][\w.-]*")
_SIMULATIONS = re.compile(r"[1-9][0-9]{0,6}")
# Environment libraries whose game names may contain a module to import (gymnasium:MODULE:ID).
_IMPORTING = ("gymnasium",)


@dataclasses.dataclass(frozen=True)
class Plugin:
  """A user's function. A call turns its errors into a UserError of one line.

  Attributes:
    where: `key=value`, the start of every error message.
    function: the function.
  """

  where: str
  function: Callable[..., Any]

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    with self.errors("the call failed"):
      return self.function(*args, **kwargs)

  @contextlib.contextmanager
  def errors(self, what: str, kind: type[UserError] = UserError) -> Iterator[None]:
    """Turns errors and `sys.exit` of the user's code into a `kind` that has the code's file and line."""
    try:
      yield
    except (UserError, EnvHung, KeyboardInterrupt):
      raise
    except BaseException as error:
      raise kind(f"{self.where}: {what}: {self.describe(error)}") from error

  def describe(self, error: BaseException) -> str:
    """Describes an error in one line, with the last place in the user's own files in its traceback."""
    files: tuple[str, ...] = ()
    with contextlib.suppress(Exception), as_exceptions():  # attributes of callable objects can be anything
      code, module = getattr(self.function, "__code__", None), getattr(self.function, "__module__", None)
      files = (code.co_filename,) if type(code) is types.CodeType else ()
      files += _files(module) if type(module) is str else ()
    return describe_error(error, files)


@dataclasses.dataclass(frozen=True)
class Registry:
  """The functions of one kind, by name.

  Attributes:
    kind: what the functions make, such as `network`; the group of entry points is then `moozi.networks`.
    key: the configuration's key, for error messages.
    built_in: names that the package itself defines.
    forms: for each form of built-in values with an argument, such as `run:PATH`, the `module:function` of
      MooZi that takes the whole value as its first argument; None if the caller handles the value itself.
  """

  kind: str
  key: str
  built_in: tuple[str, ...] = ()
  forms: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
  registered: dict[str, Callable[..., Any]] = dataclasses.field(default_factory=dict)

  @property
  def group(self) -> str:
    """The group of entry points."""
    return f"moozi.{self.kind}{'es' if self.kind.endswith(('s', 'ch')) else 's'}"

  def register(self, name: str) -> Callable[[F], F]:
    """Returns a decorator that registers a function as `name`, in place of an earlier function of this name.

    Raises: UserError: the name is built in, or has characters that are not allowed.
    """
    if name in self.built_in:
      raise UserError(f"{self.kind} {name!r}: is built in; choose another name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
      raise UserError(f"{self.kind} {name!r}: must be a name of letters, digits, '_', '-' and '.'")

    def decorate(function: F) -> F:
      if not callable(function):
        raise UserError(f"{self.kind} {name!r}: is a {type(function).__name__}; must be a function")
      self.registered[name] = function
      return function

    return decorate

  def names(self) -> list[str]:
    """Returns all names: built-in ones, registered ones, and those of entry points."""
    own = [*self.built_in, *self.forms]
    return [*own, *sorted({*self.registered, *self._entry_points().names} - {*own})]

  def is_known(self, value: str) -> bool:
    """Returns whether the value is one of `names`. Imports nothing."""
    return self.is_built_in(value) or value in self.registered or value in self._entry_points().names

  def accepts(self, value: str) -> bool:
    """Returns whether the value is one of `names` or has the form `module:function`. Imports nothing."""
    # A form's prefix is not a module: mcts:many is not a function.
    prefixes = {form.partition(":")[0] for form in self.forms}
    return self.is_known(value) or (is_code(value) and value.partition(":")[0] not in prefixes)

  def is_built_in(self, value: str) -> bool:
    """Returns whether the package itself defines the value."""
    return value in self.built_in or self._form(value) is not None

  def _form(self, value: str) -> str | None:
    """Returns the form in `forms` that the value has; None if it has none."""
    prefix, _, argument = value.partition(":")
    for form in self.forms:
      name, _, wanted = form.partition(":")
      if name == prefix and argument and (wanted != "SIMULATIONS" or _SIMULATIONS.fullmatch(argument)):
        return form
    return None

  def allowed(self, value: str, *others: str) -> str:
    """Lists the allowed values (with `others`) and the one nearest to `value`, for an error message."""
    names = [*others, *self.names()]
    nearest = difflib.get_close_matches(value.lower(), names, n=1)
    hint = describe_path(value) or (f"; the nearest is {nearest[0]}" if nearest else "")
    if not hint and _NAME.fullmatch(value):
      hint = f"; {value:.60} is not registered: moozi.register_{self.kind} registers it where it is imported"
    return f"{', '.join([*names, 'module:function'])} or a registered name{hint}"

  def get(self, value: str, key: str | None = None) -> Plugin:
    """Returns the function that a value names; imports its module.

    Raises: UserError: there is no such function, or its module cannot be imported.
    """
    where = f"{key or self.key}={value}"
    if maker := self.forms.get(self._form(value) or ""):
      return Plugin(where, functools.partial(_load(where, maker), value))
    if value in self.registered:
      return Plugin(where, self.registered[value])
    if value in self._entry_points().names:
      return Plugin(where, _load_entry_point(where, self._entry_points()[value]))
    if self.accepts(value):
      return Plugin(where, _load(where, value))
    raise UserError(f"{where}: must be {self.allowed(value)}")

  def _entry_points(self) -> importlib.metadata.EntryPoints:
    return _entry_points(self.group, tuple(sys.path))


@functools.cache
def _entry_points(group: str, path: tuple[str, ...]) -> importlib.metadata.EntryPoints:
  """Returns the entry points of the packages on `path`, which is sys.path. A search takes milliseconds."""
  return importlib.metadata.entry_points(group=group)


ENVIRONMENTS = Registry(
  "environment",
  "env.name",
  ("atari", "gymnasium", "gymnax", "minatar", "open_spiel", "pgx", "tiny"),  # libraries of `library:game`
)
WRAPPERS = Registry("wrapper", "env.wrappers")
NETWORKS = Registry("network", "network.kind", ("resnet", "mlp", "conv_latent"))
SEARCHES = Registry("search", "planners.*.algorithm", ("gumbel", "puct", "stochastic", "stochastic_gumbel"))
LOSSES = Registry("loss", "learner.extra_losses")
_TRAINED = "moozi.api.players:make_player"
PLAYERS = Registry(
  "player",
  "evaluation.opponent",
  ("random", "mcts", "self"),
  {
    "mcts:SIMULATIONS": None,
    "run:PATH[@checkpoint]": _TRAINED,
    "zoo:NAME": _TRAINED,
    "prior:PATH[@checkpoint]": _TRAINED,
    "approach:NAME": _TRAINED,
  },
)
OTHER_PLAYERS = dataclasses.replace(PLAYERS, built_in=tuple(x for x in PLAYERS.built_in if x != "self"))
"""PLAYERS where there is no agent that plays `self`: in the arena, and in seats that no agent learns."""

CALLBACKS = Registry("callback", "callbacks")
REGISTRIES = (ENVIRONMENTS, WRAPPERS, NETWORKS, SEARCHES, LOSSES, PLAYERS, CALLBACKS)
MAY_IMPORT: set[str] = set()
"""Players such as `run:PATH` whose runs may import the Python modules that they name."""


def register_environment(name: str) -> Callable[[F], F]:
  """Registers the decorated function, which makes an environment, as `name` for `env.name`."""
  return ENVIRONMENTS.register(name)


def register_wrapper(name: str) -> Callable[[F], F]:
  """Registers the decorated function, which wraps an environment, as `name` for `env.wrappers`."""
  return WRAPPERS.register(name)


def register_network(name: str) -> Callable[[F], F]:
  """Registers the decorated function, which makes a network's parts, as `name` for `network.kind`."""
  return NETWORKS.register(name)


def register_search(name: str) -> Callable[[F], F]:
  """Registers the decorated function, a search, as `name` for `planners.*.algorithm`."""
  return SEARCHES.register(name)


def register_loss(name: str) -> Callable[[F], F]:
  """Registers the decorated function, which makes a loss term, as `name` for `learner.extra_losses`."""
  return LOSSES.register(name)


def register_player(name: str) -> Callable[[F], F]:
  """Registers the decorated function, which makes an opponent, as `name` for `evaluation.opponent`."""
  return PLAYERS.register(name)


def register_callback(name: str) -> Callable[[F], F]:
  """Registers the decorated function, which makes a callback, as `name` for `callbacks`."""
  return CALLBACKS.register(name)


def describe_object(key: str, value: object) -> str:
  """Returns the error message for an object as the value of `key`, which names a function or a plain value.

  It says how a program passes its own environment, or another own function: by a name.
  """
  section = key.partition("[")[0]
  registry = ENVIRONMENTS if section == "env" else next((r for r in REGISTRIES if _has_key(r, section)), None)
  what = f"is {_kind_of(value)}"
  if registry is None:
    return f"{key}: {what}; only plain values are allowed"
  if registry is not ENVIRONMENTS:
    return f"{key}: {what}; must be a name: {_ways(registry, registry.key.rpartition('.')[2])}"
  hint = ""
  if not callable(value):
    hint = ", of a function that makes it"
    if hasattr(value, "num_envs"):
      hint = ", of a function that makes a single environment (workers.num_envs is their number)"
  if hasattr(value, "legal_actions_mask"):  # a moozi.Game
    hint = ", of a function that returns moozi.GameEnvironment(game, env_spec)"
  return f"{'env.name' if section == 'env' else key}: {what}; must be a name{hint}: {_ways(registry, 'name')}"


def _has_key(registry: Registry, key: str) -> bool:
  return fnmatch.fnmatchcase(key, registry.key)


def _ways(registry: Registry, option: str) -> str:
  own = f'moozi.register_{registry.kind}("own")(function)'
  return f"{option}=module:function, or {option}=own after {own}"


def _kind_of(value: object) -> str:
  kind = value if isinstance(value, type) else type(value)
  name = f"{kind.__module__}.{kind.__qualname__}"
  if isinstance(value, type):
    return f"the class {name}"
  return (
    f"the function {value.__qualname__}" if isinstance(value, types.FunctionType) else f"an object of {name}"
  )


class Use(NamedTuple):
  """A value of the configuration that names a function: its dotted key, the value, its registry."""

  key: str
  value: str
  registry: Registry

  @property
  def is_built_in(self) -> bool:
    """Whether MooZi itself defines the value. Every game of a built-in library of environments counts."""
    value = self.value.partition(":")[0] if self.registry is ENVIRONMENTS else self.value
    return self.registry.is_built_in(value)

  def get(self) -> Plugin:
    """Returns the function. Raises UserError as `Registry.get` does."""
    return self.registry.get(self.value, self.key)


def uses(config: "Config") -> list[Use]:
  """Returns every use of a plug-in that is not built in."""
  planners = config.planners
  found = [
    Use("env.name", config.env.name, ENVIRONMENTS),
    *(Use(f"env.wrappers[{i}]", split_call(x)[0], WRAPPERS) for i, x in enumerate(config.env.wrappers)),
    Use("network.kind", config.network.kind, NETWORKS),
    *(
      Use(f"planners.{name}.algorithm", planner.algorithm, SEARCHES)
      for name in ("train", "test", "reanalyze")
      if (planner := getattr(planners, name)) is not None
    ),
    *(Use(f"learner.extra_losses[{i}]", v, LOSSES) for i, v in enumerate(config.learner.extra_losses)),
    Use("evaluation.opponent", config.evaluation.opponent, PLAYERS),
    *(Use(key, value, PLAYERS) for key, value in seat_players(config)),
    *(Use(f"callbacks[{i}]", value, CALLBACKS) for i, value in enumerate(config.callbacks)),
  ]
  return [use for use in found if not use.is_built_in]


def seat_players(config: "Config") -> Iterator[tuple[str, str]]:
  """Yields (key, name) for each player of the seats that an OpenSpiel environment plays."""
  if config.env.name.startswith("open_spiel:"):
    for key in ("others", "test_others"):
      names = config.env.kwargs.get(key) or ()
      # A value that is neither a name nor a list is refused when the environment is made.
      for i, name in enumerate(names if isinstance(names, list | tuple) else [names]):
        yield f"env.kwargs.{key}[{i}]", str(name)


def player_names(config: "Config") -> set[str]:
  """Returns the opponent in evaluations and the players of the other seats."""
  return {config.evaluation.opponent, *(name for _, name in seat_players(config))}


def code_keys(config: "Config") -> list[str]:
  """Returns `key=value` for each value that names a module to import. Imports nothing."""
  found = [f"{use.key}={use.value}" for use in uses(config) if ":" in use.value]
  name = config.env.name
  return [f"env.name={name}", *found] if is_importing(name) else found


def is_importing(name: str) -> bool:
  """Returns whether a library's environment names a module to import, as gymnasium:MODULE:ID does."""
  library, _, game = name.partition(":")
  return library in _IMPORTING and ":" in game


def split_call(value: str) -> tuple[str, dict[str, Any]]:
  """Returns the name and the arguments in `NAME` or `NAME(key=value, …)`, such as `my_wrappers:stack(n=4)`.

  Values are Python literals; true, false and null are True, False and None; any other word is a text.

  Raises: ValueError: the text has another form.
  """
  name, bracket, rest = value.partition("(")
  if not bracket:
    return value, {}
  try:
    call = ast.parse(f"f({rest}", mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
      raise ValueError
    arguments = {str(x.arg): _literal(x.value) for x in call.keywords if x.arg is not None}
    if len(arguments) < len(call.keywords):  # **arguments, or the same key twice
      raise ValueError
  except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
    raise ValueError(f"{one_line(value, 80)!r}: must be NAME or NAME(key=value, …)") from None
  return name.rstrip(), arguments


def _literal(node: ast.expr) -> Any:
  if isinstance(node, ast.Name):
    return {"true": True, "false": False, "null": None}.get(node.id, node.id)
  return ast.literal_eval(node)


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
  """Returns a function's signature; None if it has none that can be read, as functions in C."""
  try:
    with as_exceptions():
      return inspect.signature(function)
  except Exception:  # `__signature__` of a callable object can be anything
    return None


def takes(function: Callable[..., Any], name: str) -> bool:
  """Returns whether a function has a parameter `name` that accepts a keyword; `**kwargs` does not count."""
  signature = signature_of(function)
  parameter = None if signature is None else signature.parameters.get(name)
  return parameter is not None and parameter.kind in (
    inspect.Parameter.KEYWORD_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
  )


def is_code(value: str) -> bool:
  """Returns whether the value has the form `module:function`."""
  return _CODE.fullmatch(value) is not None


class Snapshot(NamedTuple):
  """What another process needs of the registries.

  Attributes:
    functions: registered functions by kind and name.
    may_import: names in MAY_IMPORT.
  """

  functions: dict[tuple[str, str], Callable[..., Any]]
  may_import: frozenset[str]


def snapshot(config: "Config | None" = None) -> Snapshot:
  """Returns what the configuration names; everything if it is None. See `install`."""
  if config is None:
    return Snapshot(
      {(r.kind, n): f for r in REGISTRIES for n, f in r.registered.items()}, frozenset(MAY_IMPORT)
    )
  functions = {
    (use.registry.kind, use.value): use.registry.registered[use.value]
    for use in uses(config)
    if use.value in use.registry.registered
  }
  return Snapshot(functions, frozenset(MAY_IMPORT & player_names(config)))


def install(found: Snapshot) -> None:
  """Registers the functions and the permissions of a `snapshot` from another process."""
  registries = {registry.kind: registry for registry in REGISTRIES}
  for (kind, name), function in found.functions.items():
    registries[kind].registered[name] = function
  MAY_IMPORT.update(found.may_import)


def describe_path(value: str) -> str:
  """Returns the hint for a function named in another form than `module:function`; empty for other text.

  Such are `package.module.function`, `module.py:function` and `folder/module.py:function`.
  """
  path, _, function = value.rpartition(":" if ":" in value else ".")
  module = path.removesuffix(".py").strip("./").replace("/", ".")
  meant = f"{module}:{function}"
  return f"; did you mean {meant}?" if meant != value and is_code(meant) and path else ""


def is_found(value: str) -> bool:
  """Returns whether the package of `module:function` can be found. Does not run its code.

  If the package is in the current folder, adds this folder to Python's path (sys.path).
  """
  if not is_code(value):
    return False
  package = value.partition(":")[0].partition(".")[0]
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
  """Returns the error message for `module:function` if `is_found` does not find its package."""
  package = name.partition(":")[0].partition(".")[0]
  # The module that was meant is most likely in the current folder.
  modules = [module.name for module in pkgutil.iter_modules([os.getcwd()])]
  if nearest := difflib.get_close_matches(package, modules, n=1):
    return f"there is no module {package}; the nearest in the current folder is {nearest[0]}"
  return (
    f"there is no module {package} in the current folder ({os.getcwd()}) or on Python's path (sys.path); "
    "start moozi in the module's folder, or add that folder to PYTHONPATH"
  )


def describe_error(error: BaseException, files: tuple[str, ...]) -> str:
  """Describes an error in one line, with its last place in files whose paths start with one of `files`."""
  places = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(files)]
  where = f"{places[-1].filename}:{places[-1].lineno}: " if files and places else ""
  return one_line(f"{where}{type(error).__name__}: {one_line(error)}", 500)


def _load(where: str, value: str) -> Callable[..., Any]:
  is_found(value)
  module_name, _, attribute = value.partition(":")
  try:
    module = importlib.import_module(module_name)
    is_there = hasattr(module, attribute)
  except KeyboardInterrupt:
    raise
  except BaseException as error:
    if (
      isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}.")
    ):
      is_package = error.name == module_name.partition(".")[0]
      missing = f"there is no module {error.name}{describe_path(value)}"
      text = describe_missing(value) if is_package else missing
      raise UserError(f"{where}: {text}") from error
    text = describe_error(error, _files(module_name))
    raise UserError(f"{where}: the module {module_name} cannot be imported: {text}") from error
  if not is_there:
    functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
    nearest = difflib.get_close_matches(attribute, functions, n=1)
    hint = f"; the nearest is {nearest[0]}" if nearest else ""
    raise UserError(f"{where}: the module {module_name} has no {attribute}{hint}")
  return _check_callable(where, attribute, getattr(module, attribute))


def _load_entry_point(where: str, entry: importlib.metadata.EntryPoint) -> Callable[..., Any]:
  try:
    function = entry.load()
  except KeyboardInterrupt:
    raise
  except BaseException as error:
    text = describe_error(error, _files(entry.module))
    raise UserError(f"{where}: the entry point {entry.value} cannot be loaded: {text}") from error
  return _check_callable(where, entry.value, function)


def _check_callable(where: str, name: str, function: Any) -> Callable[..., Any]:
  if not callable(function):
    raise UserError(f"{where}: {name} is a {type(function).__name__}; must be a function")
  return function  # type: ignore[no-any-return]


def _files(module_name: str) -> tuple[str, ...]:
  """Returns the folders of the module's package, or the module's own file if it has no package."""
  try:
    spec = importlib.util.find_spec(module_name.partition(".")[0])
  except (ImportError, ValueError):  # a module without a spec, such as __main__
    return ()
  if spec is None:
    return ()
  folders = tuple(f"{folder}{os.sep}" for folder in spec.submodule_search_locations or ())
  return folders or ((spec.origin,) if spec.origin else ())

"""The registries of plug-ins: the names that configuration keys such as `network.kind` accept.

A key accepts a built-in name or form, a name registered by a decorator such as `register_network`, the name
of an entry point of an installed package, or `module:function`.
"""

import dataclasses
import difflib
import fnmatch
import functools
import importlib.metadata
import re
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar

from moozi.core.errors import UserError
from moozi.core.user_code import Plugin, describe_path, is_code, load, load_entry_point

F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"[^\W\d][\w.-]*")
# What the argument of a form must match; others accept any text.
_ARGUMENTS = {"SIMULATIONS": re.compile(r"[1-9][0-9]{0,6}"), "DEPTH": re.compile(r"[1-9][0-9]?")}
_LARGEST = {"SIMULATIONS": "9,999,999", "DEPTH": "99"}


@dataclasses.dataclass(frozen=True)
class Registry:
  """The functions of one kind, by name.

  Attributes:
    kind: name of the kind, such as `network`, whose group of entry points is `moozi.networks`.
    key: the configuration's key that names these functions; `*` stands for any section.
    built_in: names that the package itself defines.
    forms: forms of built-in values with an argument, such as `run:PATH`.
    registered: the functions by name or form. The layer that defines a form registers its function, whose
      first argument is the whole value, and which also takes `allow_code`.
  """

  kind: str
  key: str
  built_in: tuple[str, ...] = ()
  forms: tuple[str, ...] = ()
  registered: dict[str, Callable[..., Any]] = dataclasses.field(default_factory=dict)

  @property
  def group(self) -> str:
    """The group of entry points."""
    return f"moozi.{self.kind}{'es' if self.kind.endswith(('s', 'ch')) else 's'}"

  def register(self, name: str) -> Callable[[F], F]:
    """Returns a decorator that registers a function as `name`, in place of an earlier function of this name.

    Raises: UserError: the name is built in or not valid. The decorator raises it for an object that is not
      callable.
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
    """Returns all names and forms: built-in ones, registered ones, and those of entry points."""
    own = [*self.built_in, *self.forms]
    return [*own, *sorted({*self.registered, *self._entry_points().names} - {*own})]

  def is_known(self, value: str) -> bool:
    """Returns whether the value is one of `names`, or has one of `forms`. Imports nothing."""
    return self.is_built_in(value) or value in self.registered or value in self._entry_points().names

  def accepts(self, value: str) -> bool:
    """Returns whether the value is known (`is_known`) or has the form `module:function`. Imports nothing."""
    # A form's prefix is not a module: mcts:many is not a function.
    prefixes = {form.partition(":")[0] for form in self.forms}
    return self.is_known(value) or (is_code(value) and value.partition(":")[0] not in prefixes)

  def is_built_in(self, value: str) -> bool:
    """Returns whether the package itself defines the value."""
    return value in self.built_in or self.form_of(value) is not None

  def form_of(self, value: str) -> str | None:
    """Returns the form in `forms` that the value has; None if it has none."""
    prefix, _, argument = value.partition(":")
    for form in self.forms:
      name, _, wanted = form.partition(":")
      if name == prefix and argument and (wanted not in _ARGUMENTS or _ARGUMENTS[wanted].fullmatch(argument)):
        return form
    return None

  def allowed(self, value: str, *others: str) -> str:
    """Returns the allowed values, with `others`, and a hint for `value`, as text of an error message."""
    names = [*others, *self.names()]
    nearest = difflib.get_close_matches(value.lower(), names, n=1)
    hint = describe_path(value) or (f"; the nearest is {nearest[0]}" if nearest else "")
    for form in self.forms:
      prefix, _, wanted = form.partition(":")
      if wanted in _LARGEST and value.startswith(f"{prefix}:"):
        hint = f"; {wanted} is an integer from 1 to {_LARGEST[wanted]}"
    if not hint and _NAME.fullmatch(value):
      hint = f"; {value:.60} is not registered: moozi.register_{self.kind} registers it where it is imported"
    return f"{', '.join([*names, 'module:function'])} or a registered name{hint}"

  def get(self, value: str, key: str | None = None, allow_code: bool = False) -> Plugin:
    """Returns the function that a value names; imports its module.

    Args:
      allow_code: whether a run that the value names may import the modules that the run names.

    Raises: UserError: there is no such function, its module cannot be imported, or it is not callable.
    """
    where = f"{key or self.key}={value}"
    if (form := self.form_of(value)) in self.registered:
      return Plugin(where, functools.partial(self.registered[str(form)], value, allow_code=allow_code))
    if value in self.registered:
      return Plugin(where, self.registered[value])
    if value in self._entry_points().names:
      return Plugin(where, load_entry_point(where, self._entry_points()[value]))
    if self.accepts(value):
      return Plugin(where, load(where, value))
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
  ("atari", "dm_control", "gymnasium", "gymnax", "minatar", "open_spiel", "pgx", "tiny"),  # of `library:game`
)
WRAPPERS = Registry("wrapper", "env.wrappers")
ALGORITHMS = Registry("algorithm", "algorithm", ("muzero", "alphazero", "ppo", "q_learning"))
NETWORKS = Registry("network", "network.kind", ("resnet", "mlp", "conv_latent", "multi_input"))
SEARCHES = Registry("search", "planners.*.algorithm", ("gumbel", "puct", "stochastic", "stochastic_gumbel"))
LOSSES = Registry("loss", "learner.extra_losses")
TRAINED = ("run:PATH[@checkpoint]", "zoo:NAME", "prior:PATH[@checkpoint]", "approach:NAME")
"""Forms of trained agents as players."""

PLAYERS = Registry(
  "player",
  "evaluation.opponent",
  ("random", "mcts", "alpha_beta", "self"),
  ("mcts:SIMULATIONS", "alpha_beta:DEPTH", *TRAINED),
)
OTHER_PLAYERS = dataclasses.replace(PLAYERS, built_in=tuple(x for x in PLAYERS.built_in if x != "self"))
"""PLAYERS where there is no agent that plays `self`: in the arena, and in seats that no agent learns."""

CALLBACKS = Registry("callback", "callbacks")
REGISTRIES = (ENVIRONMENTS, WRAPPERS, ALGORITHMS, NETWORKS, SEARCHES, LOSSES, PLAYERS, CALLBACKS)
WITH_ARGUMENTS = (WRAPPERS, ALGORITHMS)
"""The registries whose keys also accept `NAME(key=value, …)`."""


def register_environment(name: str) -> Callable[[F], F]:
  """Registers the decorated function, which makes an environment, as `name` for `env.name`."""
  return ENVIRONMENTS.register(name)


def register_wrapper(name: str) -> Callable[[F], F]:
  """Registers the decorated function, which wraps an environment, as `name` for `env.wrappers`."""
  return WRAPPERS.register(name)


def register_algorithm(name: str) -> Callable[[F], F]:
  """Registers the decorated class or function, which makes an algorithm, as `name` for `algorithm`."""
  return ALGORITHMS.register(name)


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
  """Registers the decorated function, which makes a player, as `name` for settings that name players."""
  return PLAYERS.register(name)


def register_callback(name: str) -> Callable[[F], F]:
  """Registers the decorated function, which makes a callback, as `name` for `callbacks`."""
  return CALLBACKS.register(name)


def describe_object(key: str, value: object) -> str:
  """Returns the error message for an object that was given as the value of `key` in place of plain data.

  If the value of `key` is the name of a function, or `key` is in the section `env`, the message says how a
  program registers its own function and passes its name.
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

"""The plug-ins that a configuration names, its values that import a module, and registered functions."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from moozi.core.config import Config
from moozi.core.plugins import ENVIRONMENTS, PLAYERS, REGISTRIES, WITH_ARGUMENTS, Registry
from moozi.core.user_code import Plugin, split_call

# Environment libraries whose game names may contain a module to import (gymnasium:MODULE:ID).
_IMPORTING = ("gymnasium",)

Functions = dict[tuple[str, str], Callable[..., Any]]
"""Registered functions by kind and name."""


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


def uses(config: Config) -> list[Use]:
  """Returns every use of a plug-in that is not built in."""
  return [use for use in _named(config) if not use.is_built_in]


def _named(config: Config) -> list[Use]:
  """Returns every value that names a function: those at the registries' keys, and players of other seats."""
  found = [(key, value, registry) for registry in REGISTRIES for key, value in _at(config, registry.key)]
  found += [(key, value, PLAYERS) for key, value in seat_players(config)]
  found += [(f"evaluation.pool[{i}].player", x.player, PLAYERS) for i, x in enumerate(config.evaluation.pool)]
  # The name of an environment may have parentheses of its own.
  return [
    Use(key, split_call(value)[0] if registry in WITH_ARGUMENTS else value, registry)
    for key, value, registry in found
  ]


def _at(config: Config, pattern: str) -> Iterator[tuple[str, str]]:
  """Yields (key, value) for each text at a dotted key; `*` is every section, and a list has several texts."""
  found: list[tuple[str, Any]] = [("", config)]
  for part in pattern.split("."):
    found = [
      (f"{prefix}.{name}".lstrip("."), getattr(section, name))
      for prefix, section in found
      if section is not None
      for name in (type(section).model_fields if part == "*" else [part])
    ]
  for key, value in found:
    yield from ((f"{key}[{i}]", x) for i, x in enumerate(value)) if type(value) is tuple else [(key, value)]


def seat_players(config: Config) -> Iterator[tuple[str, str]]:
  """Yields (key, name) for each player of the seats that the environment plays.

  An environment plays other seats in games of OpenSpiel and in a user's games of several seats. In a user's
  environment the keys may have another meaning, so only values that can name a player count.
  """
  library = config.env.name.partition(":")[0]
  if library != "open_spiel" and ENVIRONMENTS.is_built_in(library):
    return
  for key in ("others", "test_others"):
    names = config.env.kwargs.get(key) or ()
    # A value that is neither a name nor a list is refused when the environment is made.
    for i, name in enumerate(names if isinstance(names, list | tuple) else [names]):
      if library == "open_spiel" or (isinstance(name, str) and PLAYERS.accepts(name)):
        yield f"env.kwargs.{key}[{i}]", str(name)


def code_keys(config: Config) -> list[str]:
  """Returns `key=value` for each value that names a module to import. Imports nothing."""
  found = [f"{use.key}={use.value}" for use in uses(config) if ":" in use.value]
  name = config.env.name
  return [f"env.name={name}", *found] if is_importing(name) else found


def is_importing(name: str) -> bool:
  """Returns whether a library's environment names a module to import, as gymnasium:MODULE:ID does."""
  library, _, game = name.partition(":")
  return library in _IMPORTING and ":" in game


def registered_functions(config: Config | None = None) -> Functions:
  """Returns the registered functions that the configuration names; all if it is None. See `install`."""
  if config is None:
    return {(r.kind, name): function for r in REGISTRIES for name, function in r.registered.items()}
  named = [(use.registry, use.registry.form_of(use.value) or use.value) for use in _named(config)]
  return {(r.kind, name): r.registered[name] for r, name in named if name in r.registered}


def install(functions: Functions) -> None:
  """Registers the `registered_functions` of another process."""
  registries = {registry.kind: registry for registry in REGISTRIES}
  for (kind, name), function in functions.items():
    registries[kind].registered[name] = function

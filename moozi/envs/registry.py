"""Lists and makes environments by name, `library:game`, and checks their options."""

import dataclasses
import difflib
import importlib
import importlib.util
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from moozi.core import plugins, user_code
from moozi.core.errors import EnvMakeError, UserError, as_exceptions, one_line
from moozi.core.spec import EnvSpec
from moozi.core.text import pip_install
from moozi.envs.environment import Environment, VectorEnvironment, check_seed
from moozi.envs.suite import ReferenceScores, Suite, check_options, describe_option
from moozi.envs.suites import user
from moozi.envs.table import EnvironmentTable, Table

# The module that defines each library's SUITE. It is imported on demand, because some packages are large.
_MODULES = {
  "atari": "moozi.envs.suites.atari.suite",
  "dm_control": "moozi.envs.suites.dm_control",
  "gymnasium": "moozi.envs.suites.gymnasium",
  "gymnax": "moozi.envs.suites.gymnax",
  "minatar": "moozi.envs.suites.minatar",
  "open_spiel": "moozi.envs.suites.open_spiel.environment",
  "pgx": "moozi.envs.suites.pgx",
  "tiny": "moozi.envs.suites.tiny",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvironmentInfo:
  """One line of the list of environments.

  Attributes:
    name: `library:game`; `library:…` if the list of games is in a package that is not installed.
    summary: a short description, or what to install.
    options: for each key of env.kwargs, its description and default.
  """

  name: str
  summary: str
  options: dict[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LibraryInfo:
  """A library of environments.

  Attributes:
    num_games: None if the list of games comes from a package that is not installed.
    missing: how to install the library's package; None if it is installed or none is needed.
  """

  name: str
  summary: str
  num_games: int | None
  missing: str | None


def list_libraries(library: str | None = None) -> list[LibraryInfo]:
  """Returns all libraries, or one, sorted by name. Raises UserError if the library is unknown."""
  out = []
  for name in _libraries(library):
    suite = _load(name)
    try:
      num_games, missing = len(suite.list_games()), None
    except UserError as error:
      num_games, missing = None, str(error).partition(": ")[2]
    if suite.package is not None and importlib.util.find_spec(suite.package) is None:
      missing = f"not installed; run {pip_install(name)}"
    out.append(LibraryInfo(name=name, summary=suite.summary, num_games=num_games, missing=missing))
  return out


def list_environments(library: str | None = None) -> list[EnvironmentInfo]:
  """Returns all environments, or those of one library, sorted by name.

  If the list of games comes from a package that is not installed, the library has the one entry `library:…`.

  Raises: UserError: the library is unknown.
  """
  return [info for name in _libraries(library) for info in _infos(name)]


def _libraries(library: str | None) -> list[str]:
  if library is not None and library not in _MODULES:
    nearest = difflib.get_close_matches(library, _MODULES, n=1, cutoff=0.0)[0]
    known = ", ".join(sorted(_MODULES))
    raise UserError(f"unknown library {library!r}; must be one of {known}; the nearest is {nearest}")
  return sorted(_MODULES) if library is None else [library]


def _infos(library: str) -> list[EnvironmentInfo]:
  suite = _load(library)
  try:
    games = suite.list_games()
  except UserError as error:
    return [EnvironmentInfo(name=f"{library}:…", summary=str(error).partition(": ")[2], options={})]
  out = []
  for game in sorted(games):
    options = suite.options(game)
    described = {key: describe_option(options, key) for key in options.model_fields}
    out.append(EnvironmentInfo(name=f"{library}:{game}", summary=games[game], options=described))
  return out


def describe_environment(name: str) -> tuple[EnvironmentInfo, EnvSpec]:
  """Returns the line of one environment of a library, and its specification with the default options.

  Raises: UserError: the library or the game is unknown, or the environment cannot be made.
  """
  _libraries(name.partition(":")[0])
  suite, game, options = _find(name, {})
  listed = suite.listed_name(game)
  described = {key: describe_option(type(options), key) for key in type(options).model_fields}
  info = EnvironmentInfo(name=name, summary=suite.list_games().get(listed, listed), options=described)
  return info, suite.make_spec(game, options)


def make(name: str, /, seed: int, is_testing: bool = False, **kwargs: Any) -> Environment:
  """Makes the environment `name` and seeds it.

  Args:
    seed: non-negative; episodes depend only on it and on the actions, unless an environment of the user or of
      another package ignores its seed.
    is_testing: makes the variant for evaluation. In Atari, episodes are then whole games with unclipped
      rewards. In games of OpenSpiel and at a user's table, the players in `test_others` play the other seats.
      A user's function or wrapper with a parameter `is_testing` receives it, and rewards are those before
      wrappers where these can be recorded (`envs.own_rewards`).
    **kwargs: the environment's own options (`env.kwargs`); `wrappers`, the names of functions that wrap the
      library's environment (`env.wrappers`); and `allow_code`, whether runs whose agents play the other seats
      may import the modules that their configurations name.

  Raises: UserError: the name or an option is unknown, an option's value is not allowed, or the environment
    cannot be made or seeded. ValueError: the seed is negative or not an integer.
  """
  suite, game, options = _resolve(name, kwargs)
  environment = suite.make_environment(game, suite.for_testing(options) if is_testing else options)
  seed = check_seed(seed)
  try:
    with as_exceptions():
      environment.seed(seed)
  except UserError:
    raise
  except Exception as error:
    raise EnvMakeError(f"env.name={name}: seed failed: {type(error).__name__}: {one_line(error)}") from error
  return environment


def make_table(name: str, /, **kwargs: Any) -> Table:
  """Makes the game `name` as a `Table`, with the options for evaluation.

  Raises: UserError: as `make`, or the game has one player.
  """
  suite, game, options = _resolve(name, kwargs)
  options = suite.for_testing(options)
  if suite.make_table is not None:
    return suite.make_table(game, options)
  jax_env = None if suite.make_jax_env is None else suite.make_jax_env(game, options)
  is_deterministic = None if jax_env is None else jax_env.rules.is_deterministic
  return EnvironmentTable(suite.make_environment(game, options), is_deterministic)


def make_fast_vector(name: str, seeds: Sequence[int], /, **kwargs: Any) -> VectorEnvironment | None:
  """Returns the suite's own vectorized environment, an environment for each seed; None if it has none."""
  suite, game, options = _resolve(name, kwargs)
  return None if suite.make_vector is None else suite.make_vector(game, options, list(seeds))


def make_jax_env(name: str, /, **kwargs: Any) -> Any | None:
  """Returns environment `name` as an `envs.jax.rules.JaxEnvironment`; None if its rules are not in JAX."""
  suite, game, options = _resolve(name, kwargs)
  return None if suite.make_jax_env is None else suite.make_jax_env(game, options)


def true_rules(name: str, /, **kwargs: Any) -> Any:
  """Returns the rules of environment `name` as an `envs.true_rules.TrueRules`. Imports JAX.

  Raises: UserError: as `make`; or a search cannot use the rules, because they have chance, hidden information
    or other players' seats, or because an environment that is not in JAX has no `max_moves`.
  """
  from moozi.envs.true_rules import CompiledRules, HostRules

  suite, game, options = _resolve(name, kwargs)
  spec = suite.make_spec(game, options)
  where = f"env.name={name}: algorithm=alphazero plans with the true rules of the game, but"
  if spec.num_seats:
    hint = "set env.kwargs.seat=all, or " if name.startswith("open_spiel:") else ""
    raise UserError(f"{where} the moves of the other seats are not part of them; {hint}use muzero")
  if not spec.is_perfect_information:
    raise UserError(f"{where} players have hidden information; use muzero")
  jax_env = None if suite.make_jax_env is None else suite.make_jax_env(game, options)
  if jax_env is not None:
    if not jax_env.rules.is_deterministic:
      raise UserError(f"{where} this game has chance; use muzero")
    return CompiledRules(jax_env)
  environment = suite.make_environment(game, options)
  if environment.max_moves is None:
    environment.close()
    raise UserError(
      f"{where} this one has chance, or its environment lacks `clone`, `position` and `max_moves` "
      "(moozi.Environment), or its game `max_moves` (moozi.Game); use muzero"
    )
  return HostRules(environment)


def env_spec(name: str, /, **kwargs: Any) -> EnvSpec:
  """Returns the specification of `name` with these options. Raises UserError as `make` does."""
  suite, game, options = _resolve(name, kwargs)
  return suite.make_spec(game, options)


def reference_scores(name: str) -> ReferenceScores | None:
  """Returns the published returns of random play and of a human in `name`; None if there are none."""
  library, _, game = name.partition(":")
  return _load(library).reference_scores(game) if library in _MODULES else None


def options_of(name: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
  """Returns an environment's options with their defaults; `kwargs` alone if the defaults are not known.

  The defaults are not known for a user's environment, and where the name or an option is refused. Imports no
  module that the name contains.
  """
  library, _, game = name.partition(":")
  if library not in _MODULES or ":" in game:
    return dict(kwargs)
  try:
    return _find(name, dict(kwargs))[2].model_dump(mode="json")
  except UserError:
    return dict(kwargs)


def _resolve(name: str, kwargs: Mapping[str, Any]) -> tuple[Suite, str, Any]:
  """Returns the suite, the game as the user wrote it, and its checked options; see `make`."""
  own = dict(kwargs)
  wrappers, allow_code = own.pop("wrappers", ()), own.pop("allow_code", False)
  suite, game, options = _find(name, own)
  options = options.allowing_code(True) if allow_code else options
  if not wrappers:
    return suite, game, options
  if suite.with_wrappers is None:
    raise UserError(
      f"env.wrappers={list(wrappers)}: environments of {name.partition(':')[0]} are not wrapped; only those "
      "of gymnasium and your own are"
    )
  return suite, game, suite.with_wrappers(options, tuple(wrappers))


def _find(name: str, kwargs: dict[str, Any]) -> tuple[Suite, str, Any]:
  if not isinstance(name, str):
    raise UserError(plugins.describe_object("env.name", name))
  library, _, game = name.partition(":")
  if library not in _MODULES:
    if plugins.ENVIRONMENTS.is_known(name) or user_code.is_found(name):
      return user.SUITE, name, user.UserOptions(kwargs=kwargs)
    known = ", ".join([*sorted(_MODULES), *plugins.ENVIRONMENTS.names()[len(_MODULES) :]])
    if user_code.is_code(name) and not difflib.get_close_matches(library, _MODULES):
      raise UserError(f"env.name={name}: {user_code.describe_missing(name)}; the libraries are {known}")
    if hint := user_code.describe_path(name):
      raise UserError(f"env.name={name}: unknown library {library!r}; must be one of {known}{hint}")
    hint = f"; {user_code.describe_missing(name)}" if user_code.is_code(name) else ""
    _raise_unknown(name, f"unknown library {library!r}; must be one of {known}", _all_names(), hint)
  suite = _load(library)
  games = suite.list_games()
  listed = suite.listed_name(game)
  if listed not in games and not suite.is_game(listed):
    known = ", ".join(games) if len(games) <= 12 else f"those that `moozi envs {library}` lists"
    names = {f"{library}:{g}": f"{library}:{g}" for g in games}
    _raise_unknown(name, f"unknown game {listed!r} of {library}; must be one of {known}", names)
  return suite, game, check_options(name, suite.options(listed), kwargs)


def _raise_unknown(name: str, what: str, names: dict[str, str], hint: str = "") -> typing.NoReturn:
  """Raises UserError that proposes the nearest name; `names` maps spellings to full names."""
  # A wrong name often differs from the right one in case only, so the comparison ignores case.
  lower = {key.lower(): full for key, full in names.items()}
  nearest = lower[difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.0)[0]]
  raise UserError(f"env.name={name}: {what}; the nearest is {nearest}{hint}")


def _all_names() -> dict[str, str]:
  """Returns full names by spelling: each full name, and each game without its library."""
  out: dict[str, str] = {}
  for library in _MODULES:
    try:
      games = _load(library).list_games()
    except UserError:
      continue
    for game in games:
      out[f"{library}:{game}"] = f"{library}:{game}"
      out.setdefault(game, f"{library}:{game}")
  return out


def _load(library: str) -> Suite:
  out: Suite = importlib.import_module(_MODULES[library]).SUITE
  return out

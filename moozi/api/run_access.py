"""Opens runs for reading, checks arguments, and guards output files, for the API and the commands."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from moozi.core.config import Config
from moozi.core.config.uses import code_keys
from moozi.core.errors import UserError, one_line, reason_of
from moozi.core.plugins import PLAYERS
from moozi.core.seeds import NUM_SEEDS
from moozi.core.spec import EnvSpec
from moozi.io.run_directory import RunDirectory

LOADED_PLAYERS: dict[Any, Any] = {}
"""The trained players that `api.players.make_player` has loaded. Clear it to load the newest checkpoints."""


def open_run(path: str | os.PathLike[str], allow_code: bool) -> tuple[RunDirectory, Config]:
  """Opens a run for reading.

  A run directory may come from an untrusted source. The only code that it can name is in modules to import,
  as in `module:function` and `gymnasium:MODULE:ID`; importing them needs `allow_code`.
  `api.training.continue_run` also checks the address of the Ray cluster.

  Raises: UserError: the path is not a run, its configuration is invalid, or it names code and `allow_code` is
    false.
  """
  directory = RunDirectory.open(Path(path))
  config = directory.load_config()
  check_code(config, str(path), allow_code)
  return directory, config


def check_code(config: Config, where: str, allow_code: bool) -> None:
  """Raises UserError if the configuration names code to import and `allow_code` is false."""
  if (keys := code_keys(config)) and not allow_code:
    raise UserError(
      f"{where}: {', '.join(keys)} imports a Python module and runs its code; pass --allow-code (in Python "
      "allow_code=True) if you trust this run"
    )


def check_searches(run: Path, config: Config, user: str) -> None:
  """Raises UserError if the run's algorithm has no search.

  Args:
    user: the command or method that needs a search, for the message.
  """
  if not config.searches:
    raise UserError(f"{run}: algorithm={config.algorithm} has no search; {user} needs an algorithm with one")


def check_has_model(run: Path, config: Config, user: str) -> None:
  """Raises UserError, which names `user`, if the run's algorithm learns no model."""
  if not config.has_model:
    raise UserError(f"{run}: algorithm={config.algorithm} has no model; {user} needs an algorithm with one")


def check_number(name: str, value: int | None, minimum: int = 1, maximum: int | None = None) -> None:
  """Raises UserError if the argument `name` is not an integer in the range; None is allowed."""
  if value is None:
    return
  if not isinstance(value, int | np.integer):
    raise UserError(f"{name}={one_line(value, 80)}: must be an integer")
  if value < minimum or (maximum is not None and value > maximum):
    allowed = f"at least {minimum}" if maximum is None else f"from {minimum} to {maximum:,}"
    # Python does not print integers of more than 4,300 digits.
    raise UserError(f"{name}={value if abs(value) < 10**18 else '…'}: must be {allowed}")


def check_real(name: str, value: float, minimum: float, maximum: float) -> None:
  """Raises UserError if the argument `name` is not a number in the range."""
  is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
  if not is_number or not minimum <= value <= maximum:
    raise UserError(f"{name}={one_line(value, 80)}: must be a number from {minimum} to {maximum}")


def check_seed(seed: int | None) -> None:
  """Raises UserError if a seed is not an integer from 0 to 2³¹ − 1; None is allowed."""
  check_number("seed", seed, 0, NUM_SEEDS - 1)


def check_player(option: str, name: str, *others: str) -> None:
  """Raises UserError if `name` is neither a player nor one of `others`."""
  if name not in others and not PLAYERS.accepts(name):
    raise UserError(f"{option}={name}: must be {PLAYERS.allowed(name, *others)}")


def check_opponent_options(
  config: Config, spec: EnvSpec, opponent: str | None, simulations: int | None, prefix: str = ""
) -> None:
  """Raises UserError if the opponent is unknown, or if one of the options would have no effect.

  Args:
    prefix: precedes the options' names in messages; `--` on the command line.
  """
  names = [
    f"{prefix}{name}".replace("_", "-" if prefix else "_") for name in ("opponent", "opponent_simulations")
  ]
  if opponent is not None:
    check_player(names[0], opponent)
  for option, text in zip(names, (opponent, simulations), strict=True):
    if text is not None and spec.num_players == 1:
      hint = "; env.kwargs.test_others names the players of its other seats; see also `moozi arena`"
      raise UserError(
        f"{option}={text}: {spec.name} has one player, so it has no opponent{hint if spec.num_seats else ''}"
      )
  kind = opponent or config.evaluation.opponent
  if simulations is not None and kind != "mcts":
    raise UserError(f"{names[1]}={simulations}: is for the opponent mcts, not {kind}; use {names[0]} mcts")


def place_in_run(run: RunDirectory, *names: str) -> Path:
  """Returns a path in the run's folder, or in the current folder if the run is a zoo agent.

  Raises: UserError: a part of the path is a symbolic link. In an untrusted run, a link may point anywhere.
  """
  path = run.output_path
  for name in names:
    path /= name
    if path.is_symlink():
      raise UserError(f"{path}: is a link, which is not followed for writing; choose a path with --out")
  return path


@contextlib.contextmanager
def writing(option: str, path: Path) -> Iterator[None]:
  """Turns an OSError in the block into a UserError that names the option and the path.

  Raises: UserError: also if the path has a NUL character.
  """
  if "\0" in str(path):  # the system's functions would raise a ValueError
    raise UserError(f"{option}={str(path)!r}: has a NUL character; choose another path")
  try:
    yield
  except OSError as e:
    raise UserError(f"{option}={path}: cannot be written: {reason_of(e)}; choose another path") from None


@contextlib.contextmanager
def new_folder(option: str, path: Path) -> Iterator[Path]:
  """Yields a temporary folder, which is renamed to `path` if the block ends without an error.

  A killed process leaves at most a hidden folder named `*.tmp`.

  Raises: UserError: the path exists, or its folder cannot be written; the message names the option.
  """
  if os.path.lexists(path):
    raise UserError(f"{option}={path}: exists and is not overwritten; choose another name")
  temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
  with writing(option, path):
    temporary.mkdir()
  try:
    yield temporary
    with writing(option, path):
      os.rename(temporary, path)
  finally:
    shutil.rmtree(temporary, ignore_errors=True)

"""`moozi train`."""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moozi.commands.common import AllowCode, integer, open_run
from moozi.commands.seeds import parse_seeds, train_seeds
from moozi.core.errors import RunError, UserError

if TYPE_CHECKING:
  from moozi.core.config import Config
  from moozi.core.spec import EnvSpec
  from moozi.io.run_directory import RunDirectory
  from moozi.training.resume import Resumed


def train(
  arguments: Annotated[
    list[str] | None,
    typer.Argument(
      metavar="CONFIG [KEY=VALUE]...",
      help="A YAML file, such as config/minatar/breakout.yaml, and values that override it.",
    ),
  ] = None,
  resume: Annotated[
    Path | None,
    typer.Option(metavar="RUN", help="Resume a run with its own CONFIG, which KEY=VALUE overrides."),
  ] = None,
  seeds: Annotated[
    str | None,
    typer.Option(
      metavar="N|1,2,3",
      help="Train one run for each seed, NAME-seed1 and so on. The same command skips finished runs and "
      "resumes stopped ones.",
    ),
  ] = None,
  parallel: Annotated[int, integer("With --seeds: number of runs at a time.", maximum=64)] = 1,
  allow_code: AllowCode = False,
) -> int:
  """Train an agent, and write a run directory."""
  words = list(arguments or [])
  if seeds is None and parallel != 1:
    raise UserError(f"--parallel={parallel}: needs --seeds")
  if seeds is not None and resume is not None:
    raise UserError("--seeds resumes its runs itself; pass CONFIG in place of --resume RUN")
  if resume is not None:
    return _resume(resume, words, allow_code)
  if not words or "=" in words[0]:
    raise UserError(
      "CONFIG: missing; must be a YAML file, such as config/minatar/breakout.yaml, or use --resume RUN"
    )
  if seeds is not None:
    return train_seeds(Path(words[0]), words[1:], parse_seeds(seeds), parallel)
  return _start(Path(words[0]), words[1:])


def _start(path: Path, overrides: list[str]) -> int:
  from moozi.envs.registry import env_spec
  from moozi.evaluation.opponents import check_players
  from moozi.io.config import load_config
  from moozi.io.run_directory import RunDirectory

  config = load_config(path, overrides)
  spec = env_spec(config.env.name, **config.env.kwargs)
  check_players(config, spec)
  if config.checkpoint.start_from is not None:
    from moozi.io.checkpoints import expected_of, read_checkpoint_info
    from moozi.training.resume import find_start

    read_checkpoint_info(find_start(config.checkpoint.start_from).path, expected_of(config, spec))
  if config.offline.trajectories is not None:
    from moozi.training.offline import load_stored

    load_stored(config, spec)
  run = RunDirectory.create(config)
  try:
    with run.claim():
      return _run_training(run.load_config(), spec, run)
  except UserError as error:
    # Deletes the folder of a run that never started, to free its name. A run that started keeps its files.
    if not isinstance(error, RunError) and not run.has_begun:
      shutil.rmtree(run.path)
    raise


def _resume(path: Path, overrides: list[str], allow_code: bool) -> int:
  from moozi.envs.registry import env_spec
  from moozi.evaluation.opponents import check_opponent
  from moozi.io.run_directory import load_resumed_config
  from moozi.training.resume import load_resumed

  unset = [text for text in overrides if "=" not in text]
  if unset:
    raise UserError(f"{unset[0]}: must be KEY=VALUE; --resume uses the run's own CONFIG")
  run, stored = open_run(path, allow_code)
  address = stored.ray.address
  is_confirmed = allow_code or any(text.startswith("ray.address=") for text in overrides)
  if address not in (None, "local") and not is_confirmed:
    raise UserError(
      f"{path}: ray.address={address}: this cluster can run code here; pass ray.address={address} if it "
      "is yours"
    )
  # The run is claimed before it is read, because another process may be writing it.
  with run.claim():
    config = load_resumed_config(run, overrides)
    spec = env_spec(config.env.name, **config.env.kwargs)
    check_opponent(config, spec)
    resumed = load_resumed(config, spec, run)
    for text in resumed.passed_over:
      print(f"moozi: skipped {text}", file=sys.stderr)
    print(f"moozi: resuming from {resumed.name}", file=sys.stderr)
    return _run_training(config, spec, run, resumed)


def _run_training(
  config: "Config", spec: "EnvSpec", run: "RunDirectory", resumed: "Resumed | None" = None
) -> int:
  """Trains into the claimed run directory and returns the exit status."""
  from moozi.training.start import train

  summary = train(config, spec, run, resumed)
  if summary["test_return_mean"] is not None:
    print(
      f"return:        {summary['test_return_mean']:.2f} ± {summary['test_return_std']:.2f} over "
      f"{summary['test_episodes']} episodes at {summary['test_at_env_steps']:,} environment steps"
    )
    if summary["reason"] != "stopped":
      _print_random_play(config, summary["test_episodes"])
  print(f"run directory: {run.path}")
  if config.logging.tensorboard:
    print(f"TensorBoard:   {Path(sys.executable).with_name('tensorboard')} --logdir {run.path}")
  return 0


def _print_random_play(config: "Config", num_episodes: int) -> None:
  """Prints the return of random play, for comparison."""
  from moozi.evaluation.random_play import random_returns

  try:
    random_play = random_returns(config, num_episodes=num_episodes)
    print(f"random play:   {random_play.mean():.2f} ± {random_play.std():.2f}")
  except Exception as error:
    # The run has succeeded, so an environment that fails here must not fail the command.
    print(f"random play:   failed: {type(error).__name__}: {error}")

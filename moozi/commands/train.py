"""`moozi train`."""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moozi.commands.common import AllowCode, open_run
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
      help="A YAML file, such as config/minatar/breakout.yaml, and settings that go before the file's.",
    ),
  ] = None,
  resume: Annotated[
    Path | None,
    typer.Option(metavar="RUN", help="Go on with a run where it stopped; CONFIG is the run's own then."),
  ] = None,
  allow_code: AllowCode = False,
) -> int:
  """Train, and leave a run directory behind."""
  given = list(arguments or [])
  if resume is not None:
    return _resume(resume, given, allow_code)
  if not given or "=" in given[0]:
    raise UserError(
      "CONFIG: missing; give a YAML file, such as config/minatar/breakout.yaml, or --resume RUN"
    )
  return _begin(Path(given[0]), given[1:])


def _begin(config: Path, overrides: list[str]) -> int:
  from moozi.envs.registry import env_spec
  from moozi.evaluation.opponents import check_players
  from moozi.io.config import load_config
  from moozi.io.run_directory import RunDirectory

  settings = load_config(config, overrides)
  spec = env_spec(settings.env.name, **settings.env.kwargs)
  check_players(settings, spec)
  if settings.checkpoint.start_from is not None:
    from moozi.io.checkpoints import expected_of, read_checkpoint_info
    from moozi.training.resume import find_start

    read_checkpoint_info(find_start(settings.checkpoint.start_from).path, expected_of(settings, spec))
  if settings.offline.trajectories is not None:
    from moozi.training.offline import load_stored

    load_stored(settings, spec)
  run = RunDirectory.create(settings)
  try:
    with run.claim():
      return _run_training(run.load_config(), spec, run)
  except UserError as error:
    # Refused before it began: the name stays free. A run that began keeps what it has.
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
    raise UserError(f"{unset[0]}: with --resume the run's own CONFIG counts; allowed are KEY=VALUE")
  run, own = open_run(path, allow_code)
  address = own.ray.address
  is_asked_for = allow_code or any(text.startswith("ray.address=") for text in overrides)
  if address not in (None, "local") and not is_asked_for:
    raise UserError(
      f"{path}: ray.address={address}: the run would join this Ray cluster, which can run code here; say "
      "ray.address=… again, if it is yours"
    )
  # Before anything is read: what another process is writing must not be gone on from.
  with run.claim():
    settings = load_resumed_config(run, overrides)
    spec = env_spec(settings.env.name, **settings.env.kwargs)
    check_opponent(settings, spec)
    resumed = load_resumed(settings, spec, run)
    for text in resumed.passed_over:
      print(f"moozi: passed over {text}", file=sys.stderr)
    print(f"moozi: goes on from {resumed.name}", file=sys.stderr)
    return _run_training(settings, spec, run, resumed)


def _run_training(
  config: "Config", spec: "EnvSpec", run: "RunDirectory", resumed: "Resumed | None" = None
) -> int:
  """Trains into the run directory, which is claimed, and returns the exit status."""
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
  """What the figure before is to be held against; whoever asked the run to stop does not wait for it."""
  from moozi.evaluation.random_play import random_returns

  try:
    random_play = random_returns(config, num_episodes=num_episodes)
    print(f"random play:   {random_play.mean():.2f} ± {random_play.std():.2f}")
  except Exception as error:
    # The run is over and whole; an environment that fails now must not make it look otherwise.
    print(f"random play:   failed: {type(error).__name__}: {error}")

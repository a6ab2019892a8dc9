"""`moozi train`."""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moozi.core.errors import UserError

if TYPE_CHECKING:
  from moozi.core.config import Config
  from moozi.core.spec import EnvSpec
  from moozi.io.run_directory import RunDirectory


def train(
  config: Annotated[
    Path, typer.Argument(metavar="CONFIG", help="A YAML file, such as config/minatar/breakout.yaml.")
  ],
  overrides: Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings that go before the file's.")
  ] = None,
) -> int:
  """Train, and leave a run directory behind."""
  from moozi.envs.registry import world_spec
  from moozi.io.config import load_config
  from moozi.io.run_directory import RunDirectory
  from moozi.runtime.opponents import check_opponent

  settings = load_config(config, overrides or [])
  spec = world_spec(settings.env.name, **settings.env.kwargs)
  check_opponent(settings, spec)
  if settings.checkpoint.start_from is not None:
    from moozi.io.checkpoints import expected_of, read_checkpoint_info
    from moozi.training import find_start

    read_checkpoint_info(find_start(settings.checkpoint.start_from).path, expected_of(settings, spec))
  run = RunDirectory.create(settings)
  try:
    return _run_training(run.load_config(), spec, run)
  except UserError:
    # Refused before it began: the name stays free. A run that began keeps what it has.
    if not any(run.checkpoints_path.iterdir()):
      shutil.rmtree(run.path)
    raise


def _run_training(config: "Config", spec: "EnvSpec", run: "RunDirectory") -> int:
  """Trains into the run directory and returns the exit status."""
  from moozi.runtime.random_play import random_returns
  from moozi.training import train

  summary = train(config, spec, run)
  if summary["test_return_mean"] is not None:
    random_play = random_returns(config, num_episodes=summary["test_episodes"])
    print(
      f"return:        {summary['test_return_mean']:.2f} ± {summary['test_return_std']:.2f} over "
      f"{summary['test_episodes']} episodes at {summary['test_at_env_steps']:,} environment steps"
    )
    print(f"random play:   {random_play.mean():.2f} ± {random_play.std():.2f}")
  print(f"run directory: {run.path}")
  if config.logging.tensorboard:
    print(f"TensorBoard:   {Path(sys.executable).with_name('tensorboard')} --logdir {run.path}")
  return 0

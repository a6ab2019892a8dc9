"""The command `moozi train`."""

import collections
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moozi.commands.common import describe_human_normalized, integer
from moozi.commands.seeds import parse_seeds, train_seeds
from moozi.commands.signals import stop_at_signals
from moozi.core.errors import UserError
from moozi.core.text import shell_command
from moozi.io.output import notice, say
from moozi.run import interrupts

if TYPE_CHECKING:
  from moozi.api.training import Training


def train(
  arguments: Annotated[
    list[str] | None,
    typer.Argument(
      metavar="CONFIG [KEY=VALUE]...",
      help="A configuration that `moozi configs` lists, or a YAML file, and values that override it.",
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
  allow_code: Annotated[
    bool,
    typer.Option(
      "--allow-code",
      help="Allow the runs that are named as players to import the modules that they name. With --resume, "
      "also allow it to the run itself, and join the run's Ray cluster.",
    ),
  ] = False,
  allow_own_code: Annotated[
    bool,
    typer.Option(
      "--allow-own-code",
      hidden=True,  # for `experiments.runner`, which has compared the run with its configuration
      help="With --resume, allow what --allow-code does to the run itself, and not to its players.",
    ),
  ] = False,
) -> int:
  """Train an agent, and write a run directory."""
  words = list(arguments or [])
  if seeds is None and parallel != 1:
    raise UserError(f"--parallel={parallel}: needs --seeds")
  if seeds is not None and resume is not None:
    raise UserError("--seeds resumes its runs itself; pass CONFIG in place of --resume RUN")
  if resume is not None:
    return _resume(resume, words, allow_code, allow_own_code)
  if not words or "=" in words[0]:
    raise UserError(
      "CONFIG: missing; must be a configuration, such as tiny/catch (`moozi configs` lists them), or a YAML "
      "file; or use --resume RUN"
    )
  if seeds is not None:
    return train_seeds(words[0], words[1:], parse_seeds(seeds), parallel, allow_code)
  return _start(words[0], words[1:], allow_code)


def _start(name: str, overrides: list[str], allow_code: bool) -> int:
  from moozi.api.training import check_run, create_run
  from moozi.io.config import load_config
  from moozi.io.config_files import describe_duration
  from moozi.training.start import Stop

  config, spec = check_run(load_config(name, overrides), allow_code=allow_code or None)
  stop = Stop()
  # From here on a signal ends the run with a checkpoint; an error could leave a part of its directory.
  interrupts.check()
  with stop_at_signals(stop):
    training = create_run(config, spec, stop=stop)
    if duration := describe_duration(name, config.env.name):
      # A seed or a name does not change how long a run takes.
      changed = [text for text in overrides if not text.startswith(("seed=", "run."))]
      own = " (without your overrides)" if changed else ""
      notice(f"moozi: {duration}{own}")
    return _run_training(training)


def _resume(path: Path, overrides: list[str], allow_code: bool, allow_own_code: bool) -> int:
  from moozi.api.training import continue_run

  unset = [text for text in overrides if "=" not in text]
  if unset:
    raise UserError(f"{unset[0]}: must be KEY=VALUE; --resume uses the run's own CONFIG")
  training = continue_run(path, overrides, allow_code=allow_code, allow_own_code=allow_own_code)
  assert training.resumed is not None
  for text in training.resumed.skipped:
    notice(f"moozi: skipped {text}")
  notice(f"moozi: resuming from {training.resumed.name}")
  interrupts.check()
  with stop_at_signals(training.stop):
    return _run_training(training)


def _run_training(training: "Training") -> int:
  """Trains to the end, prints the result, and returns the exit status."""
  from moozi.io.logs import setup_logging

  # Warnings after the training, such as those of random play, go to the run's log too.
  setup_logging(training.run.directory.log_path("driver"))
  with training:
    collections.deque(training, maxlen=0)
  summary = training.summary
  assert summary is not None, "the run has ended"
  if summary["test_return_mean"] is not None:
    say(_describe_return(summary))
    if summary["reason"] != "stopped":
      _compare_with_random_play(training, summary)
  run = training.run
  say(f"run directory: {run.path}")
  if training.config.logging.tensorboard:
    program = Path(sys.executable).with_name("tensorboard")
    say(f"TensorBoard:   {shell_command(program, '--logdir', run.path.parent)}")
  return 0


def _describe_return(summary: dict[str, Any]) -> str:
  from moozi.envs.registry import reference_scores

  text = (
    f"return:        {summary['test_return_mean']:z.2f} ± {summary['test_return_std']:.2f} over "
    f"{summary['test_episodes']} episodes at {summary['test_at_env_steps']:,} environment steps"
  )
  if (references := reference_scores(summary["env"])) is not None:
    text += f"\n{describe_human_normalized(references.normalize(summary['test_return_mean']))}"
  return text


def _compare_with_random_play(training: "Training", summary: dict[str, Any]) -> None:
  """Prints the return of random play, and adds it to summary.json, which a card reads."""
  from moozi.evaluation.random_play import random_returns
  from moozi.io.run_directory import RANDOM_RETURN

  try:
    random_play = random_returns(training.config, num_episodes=summary["test_episodes"])
    say(f"random play:   {random_play.mean():z.2f} ± {random_play.std():.2f}")
    directory = training.run.directory
    if directory.summary_path.exists():  # a run whose last checkpoint is not saved has none
      with contextlib.suppress(OSError):
        directory.write_summary(summary | {RANDOM_RETURN: float(random_play.mean())})
  except Exception as error:
    # The run has succeeded, so an environment that fails here must not fail the command.
    say(f"random play:   failed: {type(error).__name__}: {error}")

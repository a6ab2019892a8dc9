"""Code that commands share: options, opening a run, loading its agent, and writing output."""

import contextlib
import dataclasses
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moozi.core.errors import UserError

if TYPE_CHECKING:
  from moozi.core.config import Config
  from moozi.core.search_record import InspectedEpisode
  from moozi.core.spec import EnvSpec
  from moozi.io.checkpoints import CheckpointInfo
  from moozi.io.run_directory import RunDirectory


def integer(text: str, *names: str, minimum: int = 1, maximum: int = 10**9 - 1, metavar: str = "N") -> Any:
  """Returns an option that takes an integer in a range; `text` is its help."""

  def parse(value: str) -> int:
    # Typer's own range error does not show the value.
    with contextlib.suppress(ValueError):
      if minimum <= int(value) <= maximum:
        return int(value)
    raise typer.BadParameter(f"{value}: must be an integer from {minimum} to {maximum:,}")

  return typer.Option(*names, metavar=metavar, parser=parse, help=text)


def output(default: str, metavar: str = "DIR") -> Any:
  """Returns the option --out; `default` is the default output path within the run."""
  return typer.Option(
    "--out", metavar=metavar, help=f"Output. Default: RUN/{default}; zoo agent: ./{default}."
  )


Run = Annotated[
  Path,
  typer.Argument(metavar="RUN", help="A run directory, such as runs/first, or zoo:NAME."),
]
Checkpoint = Annotated[
  str | None,
  typer.Option(
    "--checkpoint", help="A name, a path, an environment step (takes the nearest), best, or last (default)."
  ),
]
Episode = Annotated[
  int, integer("Number of the evaluation episode, from 0.", "--episode", minimum=0, metavar="I")
]
Simulations = Annotated[
  int | None, integer("Simulations per search. Default: planners.test.", "--simulations")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout and nothing else.")]
AllowCode = Annotated[
  bool,
  typer.Option(
    "--allow-code",
    help="Allow the run to import the Python module of its environment and to join its Ray cluster.",
  ),
]


def number_of(option: str, text: str, low: float, high: float, unit: str) -> float:
  """Returns an option's value. Raises UserError if the text is not a number from `low` to `high`."""
  with contextlib.suppress(ValueError):
    if low <= float(text) <= high:
      return float(text)
  raise UserError(f"{option}={text}: must be a number of {unit} from {low:g} to {high:g}")


def open_run(path: Path, allow_code: bool) -> "tuple[RunDirectory, Config]":
  """Opens a run for reading.

  A run directory may come from an untrusted source. The only code that it can name is a user's own
  environment, which needs `--allow-code`. `moozi train --resume` also checks the address of the Ray cluster.

  Raises: UserError: the path is not a run, or the run has a user's own environment and `--allow-code` is
    missing.
  """
  from moozi.envs.registry import is_code
  from moozi.io.run_directory import RunDirectory

  directory = RunDirectory.open(path)
  config = directory.load_config()
  if is_code(config.env.name) and not allow_code:
    raise UserError(
      f"{path}: env.name={config.env.name} imports a Python module and runs its code; pass --allow-code if "
      "you trust this run"
    )
  return directory, config


def check_searches(run: Path, config: "Config", command: str) -> None:
  """Raises UserError if the run's agent has no model, and therefore no search."""
  from moozi.training.algorithms import algorithm_of

  if not algorithm_of(config).has_model:
    raise UserError(f"{run}: algorithm={config.algorithm} has no model; `moozi {command}` needs one that has")


@dataclasses.dataclass(frozen=True)
class Agent:
  """The configuration and environment of a run, and one of its checkpoints."""

  directory: "RunDirectory"
  config: "Config"
  spec: "EnvSpec"
  checkpoint: "CheckpointInfo"

  @functools.cached_property
  def state(self) -> Any:
    """The checkpoint's training state.

    Raises: UserError: the state cannot be read, or belongs to another network.
    """
    from moozi.io.checkpoints import expected_of, load_checkpoint
    from moozi.training.algorithms import algorithm_of

    template = algorithm_of(self.config).training_state_template(self.config, self.spec)
    return load_checkpoint(self.checkpoint.path, template, expected_of(self.config, self.spec))

  def evaluator(self, simulations: int | None = None) -> Any:
    """Builds an evaluator; `simulations` overrides the testing planner's number of simulations."""
    from moozi.training.algorithms import algorithm_of

    return algorithm_of(self.config).build_evaluator(self.config, self.spec, simulations)


def agent_of(directory: "RunDirectory", config: "Config", checkpoint: str | None) -> Agent:
  """Returns the agent of a run at the checkpoint that `find_checkpoint` finds.

  Raises: UserError: the checkpoint does not exist, or belongs to another network or environment.
  """
  from moozi.envs.registry import env_spec
  from moozi.evaluation.opponents import check_players
  from moozi.io.checkpoints import expected_of, find_checkpoint, read_checkpoint_info

  spec = env_spec(config.env.name, **config.env.kwargs)
  check_players(config, spec)
  found = find_checkpoint(directory.checkpoints_path, checkpoint)
  return Agent(directory, config, spec, read_checkpoint_info(found.path, expected_of(config, spec)))


def load_agent(run: Path, checkpoint: str | None, allow_code: bool) -> Agent:
  """Opens the run in a folder, and returns its agent with the training state loaded.

  Raises: UserError: as in `open_run` and `agent_of`, or the state cannot be read.
  """
  directory, config = open_run(run, allow_code)
  with stdout_to_stderr():
    agent = agent_of(directory, config, checkpoint)
    # The state is read now: the caller may take over the terminal, and errors could not be printed then.
    assert agent.state is not None
  return agent


def play_episode(
  agent: Agent, *, index: int, max_steps: int | None, num_simulations: int | None
) -> "InspectedEpisode":
  """Plays an evaluation episode, or its first `max_steps`, and records its searches.

  Raises: UserError: the checkpoint cannot be read, or the environment fails.
  """
  from moozi.analysis.inspection import inspect_episode

  episode = inspect_episode(
    agent.config,
    agent.spec,
    agent.state.params,
    agent.state.net_state,
    index=index,
    max_steps=max_steps,
    num_simulations=num_simulations,
    on_step=lambda step: print_progress(f"{step} steps of episode {index}"),
  )
  print_progress("\n")
  return episode


def print_progress(text: str) -> None:
  """Replaces the last line of standard error, if standard error is a terminal."""
  if sys.stderr.isatty():
    print(text if text == "\n" else f"\r{text}", end="", file=sys.stderr, flush=True)


def place_in_run(run: "RunDirectory", *names: str) -> Path:
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
  """Turns an OSError in the block into a UserError that names the option and the path."""
  try:
    yield
  except OSError as e:
    raise UserError(f"{option}={path}: cannot be written: {e.strerror or e}; choose another path") from None


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
  """Redirects output of the block to standard error, including output of C libraries."""
  sys.stdout.flush()
  saved = os.dup(1)
  os.dup2(2, 1)
  try:
    with contextlib.redirect_stdout(sys.stderr):
      yield
  finally:
    os.dup2(saved, 1)
    os.close(saved)

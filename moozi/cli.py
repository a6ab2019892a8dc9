"""The door: `moozi train`, `moozi evaluate`, `moozi envs`.

Everything a user gives is checked here before anything is made or started. JAX and Ray are imported inside
the commands, so that `moozi --help` is quick.
"""

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moozi.core.errors import UserError

if TYPE_CHECKING:
  from moozi.core.config import Config
  from moozi.core.spec import EnvSpec
  from moozi.io.checkpoints import CheckpointInfo
  from moozi.io.run_directory import RunDirectory

EVALUATION_KEYS = (
  "env",
  "checkpoint",
  "env_steps",
  "episodes",
  "distinct_episodes",
  "return_mean",
  "return_std",
  "return_min",
  "return_max",
  "length_mean",
)

# With two players these follow; null is a seat that was not played.
TWO_PLAYER_KEYS = (
  "opponent",
  "opponent_simulations",
  "score",
  "wins",
  "draws",
  "losses",
  "return_margin",
  "score_seat_0",
  "return_mean_seat_0",
  "return_margin_seat_0",
  "score_seat_1",
  "return_mean_seat_1",
  "return_margin_seat_1",
)

# Typer keeps its own copy of click and shows only some of its exceptions; this is the base of the users' own.
_UsageError: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

AllowCode = Annotated[
  bool, typer.Option("--allow-code", help="Let the run's own world, a Python module it names, be imported.")
]

app = typer.Typer(
  name="moozi",
  help="MuZero: planning with a learned model.",
  no_args_is_help=True,
  add_completion=False,
  rich_markup_mode=None,
  pretty_exceptions_enable=False,
)


def main(arguments: Sequence[str] | None = None) -> None:
  """The command `moozi`. Exits with 0, with 2 after an error of the user's, or with what the command says.

  Args:
    arguments: without the program's name; None takes the process's own.
  """
  try:
    status = app(
      args=None if arguments is None else list(arguments), prog_name="moozi", standalone_mode=False
    )
  except UserError as e:
    # One from another process comes wrapped by Ray, with that process's traceback for its text.
    _fail(str(getattr(e, "cause", e)))
  except _UsageError as e:
    _fail(e.format_message())  # type: ignore[attr-defined]
  except (typer.Abort, KeyboardInterrupt):
    sys.exit(130)
  except BrokenPipeError:
    # The reader has gone (`moozi envs | head`); Python would complain again when it flushes at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(0)
  sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str) -> None:
  # Names from files may hold anything, escape sequences of the terminal too.
  line = "".join(c if c.isprintable() else "?" for c in " ".join(message.split()))
  print(f"moozi: error: {line}", file=sys.stderr)
  sys.exit(2)


def _print_version(is_asked: bool) -> None:
  if is_asked:
    from moozi import __version__

    print(f"moozi {__version__}")
    raise typer.Exit


@app.callback()
def _options(
  version: Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
  ] = False,
) -> None:
  """MuZero: planning with a learned model."""


@app.command()
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


@app.command()
def evaluate(
  run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, such as runs/first.")],
  checkpoint: Annotated[
    str | None, typer.Option(help="A name, a path, an environment step (the nearest one), or last.")
  ] = None,
  episodes: Annotated[
    str | None, typer.Option(metavar="N", help="How many; the run's final_episodes if not given.")
  ] = None,
  simulations: Annotated[
    str | None,
    typer.Option(metavar="N", help="Of each search; those of the run's testing planner if not given."),
  ] = None,
  opponent: Annotated[
    str | None, typer.Option(metavar="random|mcts|self", help="Two players: who plays the other seat.")
  ] = None,
  opponent_simulations: Annotated[
    str | None, typer.Option(metavar="N", help="Of each search of the opponent's.")
  ] = None,
  as_json: Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")
  ] = False,
  allow_code: AllowCode = False,
) -> int:
  """Play evaluation episodes with a run's checkpoint."""
  from moozi.envs.registry import world_spec
  from moozi.io.checkpoints import expected_of, find_checkpoint, read_checkpoint_info
  from moozi.io.plain_json import to_plain_json
  from moozi.runtime.opponents import check_opponent

  num_episodes = _count("--episodes", episodes)
  num_simulations = _count("--simulations", simulations)
  directory, settings = _open_run(run, allow_code)
  settings = _with_opponent(settings, opponent, opponent_simulations)
  with _stdout_on_stderr():
    spec = world_spec(settings.env.name, **settings.env.kwargs)
    check_opponent(settings, spec)
    found = find_checkpoint(directory.checkpoints_path, checkpoint)
    found = read_checkpoint_info(found.path, expected_of(settings, spec))
    num_episodes = num_episodes or settings.evaluation.final_episodes
    figures = _run_evaluation(settings, spec, found, num_episodes, num_simulations)
  result = {"env": spec.name, "checkpoint": found.name, "env_steps": found.env_steps} | figures
  keys: tuple[str, ...] = EVALUATION_KEYS
  if spec.num_players == 2:
    result |= {
      "opponent": settings.evaluation.opponent,
      "opponent_simulations": settings.evaluation.opponent_simulations
      if settings.evaluation.opponent == "mcts"
      else None,
    }
    keys += TWO_PLAYER_KEYS
  result = {key: result.get(key) for key in keys}
  if as_json:
    print(json.dumps(to_plain_json(result), allow_nan=False))
  else:
    print(_describe_evaluation(result))
  return 0


@app.command("envs")
def list_environments(
  library: Annotated[str | None, typer.Argument(metavar="[LIBRARY]", help="Only its worlds.")] = None,
) -> int:
  """List the worlds and their options."""
  from moozi.envs.registry import list_worlds

  worlds = list_worlds(library)
  width = max(len(w.name) for w in worlds)
  for i, world in enumerate(worlds):
    print(f"{world.name:<{width}}  {world.summary}")
    if i + 1 == len(worlds) or worlds[i + 1].options != world.options:
      for key, text in world.options.items():
        print(f"    env.kwargs.{key}: {text}")
  return 0


def _open_run(path: Path, allow_code: bool) -> "tuple[RunDirectory, Config]":
  """A run and its configuration: the one way in for every command that reads what a run left.

  A run directory may come from anywhere. Nothing in it is code but the name of a user's own world, which is
  let in only where the user says so.

  Raises: UserError: not a run, or a run in a user's own world without `--allow-code`.
  """
  from moozi.envs.registry import is_code
  from moozi.io.run_directory import RunDirectory

  directory = RunDirectory.open(path)
  settings = directory.load_config()
  if is_code(settings.env.name) and not allow_code:
    raise UserError(
      f"{path}: env.name={settings.env.name} would import a Python module of that name and run its code; "
      "--allow-code allows it, if you trust this run"
    )
  return directory, settings


def _count(option: str, text: str | None) -> int | None:
  """A whole number of at least 1; None where the option was not given."""
  if text is None:
    return None
  if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= 1):
    raise UserError(f"{option}={text}: must be a whole number of at least 1")
  return int(text)


def _with_opponent(config: "Config", opponent: str | None, simulations: str | None) -> "Config":
  """The configuration with another opponent in evaluation, where the options say so."""
  update: dict[str, Any] = {}
  if opponent is not None:
    if opponent not in ("random", "mcts", "self"):
      raise UserError(f"--opponent={opponent}: must be random, mcts or self")
    update["opponent"] = opponent
  if simulations is not None:
    update["opponent_simulations"] = _count("--opponent-simulations", simulations)
  return config.model_copy(update={"evaluation": config.evaluation.model_copy(update=update)})


def _describe_evaluation(result: dict[str, Any]) -> str:
  text = (
    f"{result['env']}, {result['checkpoint']} ({result['env_steps']:,} environment steps): "
    f"return {result['return_mean']:.2f} ± {result['return_std']:.2f} "
    f"(from {result['return_min']:g} to {result['return_max']:g}) over {result['episodes']} episodes, "
    f"{result['distinct_episodes']} of them distinct, of {result['length_mean']:.1f} steps on average"
  )
  return f"{text}\n{_describe_score(result)}" if result.get("score") is not None else text


def _describe_score(result: dict[str, Any]) -> str:
  opponent = "itself" if result["opponent"] == "self" else result["opponent"]
  if result["opponent_simulations"] is not None:
    opponent += f" with {result['opponent_simulations']} simulations"
  seats = [
    f"{result[f'score_seat_{seat}']:.3f} from seat {seat} (return {result[f'return_mean_seat_{seat}']:.3f} "
    f"± {result[f'return_margin_seat_{seat}']:.3f}, 95%)"
    for seat in (0, 1)
    if result[f"score_seat_{seat}"] is not None
  ]
  return (
    f"score against {opponent}: {result['score']:.3f} ({result['wins']} won, {result['draws']} drawn, "
    f"{result['losses']} lost); {'; '.join(seats)}"
  )


@contextlib.contextmanager
def _stdout_on_stderr() -> Iterator[None]:
  """Whatever is printed meanwhile, by libraries in C too, goes to standard error."""
  sys.stdout.flush()
  saved = os.dup(1)
  os.dup2(2, 1)
  try:
    with contextlib.redirect_stdout(sys.stderr):
      yield
  finally:
    os.dup2(saved, 1)
    os.close(saved)


# --- what the commands start -------------------------------------------------------------------------


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


def _run_evaluation(
  config: "Config", spec: "EnvSpec", checkpoint: "CheckpointInfo", episodes: int, simulations: int | None
) -> dict[str, Any]:
  """Plays the episodes and returns the figures among EVALUATION_KEYS that are theirs."""
  from moozi.io.checkpoints import expected_of, load_checkpoint
  from moozi.training import builder_of

  builder = builder_of(config)
  evaluator = builder.build_evaluator(config, spec, simulations)
  template = builder.training_state_template(config, spec)
  state = load_checkpoint(checkpoint.path, template, expected_of(config, spec))
  is_shown = sys.stderr.isatty()

  def show(done: int) -> None:
    if is_shown:
      print(
        f"\r{done}/{episodes} episodes", end="\n" if done == episodes else "", file=sys.stderr, flush=True
      )

  result = evaluator.run(
    state.params,
    state.net_state,
    num_episodes=episodes,
    version=checkpoint.learner_steps,
    env_steps=checkpoint.env_steps,
    on_episode=show,
  )
  assert result is not None, "nobody asks it to stop"
  return result.summary()


if __name__ == "__main__":
  main()

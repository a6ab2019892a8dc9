"""`moozi evaluate`."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moozi.commands.agent import Agent, agent_of
from moozi.commands.common import (
  AllowCode,
  Checkpoint,
  Run,
  Simulations,
  count_of,
  open_run,
  stdout_on_stderr,
)
from moozi.core.errors import UserError

if TYPE_CHECKING:
  from moozi.core.config import Config
  from moozi.core.spec import EnvSpec
  from moozi.evaluation.evaluator import EvaluationResult

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

# A list each, by episode, where they are asked for.
EPISODE_KEYS = ("returns", "lengths")

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


def evaluate(
  run: Run,
  checkpoint: Checkpoint = None,
  episodes: Annotated[
    str | None, typer.Option(metavar="N", help="How many; the run's final_episodes if not given.")
  ] = None,
  simulations: Simulations = None,
  opponent: Annotated[
    str | None, typer.Option(metavar="random|mcts|self", help="Two players: who plays the other seat.")
  ] = None,
  opponent_simulations: Annotated[
    str | None, typer.Option(metavar="N", help="Of each search of the opponent's.")
  ] = None,
  as_json: Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")
  ] = False,
  with_returns: Annotated[
    bool, typer.Option("--returns", help="With --json: each episode's return and length, too.")
  ] = False,
  gif: Annotated[
    Path | None,
    typer.Option(
      metavar="FILE.gif", help="Write the first episode, and beside it several at once (FILE_tiles.gif)."
    ),
  ] = None,
  gif_frames: Annotated[
    str | None,
    typer.Option(
      metavar="N", help="With --gif: at most so many; the run's evaluation.gif_max_frames if not given."
    ),
  ] = None,
  allow_code: AllowCode = False,
) -> int:
  """Play evaluation episodes with a run's checkpoint."""
  from moozi.envs.registry import env_spec
  from moozi.io.plain_data import to_plain_json

  if with_returns and not as_json:
    raise UserError("--returns: is for --json")
  if gif is not None and gif.suffix != ".gif":
    raise UserError(f"--gif={gif}: must end in .gif")
  if gif_frames is not None and gif is None:
    raise UserError("--gif-frames: is for --gif")
  num_frames = count_of("--gif-frames", gif_frames)
  num_episodes = count_of("--episodes", episodes)
  num_simulations = count_of("--simulations", simulations)
  directory, settings = open_run(run, allow_code)
  settings = _with_opponent(settings, opponent, opponent_simulations)
  if num_frames is not None:
    evaluation = settings.evaluation.model_copy(update={"gif_max_frames": num_frames})
    settings = settings.model_copy(update={"evaluation": evaluation})
  with stdout_on_stderr():
    spec = env_spec(settings.env.name, **settings.env.kwargs)
    _check_opponent_options(settings, spec, opponent, opponent_simulations)
    agent = agent_of(directory, settings, checkpoint)
    figures = _play(agent, num_episodes or settings.evaluation.final_episodes, num_simulations, gif)
  found = agent.checkpoint
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
  if with_returns:
    keys += EPISODE_KEYS
  result = {key: result.get(key) for key in keys}
  if as_json:
    print(json.dumps(to_plain_json(result), allow_nan=False))
  else:
    print(_describe_evaluation(result))
  return 0


def _with_opponent(config: "Config", opponent: str | None, simulations: str | None) -> "Config":
  """The configuration with another opponent in evaluation, where the options say so."""
  update: dict[str, Any] = {}
  if opponent is not None:
    if opponent not in ("random", "mcts", "self"):
      raise UserError(f"--opponent={opponent}: must be random, mcts or self")
    update["opponent"] = opponent
  if simulations is not None:
    update["opponent_simulations"] = count_of("--opponent-simulations", simulations)
  return config.model_copy(update={"evaluation": config.evaluation.model_copy(update=update)})


def _check_opponent_options(
  config: "Config", spec: "EnvSpec", opponent: str | None, simulations: str | None
) -> None:
  """Raises UserError where an option would change nothing."""
  given = {"--opponent": opponent, "--opponent-simulations": simulations}
  for option, text in given.items():
    if text is not None and spec.num_players == 1:
      raise UserError(f"{option}={text}: {spec.name} has one player; only games of two have an opponent")
  rival = config.evaluation.opponent
  if simulations is not None and rival != "mcts":
    raise UserError(
      f"--opponent-simulations={simulations}: the opponent is {rival}; only mcts has searches of its own"
    )


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


def _play(agent: Agent, episodes: int, simulations: int | None, gif: Path | None) -> dict[str, Any]:
  """Plays the episodes, draws them where a file is named, and returns the figures among the keys above that
  are theirs."""
  is_shown = sys.stderr.isatty()

  def show(done: int) -> None:
    if is_shown:
      print(
        f"\r{done}/{episodes} episodes", end="\n" if done == episodes else "", file=sys.stderr, flush=True
      )

  result = agent.evaluator(simulations).run(
    agent.state.params,
    agent.state.net_state,
    num_episodes=episodes,
    version=agent.checkpoint.learner_steps,
    env_steps=agent.checkpoint.env_steps,
    record=gif is not None,
    on_episode=show,
  )
  assert result is not None, "nobody asks it to stop"
  if gif is not None:
    _write_gifs(gif, result, agent.spec)
  return result.summary() | {"returns": result.returns, "lengths": result.lengths}


def _write_gifs(path: Path, played: "EvaluationResult", spec: "EnvSpec") -> None:
  """Raises UserError: the files cannot be written."""
  from moozi.vis.evaluation_gifs import tiles_path, write_episode_gif, write_tiles_gif

  try:
    write_episode_gif(path, played.episode, spec)
    if played.tiles:
      write_tiles_gif(tiles_path(path), played.tiles, spec)
  except OSError as e:
    raise UserError(f"--gif={path}: cannot be written: {e.strerror or e}") from None

"""`moozi evaluate`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moozi.commands import common
from moozi.core.errors import UserError

if TYPE_CHECKING:
  from moozi.api.agent import Agent

EVALUATION_KEYS = (
  *("env", "checkpoint", "env_steps", "episodes", "distinct_episodes"),
  *("return_mean", "return_std", "return_min", "return_max", "length_mean"),
)
# Keys printed with --returns; each value is a list with one entry per episode.
EPISODE_KEYS = ("returns", "lengths")
# Keys printed with two players; null for a seat without episodes.
TWO_PLAYER_KEYS = (
  *("opponent", "opponent_simulations", "score", "wins", "draws", "losses", "return_margin"),
  *("score_seat_0", "return_mean_seat_0", "return_margin_seat_0"),
  *("score_seat_1", "return_mean_seat_1", "return_margin_seat_1"),
)


def evaluate(
  run: common.Run,
  checkpoint: common.Checkpoint = None,
  episodes: Annotated[
    int | None, common.integer("Number of episodes. Default: evaluation.final_episodes.")
  ] = None,
  simulations: common.Simulations = None,
  opponent: Annotated[
    str | None,
    typer.Option(
      metavar="random|mcts|self|NAME", help="Two players: the opponent; NAME may be module:function."
    ),
  ] = None,
  opponent_simulations: Annotated[
    int | None, common.integer("Simulations per search of the opponent mcts.")
  ] = None,
  as_json: common.AsJson = False,
  with_returns: Annotated[
    bool, typer.Option("--returns", help="With --json: add the return and length of each episode.")
  ] = False,
  gif: Annotated[
    Path | None,
    typer.Option(
      metavar="FILE.gif", help="Write the first episode, and several side by side as FILE_tiles.gif."
    ),
  ] = None,
  gif_frames: Annotated[
    int | None, common.integer("With --gif: maximum number of frames. Default: evaluation.gif_max_frames.")
  ] = None,
  allow_code: common.AllowCode = False,
) -> int:
  """Play evaluation episodes with a run's checkpoint."""
  from moozi.api.agent import agent_of, check_opponent_options
  from moozi.api.run_access import open_run
  from moozi.envs.registry import env_spec
  from moozi.io.plain_data import to_plain_json

  if with_returns and not as_json:
    raise UserError("--returns: needs --json")
  if gif is not None and gif.suffix != ".gif":
    raise UserError(f"--gif={gif}: must end in .gif")
  if gif_frames is not None and gif is None:
    raise UserError("--gif-frames: needs --gif")
  directory, config = open_run(run, allow_code)
  with common.stdout_to_stderr():
    spec = env_spec(config.env.name, **config.env.arguments)
    check_opponent_options(config, spec, opponent, opponent_simulations, prefix="--")
    agent = agent_of(directory, config, checkpoint, simulations=simulations)
    options = {
      "opponent": opponent,
      "opponent_simulations": opponent_simulations,
      "gif_max_frames": gif_frames,
    }
    figures = _play(agent, episodes or config.evaluation.final_episodes, gif, options)
  result = {"env": spec.name, "checkpoint": agent.checkpoint.name, "env_steps": agent.checkpoint.env_steps}
  result |= figures
  result["opponent"] = opponent or config.evaluation.opponent
  if result["opponent"] == "mcts":
    result["opponent_simulations"] = opponent_simulations or config.evaluation.opponent_simulations
  keys = EVALUATION_KEYS + TWO_PLAYER_KEYS * (spec.num_players == 2) + EPISODE_KEYS * with_returns
  result = {key: result.get(key) for key in keys}
  if as_json:
    print(json.dumps(to_plain_json(result), allow_nan=False))
  else:
    print(_describe_evaluation(result))
  return 0


def _describe_evaluation(result: dict[str, Any]) -> str:
  text = (
    f"{result['env']}, {result['checkpoint']} ({result['env_steps']:,} environment steps): "
    f"return {result['return_mean']:.2f} ± {result['return_std']:.2f} "
    f"(from {result['return_min']:g} to {result['return_max']:g}) over {result['episodes']} episodes "
    f"({result['distinct_episodes']} distinct), mean length {result['length_mean']:.1f}"
  )
  if result.get("score") is None:
    return text
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
    f"{text}\nscore against {opponent}: {result['score']:.3f} ({result['wins']} won, {result['draws']} "
    f"drawn, {result['losses']} lost); {'; '.join(seats)}"
  )


def _play(agent: "Agent", episodes: int, gif: Path | None, options: dict[str, Any]) -> dict[str, Any]:
  """Plays the episodes, and draws GIFs if `gif` is given; returns the results by the keys above."""

  def show(done: int) -> None:
    common.print_progress(f"{done}/{episodes} episodes" + "\n" * (done == episodes))

  result = agent.evaluate(episodes, record=gif is not None, on_episode=show, **options)
  if gif is not None:
    from moozi.api.run_access import writing
    from moozi.vis.evaluation_gifs import tiles_path, write_episode_gif, write_tiles_gif

    with writing("--gif", gif):
      write_episode_gif(gif, result.episode, agent.spec)
      if result.tiles:
        write_tiles_gif(tiles_path(gif), result.tiles, agent.spec)
  return result.summary() | {"returns": result.returns, "lengths": result.lengths}

"""The command `moozi evaluate`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moozi.commands import common
from moozi.core.errors import UserError
from moozi.io.output import say

if TYPE_CHECKING:
  from moozi.api.agent import Agent

EVALUATION_KEYS = (
  *("env", "checkpoint", "env_steps", "episodes", "distinct_episodes"),
  *("return_mean", "return_std", "return_min", "return_max", "length_mean"),
)
# Printed for games with published returns of random play and of a human.
HUMAN_KEY = "human_normalized"
# Keys printed with --returns; each value is a list with one entry per episode.
EPISODE_KEYS = ("returns", "lengths")
# Keys printed with two players; null for a seat without episodes, and for a margin of one episode.
TWO_PLAYER_KEYS = (
  *("opponent", "opponent_simulations", "score", "wins", "draws", "losses", "return_margin"),
  *("score_seat_0", "return_mean_seat_0", "return_margin_seat_0"),
  *("score_seat_1", "return_mean_seat_1", "return_margin_seat_1"),
)


_OPPONENT_HELP = (
  "Two players: the opponent. random (random moves), mcts (OpenSpiel's tree search with random playouts), "
  "mcts:N (with N simulations), alpha_beta:N (alpha-beta search of depth N), self (the agent itself), "
  "run:PATH[@checkpoint], zoo:NAME, prior:PATH[@checkpoint] (without search), approach:NAME (the last "
  "complete run of this algorithm in runs/), or module:function. Default: the run's evaluation.opponent."
)


def evaluate(
  run: common.Run,
  checkpoint: common.Checkpoint = None,
  episodes: Annotated[
    int | None, common.integer("Number of episodes. Default: evaluation.final_episodes.")
  ] = None,
  simulations: common.Simulations = None,
  opponent: Annotated[str | None, typer.Option(metavar="PLAYER", help=_OPPONENT_HELP)] = None,
  opponent_simulations: Annotated[
    int | None, common.integer("Simulations per search of the opponent mcts.")
  ] = None,
  as_json: common.AsJson = False,
  with_returns: Annotated[
    bool, typer.Option("--returns", help="With --json: add the return and length of each episode.")
  ] = False,
  video: Annotated[
    Path | None,
    typer.Option(
      "--video",
      "--gif",
      metavar="FILE",
      help="Write the first episode as a .gif or .mp4, and several side by side as FILE_tiles.",
    ),
  ] = None,
  video_frames: Annotated[
    int | None,
    common.integer(
      "With --video: maximum number of frames. Default: evaluation.gif_max_frames.",
      "--video-frames",
      "--gif-frames",
    ),
  ] = None,
  allow_code: common.AllowCode = False,
) -> int:
  """Play evaluation episodes with a run's checkpoint."""
  from moozi.api.loading import agent_of
  from moozi.api.run_access import check_opponent_options, open_run, writing
  from moozi.io.plain_data import to_plain_json

  if with_returns and not as_json:
    raise UserError("--returns: needs --json")
  if video is not None:
    from moozi.vis.video import check_video_path

    with writing("--video", video):
      check_video_path("--video", video)
  elif video_frames is not None:
    raise UserError("--video-frames: needs --video")
  directory, config = open_run(run, allow_code)
  with common.stdout_to_stderr():
    agent = agent_of(directory, config, checkpoint, simulations=simulations, allow_code=allow_code)
    check_opponent_options(config, agent.spec, opponent, opponent_simulations, prefix="--")
    options = {
      "opponent": opponent,
      "opponent_simulations": opponent_simulations,
      "gif_max_frames": video_frames,
    }
    figures = _play(agent, episodes or config.evaluation.final_episodes, video, options)
  result = {
    "env": agent.spec.name,
    "checkpoint": agent.checkpoint.name,
    "env_steps": agent.checkpoint.env_steps,
  }
  result |= figures
  result["opponent"] = opponent or config.evaluation.opponent
  if result["opponent"] == "mcts":
    result["opponent_simulations"] = opponent_simulations or config.evaluation.opponent_simulations
  keys = EVALUATION_KEYS + TWO_PLAYER_KEYS * (agent.spec.num_players == 2) + EPISODE_KEYS * with_returns
  keys += (HUMAN_KEY,) * (HUMAN_KEY in result)
  result = {key: result.get(key) for key in keys}
  if as_json:
    say(json.dumps(to_plain_json(result), allow_nan=False))
  else:
    say(_describe_evaluation(result))
  return 0


def _describe_evaluation(result: dict[str, Any]) -> str:
  from moozi.vis.lettering import rounded

  text = (
    f"{result['env']}, {result['checkpoint']} ({result['env_steps']:,} environment steps): "
    f"return {result['return_mean']:z.2f} ± {result['return_std']:.2f} "
    f"(from {rounded(result['return_min']):g} to {rounded(result['return_max']):g}) over "
    f"{result['episodes']} episodes ({result['distinct_episodes']} distinct), "
    f"mean length {result['length_mean']:.1f}"
  )
  if HUMAN_KEY in result:
    text += f"\n{common.describe_human_normalized(result[HUMAN_KEY])}"
  if result.get("score") is None:
    return text
  opponent = "itself" if result["opponent"] == "self" else result["opponent"]
  if result["opponent_simulations"] is not None:
    opponent += f" with {result['opponent_simulations']} simulations"
  seats = []
  for seat in (0, 1):
    keys = (f"{name}_seat_{seat}" for name in ("score", "return_mean", "return_margin"))
    score, mean, margin = (result[key] for key in keys)
    if score is not None:
      interval = "" if margin is None else f" ± {margin:.3f}, 95%"
      seats.append(f"{score:.3f} from seat {seat} (return {mean:z.3f}{interval})")
  return (
    f"{text}\nscore against {opponent}: {result['score']:.3f} ({result['wins']} won, {result['draws']} "
    f"drawn, {result['losses']} lost); {'; '.join(seats)}"
  )


def _play(agent: "Agent", episodes: int, video: Path | None, options: dict[str, Any]) -> dict[str, Any]:
  """Plays the episodes, and writes videos if `video` is not None; returns the results by name."""

  def show(done: int) -> None:
    common.print_progress(f"{done}/{episodes} episodes" + "\n" * (done == episodes))

  result = agent.evaluate(episodes, record=video is not None, on_episode=show, **options)
  if video is not None:
    from moozi.api.run_access import writing
    from moozi.vis.evaluation_gifs import write_videos

    with writing("--video", video):
      for path in write_videos(video, result, agent.spec):
        say(f"video: {path}")
  return result.summary() | {"returns": result.returns, "lengths": result.lengths}

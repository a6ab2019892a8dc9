"""The command `moozi trajectories`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moozi.commands.common import AsJson
from moozi.io.output import say

if TYPE_CHECKING:
  from moozi.io.trajectory_folder import TrajectoryStore
  from moozi.ops.games import StoredGame


def list_trajectories(
  run: Annotated[
    Path, typer.Argument(metavar="RUN", help="A run that stored trajectories, or a folder of trajectories.")
  ],
  as_json: AsJson = False,
) -> int:
  """List stored games with their returns and lengths. A lost life does not end a game."""
  from moozi.io.plain_data import to_plain_json
  from moozi.io.trajectory_folder import open_trajectories
  from moozi.io.zoo_files import resolve_run

  # The run is opened without --allow-code, because the command creates no environment.
  store = open_trajectories(resolve_run(run))
  games = _games(store)
  about = {
    "env": store.spec.name,
    "steps": store.num_steps,
    "lanes": len(store.lane_steps),
    "files": len(store.files),
    "bytes": sum(f.num_bytes for f in store.files),
    "moozi": sorted({f.version for f in store.files}),
  }
  if as_json:
    rows = [
      {"lane": lane, "start": g.start, "length": g.length, "return": g.total_reward, "end": g.end}
      for lane, g in games
    ]
    say(json.dumps(to_plain_json(about | {"games": rows}), allow_nan=False))
    return 0
  say(f"{'lane':>6} {'from step':>10} {'length':>8} {'return':>10}  end")
  for lane, game in games:
    say(f"{lane:>6} {game.start:>10} {game.length:>8} {game.total_reward:>z10.2f}  {game.end}")
  say(_summary(about, [game for _, game in games]))
  return 0


def _games(store: "TrajectoryStore") -> "list[tuple[int, StoredGame]]":
  """Returns pairs (lane, game), sorted by lane and start."""
  from moozi.ops.games import GameCounter

  counters: dict[int, GameCounter] = {}
  found: list[tuple[int, StoredGame]] = []
  for stored in store.read():
    lane = stored.span.lane
    ended = counters.setdefault(lane, GameCounter()).add(stored.span.start, stored.steps)
    found += [(lane, game) for game in ended]
  found += [(lane, game) for lane, counter in counters.items() if (game := counter.rest()) is not None]
  return sorted(found, key=lambda pair: (pair[0], pair[1].start))


def _summary(about: dict[str, Any], games: "list[StoredGame]") -> str:
  ended = [game for game in games if game.end != "unfinished"]
  text = (
    f"{about['env']}: {about['steps']:,} steps in {about['lanes']} lanes, {about['files']} files of "
    f"{about['bytes'] / 2**20:.2f} MiB; {len(ended)} games ended, {len(games) - len(ended)} unfinished"
  )
  if ended:
    mean_return = sum(game.total_reward for game in ended) / len(ended)
    mean_length = sum(game.length for game in ended) / len(ended)
    text += f"; ended games: mean return {mean_return:z.2f}, mean length {mean_length:.1f}"
  return text

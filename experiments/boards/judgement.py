"""Judges players of Connect Four by an exact solver: shares of good and perfect moves, wins and blocks.

    python -m experiments.boards.judgement RUN                  # a run: with search, and its network alone
    python -m experiments.boards.judgement zoo:connect_four mcts:100 random --out results.json

A player is a run's path or a name that `moozi arena` accepts. `experiments.boards.labels` makes the positions
and the scores of their moves. A move is *good* if it keeps the value of the game (win, draw or loss), and
*perfect* if it has the highest score: no other move wins faster, or loses more slowly. Positions in which
every legal move is good count too; `contested` excludes them. `won_later` is the number of missed wins in
which the chosen move keeps the game won. `lost_anyway` is the number of missed blocks in which the block
loses too. Intervals are Wilson's, at 95%.
"""

import argparse
import dataclasses
import functools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.boards.labels import Label, read_labels, read_tactics
from experiments.boards.solver import Solver
from experiments.lib.command import command
from experiments.lib.tables import markdown_table, with_interval
from moozi.api.players import load_players, run_of_approach
from moozi.core.plugins import PLAYERS
from moozi.envs import registry
from moozi.envs.players import Player
from moozi.envs.table import Table
from moozi.experiments.results import write_json

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "judgement"
GAME = "open_spiel:connect_four"
PHASES = {
  "opening (8–15 stones)": range(8, 16),
  "middle (16–23)": range(16, 24),
  "late (24–30)": range(24, 31),
}
_AT_ONCE, _WIDTH = 256, 16


@dataclasses.dataclass(frozen=True)
class Share:
  """A share of positions, with its 95% interval."""

  share: float
  low: float
  high: float
  positions: int


def share(hits: Sequence[bool]) -> Share:
  """Returns the share of hits. Raises ValueError if there are no positions."""
  from scipy.stats import binomtest

  found = binomtest(int(np.sum(hits)), len(hits)).proportion_ci(method="wilson")
  return Share(float(np.mean(hits)), float(found.low), float(found.high), len(hits))


def is_good(label: Label, column: int) -> bool:
  """Returns whether a legal move keeps the value of the game."""
  score = label.scores[column]
  return score is not None and np.sign(score) == np.sign(label.best)


def is_perfect(label: Label, column: int) -> bool:
  """Returns whether no other move has a higher score."""
  return label.scores[column] == label.best


def is_contested(label: Label) -> bool:
  """Returns whether a legal move exists that is not good."""
  return any(score is not None and np.sign(score) != np.sign(label.best) for score in label.scores)


def choices(
  player: Player, positions: Sequence[Sequence[int]], make_table: Callable[[], Table], seed: int = 0
) -> list[int]:
  """Returns the player's move in each position, after it has observed every earlier move."""
  out: list[int] = []
  for start in range(0, len(positions), _AT_ONCE):
    part = positions[start : start + _AT_ONCE]
    tables = [make_table() for _ in part]
    for table in tables:
      table.reset(0)
    # The player's seat is the one to move at the end; the moves before are passed to it as those of others.
    places = {(i, 0): (table, seed + start + i) for i, table in enumerate(tables)}
    player.reset(places)
    for ply in range(max(len(moves) for moves in part)):
      played = {(i, 0): moves[ply] for i, moves in enumerate(part) if len(moves) > ply}
      player.observe({place: tables[place[0]].view() for place in played}, played)
      for (i, _), column in played.items():
        tables[i].step(column)
    chosen = player.act({place: tables[place[0]].view() for place in places})
    out += [chosen[place] for place in places]
  return out


def judge(player: Player, labels: Sequence[Label] | None = None) -> dict[str, Any]:
  """Returns the shares of the player's moves that are good, perfect, wins and blocks, as JSON values."""
  labels = read_labels() if labels is None else labels
  make_table = functools.partial(registry.make_table, GAME)
  moves = choices(player, [label.moves for label in labels], make_table)
  pairs = list(zip(labels, moves, strict=True))

  def shares(chosen: list[tuple[Label, int]]) -> dict[str, Any]:
    tests = {"good": is_good, "perfect": is_perfect}
    return {name: dataclasses.asdict(share([test(*pair) for pair in chosen])) for name, test in tests.items()}

  out: dict[str, Any] = {"player": player.name, **shares(pairs)}
  out["contested"] = shares([pair for pair in pairs if is_contested(pair[0])])
  out["phases"] = {
    name: shares([pair for pair in pairs if len(pair[0].moves) in plies]) for name, plies in PHASES.items()
  }
  score = Solver().score
  for name in ("wins", "blocks"):
    tactics = read_tactics(name)
    found = choices(player, [tactic.moves for tactic in tactics], make_table)
    played = list(zip(tactics, found, strict=True))
    missed = [(tactic, column) for tactic, column in played if column not in tactic.columns]
    out[name] = dataclasses.asdict(share([column in tactic.columns for tactic, column in played]))
    if name == "wins":
      out[name]["won_later"] = sum(score([*tactic.moves, column]) < 0 for tactic, column in missed)
    else:
      out[name]["lost_anyway"] = sum(score([*tactic.moves, *tactic.columns]) > 0 for tactic, _ in missed)
  return out


def table(results: Sequence[dict[str, Any]]) -> str:
  """Returns the results as a Markdown table."""
  rows = []
  for result in results:
    main = [result["good"], result["perfect"], result["contested"]["good"]]
    others = [*(result["phases"][name]["good"] for name in PHASES), result["wins"], result["blocks"]]
    rows.append(
      [
        f"`{result['player']}`",
        f"{result['good']['positions']:,}",
        *(with_interval(cell["share"], cell["low"], cell["high"], 3) for cell in main),
        *(f"{cell['share']:.3f}" for cell in others),
      ]
    )
  columns = ["good", "perfect", "good, contested", *(f"good, {name}" for name in PHASES), "wins", "blocks"]
  return markdown_table(["player", "positions", *columns], rows)


def committed() -> list[dict[str, Any]]:
  """Returns the results in results/judgement, the highest share of good moves first."""
  found = [result for path in RESULTS.glob("*.json") for result in json.loads(path.read_text("utf-8"))]
  return sorted(found, key=lambda result: -result["good"]["share"])


def names_of(players: Sequence[str]) -> list[str]:
  """Returns the players' names; a run's path or zoo:NAME becomes two players, with search and without."""
  out: list[str] = []
  for name in players:
    is_name = PLAYERS.is_known(name) and not name.startswith("zoo:")
    run = name if name.startswith("zoo:") else f"run:{name}"
    out += [name] if is_name else [run, f"prior:{name}"]
  return out


@command
def main(arguments: Sequence[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("players", nargs="+", metavar="RUN_OR_PLAYER", help="such as zoo:connect_four")
  parser.add_argument("--simulations", type=int, help="per search of trained agents (default: planners.test)")
  parser.add_argument("--out", type=Path, help="write the results as JSON")
  options = parser.parse_args(arguments)
  table_of_game = registry.make_table(GAME)
  runs = [run_of_approach(name, table_of_game.spec).removeprefix("run:") for name in options.players]
  spec = table_of_game.spec
  players = load_players(names_of(runs), spec, options.simulations, allow_code=False, width=_WIDTH)
  for player in players.values():
    player.check(table_of_game)
  results = [judge(player) for player in players.values()]
  print(table(results))
  if options.out is not None:
    write_json(options.out, results)
  return 0


if __name__ == "__main__":
  sys.exit(main())

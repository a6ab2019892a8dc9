"""The command `moozi arena`."""

import re
from pathlib import Path
from typing import Annotated

import typer

from moozi.commands import common
from moozi.core.errors import UserError
from moozi.io.machine import num_cores
from moozi.io.output import notice

_PLAYERS_HELP = (
  "An environment such as open_spiel:connect_four, or a configuration; then players: random, mcts:100 "
  "(OpenSpiel's tree search with 100 simulations), alpha_beta:4 (its alpha-beta search of depth 4), "
  "run:PATH[@checkpoint], zoo:NAME, prior:PATH[@checkpoint] (the network without search), approach:NAME (the "
  "last complete run of this algorithm in runs/), module:function. With --milestones: players only."
)


def arena(
  players: Annotated[
    list[str] | None, typer.Argument(metavar="TASK PLAYER...", help=_PLAYERS_HELP, show_default=False)
  ] = None,
  games: Annotated[
    int,
    common.integer(
      "Number of games of each pair of players, rounded up so that each opening is played from every seat. "
      "With more seats than players, equal orders of an opening are played once."
    ),
  ] = 100,
  milestones: Annotated[
    Path | None,
    typer.Option(
      metavar="RUN", help="Play the run's milestones, at most ten, and draw their ratings over training."
    ),
  ] = None,
  opening_plies: Annotated[
    int | None,
    common.integer(
      "Random moves at the start of each game. Default: a quarter of a random game, more if starts repeat, "
      "at most 4; 0 with chance and hidden information.",
      minimum=0,
    ),
  ] = None,
  seed: Annotated[int, common.integer("Seed of the openings, chance and players.", minimum=0)] = 0,
  simulations: Annotated[
    int | None,
    common.integer("Simulations per search of trained agents. Default: planners.test of each run."),
  ] = None,
  pin: Annotated[
    str | None,
    typer.Option(
      metavar="PLAYER", help="The player whose rating is 0. Default: random, or the first player."
    ),
  ] = None,
  workers: Annotated[
    int | None, common.integer("Number of processes, with Ray; 1 needs no Ray. Default: one per core.")
  ] = None,
  out: Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder of games and results. Default: arena/TASK.")
  ] = None,
  as_json: common.AsJson = False,
  allow_code: common.AllowCode = False,
) -> int:
  """Play games between all players, each from every seat, and rate the players.

  Finished games are kept in DIR/games.jsonl. The same command continues after a stop. With more games or
  players, it plays only the games that are missing.
  """
  from moozi.api.arena import arena as play

  names = list(players or [])
  if milestones is None and not names:
    raise UserError("arena: needs a task and players, such as open_spiel:tic_tac_toe random mcts:100")
  task = names.pop(0) if milestones is None else None
  if out is None:
    out = Path("arena") / _folder_name(task or (milestones or Path()).resolve().name)
  counts: tuple[int, int] | None = None
  try:
    with common.stdout_to_stderr(), common.progress_bar("games") as show:

      def on_game(done: int, total: int) -> None:
        nonlocal counts
        counts = done, total
        show(done, total)

      result = play(
        task,
        names,
        games=games,
        milestones=milestones,
        opening_plies=opening_plies,
        seed=seed,
        simulations=simulations,
        pinned=pin,
        workers=workers or num_cores(),
        out=out,
        allow_code=allow_code,
        on_game=on_game,
      )
  except KeyboardInterrupt:
    kept = f"keeps {counts[0]} of {counts[1]} games" if counts else "is unchanged"
    notice(f"stopped: {out} {kept}; the same command continues")
    return 130
  common.print_results(result, result.save(out), as_json)
  return 0


def _folder_name(task: str) -> str:
  return re.sub(r"\W+", "_", task.removesuffix(".yaml")).strip("_") or "task"

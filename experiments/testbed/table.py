"""The tables and pictures of the testbed: arenas, tic-tac-toe's exact walk, and boards against MCTS.

The first is from results/table.json and from results/exploitability/TASK.jsonl, which
`python -m experiments.boards.exploitability RUN… --json` prints; the second from
results/perfect_play/tic_tac_toe.jsonl, which `python -m experiments.boards.perfect_play RUN… --json` prints.
"""

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.lib.results import finished, sweep_of
from experiments.lib.tables import markdown_table, with_interval
from moozi.experiments.jobs import Job

if TYPE_CHECKING:
  from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
APPROACHES = ("muzero", "alphazero", "ppo", "q_learning")
BOARDS = ("go_5x5", "othello", "connect_four")
"""Tasks that only MuZero and AlphaZero learn, evaluated against OpenSpiel's MCTS."""

COLUMNS = ("task", "player", "rating", "score", "exploitability", "training minutes")
OPPONENTS = ("mcts:100", "mcts:1000")
BOARD_COLUMNS = (
  *("task", "approach", "seed", "minutes", "steps"),
  *("score against MCTS(100)", "score against MCTS(1000)"),
)


def approach_and_task(job: Job) -> tuple[str, str]:
  """Returns the approach and the task of a job."""
  approach = next(approach for approach in APPROACHES if job.name.startswith(f"{approach}_"))
  return approach, job.variant.removeprefix(f"{approach}_")


def jobs_of(task: str) -> list[Job]:
  """Returns the jobs of a task."""
  return [job for job in sweep_of(HERE).jobs if approach_and_task(job)[1] == task]


def name_of(job: Job) -> str:
  """Returns the name that the table has for a job's agent."""
  approach, _ = approach_and_task(job)
  return f"{approach} (seed {job.seed})" if job.seed else approach


def read_by_player(path: Path) -> dict[str, dict[str, Any]]:
  """Returns the lines of a file of results of runs, by the player's name; {} if there is no such file.

  The file has the name of its task; lines of other tasks are left out.
  """
  found = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
  by_run = {Path(row["run"]).name: row for row in found}
  return {name_of(job): by_run[job.name] for job in jobs_of(path.stem) if job.name in by_run}


def read_exploitability(task: str, out: Path) -> dict[str, float]:
  """Returns what a best response wins per game from each player's moves; {} if this was not measured."""
  found = read_by_player(out / "exploitability" / f"{task}.jsonl")
  uniform = [row["uniform"] for row in found.values()]
  return {name: row["played"] for name, row in found.items()} | ({"random": uniform[0]} if uniform else {})


def walk_table(out: Path = RESULTS) -> str:
  """Returns the results of the exact walk of each approach on tic-tac-toe in Markdown."""
  lines = []
  for name, row in read_by_player(out / "perfect_play" / "tic_tac_toe.jsonl").items():
    seats = (f"{seat['losses']} / {seat['draws']} / {seat['wins']}" for seat in row["seats"])
    lines.append([name, *seats, f"{sum(seat['positions'] for seat in row['seats']):,}"])
  return markdown_table(("approach", "as seat 0: lost / drawn / won", "as seat 1", "positions"), lines)


def table(out: Path = RESULTS) -> str:
  """Returns the table of the arenas in Markdown, with 95% intervals in brackets."""
  rows: list[dict[str, Any]] = json.loads((out / "table.json").read_text("utf-8"))
  lines, exploited = [], {task: read_exploitability(task, out) for task in {row["task"] for row in rows}}
  for row in rows:
    own = exploited[row["task"]].get(row["name"])
    lines.append(
      [
        row["task"],
        row["name"],
        with_interval(row["rating"], row["low"], row["high"]),
        with_interval(row["score"], row["score_low"], row["score_high"], 3),
        "–" if own is None else f"{own:.2f}",
        f"{row['minutes']:.1f}" if row["minutes"] else "–",
      ]
    )
  return markdown_table(COLUMNS, lines)


def boards_table(results: Path = RESULTS) -> str:
  """Returns a Markdown row for each finished job of a board: scores, and games won, drawn and lost."""
  jobs = {job.name: job for task in BOARDS for job in jobs_of(task)}
  found, rows = {result.path.name: result for result in finished(HERE, results)}, []
  for name, job in jobs.items():
    if (result := found.get(name)) is None:
      continue
    scores = {}
    for each in result.evaluations:
      games = "-".join(str(each[key]) for key in ("wins", "draws", "losses"))
      scores[each["opponent"]] = f"{each['score']:.3f} ({games})"
    minutes, steps = f"{result.job['wall_s'] / 60:.0f}", f"{result.job['env_steps']:,}"
    approach, task = approach_and_task(job)
    rows.append([task, approach, str(job.seed), minutes, steps, *(scores[name] for name in OPPONENTS)])
  return markdown_table(BOARD_COLUMNS, rows)


def arena_picture(folder: Path) -> "Figure":
  """Draws the cross-table and the ratings of an arena's arena.json."""
  from moozi.vis.arena_figures import arena_figure

  return arena_figure(json.loads((folder / "arena.json").read_text("utf-8")))


TABLES = {"testbed": table, "walk": walk_table, "boards": boards_table}
PICTURES = {
  f"results/arena/{path.parent.name}/arena.png": functools.partial(arena_picture, path.parent)
  for path in sorted(RESULTS.glob("arena/*/arena.json"))
}

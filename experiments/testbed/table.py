"""Plays an arena of the trained agents and random play for each task of the testbed; writes the table.

On boards OpenSpiel's MCTS with 100 simulations plays too.

    python -m experiments.testbed.table                       # all tasks with a complete run
    python -m experiments.testbed.table uno --games 200
    python -m experiments.testbed.table --readme              # plays nothing; writes the README's table

The arenas are in `results/arena/TASK` and continue where they stopped. `results/table.json` has the figures
of each player of each task whose arena has been played. The table also has the exploitability in
`results/exploitability/TASK.jsonl`, which `python -m experiments.boards.exploitability RUN… --json` prints.
The README's second table is from `results/perfect_play/tic_tac_toe.jsonl`, which
`python -m experiments.boards.perfect_play RUN… --json` prints.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.lib.command import command
from experiments.lib.jobs import Job
from experiments.lib.results import markdown_table, with_interval, write_between_markers
from experiments.lib.sweep import RUNS
from experiments.testbed.sweep import BOARDS, HERE, TASKS, approach_and_task, jobs
from moozi.core.errors import UserError
from moozi.experiments.jobs import progress_of

COLUMNS = ("task", "player", "rating", "score", "exploitability", "training minutes")
README = HERE / "README.md"


def name_of(job: Job) -> str:
  """Returns the name that the table has for a job's agent."""
  approach, _ = approach_and_task(job)
  return f"{approach} (seed {job.seed})" if job.seed else approach


def players(task: str, runs: Path) -> dict[str, Path]:
  """Returns the complete runs of a task, by approach.

  Raises: UserError: a run has other settings than its job.
  """
  found = {}
  for job in jobs():
    if approach_and_task(job)[1] == task and progress_of(job, runs)[1]:
      found[name_of(job)] = runs / job.name
  return found


def from_zoo(job: Job, result: Path) -> str | None:
  """Returns the zoo's agent that has the last checkpoint of a job's run; None if there is none."""
  import moozi

  approach, task = approach_and_task(job)
  own = f"boards/{task}", approach, (job.seed,), read_summary(result)["env_steps"]
  cards = [(card.name, card.algorithm, card.seeds, card.env_steps) for card in moozi.zoo()]
  return f"zoo:boards/{task}" if own in cards else None


def read_summary(path: Path) -> dict[str, Any]:
  """Returns the summary of a run, which is also in its result."""
  return json.loads((path / "summary.json").read_text("utf-8"))


def play(task: str, games: int, runs: Path, out: Path) -> list[dict[str, Any]]:
  """Plays the arena of a task; returns a row for each player, the strongest first.

  The zoo's agent replaces a run that is no longer in `runs`.

  Raises: UserError: the task has no complete run, the run of a result is missing, or the arena cannot be
    played.
  """
  import moozi

  trained = players(task, runs)
  # Relative, so that the arena continues in another clone.
  names = {approach: f"run:{os.path.relpath(path)}" for approach, path in trained.items()}
  for job in jobs():
    approach, result = name_of(job), out / job.name
    if approach_and_task(job)[1] != task or approach in trained or not result.exists():
      continue
    if (name := from_zoo(job, result)) is None:
      raise UserError(
        f"{task}: {job.name}: has a result but no complete run in {runs}, so its row would be lost; move "
        f"{result} away to train it again"
      )
    trained[approach], names[approach] = result, name
  if not trained:
    raise UserError(f"{task}: no complete run in {runs}; python -m experiments.testbed.sweep trains them")
  config = moozi.load(next(iter(names.values())).removeprefix("run:")).config
  others = ("mcts:100", "random") if task in BOARDS else ("random",)
  found = moozi.arena(config.env.name, [*names.values(), *others], games=games, out=out / "arena" / task)
  found.save(out / "arena" / task)
  rows = []
  for player in found.to_json()["players"]:
    own = player["name"].rpartition("@")[0] or player["name"]
    approach = next((approach for approach, name in names.items() if name == own), None)
    summary = read_summary(trained[approach]) if approach else {}
    rows.append(
      {
        "task": task,
        **player,
        "name": approach or player["name"],
        "minutes": summary.get("training_s", 0) / 60,
      }
    )
  return rows


def read_by_player(path: Path) -> dict[str, dict[str, Any]]:
  """Returns the lines of a file of results of runs, by the player's name; {} if there is no such file.

  The file has the name of its task; lines of other tasks are left out.
  """
  found = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
  by_run = {Path(row["run"]).name: row for row in found}
  own = [job for job in jobs() if approach_and_task(job)[1] == path.stem]
  return {name_of(job): by_run[job.name] for job in own if job.name in by_run}


def read_exploitability(task: str, out: Path) -> dict[str, float]:
  """Returns what a best response wins per game from the moves of each player; {} if it was not measured."""
  found = read_by_player(out / "exploitability" / f"{task}.jsonl")
  uniform = [row["uniform"] for row in found.values()]
  return {name: row["played"] for name, row in found.items()} | ({"random": uniform[0]} if uniform else {})


def walk_table(out: Path) -> str:
  """Returns the results of the exact walk of each approach on tic-tac-toe in Markdown."""
  lines = []
  for name, row in read_by_player(out / "perfect_play" / "tic_tac_toe.jsonl").items():
    seats = (f"{seat['losses']} / {seat['draws']} / {seat['wins']}" for seat in row["seats"])
    lines.append([name, *seats, f"{sum(seat['positions'] for seat in row['seats']):,}"])
  return markdown_table(("approach", "as seat 0: lost / drawn / won", "as seat 1", "positions"), lines)


def table(rows: Sequence[dict[str, Any]], out: Path) -> str:
  """Returns the table in Markdown, with 95% intervals in brackets."""
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


@command
def main(
  arguments: Sequence[str] | None = None, runs: Path = RUNS / "testbed", out: Path = HERE / "results"
) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("tasks", nargs="*", metavar="TASK", help="default: all tasks with a complete run")
  parser.add_argument("--games", type=int, default=200, help="number of games of each pair (200)")
  parser.add_argument("--readme", action="store_true", help="play nothing; write the table into README.md")
  options = parser.parse_args(arguments)
  if options.readme and options.tasks:
    raise UserError("--readme: writes the figures of all tasks; leave out the names of tasks")
  tasks = [] if options.readme else options.tasks or [task for task in TASKS if players(task, runs)]
  if unknown := [task for task in tasks if task not in TASKS]:
    raise UserError(f"{unknown[0]}: unknown task; choose from {', '.join(TASKS)}")
  out.mkdir(parents=True, exist_ok=True)
  path = out / "table.json"
  rows = json.loads(path.read_text()) if path.exists() else []
  for task in tasks:
    rows = [row for row in rows if row["task"] != task] + play(task, options.games, runs, out)
    path.write_text(json.dumps(rows, indent=1) + "\n")
  text = table(rows, out)
  if options.readme:
    write_between_markers(README, "testbed", text)
    write_between_markers(README, "walk", walk_table(out))
  print(text)
  return 0


if __name__ == "__main__":
  sys.exit(main())

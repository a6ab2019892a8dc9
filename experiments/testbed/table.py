"""Plays an arena of the trained agents and a random player for each task of the testbed; writes the table.

    python -m experiments.testbed.table                       # all tasks with a complete run
    python -m experiments.testbed.table uno --games 200

The arenas are in `results/arena/TASK` and continue where they stopped. `results/table.md` has a row for each
player of each task whose arena has been played.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.lib.sweep import RUNS
from experiments.testbed.sweep import HERE, TASKS, approach_and_task, jobs
from moozi.core.errors import UserError
from moozi.experiments.jobs import progress_of

HEAD = """\
| task | player | rating | 95% interval | score | 95% interval | training minutes |
|---|---|---|---|---|---|---|
"""


def players(task: str, runs: Path) -> dict[str, Path]:
  """Returns the complete runs of a task, by approach.

  Raises: UserError: a run has other settings than its job.
  """
  found = {}
  for job in jobs():
    approach, own_task = approach_and_task(job)
    if own_task == task and progress_of(job, runs)[1]:
      found[f"{approach} (seed {job.seed})" if job.seed else approach] = runs / job.name
  return found


def play(task: str, games: int, runs: Path, out: Path) -> list[dict[str, Any]]:
  """Plays the arena of a task; returns a row for each player, the strongest first.

  Raises: UserError: the task has no complete run, or its arena cannot be played.
  """
  import moozi

  trained = players(task, runs)
  if not trained:
    raise UserError(f"{task}: no complete run in {runs}; python -m experiments.testbed.sweep trains them")
  config = moozi.load(next(iter(trained.values()))).config
  # Relative, so that the arena continues in another clone.
  names = {approach: f"run:{os.path.relpath(path)}" for approach, path in trained.items()}
  found = moozi.arena(config.env.name, [*names.values(), "random"], games=games, out=out / "arena" / task)
  found.save(out / "arena" / task)
  rows = []
  for player in found.to_json()["players"]:
    approach = next((a for a, name in names.items() if player["name"].startswith(f"{name}@")), None)
    summary = json.loads((trained[approach] / "summary.json").read_text()) if approach else {}
    rows.append(
      {
        "task": task,
        **player,
        "name": approach or player["name"],
        "minutes": summary.get("training_s", 0) / 60,
      }
    )
  return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
  """Returns the Markdown table."""
  return HEAD + "".join(
    f"| {row['task']} | {row['name']} | {row['rating']:z.0f} | {row['low']:z.0f} … {row['high']:z.0f} "
    f"| {row['score']:.3f} | {row['score_low']:.3f} … {row['score_high']:.3f} | {row['minutes']:.0f} |\n"
    for row in rows
  )


def main(
  arguments: Sequence[str] | None = None, runs: Path = RUNS / "testbed", out: Path = HERE / "results"
) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("tasks", nargs="*", metavar="TASK", help="default: all tasks with a complete run")
  parser.add_argument("--games", type=int, default=200, help="number of games of each pair (200)")
  options = parser.parse_args(arguments)
  try:
    tasks = options.tasks or [task for task in TASKS if players(task, runs)]
    if unknown := [task for task in tasks if task not in TASKS]:
      raise UserError(f"{unknown[0]}: unknown task; choose from {', '.join(TASKS)}")
    out.mkdir(parents=True, exist_ok=True)
    path = out / "table.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    for task in tasks:
      rows = [row for row in rows if row["task"] != task] + play(task, options.games, runs, out)
      path.write_text(json.dumps(rows, indent=1) + "\n")
      (out / "table.md").write_text(table(rows))
  except UserError as error:
    print(f"error: {error}", file=sys.stderr)
    return 2
  print(table(rows))
  return 0


if __name__ == "__main__":
  sys.exit(main())

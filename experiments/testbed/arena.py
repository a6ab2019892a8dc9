"""Plays an arena of the trained agents and random play for each task of the testbed.

On the larger boards, OpenSpiel's MCTS with 100 simulations plays too.

    python -m experiments.testbed.arena                       # all tasks with a complete run
    python -m experiments.testbed.arena uno --games 200

The arenas are in `results/arena/TASK` and continue where they stopped. `results/table.json` gets the figures
of each player of each task whose arena has been played.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.lib.command import command
from experiments.lib.pictures import save
from experiments.lib.results import RUNS, sweep_of
from experiments.testbed.table import BOARDS, HERE, RESULTS, approach_and_task, jobs_of, name_of
from moozi.core.errors import UserError
from moozi.experiments.jobs import Job, progress_of


def players(task: str, runs: Path) -> dict[str, Path]:
  """Returns the complete runs of a task, by approach.

  Raises: UserError: a run has other settings than its job.
  """
  return {name_of(job): runs / job.name for job in jobs_of(task) if progress_of(job, runs)[1]}


def from_zoo(job: Job, result: Path) -> str | None:
  """Returns the name of the zoo's agent that is the last checkpoint of a job's run; None if there is none."""
  import moozi

  approach, task = approach_and_task(job)
  own = f"boards/{task}", approach, (job.seed,), read_summary(result)["env_steps"]
  cards = [(card.name, card.algorithm, card.seeds, card.env_steps) for card in moozi.zoo()]
  return f"zoo:boards/{task}" if own in cards else None


def read_summary(path: Path) -> dict[str, Any]:
  """Returns the summary in the folder of a run or of its result."""
  return json.loads((path / "summary.json").read_text("utf-8"))


def play(task: str, games: int, runs: Path, out: Path) -> list[dict[str, Any]]:
  """Plays the arena of a task; returns a row for each player, the strongest first.

  An agent of the zoo replaces a run that is not in `runs`.

  Raises: UserError: the task has no complete run, the run of a result is missing, or the arena cannot be
    played.
  """
  import moozi

  trained = players(task, runs)
  # Relative, so that the arena continues in another clone.
  names = {approach: f"run:{os.path.relpath(path)}" for approach, path in trained.items()}
  for job in jobs_of(task):
    approach, result = name_of(job), out / job.name
    if approach in trained or not result.exists():
      continue
    if (name := from_zoo(job, result)) is None:
      raise UserError(
        f"{task}: {job.name}: has a result but no complete run in {runs}, so its row would be lost; move "
        f"{result} away to train it again"
      )
    trained[approach], names[approach] = result, name
  if not trained:
    raise UserError(
      f"{task}: no complete run in {runs}; moozi sweep experiments/testbed/testbed.yaml trains them"
    )
  config = moozi.load(next(iter(names.values())).removeprefix("run:")).config
  others = ("mcts:100", "random") if task in BOARDS else ("random",)
  found = moozi.arena(config.env.name, [*names.values(), *others], games=games, out=out / "arena" / task)
  found.save(out / "arena" / task)
  save(found.figure(), out / "arena" / task / "arena.png")  # again, with its digest
  rows = []
  for player in found.to_json()["players"]:
    own = player["name"].rpartition("@")[0] or player["name"]
    known = next((approach for approach, name in names.items() if name == own), None)
    summary = read_summary(trained[known]) if known else {}
    rows.append(
      {
        "task": task,
        **player,
        "name": known or player["name"],
        "minutes": summary.get("training_s", 0) / 60,
      }
    )
  return rows


@command
def main(arguments: Sequence[str] | None = None, runs: Path = RUNS / "testbed", out: Path = RESULTS) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("tasks", nargs="*", metavar="TASK", help="default: all tasks with a complete run")
  parser.add_argument("--games", type=int, default=200, help="number of games of each pair (200)")
  options = parser.parse_args(arguments)
  known = dict.fromkeys(approach_and_task(job)[1] for job in sweep_of(HERE).jobs)
  tasks = options.tasks or [task for task in known if players(task, runs)]
  if unknown := [task for task in tasks if task not in known]:
    raise UserError(f"{unknown[0]}: unknown task; choose from {', '.join(known)}")
  out.mkdir(parents=True, exist_ok=True)
  path = out / "table.json"
  rows = json.loads(path.read_text()) if path.exists() else []
  for task in tasks:
    rows = [row for row in rows if row["task"] != task] + play(task, options.games, runs, out)
    path.write_text(json.dumps(rows, indent=1) + "\n")
  return 0


if __name__ == "__main__":
  sys.exit(main())

"""Prints the results of MuZero and AlphaZero on the testbed's boards.

    python -m experiments.testbed.boards
    python -m experiments.testbed.boards --readme    # also writes them into the README

A row has the last checkpoint's score and its games that were won, drawn and lost.
"""

import sys
from pathlib import Path

from experiments.lib.results import markdown_table, print_table, read_finished
from experiments.testbed.sweep import BOARDS, HERE, approach_and_task, jobs

OPPONENTS = ("mcts:100", "mcts:1000")
COLUMNS = (
  "task",
  "approach",
  "seed",
  "minutes",
  "steps",
  "score against MCTS(100)",
  "score against MCTS(1000)",
)


def scored(evaluation: dict[str, int]) -> str:
  """Returns the score of an evaluation and its games that were won, drawn and lost."""
  games = "-".join(str(evaluation[key]) for key in ("wins", "draws", "losses"))
  return f"{evaluation['score']:.3f} ({games})"


def table(results: Path) -> str:
  """Returns a Markdown row for each finished job of a board."""
  named, rows = {job.name: job for job in jobs() if approach_and_task(job)[1] in BOARDS}, []
  for result in read_finished(results, named):
    job, ended = named[result.path.name], result.job
    scores = {each["opponent"]: scored(each) for each in result.evaluations}
    minutes, steps = f"{ended['wall_s'] / 60:.0f}", f"{ended['env_steps']:,}"
    approach, task = approach_and_task(job)
    cells = [task, approach, str(job.seed), minutes, steps]
    rows.append([*cells, *(scores[opponent] for opponent in OPPONENTS)])
  return markdown_table(COLUMNS, rows)


if __name__ == "__main__":
  sys.exit(print_table(lambda: table(HERE / "results"), HERE, __doc__, marker="boards"))

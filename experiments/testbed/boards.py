"""Prints the results of MuZero and AlphaZero on the testbed's boards, and writes them to `results/boards.md`.

python -m experiments.testbed.boards
"""

import json
from pathlib import Path

from experiments.lib.results import markdown_table
from experiments.testbed.sweep import APPROACHES, BOARDS, HERE, jobs

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
  rows = []
  for task in BOARDS:
    for approach in APPROACHES:
      for job in jobs():
        path = results / job.name
        if job.name == f"{approach}_{task}_seed{job.seed}" and path.exists():
          summary = json.loads((path / "summary.json").read_text())
          evaluations = json.loads((path / "evaluations.json").read_text())
          scores = {each["opponent"]: scored(each) for each in evaluations}
          minutes, steps = f"{summary['training_s'] / 60:.0f}", f"{summary['env_steps']:,}"
          cells = [task, approach, str(job.seed), minutes, steps]
          rows.append([*cells, *(scores[opponent] for opponent in OPPONENTS)])
  return markdown_table(COLUMNS, rows)


if __name__ == "__main__":
  text = table(HERE / "results")
  (HERE / "results" / "boards.md").write_text(text + "\n")
  print(text)

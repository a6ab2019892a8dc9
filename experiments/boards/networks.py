"""Compares two networks on Connect Four; prints the table of the README.

    python -m experiments.boards.networks

`results/networks/<name>` has the runs' configurations, and their metrics, thinned by
`experiments.lib.results.thin`.
"""

from pathlib import Path

from experiments.lib.results import markdown_table
from moozi.io.metrics import read_metrics

FOLDER = Path(__file__).parent / "results" / "networks"
STEPS = (400_000, 800_000, 1_200_000, 1_600_000, 2_700_000)
COLUMNS = (
  "network",
  "steps",
  "minutes",
  "reward loss at step 1",
  "at step 5",
  "score against MCTS(100), last 4 evaluations",
)


def rows(name: str) -> list[list[str]]:
  """Returns the rows of one run: its figures at those of STEPS that it reached."""
  ticks = read_metrics(FOLDER / name / "metrics.jsonl")
  made = []
  for steps in STEPS:
    losses = [t for t in ticks if "loss/reward_1" in t and t["env_steps"] <= steps]
    scores = [t["test/score"] for t in ticks if "test/score" in t and t["env_steps"] <= steps + 1000][-4:]
    if not losses or ticks[-1]["env_steps"] < steps:
      continue
    last = losses[-1]
    made.append(
      [
        name,
        f"{round(last['env_steps'], -3):,}",
        f"{last['wall_s'] / 60:.0f}",
        f"{last['loss/reward_1']:.3f}",
        f"{last['loss/reward_5']:.3f}",
        f"{sum(scores) / len(scores):.2f}" if len(scores) == 4 else "–",
      ]
    )
  return made


def table() -> str:
  """Returns the table in Markdown."""
  names = sorted(folder.name for folder in FOLDER.iterdir())
  return markdown_table(COLUMNS, [row for name in names for row in rows(name)])


if __name__ == "__main__":
  print(table())

"""Compares training runs on Connect Four; prints two tables of LOG.md.

    python -m experiments.boards.networks

`results/networks` and `results/unrolls` have the runs' configurations, and their metrics, thinned by
`moozi.io.metrics.thin_ticks`.
"""

from pathlib import Path

from experiments.lib.results import mean_of
from experiments.lib.tables import markdown_table
from moozi.io.metrics import read_metrics

RESULTS = Path(__file__).parent / "results"
STEPS = {
  "networks": (800_000, 1_600_000, 2_700_000),
  "unrolls": (150_000,),
}
"""The environment steps whose figures a table shows, by the folder of its runs."""
COLUMNS = (
  "run",
  "steps",
  "minutes",
  "reward loss at step 1",
  "at step 3",
  "at step 5",
  "score against MCTS(100), last 4 evaluations",
)
NUM_SCORES = 4
WINDOW = 50_000


def rows(folder: Path, steps: tuple[int, ...]) -> list[list[str]]:
  """Returns a run's row at each of `steps` that it passed; losses are means of the WINDOW steps before."""
  ticks = read_metrics(folder / "metrics.jsonl")
  made = []
  for at in steps:
    before = [tick for tick in ticks if tick["env_steps"] <= at]
    losses = [t for t in before if "loss/reward_1" in t and t["env_steps"] > at - WINDOW]
    if len(before) == len(ticks) or not losses:
      continue
    scores = [tick["test/score"] for tick in before if "test/score" in tick][-NUM_SCORES:]
    means = [mean_of(losses, f"loss/reward_{k}") for k in (1, 3, 5)]
    score = f"{sum(scores) / NUM_SCORES:.2f}" if len(scores) == NUM_SCORES else "–"
    minutes = f"{losses[-1]['wall_s'] / 60:.0f}"
    made.append([folder.name, f"{at:,}", minutes, *(f"{mean:.3f}" for mean in means), score])
  return made


def table(experiment: str) -> str:
  """Returns the table of a folder of runs in Markdown."""
  folders = sorted((RESULTS / experiment).iterdir())
  return markdown_table(COLUMNS, [row for folder in folders for row in rows(folder, STEPS[experiment])])


if __name__ == "__main__":
  print("\n\n".join(table(experiment) for experiment in STEPS))

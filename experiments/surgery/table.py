"""The tables of the joints and of the ends of the runs; draws their returns.

python -m experiments.surgery.table    # results/returns.png
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from experiments.lib.command import command
from experiments.lib.tables import markdown_table
from experiments.surgery.moments import RESULTS as MOMENTS
from experiments.surgery.run import STAGES, STEPS

RESULTS = Path(__file__).parent / "results"
CHANGES = {
  "history": "history of 1 → 2 frames",
  "width": "8 → 16 channels",
  "sticky": "sticky actions with probability 0 → 0.1",
}
_MOMENTS_OF = {
  "none": "none",
  "blocks": "one more block in prediction and dynamics",
  "history": "history of 1 → 3 frames",
}
RUNS = {"surgeries": ("three surgeries", "#0072B2"), "from_nothing": ("from nothing", "#D55E00")}


def read() -> dict[int, dict[str, Any]]:
  """Returns the content of `results/seedS.json` by seed."""
  files = sorted(RESULTS.glob("seed*.json"))
  return {int(path.stem.removeprefix("seed")): json.loads(path.read_text("utf-8")) for path in files}


def _with_error(evaluation: dict[str, Any]) -> str:
  """Returns the mean of 100 episodes and its 95% interval, 1.96 standard errors."""
  returns = np.asarray(evaluation["returns"])
  error = 1.96 * np.std(returns, ddof=1) / np.sqrt(returns.size)
  return f"{np.mean(returns):.2f} ± {error:.2f}"


def joints_table() -> str:
  """Returns a Markdown row for each surgery of each seed."""
  rows = [
    (
      CHANGES[joint["stage"]],
      f"{joint['after']['env_steps']:,}",
      str(seed),
      _with_error(joint["before"]),
      _with_error(joint["after"]),
    )
    for number in range(len(STAGES) - 1)
    for seed, found in read().items()
    for joint in found["joints"][number : number + 1]
  ]
  return markdown_table(("surgery", "environment steps", "seed", "return before", "after"), rows)


def ends_table() -> str:
  """Returns a Markdown row for each run."""
  rows = [
    (
      label,
      str(seed),
      f"{found[name]['last']['env_steps']:,}",
      f"{found[name]['training_s'] / 60:.1f}",
      _with_error(found[name]["last"]),
      f"{np.mean(found[name]['returns'][-5:]):.2f}",
    )
    for name, (label, _) in RUNS.items()
    for seed, found in read().items()
  ]
  columns = ("run", "seed", "environment steps", "minutes", "return at the end", "last five evaluations")
  return markdown_table(columns, rows)


def moments_table() -> str:
  """Returns a Markdown row for each change and each kind of second moments of new weights."""
  found = json.loads(MOMENTS.read_text("utf-8"))
  kinds = {"none": "–", "zero": "0", "mean": "mean of the carried ones"}
  rows = [
    (
      _MOMENTS_OF[change],
      kinds[kind],
      *(f"{np.mean(losses[part]):.2f}" for part in (slice(0, 10), slice(10, 50), slice(50, 100))),
    )
    for change, variants in found.items()
    for kind, losses in variants.items()
  ]
  columns = ("surgery", "second moments of new weights", "updates 1–10", "11–50", "51–100")
  return markdown_table(columns, rows)


TABLES = {"joints": joints_table, "ends": ends_table, "moments": moments_table}


def draw(path: Path) -> None:
  """Draws the returns of evaluations over environment steps, and the surgeries as vertical lines."""
  import matplotlib

  matplotlib.use("Agg")
  import matplotlib.pyplot as plt

  figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
  for seed, found in read().items():
    for name, (label, color) in RUNS.items():
      steps = np.asarray(found[name]["env_steps"]) / 1e6
      style = "s--" if seed else "o-"
      axis.plot(steps, found[name]["returns"], style, color=color, ms=3, label=f"{label}, seed {seed}")
  for number, stage in enumerate(STAGES[1:], start=1):
    axis.axvline(number * STEPS / 1e6, color="#888888", lw=0.8)
    text = CHANGES[stage.name].replace(" with probability", "")
    axis.text(number * STEPS / 1e6, 1.01, text, transform=axis.get_xaxis_transform(), ha="center", fontsize=8)
  axis.set_xlabel("environment steps (millions)")
  axis.set_ylabel("return of an evaluation")
  axis.grid(alpha=0.3)
  axis.legend(frameon=False, loc="upper left")
  figure.savefig(path, dpi=110)


@command
def main() -> int:
  """Draws the picture; returns the exit status."""
  draw(RESULTS / "returns.png")
  return 0


if __name__ == "__main__":
  sys.exit(main())

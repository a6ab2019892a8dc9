"""The tables of surgeries, of the ends of runs and of second moments, and the picture of the returns."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.lib.pictures import Panel, curves
from experiments.lib.tables import markdown_table
from experiments.surgery.moments import RESULTS as MOMENTS
from experiments.surgery.run import STAGES, STEPS

if TYPE_CHECKING:
  from matplotlib.figure import Figure

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
RUNS = {"surgeries": "three surgeries", "from_nothing": "from nothing"}


def read() -> dict[int, dict[str, Any]]:
  """Returns the content of `results/seedS.json` by seed."""
  files = sorted(RESULTS.glob("seed*.json"))
  return {int(path.stem.removeprefix("seed")): json.loads(path.read_text("utf-8")) for path in files}


def _with_error(evaluation: dict[str, Any]) -> str:
  """Returns the mean of 100 episodes and its 95% interval, 1.96 standard errors."""
  returns = np.asarray(evaluation["returns"])
  error = 1.96 * np.std(returns, ddof=1) / np.sqrt(returns.size)
  return f"{np.mean(returns):.2f} ± {error:.2f}"


def _linked(text: str, name: str) -> str:
  """Returns the text, with a link to a file of the results if it exists."""
  return f"[{text}]({RESULTS.name}/{name})" if (RESULTS / name).exists() else text


def joints_table() -> str:
  """Returns a Markdown row for each surgery of each seed; the seed links to the run's lineage."""
  rows = [
    (
      CHANGES[joint["stage"]],
      f"{joint['after']['env_steps']:,}",
      _linked(str(seed), f"lineage_seed{seed}.json"),
      _with_error(joint["before"]),
      _with_error(joint["old_agent"]) if "old_agent" in joint else "–",
      _with_error(joint["after"]),
    )
    for number in range(len(STAGES) - 1)
    for seed, found in read().items()
    for joint in found["joints"][number : number + 1]
  ]
  columns = ("surgery", "environment steps", "seed", "return before", "old agent, new environment", "after")
  return markdown_table(columns, rows)


def ends_table() -> str:
  """Returns a Markdown row for each run; the label of a run with surgeries links to its page."""
  rows = [
    (
      _linked(label, f"report_seed{seed}.html") if name == "surgeries" else label,
      str(seed),
      f"{found[name]['last']['env_steps']:,}",
      f"{found[name]['training_s'] / 60:.1f}",
      _with_error(found[name]["last"]),
      f"{np.mean(found[name]['returns'][-5:]):.2f}",
    )
    for name, label in RUNS.items()
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


def returns() -> "Figure":
  """Draws the returns of evaluations over environment steps, with a vertical line at each surgery."""
  found = {
    label: [
      (np.asarray(run[name]["env_steps"], np.float64), np.asarray(run[name]["returns"]))
      for run in read().values()
    ]
    for name, label in RUNS.items()
  }
  marks = {
    float(number * STEPS): CHANGES[stage.name].replace(" with probability", "")
    for number, stage in enumerate(STAGES[1:], start=1)
  }
  return curves(Panel(curves=found, marks=marks))


TABLES = {"joints": joints_table, "ends": ends_table, "moments": moments_table}
PICTURES = {"results/returns.png": returns}

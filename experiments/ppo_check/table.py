"""The table and the picture of PPO's returns on Breakout by learning rate and initial bias.

Both have gymnax's returns. In the table these are from its evaluation nearest to the stated step, at
most 160,000 steps away.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.lib.pictures import Panel, Points, curves
from experiments.lib.results import Result, check_alike, check_same_conditions, read_results
from experiments.lib.tables import markdown_table
from moozi.core.errors import UserError
from moozi.experiments.statistics import estimate
from moozi.io.plain_data import read_yaml

if TYPE_CHECKING:
  from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
GYMNAX = HERE / "gymnax.yaml"


def table_of(results: Sequence[Result]) -> str:
  """Returns a Markdown table with a line per learning rate and initial bias, and a column per step.

  gymnax's line, with initial biases between 0 and 0.05, follows the lines with the same learning rate.

  Raises: UserError: there are no results, or they differ in more than the seed.
  """
  if not results:
    raise UserError(f"{RESULTS}: no results; run `moozi sweep experiments/ppo_check/ppo_check.yaml`")
  check_same_conditions(results)
  by_rate: dict[float, dict[float, list[Result]]] = {}
  for result in results:
    ppo = result.config.ppo
    by_rate.setdefault(ppo.learning_rate, {}).setdefault(ppo.initial_bias, []).append(result)
  steps_shown = sorted({int(e["wanted"]) for result in results for e in result.evaluations})
  published = read_yaml(GYMNAX)
  curves = {float(rate): returns for rate, returns in published["returns"]["breakout"].items()}
  rows = []
  for rate, by_bias in sorted(by_rate.items(), reverse=True):
    for bias, members in sorted(by_bias.items()):
      check_alike(members)
      initial = f", biases from 0 to {bias:g} at first" if bias else ""
      seeds = f"{len(members)} seed{'s' * (len(members) > 1)}"
      cells = (_cell(members, steps) for steps in steps_shown)
      rows.append([f"learning rate {rate:g}{initial}, {seeds}", *cells])
    if rate in curves:
      near = [curves[rate][round(steps / published["period_env_steps"]) - 1] for steps in steps_shown]
      rows.append([f"gymnax's, learning rate {rate:g}", *(f"{x:.1f}" for x in near)])
  return markdown_table(["million steps", *(f"{steps / 1e6:g}" for steps in steps_shown)], rows)


def _cell(members: Sequence[Result], steps: int) -> str:
  """Returns the mean over the seeds evaluated at this step, with its 95% interval."""
  returns = [e["returns"] for r in members for e in r.evaluations if int(e["wanted"]) == steps]
  if not returns:
    return "–"
  found = estimate(returns)
  return f"**{found.mean:.1f}** [{found.low:.1f}, {found.high:.1f}]"


def returns() -> "Figure":
  """Draws the evaluations of the table and gymnax's curves over environment steps, by learning rate."""
  published, panels = read_yaml(GYMNAX), []
  results = sorted(read_results(RESULTS), key=lambda result: result.config.ppo.initial_bias)
  for rate in ("1e-3", "5e-4"):
    values = published["returns"]["breakout"][rate]
    found: dict[str, list[Points]] = {}
    for result in results:
      if result.config.ppo.learning_rate == float(rate):
        bias = result.config.ppo.initial_bias
        label = f"biases from 0 to {bias:g}" if bias else "biases of 0"
        steps = np.array([evaluation["env_steps"] for evaluation in result.evaluations], np.float64)
        means = np.array([evaluation["return_mean"] for evaluation in result.evaluations], np.float64)
        found.setdefault(label, []).append((steps, means))
    steps = published["period_env_steps"] * np.arange(1, len(values) + 1, dtype=np.float64)
    found["gymnax's, one run"] = [(steps, np.array(values, np.float64))]
    panels.append(Panel(curves=found, title=f"learning rate {rate}"))
  return curves(*panels)


TABLES = {"results/table.md": lambda: table_of(read_results(RESULTS))}
PICTURES = {"results/returns.png": returns}

"""Tabulates the returns of PPO on Breakout by learning rate, initial bias and steps, with gymnax's returns.

    python -m experiments.ppo_check.analysis    # prints the table and writes results/table.md

gymnax's returns are from its evaluation nearest to the stated step, at most 160,000 steps away.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.lib.command import command
from experiments.lib.results import Result, check_alike, check_same_conditions, markdown_table, read_results
from moozi.core.errors import UserError
from moozi.experiments.statistics import estimate
from moozi.io.atomic_write import write_text
from moozi.io.plain_data import read_yaml

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
GYMNAX = HERE / "gymnax.yaml"


def table_of(results: Sequence[Result]) -> str:
  """Returns a Markdown table with a line per learning rate and initial bias, and a column per step.

  gymnax's line, with initial biases between 0 and 0.05, follows the lines with the same learning rate.

  Raises: UserError: there are no results, or they differ in more than the seed.
  """
  if not results:
    raise UserError(f"{RESULTS}: no results; run `python -m experiments.ppo_check.sweep`")
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


@command
def main(folder: Path = RESULTS) -> int:
  """Prints and writes the table; returns the exit status."""
  table = table_of(read_results(folder))
  write_text(folder / "table.md", table + "\n")
  print(table)
  return 0


if __name__ == "__main__":
  sys.exit(main())

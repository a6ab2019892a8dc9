"""The tables of the finished jobs, of the codes and of expectimax, and the picture of the returns."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.lib.pictures import TRAINING, Panel, curves, over_seconds, over_steps, points_of
from experiments.lib.results import Result, finished, mean_of
from experiments.lib.tables import markdown_table
from moozi.experiments.jobs import without_seed

if TYPE_CHECKING:
  from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent

COLUMNS = (
  "game",
  "variant",
  "return by seed, 100 evaluation episodes",
  "mean",
  "reward error after 1, 2 (and 3) moves",
  "environment steps",
  "steps per s",
  "cores",
)
CODES = {
  "code_entropy": "entropy of the codes",
  "code_entropy_given_move": "after a given move",
  "outcome_entropy": "of the outcomes",
  "information_reward": "information about the reward",
  "information_cell": "about the new number's cell",
  "prediction_kl": "divergence of the prediction",
}
"""The columns of the table of codes, by keys of `experiments.chance.codes`."""
COMPARED = {
  "2048": {"chance nodes": "2048_stochastic_gumbel", "their control": "2048_gumbel_8"},
  "Breakout": {"chance nodes": "breakout_stochastic_gumbel", "their control": "breakout_gumbel"},
}
"""The variants of the picture by game and label."""


def table_of(results: Path) -> str:
  """Returns a Markdown table of the finished jobs in the folder `results`."""
  rows, by_variant = [], dict[str, list[Result]]()
  for result in finished(HERE, results):
    by_variant.setdefault(without_seed(result.path.name), []).append(result)
  for name, found in by_variant.items():
    game, _, variant = name.partition("_")
    returns = [result.evaluations[-1]["return_mean"] for result in found]
    steps = [result.job["env_steps"] for result in found]
    rate = np.mean([result.job["env_steps"] / result.job["wall_s"] for result in found])
    errors = np.mean([reward_errors(result) for result in found], axis=0)
    cells = [game, variant, ", ".join(f"{x:,.1f}" for x in returns), f"{np.mean(returns):,.1f}"]
    cells += [", ".join(f"{x:.1f}" for x in errors)]
    cores = ", ".join(str(n) for n in sorted({result.cores for result in found}))
    rows.append((*cells, f"{np.mean(steps):,.0f}", f"{rate:,.0f}", cores))
  return markdown_table(COLUMNS, rows)


def reward_errors(result: Result) -> list[float]:
  """Returns the model's mean absolute error of a reward after each move, at the end of training.

  The mean is over the last tenth of the stored ticks.
  """
  ticks = [tick for tick in result.ticks if "error/reward_1" in tick]
  last = ticks[-max(1, len(ticks) // 10) :]
  keys = [f"error/reward_{k}" for k in (1, 2, 3)]
  return [mean_of(last, key) for key in keys if last and key in last[0]]


def expectimax_of(results: Path) -> str:
  """Returns a Markdown table of results of `experiments.chance.expectimax`, with 95% intervals."""
  rows = []
  for path in sorted((results / "expectimax").glob("*.json")):
    found = json.loads(path.read_text("utf-8"))
    mean, error = found["return_mean"], 1.96 * np.std(found["returns"], ddof=1) / np.sqrt(found["games"])
    interval = f"{mean:,.0f} [{mean - error:,.0f}, {mean + error:,.0f}]"
    rows.append(
      (f"{found['run']}, {found['checkpoint']}", str(found["depth"]), str(found["games"]), interval)
    )
  return markdown_table(("values of", "moves ahead", "games", "return [95%]"), rows)


def codes_of(results: Path) -> str:
  """Returns a Markdown table of results of `experiments.chance.codes`."""
  rows = []
  for path in sorted((results / "codes").glob("*.json")):
    found = json.loads(path.read_text("utf-8"))
    rows.append((f"{found['run']}, {found['checkpoint']}", *(f"{found[key]:.2f}" for key in CODES)))
  return markdown_table(("agent", *CODES.values()), rows)


def tables(results: Path) -> str:
  """Returns all tables."""
  return "\n\n".join(
    (
      table_of(results),
      "What the codes encode in 2048, in nats:",
      codes_of(results),
      "Expectimax with the true rules of 2048:",
      expectimax_of(results),
    )
  )


def returns() -> "Figure":
  """Draws training returns and evaluations over minutes and over environment steps, a game in a row."""
  panels = []
  for game, variants in COMPARED.items():
    for x, over in (("wall_s", over_seconds), ("env_steps", over_steps)):
      training = points_of(HERE, variants, TRAINING, over)
      ends = points_of(HERE, variants, over=over)
      panels.append(Panel(curves=training, dots=ends, x=x, y="return", title=game))
  return curves(*panels, height=2.4)


TABLES = {"chance": lambda: tables(HERE / "results")}
PICTURES = {"results/returns.png": returns}

"""The tables of the runs of 1M steps, and of full runs, which have 3M steps and random starts.

The full runs are those in `full_runs/` and the results of protocol (a) of `experiments/minatar_vs_ppo`. The
picture has the runs of Breakout with 1M steps.
"""

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.lib.pictures import dots
from experiments.lib.results import Result, read_results, swing_of
from experiments.lib.tables import Curve, ablation_table, last_evaluations, read_runs
from experiments.minatar_vs_ppo.analysis import head_of, line_of
from experiments.minatar_vs_ppo.runs import RESULTS, evaluated, score_of

if TYPE_CHECKING:
  from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
FULL_RUNS = HERE / "full_runs"


def last_mean(curve: Curve) -> float:
  """Returns the mean of `last_evaluations`."""
  return float(last_evaluations(curve).mean())


def swing(curve: Curve) -> float:
  """Returns the swing of `last_evaluations` in percent."""
  return 100 * swing_of(last_evaluations(curve))


def settings_of(result: Result) -> str:
  """Returns the row's name: what a run samples from, K and L of its model, floor and T of its search.

  It ends with "averaged" if evaluations play with the average of the parameters.
  """
  replay, targets = result.config.replay, result.config.targets
  name = f"the newest {replay.capacity:,} steps"
  if replay.window_share < 1:
    name = f"the newest {replay.window_share:.0%}, {replay.window_min:,} to {replay.capacity:,} steps"
  search = result.config.planners.train
  model = f"K = {targets.unroll_steps}, L = {targets.history_length}"
  name += f"; {model}; floor {search.q_range_floor:g}; T = {search.root_prior_temperature:g}"
  return name + "; averaged" * (result.config.evaluation.network == "target")


def full_runs() -> str:
  """Returns a Markdown row for each combination of settings, with the figures of all seeds."""
  rows: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
  final = [r for r in read_results(RESULTS) if r.path.name.startswith("muzero_a_")]
  for result in [*read_results(FULL_RUNS), *final]:
    rows[settings_of(result)][result.game].append(score_of(evaluated(result)))
  cells = {
    name: lambda game, of=of: ", ".join(f"{x:.1f}" for x in of.get(game, [])) or "–"
    for name, of in sorted(rows.items())
  }
  return "\n".join([*head_of("settings"), *(line_of(name, cell) for name, cell in cells.items())])


def evaluations() -> "Figure":
  """Draws the last ten evaluations of each run of Breakout."""
  rows = {
    f"{variant}, seed {run.config.seed}": last_evaluations(run.ticks).tolist()
    for variant, runs in read_runs(HERE).items()
    for run in runs
    if run.game == "breakout"
  }
  return dots({"": rows}, "return in evaluation", ("one of the last ten evaluations", "their mean"))


MEASURES = {
  "mean of the last ten evaluations": last_mean,
  "standard deviation of the last ten, % of their mean": swing,
}
TABLES = {"steady_learning": lambda: ablation_table(HERE, MEASURES), "full_runs": full_runs}
PICTURES = {"results/evaluations.png": evaluations}

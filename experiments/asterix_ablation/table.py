"""The table and the picture of the ablation of Asterix."""

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.lib.pictures import dots
from experiments.lib.tables import ablation_table, read_runs

if TYPE_CHECKING:
  from matplotlib.figure import Figure

HERE = Path(__file__).parent


def returns() -> "Figure":
  """Draws the return of each run at its end, by variant."""
  rows = {name: [run.summary["test_return_mean"] for run in runs] for name, runs in read_runs(HERE).items()}
  return dots({"": rows}, "return in evaluation at the end")


TABLES = {"asterix_ablation": lambda: ablation_table(HERE)}
PICTURES = {"results/returns.png": returns}

"""The picture of Pong on a GPU and on one core."""

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.lib.pictures import TRAINING, Panel, curves, over_seconds, runs_of
from experiments.lib.tables import EXPERIMENTS

if TYPE_CHECKING:
  from matplotlib.figure import Figure

RESULTS = Path(__file__).parent / "results"


def returns() -> "Figure":
  """Draws training returns, and the evaluations at the end, over minutes of training."""
  runs = {
    "H200, network for two cores": [RESULTS / "pong_threads"],
    "H200, EfficientZero's size": [RESULTS / "pong_large_network"],
    "one core, four runs": runs_of(EXPERIMENTS / "atari", "muzero_pong"),
  }
  training = {label: [over_seconds(run, TRAINING) for run in found] for label, found in runs.items()}
  ends = {label: [(x[-1:], y[-1:]) for x, y in map(over_seconds, found)] for label, found in runs.items()}
  return curves(Panel(curves=training, dots=ends, x="wall_s", y="return", is_log=True, has_means=False))


PICTURES = {"results/returns.png": returns}

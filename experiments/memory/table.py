"""The table and the picture of PPO with and without an LSTM."""

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.lib.pictures import TRAINING, Panel, curves, points_of
from experiments.lib.tables import ablation_table

if TYPE_CHECKING:
  from matplotlib.figure import Figure

HERE = Path(__file__).parent
VARIANTS = {
  "LSTM, forget bias 4": "tmaze_lstm",
  "LSTM, forget bias 0": "tmaze_lstm_no_forget_bias",
  "no LSTM": "tmaze",
}


def returns() -> "Figure":
  """Draws the training returns of the variants over environment steps."""
  found = points_of(HERE, VARIANTS, TRAINING)
  return curves(Panel(curves=found, x="thousand_steps", y="training return, last 100 episodes"))


TABLES = {"memory": lambda: ablation_table(HERE)}
PICTURES = {"results/returns.png": returns}

"""The picture of the run of CartPole."""

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.lib.pictures import TRAINING, Panel, curves, over_steps

if TYPE_CHECKING:
  from matplotlib.figure import Figure

RUN = Path(__file__).parent / "results" / "seed0"


def returns() -> "Figure":
  """Draws the training return and the evaluations over environment steps."""
  panel = Panel(
    curves={"training return, last 100 episodes": [over_steps(RUN, TRAINING)]},
    dots={"evaluation": [over_steps(RUN)]},
    x="thousand_steps",
    y="return",
  )
  return curves(panel)


PICTURES = {"results/returns.png": returns}

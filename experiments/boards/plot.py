"""The picture of Connect Four's learning: the score against OpenSpiel's MCTS with 100 simulations."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.lib.pictures import Panel, curves, ticks_of

if TYPE_CHECKING:
  from matplotlib.figure import Figure

FOLDER = Path(__file__).parent / "results" / "connect_four"
CURRENT = Path(__file__).parents[1] / "testbed" / "results" / "muzero_connect_four_seed0"
RUNS = {
  "config/boards/connect_four.yaml, one core": (CURRENT,),
  "former settings, two cores": (FOLDER / "first", FOLDER / "second"),
}
"""The parts of each run, by label."""


def scores() -> "Figure":
  """Draws the evaluations over minutes of training; those of a run's second part follow the first part."""
  found = {}
  for label, parts in RUNS.items():
    seconds, values, since_s = list[float](), list[float](), 0.0
    for part in parts:
      ticks = ticks_of(part)
      played = [tick for tick in ticks if "test/score" in tick]
      seconds += [since_s + tick["wall_s"] for tick in played]
      values += [tick["test/score"] for tick in played]
      since_s += ticks[-1]["wall_s"]
    found[label] = [(np.array(seconds), np.array(values))]
  levels = {"equal to MCTS": 0.5}
  return curves(Panel(curves=found, levels=levels, x="wall_s", y="score against MCTS(100)", marker="o"))


PICTURES = {"results/connect_four/curve.png": scores}

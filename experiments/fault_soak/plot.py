"""The picture of the soak."""

from typing import TYPE_CHECKING

import numpy as np

from experiments.fault_soak.analysis import read
from experiments.lib.pictures import Panel, Points, curves

if TYPE_CHECKING:
  from matplotlib.figure import Figure


def soaks() -> "Figure":
  """Draws returns over environment steps, and memory over minutes with a vertical line at each fault."""
  results = read()
  returns, memory = dict[str, list[Points]](), dict[str, list[Points]]()
  marks: dict[float, str] = {}
  for name, result in results.items():
    _, kind, *seed = name.split("_")
    label = "with faults" if kind == "faults" else f"without faults, seed {seed[0]}"
    evaluations, samples = result["evaluations"], result["samples"]
    steps = np.array([evaluation["env_steps"] for evaluation in evaluations], np.float64)
    returns[label] = [(steps, np.array([evaluation["return_mean"] for evaluation in evaluations]))]
    seconds = np.array([sample["s"] for sample in samples], np.float64)
    memory[label] = [(seconds, np.array([sample["resident_mib"] / 1024 for sample in samples]))]
    marks |= {float(fault["s"]): "" for fault in result["injected"]}
  return curves(
    Panel(curves=returns, y="return, 50 evaluation episodes"),
    Panel(curves=memory, marks=marks, x="wall_s", y="resident memory, GiB"),
  )


PICTURES = {"results/curves.png": soaks}

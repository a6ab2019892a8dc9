"""The picture of the measured speeds, relative to MooZi's."""

import json
import statistics
from typing import TYPE_CHECKING

from experiments.lib.pictures import dots
from experiments.peers.pages import median_of, rows_of
from experiments.peers.run import RESULTS
from experiments.peers.work import SYSTEMS

if TYPE_CHECKING:
  from matplotlib.figure import Figure

RATES = {"acting": "act_steps_per_s", "training": "train_steps_per_s"}


def speeds() -> "Figure":
  """Draws each repetition's rates of acting and training, divided by the median of MooZi's."""
  results = json.loads(RESULTS.read_text("utf-8"))
  panels: dict[str, dict[str, list[float]]] = {title: {} for title in RATES}
  for title, key in RATES.items():
    for count in results["simulations"]:
      base = median_of(rows_of(results, "moozi", count), key)
      assert base is not None, "MooZi is measured in every run"
      for system in SYSTEMS:
        rows = rows_of(results, system.key, count)
        panels[title][f"{system.name}, {count} simulations"] = [row[key] / base for row in rows]
  legend = ("a repetition", "their median")
  return dots(panels, "steps/s, divided by MooZi's", legend, center=statistics.median, level=1.0)


PICTURES = {"results/speeds.png": speeds}

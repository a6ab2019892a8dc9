"""The table of distances and returns, and the picture of the distances."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.caution.measure import PROBABILITIES
from experiments.lib.pictures import COLORS
from experiments.lib.tables import markdown_table

if TYPE_CHECKING:
  from matplotlib.figure import Figure

HERE = Path(__file__).parent
VARIANTS = {"not_sticky": "without sticky actions", "sticky": "with sticky actions"}
FAR = 4
"""Distance, in frames, from which a move is early."""


def read() -> dict[str, dict[int, dict[str, list[dict[str, Any]]]]]:
  """Returns the content of dodges.json by variant and seed."""
  out: dict[str, dict[int, Any]] = {variant: {} for variant in VARIANTS}
  for path in sorted((HERE / "results").glob("*/dodges.json")):
    variant, _, seed = path.parent.name.rpartition("_seed")
    out[variant][int(seed)] = json.loads(path.read_text("utf-8"))
  return out


def distances(episodes: list[dict[str, Any]]) -> np.ndarray:
  """Returns the distance of the bullet at every move of the episodes that leaves its column, in frames."""
  return np.concatenate([np.asarray(episode["dodges"], np.int64) for episode in episodes])


def table() -> str:
  """Returns a Markdown row for each agent."""
  rows = []
  for variant, seeds in read().items():
    for seed, found in seeds.items():
      moves = distances(found["0.0"])
      returns = [f"{np.mean([episode['return'] for episode in found[str(p)]]):.1f}" for p in PROBABILITIES]
      cells = [VARIANTS[variant], str(seed), f"{len(moves):,}", f"{np.mean(moves):.2f}"]
      rows.append([*cells, f"{np.mean(moves == 1):.0%}", f"{np.mean(moves >= FAR):.0%}", *returns])
  columns = ["trained", "seed", "moves", "mean distance", "distance 1", f"distance {FAR} or more"]
  return markdown_table([*columns, "return without sticky actions", "with them"], rows)


TABLES = {"caution": table}


def picture() -> "Figure":
  """Draws the share of the moves at each distance, a line for each agent."""
  from matplotlib.figure import Figure

  figure = Figure((7, 3.6), layout="constrained")
  axis = figure.subplots()
  for number, (variant, seeds) in enumerate(read().items()):
    for place, found in enumerate(seeds.values()):
      moves = distances(found["0.0"])
      shares = np.bincount(moves, minlength=10)[1:10] / len(moves)
      label = None if place else f"trained {VARIANTS[variant]}"
      axis.plot(range(1, 10), shares, "o-", color=COLORS[number], markersize=3, label=label)
  axis.set_xlabel("frames until the bullet hits, when the cannon leaves its column")
  axis.set_ylabel("share of these moves")
  axis.grid(alpha=0.3)
  axis.legend(frameon=False)
  return figure


PICTURES = {"results/distances.png": picture}

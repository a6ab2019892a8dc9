"""The picture of the finished jobs."""

from typing import TYPE_CHECKING

from experiments.atari.table import HERE
from experiments.lib.pictures import TRAINING, Panel, Points, curves, over_seconds
from experiments.lib.results import finished

if TYPE_CHECKING:
  from matplotlib.figure import Figure

LABELS = {
  "muzero": "MuZero",
  "muzero_100k": "MuZero, 100,000 steps",
  "ppo": "PPO",
  "q_learning": "deep Q-learning",
}
"""The label of each approach, which is a job's name before that of its game."""


def returns() -> "Figure":
  """Draws training returns and evaluations over minutes of training, with a panel for each game."""
  found: dict[str, dict[str, dict[str, list[Points]]]] = {}
  for result in finished(HERE):
    label = LABELS[result.path.name.partition(f"_{result.game.lower()}_")[0]]
    lines, dots = (found.setdefault(result.game, {}).setdefault(kind, {}) for kind in ("lines", "dots"))
    lines.setdefault(label, []).append(over_seconds(result.path, TRAINING))
    dots.setdefault(label, []).append(over_seconds(result.path))
  return curves(
    *(
      Panel(curves=parts["lines"], dots=parts["dots"], x="wall_s", y="return", title=game, has_means=False)
      for game, parts in found.items()
    ),
    height=2.4,
  )


PICTURES = {"results/curves.png": returns}

"""The table of the run with the thesis's settings, and the picture of its returns."""

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.lib.pictures import EVALUATION, TRAINING, Panel, curves, points_of
from experiments.lib.results import finished
from experiments.lib.tables import markdown_table
from moozi.io.config import load_config

if TYPE_CHECKING:
  from matplotlib.figure import Figure

HERE = Path(__file__).parent
COLUMNS = ("seed", "steps", "of the configuration's steps", "updates", "minutes", "return", "random play")


def table() -> str:
  """Returns a Markdown row for each finished run."""
  whole = load_config("thesis/breakout").max_env_steps
  rows = []
  for result in finished(HERE):
    summary = result.summary
    error = 1.96 * summary["test_return_std"] / summary["test_episodes"] ** 0.5
    rows.append(
      (
        str(result.config.seed),
        f"{summary['env_steps']:,}",
        f"{summary['env_steps'] / whole:.1%} of {whole / 1e6:.0f}M",
        f"{summary['learner_steps']:,}",
        f"{summary['wall_s'] / 60:.0f}",
        f"{summary['test_return_mean']:.1f} ± {error:.1f}",
        f"{summary['random_return_mean']:.1f}",
      )
    )
  return markdown_table(COLUMNS, rows)


def returns() -> "Figure":
  """Draws the returns of training and of evaluation over environment steps."""
  (result,) = finished(HERE)
  panels = [
    Panel(
      curves=points_of(HERE, {"seed 0": "breakout"}, key),
      x="thousand_steps",
      y=y,
      levels={"random play": result.summary["random_return_mean"]},
      marker=marker,
    )
    for key, y, marker in ((TRAINING, "training return", ""), (EVALUATION, "return in evaluation", "o"))
  ]
  return curves(*panels)


TABLES = {"thesis_settings": table}
PICTURES = {"results/returns.png": returns}

"""The table of the variants, and the picture of their returns."""

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.lib.pictures import Panel, curves, over_steps
from experiments.lib.results import mean_of
from experiments.lib.tables import Curve, ablation_table, read_runs

if TYPE_CHECKING:
  from matplotlib.figure import Figure

HERE = Path(__file__).parent
PANELS = {
  "age of the acting parameters": {
    "age_0": "0 updates",
    "age_512": "at most 512",
    "age_2048": "at most 2,048",
  },
  "age of the samples": {
    "newest_16384": "newest 16,384 steps",
    "default": "newest 65,536",
    "newest_262144": "newest 262,144",
  },
  "sample reuse": {"reuse_1": "1", "reuse_2": "2", "default": "4", "reuse_8": "8"},
  "sample reuse, PPO": {"ppo_reuse_1": "1", "ppo_reuse_4": "4", "ppo_reuse_16": "16"},
  "batch size": {"batch_64": "64", "default": "256", "batch_1024": "1,024"},
  "horizon": {"short_horizon": "20 steps", "growing_horizon": "20 to 333", "default": "333"},
}
"""The panels of the picture by title: the label of each variant."""
AGE = "replay/target_age_updates"


def age_of_samples(curve: Curve) -> float:
  """Returns the mean age of a run's samples over its ticks, in updates; NaN without samples of replay."""
  ticks = [tick for tick in curve if tick.get(AGE) is not None]
  return mean_of(ticks, AGE) if ticks else float("nan")


MEASURES = {"age of the samples, updates": age_of_samples}


def returns() -> "Figure":
  """Draws the evaluations over environment steps, with a panel for each question.

  A panel is left out if fewer than two of its variants have runs.
  """
  runs, panels = read_runs(HERE), []
  for title, variants in PANELS.items():
    found = {
      label: [over_steps(result.path) for result in runs[variant]]
      for variant, label in variants.items()
      if variant in runs
    }
    if len(found) > 1:
      panels.append(Panel(curves=found, title=title, x="thousand_steps"))
  return curves(*panels, height=2.0, is_shared=False)


TABLES = {"openai_five": lambda: ablation_table(HERE, MEASURES, {"updates": "learner_steps"})}
PICTURES = {"results/returns.png": returns}

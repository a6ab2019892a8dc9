"""The table of the variants, and the picture of their returns.

python -m experiments.openai_five.table    # results/returns.png
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from experiments.lib.command import command
from experiments.lib.results import mean_of
from experiments.lib.tables import Curve, ablation_table, read_runs

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
TABLES = {"openai_five": lambda: ablation_table(HERE, MEASURES, {"updates": "learner_steps"})}


def draw(path: Path) -> None:
  """Draws the return of each evaluation over environment steps: a line a run, variants by color.

  A panel is left out if fewer than two of its variants have runs.
  """
  runs = read_runs(HERE)
  figure, axes = plt.subplots(2, 3, figsize=(11, 6.4), layout="constrained")
  drawn = {title: variants for title, variants in PANELS.items() if sum(v in runs for v in variants) > 1}
  for axis in axes.flat[len(drawn) :]:
    axis.set_visible(False)
  for axis, (title, variants) in zip(axes.flat, drawn.items(), strict=False):
    for number, (variant, text) in enumerate(variants.items()):
      for seed, result in enumerate(runs.get(variant, ())):
        ticks = [tick for tick in result.ticks if tick.get("test/return_mean") is not None]
        steps = [tick["env_steps"] / 1e6 for tick in ticks]
        returns = [tick["test/return_mean"] for tick in ticks]
        label = text if seed == 0 else None
        axis.plot(steps, returns, "-" if seed == 0 else "--", color=f"C{number}", label=label)
    axis.set_title(title)
    axis.legend(frameon=False, fontsize="small")
    axis.grid(alpha=0.3)
    axis.set_xlabel("environment steps (millions)")
    axis.set_ylabel("return of an evaluation")
  figure.savefig(path, dpi=110)


@command
def main() -> int:
  """Draws the picture; returns the exit status."""
  draw(HERE / "results" / "returns.png")
  return 0


if __name__ == "__main__":
  sys.exit(main())

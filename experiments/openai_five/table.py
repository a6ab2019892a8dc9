"""The table of the variants, and the picture of their returns.

python -m experiments.openai_five.table    # results/returns.png
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from experiments.lib.command import command
from experiments.lib.tables import Curve, ablation_table, read_runs

HERE = Path(__file__).parent
PANELS = {
  "age of the acting parameters": ("age_0", "age_512", "age_2048"),
  "age of the samples": ("newest_16384", "default", "newest_262144"),
  "sample reuse": ("reuse_1", "reuse_2", "default", "reuse_8"),
  "sample reuse, PPO": ("ppo_reuse_1", "ppo_reuse_4", "ppo_reuse_16"),
  "batch size": ("batch_64", "default", "batch_1024"),
  "horizon": ("short_horizon", "growing_horizon", "default"),
}
"""The variants of each panel of the picture, by its title."""
LABELS = {
  "age of the acting parameters": ("0 updates", "at most 512", "at most 2,048"),
  "age of the samples": ("newest 16,384 steps", "newest 65,536", "newest 262,144"),
  "sample reuse": ("1", "2", "4", "8"),
  "sample reuse, PPO": ("1", "4", "16"),
  "batch size": ("64", "256", "1,024"),
  "horizon": ("20 steps", "20 to 333", "333"),
}


def mean_of(key: str, curve: Curve) -> float:
  """Returns the mean of a metric over the ticks of a run that have it; NaN if none has."""
  values = [tick[key] for tick in curve if tick.get(key) is not None]
  return float(np.mean(values)) if values else float("nan")


MEASURES = {
  "age of the samples, updates": lambda curve: mean_of("replay/target_age_updates", curve),
}
TABLES = {"openai_five": lambda: ablation_table(HERE, MEASURES)}


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
    for number, variant in enumerate(variants):
      for seed, result in enumerate(runs.get(variant, ())):
        ticks = [tick for tick in result.ticks if tick.get("test/return_mean") is not None]
        steps = [tick["env_steps"] / 1e6 for tick in ticks]
        returns = [tick["test/return_mean"] for tick in ticks]
        label = LABELS[title][number] if seed == 0 else None
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

"""Trains MooZi on MinAtar with and without reanalyze, for equal environment steps.

    python -m experiments.reanalyze_sample_efficiency.sweep [--steps 250000] [--seeds 2] [--table]

Trains every (game, variant, seed) that has no result, with `runtime=local`, one core per run and all cores
in parallel. Then prints the table. A call runs for at most `--minutes`; the next call resumes. `--table`
only prints the table. The runs are timed while they share the machine.

`plain` and `reanalyze` differ only in `reanalyze.ratio`. `plain_more` and `reanalyze_more` make four times
the updates at the same environment steps, because fresh targets should remain useful for more updates than
old targets. `--change NAME` runs the chosen variants with one further setting, as `<variant>_NAME`.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from experiments.lib.ablation import SHORT_RUN, read_figures, run_side_by_side, seeds_of
from experiments.lib.command import command
from experiments.lib.jobs import ROOT, Job
from experiments.lib.results import markdown_table
from experiments.lib.sweep import RUNS
from moozi.io.machine import num_cores

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
# The sampling that each game's configuration had when the committed runs were made.
SAMPLING = {"breakout": "uniform", "space_invaders": "rank"}
GAMES = tuple(SAMPLING)
VARIANTS = ("plain", "reanalyze", "plain_more", "reanalyze_more")
# The settings that each suffix of a variant changes.
CHANGES = {
  "uniform": ("replay.sampling=uniform",),
  "inconsistent": ("learner.consistency_coef=0",),
  "short": ("targets.n_step=5",),
}
SAMPLES_PER_STEP, MORE_SAMPLES_PER_STEP = 4, 16
COLUMNS = (
  "game",
  "variant",
  "return at the end, 100 evaluation episodes, by seed",
  "mean",
  "ratio to plain",
  "ratio to plain with as many updates",
  "training return, last 100 episodes",
  "mean of the evaluations during the run",
  "search age, updates",
  "wall s",
)


def split_variant(variant: str) -> tuple[str, str]:
  """Splits a variant into its name without suffix and the name of its change, "" without a change."""
  base, _, change = variant.rpartition("_")
  return (base, change) if change in CHANGES else (variant, "")


def overrides_of(variant: str, steps: int, ratio: float) -> tuple[str, ...]:
  """Returns the overrides of a variant."""
  variant, change = split_variant(variant)
  samples = MORE_SAMPLES_PER_STEP if variant.endswith("_more") else SAMPLES_PER_STEP
  return (
    f"learner.samples_per_step={samples}",
    "learner.learning_rate.kind=cosine",
    "learner.learning_rate.end=1e-4",
    # The learning rate decays over the whole run: `steps * samples` samples in updates of 256.
    f"learner.learning_rate.decay_steps={steps * samples // 256}",
    f"reanalyze.ratio={ratio if variant.startswith('reanalyze') else 0}",
    *CHANGES.get(change, ()),
  )


def job(game: str, variant: str, seed: int, steps: int, ratio: float) -> Job:
  common = (f"max_env_steps={steps}", "max_wall_s=null", "evaluation.period_env_steps=25000")
  sampling = f"replay.sampling={SAMPLING[game]}"
  return Job(
    name=f"{game}_{variant}_seed{seed}",
    config=ROOT / "experiments" / "configs" / "minatar" / f"{game}.yaml",
    overrides=(*SHORT_RUN, *common, sampling, *overrides_of(variant, steps, ratio)),
    seed=seed,
    evaluations=(),
  )


def read(game: str, variant: str, steps: int, ratio: float) -> list[dict[str, Any]]:
  """Reads the figures of all seeds of a variant. Raises UserError: a result has different settings."""
  seeds = seeds_of(RESULTS, f"{game}_{variant}")
  return [read_figures(job(game, variant, seed, steps, ratio), RESULTS) for seed in seeds]


def table_of(steps: int, ratio: float) -> str:
  """Returns the results as a Markdown table. Raises UserError: a result has different settings."""
  rows = []
  for game in GAMES:
    means: dict[str, float] = {}
    for variant in (*VARIANTS, *(f"{base}_{change}" for change in CHANGES for base in VARIANTS)):
      results = read(game, variant, steps, ratio)
      if not results:
        continue
      returns = [r["summary"]["test_return_mean"] for r in results]
      means[variant] = float(np.mean(returns))
      # If no plain run has this change, compare with the plain run without it.
      controls = [name.replace("reanalyze", "plain") for name in (variant, split_variant(variant)[0])]
      same = next((means[name] for name in controls if name in means), None)
      shares = [f"{means[variant] / x:.2f}" if x else "–" for x in (means.get("plain"), same)]
      ages, acting, course = (
        np.mean([f([t[key] for t in r["curve"] if key in t]) for r in results])
        for key, f in (
          ("replay/search_age_updates", np.mean),
          ("train/return_mean", lambda values: values[-1]),
          ("test/return_mean", np.mean),
        )
      )
      wall = np.mean([r["summary"]["training_s"] for r in results])
      by_seed = ", ".join(f"{x:.1f}" for x in returns)
      cells = [game, variant, by_seed, f"{means[variant]:.1f}", *shares]
      rows.append([*cells, f"{acting:.1f}", f"{course:.1f}", f"{ages:.0f}", f"{wall:.0f}"])
  return markdown_table(COLUMNS, rows)


@command
def main() -> int:
  """Trains what is missing and prints the table; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--steps", type=int, default=250_000)
  parser.add_argument("--seeds", type=int, default=2)
  parser.add_argument("--ratio", type=float, default=0.8)
  parser.add_argument("--games", nargs="*", choices=GAMES, default=list(GAMES))
  parser.add_argument("--variants", nargs="*", choices=VARIANTS, default=list(VARIANTS))
  parser.add_argument("--change", choices=CHANGES)
  parser.add_argument("--workers", type=int, default=num_cores(), help="parallel runs")
  parser.add_argument("--minutes", type=float, default=55.0)
  parser.add_argument("--table", action="store_true")
  options = parser.parse_args()
  variants = [f"{base}_{options.change}" if options.change else base for base in options.variants]
  chosen = [(g, v, s) for s in range(options.seeds) for g in options.games for v in variants]
  chosen.sort(key=lambda item: "_more" in item[1])  # runs with fewer updates first
  table = table_of(options.steps, options.ratio)
  if not options.table:
    jobs = [job(*item, options.steps, options.ratio) for item in chosen]
    if not run_side_by_side(jobs, RUNS / HERE.name, RESULTS, options.minutes, options.workers):
      return 1
    table = table_of(options.steps, options.ratio)
  print(table)
  return 0


if __name__ == "__main__":
  sys.exit(main())

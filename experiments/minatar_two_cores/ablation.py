"""Breakout with one thing changed at a time, at equal environment steps; resumable.

    python experiments/minatar_two_cores/ablation.py [--steps 300000] [--seeds 2] [--table]

Runs every (variant, seed) that has no result yet through `moozi train … runtime=local`, as many side by
side as there are cores, one thread each, and keeps `results/ablation/<variant>_seed<n>.json`. Then prints
the table; `--table` only prints it.
"""

import argparse
import functools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from moozi.experiments.scratch import make_missing, run_whole

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "ablation"
CONFIG = HERE.resolve().parents[1] / "config" / "minatar" / "breakout.yaml"
KEYS = ("env_steps", "train/return_mean", "test/return_mean")

VARIANTS: dict[str, tuple[str, ...]] = {
  "default": (),  # uniform sampling, no consistency loss, three steps of unroll
  "prioritized": ("replay.sampling=rank",),
  "consistency": ("learner.consistency_coef=2",),
  "unroll_5": ("targets.unroll_steps=5",),
  "mean_root_value": ("planners.train.root_value=mean",),
}


def run(variant: str, seed: int, steps: int) -> dict[str, Any]:
  """One run to its end."""
  overrides = (
    f"seed={seed}",
    f"max_env_steps={steps}",
    "max_wall_s=3600",
    "evaluation.period_env_steps=100000",
  )
  figures = run_whole(CONFIG, (*overrides, *VARIANTS[variant]), KEYS)
  return {"overrides": VARIANTS[variant], **figures}


def path_of(variant: str, seed: int) -> Path:
  """Where a finished run's figures are."""
  return RESULTS / f"{variant}_seed{seed}.json"


def table() -> None:
  """Prints what is there."""
  print(
    "| variant | seeds | return while acting, last 100 episodes | return, 100 evaluation episodes | wall s |"
  )
  print("|---|---|---|---|---|")
  for variant in VARIANTS:
    results = [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{variant}_seed*.json"))]
    if not results:
      continue
    acting = [[t["train/return_mean"] for t in r["curve"] if "train/return_mean" in t][-1] for r in results]
    test = [r["summary"]["test_return_mean"] for r in results]
    wall = np.mean([r["summary"]["wall_s"] for r in results])
    cells = [
      " ".join(f"{x:.1f}" for x in values) + f" (mean {np.mean(values):.1f})" for values in (acting, test)
    ]
    print(f"| {variant} | {len(results)} | {cells[0]} | {cells[1]} | {wall:.0f} |")


def main() -> None:
  """Runs what is missing and prints the table."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--steps", type=int, default=300_000)
  parser.add_argument("--seeds", type=int, default=2)
  parser.add_argument("--variants", nargs="*", choices=tuple(VARIANTS), default=list(VARIANTS))
  parser.add_argument("--table", action="store_true")
  args = parser.parse_args()
  jobs = [(v, s) for s in range(args.seeds) for v in args.variants]
  if not args.table:
    work = {path_of(*job): functools.partial(run, *job, args.steps) for job in jobs}
    make_missing(work, len(os.sched_getaffinity(0)))
  table()


if __name__ == "__main__":
  main()

"""MinAtar at equal environment steps, with and without reanalyze; resumable.

    python -m experiments.reanalyze_sample_efficiency.sweep [--steps 250000] [--seeds 2] [--table]

Runs every (game, variant, seed) that has no result yet through `moozi train … runtime=local`, as many side by
side as there are cores, one thread each, and keeps `results/<game>_<variant>_seed<n>.json`. Then prints the
table; `--table` only prints it. Wall seconds are those of runs side by side.

`plain` and `reanalyze` differ in the ratio alone. `plain_more` and `reanalyze_more` make four times as
many updates at the same environment steps: fresh targets should bear more use than old ones. `--change NAME`
runs the variants that are asked for with one setting changed, under their names and `_NAME`.
"""

import argparse
import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from experiments.lib.scratch import Together, check_made, make_missing, run_whole
from moozi.core.errors import UserError

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
ROOT = HERE.parents[1]
# How each game's steps are sampled: as its configuration had it when these runs were made.
SAMPLING = {"breakout": "uniform", "space_invaders": "rank"}
GAMES = tuple(SAMPLING)
VARIANTS = ("plain", "reanalyze", "plain_more", "reanalyze_more")
# What a variant's name may end with, and what it changes besides: to find what a difference hangs on.
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
  "of plain",
  "of plain with as many updates",
  "while acting, the last 100 episodes",
  "mean of the evaluations in its course",
  "search age, updates",
  "wall s",
)
KEYS = (
  "env_steps",
  "wall_s",
  "train/return_mean",
  "test/return_mean",
  "test/at_env_steps",
  "replay/search_age_updates",
  "replay/searched_again_share",
  "search/policy_entropy",
  "search/prior_entropy",
  "search/root_value",
  "policy/target_entropy",
  "error/value",
  "replay/delta_mean",
  "reanalyze/ratio",
  "reanalyze/value_change",
  "reanalyze/value_change_abs",
  "reanalyze/policy_divergence",
)


def parts_of(variant: str) -> tuple[str, str]:
  """A variant's own name, and the name of its change: empty without one."""
  own, _, change = variant.rpartition("_")
  return (own, change) if change in CHANGES else (variant, "")


def overrides_of(variant: str, steps: int, ratio: float) -> tuple[str, ...]:
  """What a variant sets over the game's own configuration."""
  variant, change = parts_of(variant)
  samples = MORE_SAMPLES_PER_STEP if variant.endswith("_more") else SAMPLES_PER_STEP
  return (
    f"learner.samples_per_step={samples}",
    "learner.learning_rate.kind=cosine",
    "learner.learning_rate.end=1e-4",
    # The rate falls over these steps, in updates of 256.
    f"learner.learning_rate.decay_steps={steps * samples // 256}",
    f"reanalyze.ratio={ratio if variant.startswith('reanalyze') else 0}",
    *CHANGES.get(change, ()),
  )


def check(game: str, variant: str, steps: int, ratio: float) -> list[Path]:
  """The results that there are of a variant.

  Raises: UserError: one was made with other settings.
  """
  plain = overrides_of(variant, steps, ratio)
  allowed = [
    plain,
    (f"replay.sampling={SAMPLING[game]}", *plain),
  ]  # older ones do not say what was the game's own
  paths = sorted(RESULTS.glob(f"{game}_{variant}_seed*.json"))
  for path in paths:
    check_made(path, json.loads(path.read_text()), allowed, steps)
  return paths


def run(together: Together, game: str, variant: str, seed: int, steps: int, ratio: float) -> dict[str, Any]:
  """One run to its end."""
  overrides = (f"replay.sampling={SAMPLING[game]}", *overrides_of(variant, steps, ratio))
  own = (f"seed={seed}", f"max_env_steps={steps}", "max_wall_s=null", "evaluation.period_env_steps=25000")
  figures = run_whole(together, ROOT / "config" / "minatar" / f"{game}.yaml", (*own, *overrides), KEYS)
  return {"game": game, "overrides": overrides, **figures}


def path_of(game: str, variant: str, seed: int) -> Path:
  """Where a finished run's figures are."""
  return RESULTS / f"{game}_{variant}_seed{seed}.json"


def table(steps: int, ratio: float) -> None:
  """Prints what is there. Raises UserError: some of it was made with other settings."""
  print(f"| {' | '.join(COLUMNS)} |")
  print("|" + "---|" * len(COLUMNS))
  for game in GAMES:
    means: dict[str, float] = {}
    for variant in (*VARIANTS, *(f"{own}_{change}" for change in CHANGES for own in VARIANTS)):
      results = [json.loads(path.read_text()) for path in check(game, variant, steps, ratio)]
      if not results:
        continue
      returns = [r["summary"]["test_return_mean"] for r in results]
      means[variant] = float(np.mean(returns))
      # Without the change where nothing plain was run with it.
      controls = [name.replace("reanalyze", "plain") for name in (variant, parts_of(variant)[0])]
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
      told = ", ".join(f"{x:.1f}" for x in returns)
      print(
        f"| {game} | {variant} | {told} | {means[variant]:.1f} | {shares[0]} | {shares[1]} "
        f"| {acting:.1f} | {course:.1f} | {ages:.0f} | {wall:.0f} |"
      )


def main() -> None:
  """Runs what is missing and prints the table."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--steps", type=int, default=250_000)
  parser.add_argument("--seeds", type=int, default=2)
  parser.add_argument("--ratio", type=float, default=0.8)
  parser.add_argument("--games", nargs="*", choices=GAMES, default=list(GAMES))
  parser.add_argument("--variants", nargs="*", choices=VARIANTS, default=list(VARIANTS))
  parser.add_argument("--change", choices=CHANGES)
  parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="runs side by side")
  parser.add_argument("--table", action="store_true")
  args = parser.parse_args()
  variants = [f"{own}_{args.change}" if args.change else own for own in args.variants]
  jobs = [(g, v, s) for s in range(args.seeds) for g in args.games for v in variants]
  # Those that are asked for first come first.
  jobs.sort(key=lambda job: "_more" in job[1])
  try:
    for game, variant, _ in jobs:
      check(game, variant, args.steps, args.ratio)
    if not args.table:
      work = {
        path_of(game, variant, seed): functools.partial(
          run, game=game, variant=variant, seed=seed, steps=args.steps, ratio=args.ratio
        )
        for game, variant, seed in jobs
      }
      make_missing(work, args.workers)
    table(args.steps, args.ratio)
  except UserError as error:
    sys.exit(f"error: {error}")


if __name__ == "__main__":
  main()

"""Breakout with one thing changed at a time, at equal environment steps; resumable.

    python experiments/minatar_two_cores/ablation.py [--steps 300000] [--seeds 2] [--table]

Runs every (variant, seed) that has no result yet through `moozi train … runtime=local`, as many side by
side as there are cores, one thread each, and keeps `results/ablation/<variant>_seed<n>.json`. Then prints
the table; `--table` only prints it.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "ablation"
CONFIG = HERE.parents[1] / "config" / "minatar" / "breakout.yaml"

VARIANTS: dict[str, tuple[str, ...]] = {
  "default": (),  # uniform sampling, no consistency loss, three steps of unroll
  "prioritized": ("replay.sampling=rank",),
  "consistency": ("learner.consistency_coef=2",),
  "unroll_5": ("targets.unroll_steps=5",),
  "mean_root_value": ("planners.train.root_value=mean",),
}


def run(variant: str, seed: int, steps: int) -> None:
  """One run to its end; its figures are written only then."""
  with tempfile.TemporaryDirectory() as folder:
    command = [
      *(sys.executable, "-m", "moozi.cli", "train", str(CONFIG), "runtime=local", f"seed={seed}"),
      *(f"max_env_steps={steps}", "max_wall_s=3600", f"run.dir={folder}", "run.name=run"),
      *("logging.progress=none", "evaluation.gif=false", "evaluation.period_env_steps=100000"),
      *VARIANTS[variant],
    ]
    environment = os.environ | {"NPROC": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    summary = json.loads((Path(folder) / "run" / "summary.json").read_text())
    lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
  ticks = [json.loads(line) for line in lines]
  keys = ("env_steps", "train/return_mean", "test/return_mean")
  curve = [{key: tick[key] for key in keys if key in tick} for tick in ticks]
  result = {"overrides": VARIANTS[variant], "summary": summary, "curve": curve}
  RESULTS.mkdir(parents=True, exist_ok=True)
  temporary = RESULTS / f".{variant}_seed{seed}.tmp"
  temporary.write_text(json.dumps(result) + "\n")
  temporary.rename(path_of(variant, seed))


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
  jobs = [(v, s) for s in range(args.seeds) for v in args.variants if not path_of(v, s).exists()]
  if not args.table:
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
      for future in [pool.submit(run, variant, seed, args.steps) for variant, seed in jobs]:
        future.result()
  table()


if __name__ == "__main__":
  main()

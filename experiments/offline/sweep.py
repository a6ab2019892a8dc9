"""Breakout learned from the first half of a finished run's trajectories alone; resumable.

    python experiments/offline/sweep.py [--steps 500000] [--offline-steps 500000] [--ratio 0.8] [--table]

1. A run of `--steps` that keeps its trajectories and a checkpoint at the half.
2. A run that learns from the trajectories of the first half with no environment, and reanalyze.
3. Both under one evaluation: the half-way checkpoint and the last of the second run.

Runs lie in `runs/offline_experiment` (`--folder`), figures in `results/figures.json`. A step that is done is
not done again.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
ROOT = HERE.parents[1]
CONFIG = ROOT / "config" / "minatar" / "breakout.yaml"


def moozi(*arguments: str) -> str:
  """Runs the command line and returns what it printed."""
  command = [sys.executable, "-m", "moozi.cli", *arguments]
  return subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout


def train(folder: Path, name: str, steps: int, overrides: list[str]) -> None:
  """One run to its end, unless it is there."""
  if not (folder / name / "summary.json").exists():
    common = [f"run.dir={folder}", f"run.name={name}", f"max_env_steps={steps}", "max_wall_s=null"]
    rate = f"learner.learning_rate.decay_steps={steps * 4 // 256}"
    moozi("train", str(CONFIG), *common, rate, "logging.progress=plain", *overrides)


def evaluate(folder: Path, name: str, checkpoint: str, episodes: int) -> dict[str, Any]:
  """Figures of one checkpoint."""
  run = str(folder / name)
  return json.loads(moozi("evaluate", run, "--checkpoint", checkpoint, "--episodes", str(episodes), "--json"))


def measure(args: argparse.Namespace) -> dict[str, Any]:
  """All of it."""
  folder, half = args.folder.absolute(), args.steps // 2
  train(
    folder,
    "online",
    args.steps,
    ["trajectories.save=true", f"checkpoint.milestones_env_steps={half}"],
  )
  offline = [
    f"offline.trajectories={folder / 'online'}",
    f"offline.max_env_steps={half}",
    f"reanalyze.ratio={args.ratio}",
  ]
  train(folder, "offline", args.offline_steps, offline)
  listed = json.loads(moozi("trajectories", str(folder / "online"), "--json"))
  online = evaluate(folder, "online", str(half), args.episodes)
  learned = evaluate(folder, "offline", "last", args.episodes)
  return {
    "steps": args.steps,
    "offline_steps": args.offline_steps,
    "ratio": args.ratio,
    "half_way": online,
    "offline": learned,
    "share": learned["return_mean"] / online["return_mean"],
    "mib_per_million_steps": listed["bytes"] / 2**20 / listed["steps"] * 1e6,
    "wall_s": {
      name: json.loads((folder / name / "summary.json").read_text())["training_s"]
      for name in ("online", "offline")
    },
    "cores": len(os.sched_getaffinity(0)),
  }


def table(figures: dict[str, Any]) -> None:
  """Prints the figures."""
  print("| agent | environment steps seen | return | training, s |")
  print("|---|---|---|---|")
  half, offline = figures["half_way"], figures["offline"]
  rows = (
    ("half-way checkpoint", half["env_steps"], half, figures["wall_s"]["online"] / 2),
    ("offline, with reanalyze", figures["steps"] // 2, offline, figures["wall_s"]["offline"]),
  )
  for name, steps, result, wall_s in rows:
    print(f"| {name} | {steps:,} | {result['return_mean']:.1f} ± {result['return_std']:.1f} | {wall_s:.0f} |")
  print(f"\noffline / half-way: {figures['share']:.2f} (expected at least 0.90)")
  print(f"trajectories: {figures['mib_per_million_steps']:.1f} MiB a million steps")


def main() -> None:
  """Measures what is missing and prints the table."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--steps", type=int, default=500_000)
  parser.add_argument("--offline-steps", type=int, default=500_000)
  parser.add_argument("--ratio", type=float, default=0.8)
  parser.add_argument("--episodes", type=int, default=100)
  parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "offline_experiment")
  parser.add_argument("--table", action="store_true")
  args = parser.parse_args()
  if not args.table:
    figures = measure(args)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "figures.json").write_text(json.dumps(figures, indent=2) + "\n")
  table(json.loads((RESULTS / "figures.json").read_text()))


if __name__ == "__main__":
  main()

"""Breakout learned from the first half of a finished run's trajectories alone; resumable.

    python -m experiments.offline.sweep [--steps 500000] [--offline-steps 500000] [--ratio 0.8] [--table]

1. A run of `--steps` that keeps its trajectories and a checkpoint at the half.
2. A run that learns from the trajectories of the first half with no environment, and reanalyze.
3. Both under one evaluation: the half-way checkpoint and the last of the second run.

Runs lie in `runs/offline_experiment` (`--folder`), figures in `results/figures.json`. What is done is not
done again, and a run that was stopped goes on.
"""

import argparse
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from experiments.lib.jobs import Evaluation, Job
from experiments.lib.pieces import MOOZI, ROOT, Piece
from experiments.lib.results import write_json
from experiments.lib.sweeping import CommandError, Sweep
from moozi.core.errors import UserError

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
CONFIG = ROOT / "config" / "minatar" / "breakout.yaml"


def jobs(args: argparse.Namespace, folder: Path) -> tuple[Job, Job]:
  """The run that acts, and the one that learns from the first half of its trajectories."""
  half = args.steps // 2

  def job(name: str, steps: int, checkpoint: str, *overrides: str) -> Job:
    rate = f"learner.learning_rate.decay_steps={steps * 4 // 256}"
    return Job(
      name=name,
      config=CONFIG,
      overrides=(f"max_env_steps={steps}", "max_wall_s=null", rate, *overrides),
      evaluations=(Evaluation(checkpoint=checkpoint, episodes=args.episodes),),
    )

  online = job(
    "online", args.steps, str(half), "trajectories.save=true", f"checkpoint.milestones_env_steps={half}"
  )
  offline = job(
    "offline",
    args.offline_steps,
    "last",
    f"offline.trajectories={folder / online.run_name}",
    f"offline.max_env_steps={half}",
    f"reanalyze.ratio={args.ratio}",
  )
  return online, offline


def measure(args: argparse.Namespace) -> dict[str, Any]:
  """All of it, going on where an earlier call was stopped."""
  folder = args.folder.absolute()
  figures = []
  with Piece(None) as piece, Sweep(folder, piece) as sweep:
    for job in jobs(args, folder):
      came = sweep.finish(job)
      if came is None:
        raise UserError("stopped; the next call goes on from here")
      figures += came
  online, learned = figures
  command = [*MOOZI, "trajectories", str(folder / "online"), "--json"]
  done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
  listed = json.loads(done.stdout)
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
    try:
      write_json(RESULTS / "figures.json", measure(args))
    except (UserError, CommandError) as error:
      raise SystemExit(f"error: {error}") from None
  table(json.loads((RESULTS / "figures.json").read_text()))


if __name__ == "__main__":
  main()

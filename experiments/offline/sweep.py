"""Trains an agent for Breakout only from the stored trajectories of the first half of a finished run.

    python -m experiments.offline.sweep [--steps 500000] [--offline-steps 500000] [--ratio 0.8] [--table]

1. Trains a run of `--steps` that stores its trajectories and saves a checkpoint half-way.
2. Trains a second run from the trajectories of the first half, without an environment, with reanalyze.
3. Evaluates the half-way checkpoint and the last checkpoint of the second run in the same way.

Runs are in `runs/offline_experiment` (`--folder`), figures in `results/figures.json`. A call runs for at most
`--minutes`; the next call resumes. `--table` only prints the table.
"""

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

from experiments.lib.jobs import ROOT, Evaluation, Job
from experiments.lib.results import read_result, write_json
from experiments.lib.sweep import MOOZI, RUNS, Sweep
from moozi.core.errors import UserError
from moozi.experiments.time_budget import TimeBudget
from moozi.io.machine import num_cores

RESULTS = Path(__file__).resolve().parent / "results"
CONFIG = ROOT / "experiments" / "configs" / "minatar" / "breakout.yaml"


def jobs(options: argparse.Namespace) -> tuple[Job, Job]:
  """Returns the job that acts, and the job that learns from the first half of its trajectories."""
  half = options.steps // 2

  def job(name: str, steps: int, checkpoint: str, *overrides: str) -> Job:
    rate = f"learner.learning_rate.decay_steps={steps * 4 // 256}"
    return Job(
      name=name,
      config=CONFIG,
      overrides=(f"max_env_steps={steps}", "max_wall_s=null", rate, *overrides),
      evaluations=(Evaluation(checkpoint=checkpoint, episodes=options.episodes),),
    )

  online = job(
    "online", options.steps, str(half), "trajectories.save=true", f"checkpoint.milestones_env_steps={half}"
  )
  offline = job(
    "offline",
    options.offline_steps,
    "last",
    f"offline.trajectories={options.folder.absolute() / online.run_name}",
    f"offline.max_env_steps={half}",
    f"reanalyze.ratio={options.ratio}",
  )
  return online, offline


def measure(options: argparse.Namespace, results: Path = RESULTS) -> dict[str, Any]:
  """Trains and evaluates what is missing; returns the figures. Raises UserError: a run has not finished."""
  folder, work = options.folder.absolute(), jobs(options)
  with TimeBudget(60.0 * options.minutes) as budget:
    is_ok = Sweep(folder, results, budget).run(work)
  if not is_ok or not all((results / job.name).exists() for job in work):
    raise UserError("the runs are not done; repeat the command to resume")
  half_way, offline = (read_result(results / job.name).evaluations[0] for job in work)
  command = [*MOOZI, "trajectories", str(folder / "online"), "--json"]
  done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
  listed = json.loads(done.stdout)
  return {
    "steps": options.steps,
    "offline_steps": options.offline_steps,
    "ratio": options.ratio,
    "half_way": half_way,
    "offline": offline,
    "share": offline["return_mean"] / half_way["return_mean"],
    "mib_per_million_steps": listed["bytes"] / 2**20 / listed["steps"] * 1e6,
    "wall_s": {
      job.name: json.loads((results / job.name / "summary.json").read_text())["training_s"] for job in work
    },
    "cores": num_cores(),
  }


def print_table(figures: dict[str, Any]) -> None:
  """Prints the figures in Markdown."""
  half, offline = figures["half_way"], figures["offline"]
  heading = f"return, {half['episodes']} episodes ± standard deviation"
  print(f"| agent | environment steps seen | {heading} | training, s |")
  print("|---|---|---|---|")
  rows = (
    ("half-way checkpoint", f"{half['env_steps']:,}", half),
    ("offline, with reanalyze", f"the trajectories of the first {figures['steps'] // 2:,}", offline),
  )
  for name, seen, result in rows:
    returned = f"{result['return_mean']:.2f} ± {result['return_std']:.2f}"
    print(f"| {name} | {seen} | {returned} | {result['wall_s']:.0f} |")
  print(f"\noffline / half-way: {figures['share']:.2f} (expected at least 0.90)")
  print(f"trajectories: {figures['mib_per_million_steps']:.1f} MiB per million steps")


def main() -> None:
  """Measures what is missing and prints the table."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--steps", type=int, default=500_000)
  parser.add_argument("--offline-steps", type=int, default=500_000)
  parser.add_argument("--ratio", type=float, default=0.8)
  parser.add_argument("--episodes", type=int, default=100)
  parser.add_argument("--folder", type=Path, default=RUNS / "offline_experiment")
  parser.add_argument("--minutes", type=float, default=55.0)
  parser.add_argument("--table", action="store_true")
  options = parser.parse_args()
  if not options.table:
    try:
      write_json(RESULTS / "figures.json", measure(options))
    except UserError as error:
      raise SystemExit(f"error: {error}") from None
  print_table(json.loads((RESULTS / "figures.json").read_text()))


if __name__ == "__main__":
  main()

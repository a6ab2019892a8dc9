"""Writes results/figures.json from the finished jobs and the stored trajectories.

python -m experiments.offline.figures
"""

import json
import subprocess
import sys
from pathlib import Path

from experiments.lib.command import command
from experiments.lib.results import RUNS, finished, sweep_of
from moozi.core.errors import UserError
from moozi.experiments.results import write_json
from moozi.experiments.runner import MOOZI

HERE = Path(__file__).resolve().parent


@command
def main(runs: Path = RUNS / "offline", results: Path = HERE / "results") -> int:
  """Writes the figures; returns the exit status."""
  found = finished(HERE, results)
  if len(found) != len(sweep_of(HERE).jobs):
    raise UserError(f"{results}: not all jobs are done; run `moozi sweep experiments/offline/offline.yaml`")
  online, offline = found
  half_way, last = (result.evaluations[0] for result in found)
  command_line = [*MOOZI, "trajectories", str(runs / "online"), "--json"]
  listed = json.loads(subprocess.run(command_line, check=True, stdout=subprocess.PIPE, text=True).stdout)
  figures = {
    "steps": online.config.max_env_steps,
    "offline_steps": offline.config.max_env_steps,
    "ratio": offline.config.reanalyze.ratio,
    "half_way": half_way,
    "offline": last,
    "share": last["return_mean"] / half_way["return_mean"],
    "mib_per_million_steps": listed["bytes"] / 2**20 / listed["steps"] * 1e6,
    "wall_s": {result.path.name: result.summary["training_s"] for result in found},
    "cores": online.cores,
  }
  write_json(results / "figures.json", figures)
  print(f"offline / half-way: {figures['share']:.2f} (expected at least 0.90)")
  print(f"trajectories: {figures['mib_per_million_steps']:.1f} MiB per million steps")
  return 0


if __name__ == "__main__":
  sys.exit(main())

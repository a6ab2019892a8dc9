"""Evaluates the milestones of a run with the learner's parameters and with their moving average.

    python -m experiments.steady_learning.networks RUN [--milestones 10] [--episodes 100]
    python -m experiments.steady_learning.networks --table

RUN is the directory of a run with `learner.target_decay` above 0. Both networks play the same episodes.
Writes `networks/<run>.json` here; `--table` prints all results as a table.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.lib.command import command
from experiments.lib.results import swing_of
from experiments.lib.tables import markdown_table
from moozi.api.loading import agent_of
from moozi.api.run_access import open_run
from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.experiments.results import write_json
from moozi.io.checkpoints import list_milestones

RESULTS = Path(__file__).resolve().parent / "networks"
NETWORKS = ("online", "target")
COLUMNS = ("run", "learner's parameters: mean", "swing", "their average: mean", "swing")


def evaluate(run: str, num_milestones: int, episodes: int) -> dict[str, Any]:
  """Returns the mean returns of a run's last milestones, oldest first, by network.

  Raises: UserError: the run has fewer milestones, or no average of its parameters.
  """
  directory, config = open_run(run, allow_code=False)
  if config.learner.target_decay == 0:
    raise UserError(f"{run}: learner.target_decay is 0, so the run has no average of its parameters")
  found = list_milestones(directory.checkpoints_path)
  if len(found) < num_milestones:
    raise UserError(f"{run}: has {len(found)} milestones; choose --milestones of at most {len(found)}")
  chosen = found[-num_milestones:]
  out: dict[str, Any] = {
    "env": config.env.name,
    "seed": config.seed,
    "target_decay": config.learner.target_decay,
    "episodes": episodes,
    "env_steps": [info.env_steps for info in chosen],
  }
  for network in NETWORKS:
    evaluation = config.evaluation.model_copy(update={"network": network})
    own: Config = config.model_copy(update={"evaluation": evaluation})
    out[network] = []
    for info in chosen:
      result = agent_of(directory, own, info.name).evaluate(episodes)
      out[network].append(float(np.mean(result.returns)))
      print(f"{directory.name} {network} {info.env_steps:,}: {out[network][-1]:.1f}", flush=True)
  return out


def table(results: Path = RESULTS) -> str:
  """Returns the table in Markdown: a row per run, with the mean and the swing of each network."""
  rows = []
  for path in sorted(results.glob("*.json")):
    found = json.loads(path.read_text("utf-8"))
    cells = [path.stem]
    for network in NETWORKS:
      means = found[network]
      cells += [f"{np.mean(means):.1f}", f"{swing_of(means):.0%}"]
    rows.append(cells)
  return markdown_table(COLUMNS, rows)


@command
def main(arguments: Sequence[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("run", nargs="?", metavar="RUN")
  parser.add_argument("--milestones", type=int, default=10, metavar="N", help="from the end (%(default)s)")
  parser.add_argument("--episodes", type=int, default=100, metavar="N", help="per milestone (%(default)s)")
  parser.add_argument("--table", action="store_true", help="print the table of all results")
  options = parser.parse_args(arguments)
  if options.run is not None:
    RESULTS.mkdir(exist_ok=True)
    name = Path(options.run).resolve().name
    write_json(RESULTS / f"{name}.json", evaluate(options.run, options.milestones, options.episodes))
  elif not options.table:
    parser.error("RUN or --table is needed")
  if options.table:
    print(table())
  return 0


if __name__ == "__main__":
  sys.exit(main())

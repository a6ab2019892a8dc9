"""Plays trained agents with several numbers of simulations per search, and prints their mean returns.

    python -m experiments.atari.simulations zoo:atari/boxing runs/atari/muzero_boxing_seed1

Each agent plays 30 whole games with each number of simulations, from the same starts. Games that were played
are kept in `results/simulations/AGENT.json` and not played again.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import moozi
from experiments.lib.command import command, positive_int
from experiments.lib.tables import markdown_table
from moozi.experiments.results import write_json

RESULTS = Path(__file__).resolve().parent / "results" / "simulations"
EPISODES = 30
SIMULATIONS = (8, 16, 32, 64)


def play(run: str, simulations: Sequence[int], results: Path = RESULTS, episodes: int = EPISODES) -> Path:
  """Plays with each number of simulations that the agent's file lacks. Returns the file.

  Raises: UserError: there is no such run. EnvError: the environment failed; games played before are kept.
  """
  path = results / f"{Path(run).name}.json"
  played: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
  agent = moozi.load(run)
  for count in simulations:
    if str(count) in played:
      continue
    result = agent.evaluate(episodes, simulations=count)
    figures = {"distinct_episodes": result.summary()["distinct_episodes"], "returns": list(result.returns)}
    played[str(count)] = {"checkpoint": agent.checkpoint.name, **figures}
    write_json(path, dict(sorted(played.items(), key=lambda item: int(item[0]))), indent=None)
  return path


def table_of(results: Path = RESULTS) -> str:
  """Returns a Markdown table with a row for each agent and a column for each number of simulations.

  A cell has the mean return and its standard error, in which only the n distinct games count: the standard
  deviation of all returns (of the population) divided by √(n − 1).
  """
  rows = []
  for path in sorted(results.glob("*.json")):
    played = json.loads(path.read_text("utf-8"))
    row = [path.stem, *(_cell(played.get(str(count))) for count in SIMULATIONS)]
    rows.append([*row, str(max(figures["distinct_episodes"] for figures in played.values()))])
  return markdown_table(("agent", *map(str, SIMULATIONS), "distinct games"), rows)


def _cell(figures: dict[str, Any] | None) -> str:
  if figures is None:
    return ""
  mean, distinct = f"{np.mean(figures['returns']):.1f}", figures["distinct_episodes"]
  return mean if distinct == 1 else f"{mean} ± {np.std(figures['returns']) / np.sqrt(distinct - 1):.1f}"


@command
def main(arguments: Sequence[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("runs", nargs="+", help="run directories, or zoo:NAME")
  parser.add_argument("--simulations", type=positive_int, nargs="+", default=SIMULATIONS)
  options = parser.parse_args(arguments)
  for run in options.runs:
    print(play(run, options.simulations), file=sys.stderr)
  print(table_of())
  return 0


if __name__ == "__main__":
  sys.exit(main())

"""Prints the tables of experiments, and writes them into their pages.

    python -m experiments.lib.tables                    # all tables
    python -m experiments.lib.tables corridor --readme  # those of an experiment, also into its README.md

`experiments/NAME/table.py` has `TABLES`: functions that return Markdown, by the name of the markers in
README.md between which it is written, or by the path of its own file in the experiment's folder.
"""

import argparse
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.lib.command import command
from experiments.lib.results import ROOT, Result, sweep_of
from moozi.core.errors import UserError
from moozi.experiments.jobs import matches_step
from moozi.experiments.results import has_result
from moozi.io.atomic_write import write_text
from moozi.io.run_directory import read_run_config

EXPERIMENTS = ROOT / "experiments"
Tables = Mapping[str, Callable[[], str]]

Curve = Sequence[Mapping[str, float]]
"""A run's metrics, one dict per tick."""

LAST = 10
"""Number of evaluations at the end of a run that `last_evaluations` returns."""


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
  """Returns a table in Markdown."""
  lines = [f"| {' | '.join(cells)} |" for cells in (columns, *rows)]
  return "\n".join([lines[0], "|" + "---|" * len(columns), *lines[1:]])


def with_interval(value: float, low: float, high: float, digits: int = 0) -> str:
  """Returns a figure with its interval in brackets."""
  return f"{value:z.{digits}f} [{low:z.{digits}f}, {high:z.{digits}f}]"


def write_between_markers(path: Path, name: str, text: str) -> None:
  """Replaces the text between the markers of a name in a file.

  Raises: UserError: the file does not have both markers once, in order.
  """
  begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
  whole = path.read_text("utf-8")
  if whole.count(begin) != 1 or whole.count(end) != 1 or whole.index(begin) > whole.index(end):
    raise UserError(f"{path}: needs one line {begin} and, after it, one line {end}")
  before, _, rest = whole.partition(begin)
  write_text(path, f"{before}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}")


def last_evaluations(curve: Curve) -> np.ndarray:
  """Returns the mean returns of the last `LAST` evaluations; one NaN if there are none."""
  found = [tick["test/return_mean"] for tick in curve if "test/return_mean" in tick][-LAST:]
  return np.array(found or [np.nan])


def read_runs(experiment: Path) -> dict[str, list[Result]]:
  """Returns the results of an experiment's jobs by variant; variants without results are left out.

  Raises: UserError: a result's settings or number of steps differ from its job's, or the run was not
    evaluated at its end.
  """
  sweep, out = sweep_of(experiment), dict[str, list[Result]]()
  results = sweep.results
  assert results is not None, "a sweep of an experiment has results"
  for job in sorted(sweep.jobs, key=lambda job: job.seed):
    path, wanted = results / job.name, job.load_config(results)
    if not path.exists():
      continue
    has_result(job, results)
    # Older results have no evaluations and no machine.json.
    result = Result(path=path, config=read_run_config(path / "config.yaml"), evaluations=[], machine={})
    env_steps = result.summary["env_steps"]
    at_end = result.summary["test_at_env_steps"], result.summary["test_episodes"]
    if at_end != (env_steps, wanted.evaluation.final_episodes):
      raise UserError(f"{path}: the run was not evaluated at its end; move it and its run away to repeat it")
    if not matches_step(env_steps, wanted.max_env_steps):
      raise UserError(
        f"{path}: made with {env_steps:,} steps instead of {wanted.max_env_steps:,}; move it away"
      )
    out.setdefault(job.variant, []).append(result)
  order = dict.fromkeys(job.variant for job in sweep.jobs)
  return {variant: out[variant] for variant in order if variant in out}


def ablation_table(
  experiment: Path,
  measures: Mapping[str, Callable[[Curve], float]] | None = None,
  counts: Mapping[str, str] | None = None,
) -> str:
  """Returns a Markdown table of each variant's seeds and their mean; evaluations are ± two standard errors.

  Args:
    measures: further columns by heading; each is a function of a run's metrics.
    counts: columns after that of the steps, by heading: the name of a count in `summary.json`.
  """
  measures, counts = measures or {}, {"steps": "env_steps"} | dict(counts or {})
  headings = ["variant", *counts, "training return, last 100 episodes", "return, evaluation at the end"]
  rows = []
  for variant, results in read_runs(experiment).items():
    summaries, curves = [result.summary for result in results], [result.ticks for result in results]
    acting = [result.training_return for result in results]
    means = [s["test_return_mean"] for s in summaries]
    errors = [2 * s["test_return_std"] / np.sqrt(s["test_episodes"]) for s in summaries]
    evaluated = " ".join(f"{x:.1f} ± {e:.1f}" for x, e in zip(means, errors, strict=True))
    counted = [" ".join(f"{n:,}" for n in sorted({s[key] for s in summaries})) for key in counts.values()]
    cells = [variant, *counted, each(acting), f"{evaluated} {_mean(means)}"]
    cells += [each([measure(curve) for curve in curves]) for measure in measures.values()]
    rows.append([*cells, f"{np.mean([s['wall_s'] for s in summaries]):.0f}"])
  return markdown_table([*headings, *measures, "wall s"], rows)


def each(values: Sequence[float]) -> str:
  """Returns the values and their mean; a dash if the runs have no such measure."""
  if np.isnan(values).all():
    return "–"
  return f"{' '.join(f'{value:.1f}' for value in values)} {_mean(values)}"


def _mean(values: Sequence[float]) -> str:
  return f"(mean {np.mean(values):.1f})"


def tables_of(name: str) -> Tables:
  """Returns the tables of an experiment."""
  found: Any = importlib.import_module(f"experiments.{name}.table").TABLES
  return found


@command
def main(arguments: Sequence[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  known = sorted(path.parent.name for path in EXPERIMENTS.glob("*/table.py"))
  parser.add_argument("names", nargs="*", metavar="NAME", help=f"from {', '.join(known)}; all by default")
  parser.add_argument("--readme", action="store_true", help="also write the tables into the pages")
  options = parser.parse_args(arguments)
  if unknown := [name for name in options.names if name not in known]:
    raise UserError(f"{unknown[0]}: has no tables; choose from {', '.join(known)}")
  for name in options.names or known:
    for marker, make in tables_of(name).items():
      text = make()
      if options.readme and marker.endswith(".md"):
        write_text(EXPERIMENTS / name / marker, f"{text}\n")
      elif options.readme:
        write_between_markers(EXPERIMENTS / name / "README.md", marker, text)
      print(f"{text}\n")
  return 0


if __name__ == "__main__":
  sys.exit(main())

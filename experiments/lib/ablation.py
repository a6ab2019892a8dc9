"""Ablations: short runs of variants of one configuration at equal environment steps, and their table."""

import argparse
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.lib.command import command
from experiments.lib.jobs import Job, matches_step
from experiments.lib.results import markdown_table, write_between_markers
from experiments.lib.sweep import RUNS, Sweep, is_done
from moozi.core.errors import UserError
from moozi.experiments.time_budget import TimeBudget
from moozi.io.machine import num_cores
from moozi.io.metrics import read_metrics

Curve = Sequence[Mapping[str, float]]
"""A run's metrics, one dict per tick."""

LAST = 10
"""Number of evaluations at the end of a run that `last_evaluations` returns."""

SHORT_RUN = ("runtime=local", "evaluation.gif=false")
"""Settings of all runs: each run is one process on one core."""


def last_evaluations(curve: Curve) -> np.ndarray:
  """Returns the mean returns of the last `LAST` evaluations, NaN without any."""
  found = [tick["test/return_mean"] for tick in curve if "test/return_mean" in tick][-LAST:]
  return np.array(found or [np.nan])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ablation:
  """Variants of one configuration.

  Attributes:
    config: the YAML file.
    results: the folder of the results.
    variants: overrides `key=value` by name of the variant; an empty tuple leaves the configuration unchanged.
    common: overrides `key=value` of all variants.
    steps: default number of environment steps of each run.
    measures: further columns of the table by heading; each is a function of a run's metrics.
  """

  config: Path
  results: Path
  variants: Mapping[str, tuple[str, ...]]
  common: tuple[str, ...] = ()
  steps: int = 300_000
  measures: Mapping[str, Callable[[Curve], float]] = dataclasses.field(default_factory=dict)

  def job(self, variant: str, seed: int, steps: int) -> Job:
    overrides = (*SHORT_RUN, f"max_env_steps={steps}", *self.common, *self.variants[variant])
    return Job(
      name=f"{variant}_seed{seed}", config=self.config, overrides=overrides, seed=seed, evaluations=()
    )

  def read(self, variant: str, steps: int) -> list[dict[str, Any]]:
    """Reads the figures of all seeds of a variant. Raises UserError: as `read_figures`."""
    seeds = seeds_of(self.results, variant)
    return [read_figures(self.job(variant, seed, steps), self.results) for seed in seeds]

  def table(self, steps: int) -> str:
    """Returns a Markdown table of each seed and the mean; evaluations have two standard errors."""
    headings = ["variant", "steps", "training return, last 100 episodes", "return, evaluation at the end"]
    headings += [*self.measures, "wall s"]
    rows = []
    for variant in self.variants:
      if not (found := self.read(variant, steps)):
        continue
      acting = [[t["train/return_mean"] for t in r["curve"] if "train/return_mean" in t][-1] for r in found]
      summaries = [r["summary"] for r in found]
      means = [s["test_return_mean"] for s in summaries]
      errors = [2 * s["test_return_std"] / np.sqrt(s["test_episodes"]) for s in summaries]
      evaluated = " ".join(f"{x:.1f} ± {e:.1f}" for x, e in zip(means, errors, strict=True))
      env_steps = " ".join(f"{count:,}" for count in sorted({s["env_steps"] for s in summaries}))
      cells = [variant, env_steps, _each(acting), f"{evaluated} {_mean(means)}"]
      cells += [_each([measure(run["curve"]) for run in found]) for measure in self.measures.values()]
      cells.append(f"{np.mean([s['wall_s'] for s in summaries]):.0f}")
      rows.append(cells)
    return markdown_table(headings, rows)


def _each(values: Sequence[float]) -> str:
  return f"{' '.join(f'{value:.1f}' for value in values)} {_mean(values)}"


def _mean(values: Sequence[float]) -> str:
  return f"(mean {np.mean(values):.1f})"


def seeds_of(results: Path, name: str) -> list[int]:
  """Returns the seeds that have a result `<name>_seed<n>`."""
  return sorted(int(path.name.rpartition("_seed")[2]) for path in results.glob(f"{name}_seed*"))


def read_figures(job: Job, results: Path) -> dict[str, Any]:
  """Returns the figures of a finished run: its summary (`summary`) and its metrics (`curve`).

  Raises: UserError: the result's settings or number of steps differ from the job's.
  """
  wanted, path = job.load_config(results), results / job.name
  is_done(job, results, results)
  summary = json.loads((path / "summary.json").read_text("utf-8"))
  env_steps = summary["env_steps"]
  if (summary["test_at_env_steps"], summary["test_episodes"]) != (
    env_steps,
    wanted.evaluation.final_episodes,
  ):
    raise UserError(f"{path}: the run was not evaluated at its end; move it and its run away to repeat it")
  if not matches_step(env_steps, wanted.max_env_steps):
    steps = f"made with {env_steps:,} steps instead of {wanted.max_env_steps:,}"
    raise UserError(f"{path}: {steps}; change --steps, or move it and its run away to repeat it")
  return {"summary": summary, "curve": read_metrics(path / "metrics.jsonl")}


def run_side_by_side(
  jobs: Sequence[Job], folder: Path, results: Path, minutes: float, at_once: int | None = None
) -> bool:
  """Runs the jobs that have no result, one per core; returns true if none failed.

  Raises: RunError: as `Sweep.run`.
  """
  with TimeBudget(60.0 * minutes) as budget:
    return Sweep(folder, results, budget, at_once or num_cores()).run(jobs)


@command
def main(ablation: Ablation, experiment: Path, doc: str, arguments: Sequence[str] | None = None) -> int:
  """Runs the command line of an ablation: trains what is missing and prints the table.

  Returns: the exit status: 0; 1 if a run failed; 2 for a user's error.
  """
  parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
  names = tuple(ablation.variants)
  parser.add_argument(
    "--steps", type=int, default=ablation.steps, help="environment steps of each run (%(default)s)"
  )
  parser.add_argument("--seeds", type=int, default=2, help="number of seeds, from 0 (%(default)s)")
  parser.add_argument("--variants", nargs="*", choices=names, default=names, help="run these variants only")
  parser.add_argument("--minutes", type=float, default=55.0, help="time limit of this call (%(default)g)")
  parser.add_argument("--table", action="store_true", help="only print the table")
  parser.add_argument(
    "--readme", action="store_true", help="only write the table into README.md and print it"
  )
  options = parser.parse_args(arguments)
  jobs = [ablation.job(v, seed, options.steps) for seed in range(options.seeds) for v in options.variants]
  table = ablation.table(options.steps)
  if not (options.table or options.readme):
    if not run_side_by_side(jobs, RUNS / experiment.name, ablation.results, options.minutes):
      return 1
    table = ablation.table(options.steps)
  if options.readme:
    write_between_markers(experiment / "README.md", experiment.name, table)
  print(table)
  return 0

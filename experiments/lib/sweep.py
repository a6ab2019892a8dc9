"""Runs a list of jobs with commands of moozi, until all are done or the time is used up."""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.lib.jobs import ROOT, Evaluation, Job, find_evaluated
from experiments.lib.results import is_result_of, write_json, write_result
from moozi.core.errors import UserError
from moozi.experiments.jobs import GROWABLE, differences, progress_of
from moozi.experiments.runner import MOOZI, Runner, print_line
from moozi.experiments.time_budget import TimeBudget
from moozi.io.checkpoints import CheckpointInfo
from moozi.io.run_directory import RunDirectory, read_run_config

RUNS = ROOT / "runs"
"""The folder of all runs; each experiment has a folder in it."""

ONE_CORE = {"NPROC": "1", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
"""Environment variables of parallel runs: one thread each."""


def main(
  jobs: Sequence[Job], experiment: Path, doc: str, arguments: Sequence[str] | None = None, runs: Path = RUNS
) -> int:
  """Runs the command line of a sweep: does the jobs in order, and writes to `results/` of the experiment.

  Returns: the exit status: 0; 1 if a job failed; 2 for a user's error.
  """
  parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--minutes", type=float, default=55.0, help="time limit of this call (%(default)g)")
  parser.add_argument("--only", nargs="+", metavar="JOB", help="run these jobs only")
  parser.add_argument("--list", action="store_true", help="print the progress of each job and exit")
  options = parser.parse_args(arguments)
  folder, results = runs / experiment.name, experiment / "results"
  try:
    names = [job.name for job in jobs]
    assert len(set(names)) == len(names), "two jobs have one name"
    if unknown := [name for name in options.only or () if name not in names]:
      raise UserError(f"--only {unknown[0]}: unknown job; choose from {', '.join(names)}")
    chosen = [job for job in jobs if job.name in (options.only or names)]
    if options.list:
      for job in chosen:
        print(f"{job.name}: {describe(job, folder, results)}")
      return 0
    with TimeBudget(60.0 * options.minutes) as budget:
      return int(not Sweep(folder, results, budget).run(chosen))
  except UserError as error:
    print(f"error: {error}", file=sys.stderr)
    return 2


def describe(job: Job, folder: Path, results: Path) -> str:
  try:
    if is_done(job, folder, results):
      return "done"
    env_steps, is_complete = progress_of(job, folder)
  except UserError as error:
    return str(error)
  if is_complete:
    planned = evaluations_of(job, RunDirectory.open(folder / job.run_name))
    return f"trained, {sum(path.exists() for path in planned)} of {len(planned)} evaluations"
  return f"at {env_steps:,} steps" if (folder / job.run_name).exists() else "not started"


def is_done(job: Job, folder: Path, results: Path) -> bool:
  """Returns whether a result has all steps and evaluations of the job.

  Raises: UserError: the result's settings differ from the job's in more than the length of the run.
  """
  path, wanted = results / job.name, job.load_config(folder)
  if not is_result_of(path, job, wanted):
    return False
  changed = differences(read_run_config(path / "config.yaml"), wanted)
  if changed := [key for key in changed if key not in GROWABLE]:
    raise UserError(f"{path}: differs from the job in {', '.join(changed)}; move it and its run away")
  return True


def evaluations_of(job: Job, run: RunDirectory) -> dict[Path, tuple[Evaluation, CheckpointInfo]]:
  """Returns the evaluations of a job whose run is complete, by the file in the run that stores each.

  Leaves out duplicates, and evaluations of a step that no checkpoint matches.
  """
  out: dict[Path, tuple[Evaluation, CheckpointInfo]] = {}
  for evaluation in job.evaluations:
    if (found := find_evaluated(run, evaluation.checkpoint)) is not None:
      simulations = "own" if evaluation.simulations is None else evaluation.simulations
      name = f"{found.name}_simulations_{simulations}_episodes_{evaluation.episodes}.json"
      out.setdefault(run.path / "evaluations" / name, (evaluation, found))
  return out


class Sweep(Runner[Job]):
  """Trains and evaluates jobs, and writes the result of each finished job to the folder `results`.

  `at_once` jobs run in parallel, one core each. If `at_once` is None, jobs run one at a time with the whole
  machine.
  """

  def __init__(
    self,
    folder: Path,
    results: Path,
    budget: TimeBudget,
    at_once: int | None = None,
    moozi: Sequence[str] = MOOZI,
    report: Callable[[str], None] = print_line,
  ) -> None:
    env = {} if at_once is None else ONE_CORE
    lock = folder.absolute().parent
    super().__init__(folder, budget, at_once=at_once or 1, env=env, lock=lock, moozi=moozi, report=report)
    self._results = results

  def is_done(self, job: Job) -> bool:
    if is_done(job, self._folder, self._results):
      return True
    path = self._folder / job.run_name
    if (self._results / job.run_name).exists() and not path.exists():
      raise UserError(f"{path}: not found, but its result exists; move {self._results / job.run_name} away")
    return False

  def complete(self, job: Job) -> bool:
    run, evaluations = RunDirectory.open(self._folder / job.run_name), []
    for file, (evaluation, checkpoint) in evaluations_of(job, run).items():
      if not file.exists() and not self._evaluate(job, evaluation, checkpoint, file):
        return False
      # The file may come from an evaluation that named this checkpoint differently.
      wanted = {"wanted": evaluation.checkpoint, "simulations": evaluation.simulations}
      evaluations.append(json.loads(file.read_text("utf-8")) | wanted)
    write_result(self._results / job.name, run, job, evaluations)
    return True

  def _evaluate(self, job: Job, evaluation: Evaluation, checkpoint: CheckpointInfo, file: Path) -> bool:
    """Evaluates a checkpoint and writes the figures to `file`; returns false if it did not finish."""
    if self._budget.is_over:
      return False
    arguments: list[str | Path] = ["evaluate", self._folder / job.run_name, "--checkpoint", checkpoint.name]
    arguments += ["--json", "--returns", "--episodes", str(evaluation.episodes)]
    if evaluation.simulations is not None:
      arguments += ["--simulations", str(evaluation.simulations)]
    with tempfile.TemporaryFile("w+") as out:
      if not self.command(job, arguments, out):
        return False
      out.seek(0)
      figures: dict[str, Any] = {"wall_s": checkpoint.meta.get("wall_s")} | json.load(out)
    write_json(file, figures, indent=None)
    simulations = "" if evaluation.simulations is None else f" with {evaluation.simulations} simulations"
    self._report(f"{job.name}: {checkpoint.name}{simulations}: mean return {figures['return_mean']:.2f}")
    return True

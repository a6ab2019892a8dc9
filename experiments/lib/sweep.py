"""Runs a list of jobs, one command of moozi at a time, until all are done or the time is used up."""

import argparse
import concurrent.futures
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from experiments.lib.jobs import GROWABLE, ROOT, Evaluation, Job, differences, find_evaluated, progress_of
from experiments.lib.results import is_result_of, write_json, write_result
from experiments.lib.time_budget import TimeBudget
from moozi.core.errors import RunError, UserError
from moozi.io.checkpoints import CheckpointInfo
from moozi.io.run_directory import RunDirectory, read_run_config
from moozi.io.run_lock import RunLock

RUNS = ROOT / "runs"
"""The folder of all runs; each experiment has a folder in it."""

MOOZI = (sys.executable, "-m", "moozi.cli")
MIN_TRAINING_S = 120.0
"""Training is not started or resumed if less time than this remains."""

ONE_CORE = {"NPROC": "1", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
"""Environment variables of parallel runs: one thread each."""


def main(
  jobs: Sequence[Job], experiment: Path, doc: str, arguments: Sequence[str] | None = None, runs: Path = RUNS
) -> int:
  """The command line of a sweep: works on the jobs in order, with results in `results/` of the experiment.

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
  """Whether a result has all steps and evaluations of the job.

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
  """The evaluations of a job with a complete run, by the files in the run that store them.

  Evaluations of a step that no checkpoint matches are left out, and so are duplicates.
  """
  out: dict[Path, tuple[Evaluation, CheckpointInfo]] = {}
  for evaluation in job.evaluations:
    if (found := find_evaluated(run, evaluation.checkpoint)) is not None:
      simulations = "own" if evaluation.simulations is None else evaluation.simulations
      name = f"{found.name}_simulations_{simulations}_episodes_{evaluation.episodes}.json"
      out.setdefault(run.path / "evaluations" / name, (evaluation, found))
  return out


class CommandError(Exception):
  """A command failed."""


class Sweep:
  """Works on jobs within a time budget; `folder` holds the runs and their logs.

  `at_once` jobs run in parallel, one core each; they must not share runs. If `at_once` is None, jobs run one
  at a time with the whole machine.
  """

  def __init__(
    self,
    folder: Path,
    results: Path,
    budget: TimeBudget,
    at_once: int | None = None,
    moozi: Sequence[str] = MOOZI,
    report: Callable[[str], None] = lambda line: print(line, flush=True),
  ) -> None:
    self._folder, self._results = folder.absolute(), results
    self._budget, self._moozi, self._report = budget, tuple(moozi), report
    self._at_once, self._env = (1, {}) if at_once is None else (at_once, ONE_CORE)

  def run(self, jobs: Sequence[Job]) -> bool:
    """Runs jobs in order and writes the result of each that is done. A failed job does not stop the others.

    Returns: whether no job failed.
    Raises: RunError: another sweep is running, or another process writes into a run.
    """
    try:
      self._folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
      raise UserError(f"{self._folder}: cannot be created: {error.strerror}") from None
    with RunLock(self._folder.parent, "running an experiment"):
      with concurrent.futures.ThreadPoolExecutor(self._at_once) as pool:
        done = dict(zip(jobs, pool.map(self._try, jobs), strict=True))
    left = [job.name for job, is_finished in done.items() if not is_finished]
    self._report(f"not done: {', '.join(left)}" if left else "all jobs are done")
    return None not in done.values()

  def _try(self, job: Job) -> bool | None:
    """Works on a job; returns whether it is done, or None if it failed."""
    try:
      return self._finish(job)
    except (CommandError, UserError) as error:
      if isinstance(error, RunError):
        self._budget.end()
        raise
      self._report(f"{job.name}: {error}")
      return None

  def _finish(self, job: Job) -> bool:
    if is_done(job, self._folder, self._results):
      return True
    path = self._folder / job.run_name
    if (self._results / job.run_name).exists() and not path.exists():
      raise UserError(f"{path}: not found, but its result exists; move {self._results / job.run_name} away")
    env_steps, is_complete = progress_of(job, self._folder)
    if not is_complete:
      if self._budget.remaining_s < MIN_TRAINING_S:
        return False
      self._train(job, path, env_steps)
      env_steps, is_complete = progress_of(job, self._folder)
      if not is_complete:
        self._report(f"{job.name}: stopped at {env_steps:,} steps")
        return False
    run, evaluations = RunDirectory.open(path), []
    for file, (evaluation, checkpoint) in evaluations_of(job, run).items():
      if not file.exists() and not self._evaluate(job, evaluation, checkpoint, file):
        return False
      # The file may come from an evaluation that named this checkpoint differently.
      wanted = {"wanted": evaluation.checkpoint, "simulations": evaluation.simulations}
      evaluations.append(json.loads(file.read_text("utf-8")) | wanted)
    write_result(self._results / job.name, run, job, evaluations)
    self._report(f"{job.name}: done")
    return True

  def _train(self, job: Job, path: Path, env_steps: int) -> None:
    if (path / "config.yaml").exists():
      with RunDirectory.open(path).claim():
        pass  # raises RunError if another process writes there
    if env_steps:
      self._report(f"{job.name}: resumed at {env_steps:,} steps")
      wanted = job.load_config(self._folder).model_dump(mode="json")
      grown = [f"{key}={json.dumps(wanted[key])}" for key in GROWABLE]
      arguments: list[str | Path] = ["train", "--resume", path, *grown]
    else:
      self._report(f"{job.name}: started")
      shutil.rmtree(path, ignore_errors=True)  # it has no checkpoint
      arguments = ["train", job.config.absolute(), *job.settings(self._folder)]
    self._command(job, [*arguments, "logging.progress=plain"])

  def _evaluate(self, job: Job, evaluation: Evaluation, checkpoint: CheckpointInfo, file: Path) -> bool:
    """Writes the figures of an evaluation; returns false if the time is over."""
    if self._budget.is_over:
      return False
    arguments: list[str | Path] = ["evaluate", self._folder / job.run_name, "--checkpoint", checkpoint.name]
    arguments += ["--json", "--returns", "--episodes", str(evaluation.episodes)]
    if evaluation.simulations is not None:
      arguments += ["--simulations", str(evaluation.simulations)]
    with tempfile.TemporaryFile("w+") as out:
      if not self._command(job, arguments, out):
        return False
      out.seek(0)
      figures: dict[str, Any] = {"wall_s": checkpoint.meta.get("wall_s")} | json.load(out)
    write_json(file, figures, indent=None)
    simulations = "" if evaluation.simulations is None else f" with {evaluation.simulations} simulations"
    self._report(f"{job.name}: {checkpoint.name}{simulations}: mean return {figures['return_mean']:.2f}")
    return True

  def _command(self, job: Job, arguments: Sequence[str | Path], out: IO[str] | None = None) -> bool:
    """Runs a command of moozi; returns false if the end of the budget stopped it. Raises CommandError."""
    path = self._folder / f"{job.run_name}.log"
    with path.open("a") as log:
      status = self._budget.run([*self._moozi, *arguments], out or log, log, self._env)
    if status != 0 and not self._budget.is_over:
      lines = [line for line in path.read_text("utf-8", "replace").splitlines() if line.strip()]
      raise CommandError(f"{arguments[0]}: exit status {status}: {lines[-1] if lines else ''} ({path})")
    return status == 0

"""Runs a list of jobs with commands of moozi, until all are done or the time is used up."""

import argparse
import dataclasses
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from experiments.lib.command import command
from experiments.lib.jobs import ROOT, Evaluation, Job, find_evaluated
from experiments.lib.results import is_result_of, write_json, write_result
from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.experiments.jobs import GROWABLE, differences, progress_of
from moozi.experiments.runner import MOOZI, Runner, print_line
from moozi.experiments.time_budget import TimeBudget
from moozi.io.checkpoints import CheckpointInfo
from moozi.io.machine import num_cores
from moozi.io.run_directory import RunDirectory, read_run_config

RUNS = ROOT / "runs"
"""The folder of all runs; each experiment has a folder in it."""

ONE_CORE = {"NPROC": "1", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
"""Environment variables of parallel runs: one thread each."""


@command
def main(
  jobs: Sequence[Job],
  experiment: Path,
  doc: str,
  arguments: Sequence[str] | None = None,
  runs: Path = RUNS,
  columns: Collection[str] | None = None,
  measures_speed: bool = False,
  one_core: bool = False,
) -> int:
  """Runs the command line of a sweep: does the jobs in order, and writes to `results/` of the experiment.

  With `--job`, it runs one job in another folder, with further settings.

  Args:
    columns, measures_speed: as for `Sweep`.
    one_core: whether each job uses one core and jobs run in parallel on all cores; otherwise they run one at
      a time.

  Returns: the exit status: 0; 1 if a job failed; 2 for a user's error.
  """
  parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--minutes", type=float, help="time limit of this call (55; with --job: none)")
  parser.add_argument("--only", nargs="+", metavar="JOB", help="run these jobs only")
  parser.add_argument("--list", action="store_true", help="print the progress of each job and exit")
  alone = parser.add_argument_group("one job alone, for example on another machine; does not need Ray")
  alone.add_argument("--job", metavar="JOB", help="run this job, beside other calls")
  alone.add_argument("--out", type=Path, metavar="DIR", help="write DIR/JOB; runs and logs are in DIR/runs")
  alone.add_argument("--cores", type=int, metavar="N", help="number of threads of the job")
  alone.add_argument(
    "overrides", nargs="*", metavar="key=value", help="settings of the job, such as runtime=local"
  )
  options = parser.parse_intermixed_args(arguments)
  folder, results = runs / experiment.name, experiment / "results"
  minutes, cores = options.minutes, None
  if minutes is None:
    minutes = math.inf if options.job else 55.0
  names = [job.name for job in jobs]
  assert len(set(names)) == len(names), "two jobs have one name"
  wanted = [options.job] if options.job else options.only
  if unknown := [name for name in wanted or () if name not in names]:
    flag = "--job" if options.job else "--only"
    raise UserError(f"{flag} {unknown[0]}: unknown job; choose from {', '.join(names)}")
  if bool(options.job) != bool(options.out) or (not options.job and (options.cores or options.overrides)):
    raise UserError("--job and --out: each needs the other; --cores and key=value need both")
  chosen = [job for job in jobs if job.name in (wanted or names)]
  if options.job:
    folder, results = options.out / "runs", options.out
    cores = options.cores or (1 if one_core else num_cores())
    chosen = [dataclasses.replace(j, overrides=(*j.overrides, *options.overrides)) for j in chosen]
  if options.list:
    for job in chosen:
      print(f"{job.name}: {describe(job, folder, results)}")
    return 0
  with TimeBudget(60.0 * minutes) as budget:
    at_once = num_cores() if one_core and not options.job else None
    sweep = Sweep(
      folder,
      results,
      budget,
      at_once,
      columns=columns,
      measures_speed=measures_speed,
      cores=cores,
      on_cpu=one_core,
    )
    return int(not sweep.run(chosen))


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
  if changed := [key for key in changed if not key.startswith((*GROWABLE, *job.may_differ))]:
    raise UserError(f"{path}: differs from the job in {', '.join(changed)}; move it and its run away")
  return True


def _rate_falls_until_the_end(config: Config) -> bool:
  if config.algorithm == "ppo":
    return config.ppo.anneal_learning_rate
  rate = config.learner.learning_rate
  return rate.kind != "constant" and rate.decay_steps == "budget"


def evaluations_of(job: Job, run: RunDirectory) -> dict[Path, tuple[Evaluation, CheckpointInfo]]:
  """Returns the evaluations of a job whose run is complete, by the file in the run that stores each.

  Leaves out duplicates, and evaluations of a step that no checkpoint matches.
  """
  out: dict[Path, tuple[Evaluation, CheckpointInfo]] = {}
  for evaluation in job.evaluations:
    if (found := find_evaluated(run, evaluation.checkpoint)) is not None:
      simulations = "own" if evaluation.simulations is None else evaluation.simulations
      name = f"{found.name}_simulations_{simulations}_episodes_{evaluation.episodes}"
      if evaluation.opponent is not None:
        name += f"_against_{evaluation.opponent.replace(':', '_')}"
      out.setdefault(run.path / "evaluations" / f"{name}.json", (evaluation, found))
  return out


class Sweep(Runner[Job]):
  """Trains and evaluates jobs, and writes the result of each finished job to the folder `results`.

  `at_once` jobs run in parallel, one core each. If `at_once` is None, jobs run one at a time with the whole
  machine.

  Args:
    columns: the metrics that results keep; None keeps all.
    measures_speed: whether to measure `speed.seconds_of` before a run starts, for `machine.json`.
    cores: number of threads of each command, only if `at_once` is None. If it is given, the folder of runs is
      not locked, so that several sweeps can use it. None uses all cores of this process.
    on_cpu: whether the commands with `cores` leave a GPU alone.
  """

  def __init__(
    self,
    folder: Path,
    results: Path,
    budget: TimeBudget,
    at_once: int | None = None,
    moozi: Sequence[str] = MOOZI,
    report: Callable[[str], None] = print_line,
    *,
    columns: Collection[str] | None = None,
    measures_speed: bool = False,
    cores: int | None = None,
    on_cpu: bool = False,
  ) -> None:
    env = {} if at_once is None else ONE_CORE
    if cores is not None:
      env = {"NPROC": str(cores), "OMP_NUM_THREADS": str(cores), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
      env |= {"JAX_PLATFORMS": "cpu"} if on_cpu else {}
    lock = folder.absolute().parent if cores is None else None
    self._columns, self._measures_speed = columns, measures_speed
    self._cores = cores if at_once is None else 1
    super().__init__(folder, budget, at_once=at_once or 1, env=env, lock=lock, moozi=moozi, report=report)
    self._results = results

  def is_done(self, job: Job) -> bool:
    if is_done(job, self._folder, self._results):
      return True
    path, wanted = self._folder / job.run_name, job.load_config(self._folder)
    if (self._results / job.run_name).exists() and not path.exists():
      raise UserError(f"{path}: not found, but its result exists; move {self._results / job.run_name} away")
    if progress_of(job, self._folder)[0]:
      steps = RunDirectory.open(path).load_config().max_env_steps
      if steps != wanted.max_env_steps and _rate_falls_until_the_end(wanted):
        raise UserError(
          f"{path}: its learning rate falls until max_env_steps={steps}, and the job has "
          f"{wanted.max_env_steps}; move it and its result away"
        )
    return False

  def complete(self, job: Job) -> bool:
    run, evaluations = RunDirectory.open(self._folder / job.run_name), []
    for file, (evaluation, checkpoint) in evaluations_of(job, run).items():
      if not file.exists() and not self._evaluate(job, evaluation, checkpoint, file):
        return False
      # The file may come from an evaluation that named this checkpoint differently.
      wanted = {"wanted": evaluation.checkpoint, "simulations": evaluation.simulations}
      evaluations.append(json.loads(file.read_text("utf-8")) | wanted)
    measured = {} if self._cores is None else {"cores": self._cores}
    if self._measures_speed and (path := self._speed_path(job)).exists():
      measured |= json.loads(path.read_text("utf-8"))
    write_result(self._results / job.name, run, job, evaluations, self._columns, measured)
    return True

  def begin(self, job: Job) -> None:
    """Measures the search and the update with the job's network, batch and threads, once for each run."""
    is_started = (self._folder / job.run_name / "config.yaml").exists()
    if not self._measures_speed or ((path := self._speed_path(job)).exists() and is_started):
      return
    config, settings = job.load_config(self._folder), job.settings(self._folder)
    threads: dict[str, int | None] = {"act": None, "learn": None}
    if not config.has_one_process:  # the processes of a run with Ray have their own numbers of threads
      threads = {"act": config.workers.resources.num_threads, "learn": config.ray.learner.num_threads}
    measured: dict[str, Any] = {}
    for part, number in threads.items():
      own = {"NPROC": str(number), "OMP_NUM_THREADS": str(number)} if number else {}
      command = [sys.executable, "-m", "experiments.lib.speed", part, job.config, *settings]
      with tempfile.TemporaryFile("w+") as out, (self._folder / f"{job.run_name}.log").open("a") as log:
        if self._budget.run(command, out, log, {**self._env, "PYTHONPATH": str(ROOT), **own}) != 0:
          return  # a run is possible without the measurement
        out.seek(0)
        found = json.loads(out.read().splitlines()[-1])
      measured |= {f"t_{part}_s": found["seconds"], f"threads_{part}": found["threads"]}
      measured |= {"device": found["device"], "load_average": os.getloadavg()[0]}
    write_json(path, measured)

  def _speed_path(self, job: Job) -> Path:
    return self._folder / f"{job.run_name}.speed.json"

  def _evaluate(self, job: Job, evaluation: Evaluation, checkpoint: CheckpointInfo, file: Path) -> bool:
    """Evaluates a checkpoint and writes the figures to `file`; returns false if it did not finish."""
    if self._budget.is_over:
      return False
    arguments: list[str | Path] = ["evaluate", self._folder / job.run_name, "--checkpoint", checkpoint.name]
    arguments += ["--json", "--returns", "--episodes", str(evaluation.episodes)]
    if evaluation.simulations is not None:
      arguments += ["--simulations", str(evaluation.simulations)]
    if evaluation.opponent is not None:
      arguments += ["--opponent", evaluation.opponent]
    with tempfile.TemporaryFile("w+") as out:
      if not self.command(job, arguments, out):
        return False
      out.seek(0)
      figures: dict[str, Any] = {"wall_s": checkpoint.meta.get("wall_s")} | json.load(out)
    write_json(file, figures, indent=None)
    how = "" if evaluation.simulations is None else f" with {evaluation.simulations} simulations"
    how += "" if evaluation.opponent is None else f" against {evaluation.opponent}"
    self._report(f"{job.name}: {checkpoint.name}{how}: mean return {figures['return_mean']:.2f}")
    return True

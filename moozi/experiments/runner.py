"""Trains and evaluates the jobs of a sweep with `moozi train` and `moozi evaluate`, within a time budget."""

import concurrent.futures
import contextlib
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from moozi.core.config.budget import limits_of_rate
from moozi.core.errors import RunError, UserError, reason_of
from moozi.experiments.jobs import GROWABLE, Job, PlannedEvaluation, Sweep, evaluations_of, progress_of
from moozi.experiments.results import has_result, write_json, write_result
from moozi.experiments.time_budget import TimeBudget
from moozi.io.checkpoints import CheckpointInfo, list_checkpoints
from moozi.io.machine import num_cores
from moozi.io.output import say
from moozi.io.run_directory import RunDirectory
from moozi.io.run_lock import RunLock, is_locked

_MAX_LINE_BYTES = 65_536
MOOZI = (sys.executable, "-m", "moozi.cli")
SPEED = (sys.executable, "-m", "moozi.training.speed")
MIN_TRAINING_S = 120.0
"""The minimum of remaining seconds to start or resume training."""


def print_line(line: str) -> None:
  """Prints a line; does nothing if standard output cannot be written."""
  with contextlib.suppress(OSError, UserError):
    say(line)


class CommandError(Exception):
  """A command failed."""


class Runner:
  """Trains and evaluates the jobs of a sweep that are not done, and writes their results.

  Args:
    sweep: the jobs, and how they run.
    budget: the time limit.
    is_shown: whether the commands print to this process's output instead of the log.
    allow_code: whether runs whose agents are players may import the modules that their configurations name.
    moozi: the command line of the program `moozi`, without arguments.
    report: receives the messages.
  """

  def __init__(
    self,
    sweep: Sweep,
    budget: TimeBudget,
    *,
    is_shown: bool = False,
    allow_code: bool = False,
    moozi: Sequence[str] = MOOZI,
    report: Callable[[str], None] = print_line,
  ) -> None:
    self._sweep, self._folder, self._budget = sweep, sweep.folder.absolute(), budget
    self._is_shown, self._allow_code, self._moozi, self._report = is_shown, allow_code, tuple(moozi), report
    self._parallel = sweep.parallel or max(1, num_cores() // (sweep.cores or num_cores()))
    self._cores = sweep.cores or (None if self._parallel == 1 else max(1, num_cores() // self._parallel))
    self._env: dict[str, str] = {}
    if self._cores is not None:
      threads = str(self._cores)
      self._env = {"NPROC": threads, "OMP_NUM_THREADS": threads, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if sweep.cores is not None:
      self._env |= {"JAX_PLATFORMS": "cpu"}

  def run(self) -> bool:
    """Does the jobs that are not done, in order. A failed job does not stop the others.

    Returns: whether no job failed.
    Raises: UserError: the folder cannot be created. RunError: another runner holds the folder's lock, or
      another process writes into a run.
    """
    jobs = self._sweep.jobs
    try:
      self._folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
      raise UserError(f"{self._folder}: cannot be created: {reason_of(error)}") from None
    with contextlib.ExitStack() as stack:
      if self._sweep.is_exclusive:
        stack.enter_context(RunLock(self._folder, "running a sweep"))
      pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(self._parallel))
      locks = {job.run_name: threading.Lock() for job in jobs}
      tried = pool.map(lambda job: self._try(job, locks[job.run_name]), jobs)
      done = dict(zip(jobs, tried, strict=True))
    left = [job.name for job, is_finished in done.items() if not is_finished]
    self._report(f"not done: {', '.join(left)}" if left else "all jobs are done")
    return None not in done.values()

  def is_done(self, job: Job) -> bool:
    """Returns whether a job's result is complete (`has_result`).

    Without a folder of results, returns whether the job's run and all its evaluations are complete.

    Raises: UserError: its run or its result has different settings, the run of an incomplete result is
      missing, or the job has another limit of steps or of time, and the learning rate falls until that limit.
    """
    results = self._sweep.results
    if results is None:
      return progress_of(job, self._folder)[1] and all(path.exists() for path, *_ in self._evaluations(job))
    if has_result(job, results):
      return True
    path, wanted = self._folder / job.run_name, job.load_config(self._folder)
    if (results / job.run_name).exists() and not path.exists():
      raise UserError(f"{path}: not found, but its result exists; move {results / job.run_name} away")
    if progress_of(job, self._folder)[0]:
      found = RunDirectory.open(path).load_config()
      for key in sorted({*limits_of_rate(found), *limits_of_rate(wanted)}):
        before, after = getattr(found, key), getattr(wanted, key)
        if before != after:
          raise UserError(
            f"{path}: its learning rate falls until {key}={json.dumps(before)}, and the job has "
            f"{json.dumps(after)}; move it and its result away"
          )
    return False

  def state_of(self, job: Job) -> tuple[str, int]:
    """Returns a job's state as text, or why its run cannot be continued, and the run's environment steps."""
    is_done = False
    try:
      is_done = self.is_done(job)
      env_steps, is_complete = progress_of(job, self._folder)
    except UserError as error:
      return ("done" if is_done else str(error)), 0
    if is_done:
      return "done", env_steps
    if is_complete:
      planned = [path.exists() for path, *_ in self._evaluations(job)]
      return f"trained, {sum(planned)} of {len(planned)} evaluations", env_steps
    state = "running" if is_locked(self._folder / job.run_name) else "stopped"
    return (state if env_steps or state == "running" else "not started"), env_steps

  def next_command(self, job: Job) -> list[str | Path]:
    """Returns the arguments of `moozi` that start a job's run, or resume it if it has a checkpoint."""
    progress = () if self._is_shown else ("logging.progress=plain",)
    allowed = ["--allow-code"] * self._allow_code
    if not progress_of(job, self._folder)[0]:
      return ["train", job.config, *job.settings(self._folder), *allowed, *progress]
    wanted = job.load_config(self._folder).model_dump(mode="json")
    grown = [f"{key}={json.dumps(wanted[key])}" for key in GROWABLE]
    # `progress_of` has checked that the run names no other code than the job's own configuration.
    resume = ("--resume", self._folder / job.run_name, "--allow-own-code")
    return ["train", *resume, *allowed, *grown, *progress]

  def _try(self, job: Job, lock: threading.Lock) -> bool | None:
    """Trains and evaluates a job; returns whether it is done, or None if it failed."""
    try:
      with lock:
        if self.is_done(job):
          return True
        is_done = self._train(job) and self._evaluate(job)
    except (CommandError, UserError) as error:
      if isinstance(error, RunError):
        self._budget.end()
        raise
      self._report(f"{job.name}: {error}")
      return None
    if is_done:
      self._report(f"{job.name}: done")
    return is_done

  def _train(self, job: Job) -> bool:
    """Starts or resumes a job's run; returns whether the run is complete."""
    env_steps, is_complete = progress_of(job, self._folder)
    if is_complete or self._budget.remaining_s < MIN_TRAINING_S:
      return is_complete
    path = self._folder / job.run_name
    if (path / "config.yaml").exists():
      run = RunDirectory.open(path)
      with run.claim():
        pass  # raises RunError if another process writes there
      if not env_steps and any(info.env_steps for info in list_checkpoints(run.checkpoints_path)):
        raise UserError(f"{path}: the run has checkpoints, but cannot be resumed; move it away")
    elif any(not found.is_dir() for found in path.rglob("*")):
      raise UserError(f"{path}: not a run directory, and not empty; move it away")
    self._report(f"{job.name}: {f'resumed at {env_steps:,} steps' if env_steps else 'started'}")
    if self._sweep.measures_speed and not (
      (path / "config.yaml").exists() and self._speed_path(job).exists()
    ):
      self._measure_speed(job)
    if not env_steps:
      shutil.rmtree(path, ignore_errors=True)  # a run without a checkpoint cannot be resumed
    self._command(job, self.next_command(job))
    env_steps, is_complete = progress_of(job, self._folder)
    if not is_complete:
      self._report(f"{job.name}: stopped at {env_steps:,} steps")
    return is_complete

  def _evaluations(self, job: Job) -> Iterator[tuple[Path, PlannedEvaluation, CheckpointInfo]]:
    """Yields the file, the evaluation and its checkpoint, for the evaluations of a job that is trained."""
    if job.evaluations:
      run = RunDirectory.open(self._folder / job.run_name)
      yield from ((path, *found) for path, found in evaluations_of(job, run).items())

  def _evaluate(self, job: Job) -> bool:
    """Makes the evaluations of a job that has been trained, and writes its result if results are kept.

    Returns: False if the time budget ended before that was done.
    """
    figures = []
    for file, evaluation, checkpoint in self._evaluations(job):
      if not file.exists() and not self._evaluate_once(job, evaluation, checkpoint, file):
        return False
      # The file may come from an evaluation that named this checkpoint differently.
      wanted = {"wanted": evaluation.checkpoint, "simulations": evaluation.simulations}
      figures.append(json.loads(file.read_text("utf-8")) | wanted)
    if self._sweep.results is not None:
      measured = {} if self._cores is None else {"cores": self._cores}
      if self._sweep.measures_speed and (path := self._speed_path(job)).exists():
        measured |= json.loads(path.read_text("utf-8"))
      run = RunDirectory.open(self._folder / job.run_name)
      write_result(self._sweep.results / job.name, run, job, figures, self._sweep.columns, measured)
    return True

  def _evaluate_once(
    self, job: Job, evaluation: PlannedEvaluation, checkpoint: CheckpointInfo, file: Path
  ) -> bool:
    """Evaluates a checkpoint and writes the figures to `file`; returns false if it did not finish."""
    if self._budget.is_over:
      return False
    run = self._folder / job.run_name
    arguments: list[str | Path] = ["evaluate", run, "--checkpoint", checkpoint.name, "--json", "--returns"]
    arguments += ["--episodes", str(evaluation.episodes)]
    if evaluation.simulations is not None:
      arguments += ["--simulations", str(evaluation.simulations)]
    if evaluation.opponent is not None:
      arguments += ["--opponent", evaluation.opponent]
    arguments += ["--allow-code"] * self._allow_code
    with tempfile.TemporaryFile("w+") as out:
      if not self._command(job, arguments, out):
        return False
      out.seek(0)
      figures: dict[str, Any] = {"wall_s": checkpoint.meta.get("wall_s")} | json.load(out)
    write_json(file, figures, indent=None)
    how = "" if evaluation.simulations is None else f" with {evaluation.simulations} simulations"
    how += "" if evaluation.opponent is None else f" against {evaluation.opponent}"
    self._report(f"{job.name}: {checkpoint.name}{how}: mean return {figures['return_mean']:.2f}")
    return True

  def _measure_speed(self, job: Job) -> None:
    """Measures acting and the update with the job's network, batch and threads, once for each run."""
    config, settings = job.load_config(self._folder), job.settings(self._folder)
    threads: dict[str, int | None] = {"act": None, "learn": None}
    if not config.has_one_process:  # the processes of a run with Ray have their own numbers of threads
      threads = {"act": config.workers.resources.num_threads, "learn": config.ray.learner.num_threads}
    measured: dict[str, Any] = {}
    for part, number in threads.items():
      own = {"NPROC": str(number), "OMP_NUM_THREADS": str(number)} if number else {}
      with tempfile.TemporaryFile("w+") as out, self._log_path(job).open("a") as log:
        if self._budget.run([*SPEED, part, job.config, *settings], out, log, {**self._env, **own}) != 0:
          return  # a run is possible without the measurement
        out.seek(0)
        found = json.loads(out.read().splitlines()[-1])
      measured |= {f"t_{part}_s": found["seconds"], f"threads_{part}": found["threads"]}
      measured |= {"device": found["device"], "load_average": os.getloadavg()[0]}
    write_json(self._speed_path(job), measured)

  def _speed_path(self, job: Job) -> Path:
    return self._folder / f"{job.run_name}.speed.json"

  def _log_path(self, job: Job) -> Path:
    return self._folder / f"{job.run_name}.log"

  def _command(self, job: Job, arguments: Sequence[str | Path], out: IO[str] | None = None) -> bool:
    """Runs a `moozi` command; returns False if the end of the time budget stopped it.

    Args:
      out: receives the standard output; None uses the log.

    Raises: CommandError: the command failed, or the log cannot be written.
    """
    path = self._log_path(job)
    with contextlib.ExitStack() as stack:
      try:
        log = None if self._is_shown else stack.enter_context(path.open("a"))
      except OSError as error:
        raise CommandError(f"{path}: cannot be written: {reason_of(error)}") from None
      status = self._budget.run([*self._moozi, *arguments], out or log, log, self._env)
    if status != 0 and not self._budget.is_over:
      raise CommandError(f"{arguments[0]}: exit status {status}{'' if self._is_shown else _last_line(path)}")
    return status == 0


def _last_line(path: Path) -> str:
  with path.open("rb") as file:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _MAX_LINE_BYTES))
    end = file.read(_MAX_LINE_BYTES).decode("utf-8", "replace")
  lines = [line for line in end.splitlines() if line.strip()]
  return f": {lines[-1] if lines else ''} ({path})"

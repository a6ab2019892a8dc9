"""Trains a list of jobs with `moozi train` until all are done or the time limit is reached."""

import concurrent.futures
import contextlib
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Generic, TypeVar

from moozi.core.errors import RunError, UserError, reason_of
from moozi.experiments.jobs import GROWABLE, Job, progress_of
from moozi.experiments.time_budget import TimeBudget
from moozi.io.checkpoints import list_checkpoints
from moozi.io.machine import num_cores
from moozi.io.output import say
from moozi.io.run_directory import RunDirectory
from moozi.io.run_lock import RunLock

_MAX_LINE_BYTES = 65_536
MOOZI = (sys.executable, "-m", "moozi.cli")
MIN_TRAINING_S = 120.0
"""The minimum of remaining seconds to start or resume training."""


def share_cores(parallel: int) -> dict[str, str]:
  """Returns environment variables that divide the cores among parallel runs; an empty dict for one run."""
  if parallel == 1:
    return {}
  threads = str(max(1, num_cores() // parallel))
  return {"NPROC": threads, "OMP_NUM_THREADS": threads, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


J = TypeVar("J", bound=Job)


def print_line(line: str) -> None:
  """Prints a line, unless the terminal is closed."""
  with contextlib.suppress(OSError, UserError):
    say(line)


class CommandError(Exception):
  """A command failed."""


class Runner(Generic[J]):
  """Trains jobs within a time budget. Subclasses may override `is_done`, and `complete` for further work.

  Args:
    folder: receives the runs, and the output of their commands as `<run>.log`.
    budget: the time limit.
    at_once: number of jobs to train in parallel. Jobs that share a run wait for each other.
    env: additional environment variables of the commands.
    lock: a folder to lock, so that only one runner at a time uses it; None locks nothing.
    is_shown: whether the commands print to this process's output instead of the log.
    allow_code: whether the runs that are named as players may import the modules that they name.
    moozi: the command line of the program `moozi`, without arguments.
    report: receives the messages.
  """

  def __init__(
    self,
    folder: Path,
    budget: TimeBudget,
    *,
    at_once: int = 1,
    env: Mapping[str, str] | None = None,
    lock: Path | None = None,
    is_shown: bool = False,
    allow_code: bool = False,
    moozi: Sequence[str] = MOOZI,
    report: Callable[[str], None] = print_line,
  ) -> None:
    self._folder, self._budget, self._at_once, self._env = folder.absolute(), budget, at_once, dict(env or {})
    self._lock, self._is_shown, self._moozi, self._report = lock, is_shown, tuple(moozi), report
    self._allow_code = allow_code

  def run(self, jobs: Sequence[J]) -> bool:
    """Trains the jobs that are not done, in order. A failed job does not stop the others.

    Returns: whether no job failed.
    Raises: UserError: the folder cannot be created. RunError: another runner holds the lock, or another
      process writes into a run.
    """
    try:
      self._folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
      raise UserError(f"{self._folder}: cannot be created: {reason_of(error)}") from None
    with contextlib.ExitStack() as stack:
      if self._lock is not None:
        stack.enter_context(RunLock(self._lock, "running an experiment"))
      pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(self._at_once))
      locks = {job.run_name: threading.Lock() for job in jobs}
      tried = pool.map(lambda job: self._try(job, locks[job.run_name]), jobs)
      done = dict(zip(jobs, tried, strict=True))
    left = [job.name for job, is_finished in done.items() if not is_finished]
    self._report(f"not done: {', '.join(left)}" if left else "all jobs are done")
    return None not in done.values()

  def is_done(self, job: J) -> bool:
    """Returns whether a job is done. Raises UserError if its run has different settings."""
    return progress_of(job, self._folder)[1]

  def begin(self, job: J) -> None:
    """Hook for subclasses, called before a job's run is started or resumed; does nothing here."""

  def complete(self, job: J) -> bool:
    """Does what follows a job's training; returns False if the time budget ended before that was done."""
    return True

  def _try(self, job: J, lock: threading.Lock) -> bool | None:
    """Trains and completes a job; returns whether it is done, or None if it failed."""
    try:
      with lock:
        if self.is_done(job):
          return True
        is_done = self._train(job) and self.complete(job)
    except (CommandError, UserError) as error:
      if isinstance(error, RunError):
        self._budget.end()
        raise
      self._report(f"{job.name}: {error}")
      return None
    if is_done:
      self._report(f"{job.name}: done")
    return is_done

  def _train(self, job: J) -> bool:
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
    self.begin(job)
    if not env_steps:
      shutil.rmtree(path, ignore_errors=True)  # a run without a checkpoint cannot be resumed
    self.command(job, self.next_command(job))
    env_steps, is_complete = progress_of(job, self._folder)
    if not is_complete:
      self._report(f"{job.name}: stopped at {env_steps:,} steps")
    return is_complete

  def next_command(self, job: J) -> list[str | Path]:
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

  def command(self, job: J, arguments: Sequence[str | Path], out: IO[str] | None = None) -> bool:
    """Runs a `moozi` command; returns False if the end of the time budget stopped it.

    Args:
      out: receives the standard output; None uses the log.

    Raises: CommandError: the command failed, or the log cannot be written.
    """
    path = self._folder / f"{job.run_name}.log"
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

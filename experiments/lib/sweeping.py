"""The program of a sweep: jobs one at a time, in pieces, each going on where the one before it stopped."""

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.lib.jobs import (
  GROWS,
  Evaluation,
  Job,
  Progress,
  differences,
  evaluations_of,
  progress_of,
  read_evaluation,
)
from experiments.lib.pieces import MOOZI, Piece, lock_experiments
from experiments.lib.results import is_result_of, write_json, write_result
from moozi.core.errors import RunError, UserError
from moozi.io.checkpoints import CheckpointInfo
from moozi.io.metrics import read_metrics
from moozi.io.run_directory import RunDirectory, read_run_config
from moozi.io.run_lock import RunLock

LEAST_TRAINING_S = 120.0
"""A piece that has less time left begins no training any more: most of it would go into the start."""

_TELL_S = 60.0


def main(
  jobs: Sequence[Job], folder: Path, results: Path, doc: str, arguments: Sequence[str] | None = None
) -> int:
  """The command line of a sweep; returns the exit status.

  Args:
    jobs: in the order in which they are done.
    folder: of the runs.
    results: where each finished job has a folder.
    doc: the program's own text.
    arguments: without the program's name; None takes the process's own.
  Returns: 0; 1 where a job could not be done; 2 after an error of the user's.
  """
  parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument(
    "--piece-minutes", type=float, default=55.0, help="stop after so long, to go on the next time"
  )
  parser.add_argument("--only", nargs="+", metavar="NAME", help="these jobs and no others")
  parser.add_argument("--list", action="store_true", help="say how far each has come, and do nothing")
  given = parser.parse_args(arguments)
  try:
    chosen = _choose(jobs, given.only)
    if given.list:
      for job in chosen:
        try:
          print(f"{job.name}: {describe(job, folder, results)}")
        except UserError as error:
          print(f"{job.name}: {error}")
      return 0
    with Piece(60.0 * given.piece_minutes) as piece, Sweep(folder, piece) as sweep:
      return int(not sweep.run(chosen, results))
  except UserError as error:
    print(f"error: {error}", file=sys.stderr)
    return 2


def _choose(jobs: Sequence[Job], names: Sequence[str] | None) -> list[Job]:
  known = {job.name: job for job in jobs}
  assert len(known) == len(jobs), "two jobs of one name"
  unknown = [name for name in names or () if name not in known]
  if unknown:
    raise UserError(f"--only {unknown[0]}: no such job; there are {', '.join(known)}")
  return [job for job in jobs if names is None or job.name in names]


def describe(job: Job, folder: Path, results: Path) -> str:
  """How far a job has come, in words."""
  if is_done(job, folder, results):
    other = other_settings(job, folder, results)
    return "done" + (f", with another {', '.join(other)}" if other else "")
  progress = progress_of(job, folder)
  if progress.is_complete:
    wanted = evaluations_of(job, folder)
    return f"trained, {sum(path.exists() for path in wanted)} of {len(wanted)} evaluations"
  return f"at {progress.env_steps:,} steps" if progress.has_folder else "not begun"


def is_done(job: Job, folder: Path, results: Path) -> bool:
  """Whether its result is there, with the steps or the time, and the evaluations, that the job has now."""
  return is_result_of(results / job.name, job, job.load_config(folder))


def other_settings(job: Job, folder: Path, results: Path) -> list[str]:
  """The keys of settings that its result was made with and that the job has otherwise now."""
  return differences(read_run_config(results / job.name / "config.yaml"), job.load_config(folder))


class CommandError(Exception):
  """A command ended by itself, and not well."""


class Sweep:
  """Does jobs until they are done or the piece is over.

  Use it in a `with`: no other experiment whose folder lies beside this one's is at work meanwhile. A command
  that a killed sweep left running keeps others out, too, since two that train at once would spoil each
  other's wall times.

  Args:
    folder: of the runs and their logs.
    piece: the time there is.
    tell: shows a line.
    moozi: the program.
  """

  def __init__(
    self,
    folder: Path,
    piece: Piece,
    tell: Callable[[str], None] = lambda line: print(line, flush=True),
    moozi: Sequence[str] = MOOZI,
  ) -> None:
    self._folder = folder.absolute()  # commands run elsewhere
    self._piece, self._tell, self._moozi = piece, tell, tuple(moozi)
    self._lock: RunLock | None = None

  def __enter__(self) -> "Sweep":
    """Raises RunError: another experiment is at work, or a command that it left running."""
    try:
      self._folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
      raise UserError(f"{self._folder}: cannot be made: {error.strerror}") from None
    self._lock = lock_experiments(self._folder.parent)
    return self

  def __exit__(self, *_: object) -> None:
    assert self._lock is not None
    self._lock.close()

  def run(self, jobs: Sequence[Job], results: Path) -> bool:
    """Does what is missing, in order, and makes a folder in `results` of each job that is done.

    A job that cannot be done (its command fails, its run was begun with other settings) is told, and costs
    the others nothing.

    Returns: whether there was none of that.
    Raises: RunError: another process writes into a job's run, and has the machine's time.
    """
    left: list[str] = []
    has_failed = False
    for job in jobs:
      try:
        is_left = not self._do(job, results)
      except RunError:
        raise
      except (CommandError, UserError) as error:
        self._tell(f"{job.name}: {error}")
        is_left = has_failed = True
      if is_left:
        left.append(job.name)
    self._tell(f"not done yet: {', '.join(left)}" if left else "all is done")
    return not has_failed

  def _do(self, job: Job, results: Path) -> bool:
    """Does what is missing of a job; whether it is done afterwards.

    Raises: as `finish` does. UserError: too, where its result is of other settings, or of a run that is gone.
    """
    if is_done(job, self._folder, results):
      # One that has what is asked for may have more.
      other = [key for key in other_settings(job, self._folder, results) if key not in GROWS]
      if other:
        raise UserError(
          f"{results / job.name} was made with another {', '.join(other)}; move it and its run away to make "
          "it anew"
        )
      return True
    owner = results / job.run_name
    if owner.exists() and not (self._folder / job.run_name).exists():
      raise UserError(
        f"its run, {self._folder / job.run_name}, is not there, and {owner} is of it; another one would not "
        "be the same: move the result away to begin anew"
      )
    figures = None if self._piece.is_over else self.finish(job)
    if figures is None:
      return False
    run = RunDirectory.open(self._folder / job.run_name)
    write_result(results / job.name, run, job, figures)
    self._tell(f"{job.name}: done")
    return True

  def finish(self, job: Job) -> list[dict[str, Any]] | None:
    """Trains to the end of the job's run and makes its evaluations, as far as that has not been done.

    Returns: the evaluations' figures; None where the piece was over before that.
    Raises: CommandError: a command ended by itself, and not well. UserError: the run was begun with other
      settings. RunError: another process writes there.
    """
    progress = progress_of(job, self._folder)
    if not progress.is_complete:
      if self._piece.left_s < LEAST_TRAINING_S:
        return None
      progress = self._train(job, progress)
    if not progress.is_complete:
      self._tell(f"{job.name}: stopped at {progress.env_steps:,} steps")
      return None
    figures = []
    for path, (evaluation, found) in evaluations_of(job, self._folder).items():
      came = self._evaluate(job, evaluation, found, path)
      if came is None:
        return None
      figures.append(came)
    return figures

  def _train(self, job: Job, progress: Progress) -> Progress:
    path = self._folder / job.run_name
    if progress.has_folder:
      with RunDirectory.open(path).claim():
        pass  # the command would be refused where another process writes there
    if progress.env_steps:
      arguments: list[str | Path] = ["train", "--resume", path, *progress.grown]
      self._tell(f"{job.name}: goes on from {progress.env_steps:,} steps")
    else:
      if progress.has_folder:
        # It ended before its first checkpoint, and nothing can go on from it.
        shutil.rmtree(path)
      arguments = ["train", job.config.absolute(), *job.settings(self._folder)]
      self._tell(f"{job.name}: begins")
    show = _Shown(path, lambda line: self._tell(f"{job.name}: {line}"))
    self._command(job, [*arguments, "logging.progress=plain"], on_wait=show)
    return progress_of(job, self._folder)

  def _evaluate(
    self, job: Job, evaluation: Evaluation, found: CheckpointInfo, path: Path
  ) -> dict[str, Any] | None:
    """The figures, which wait at `path` for the others; None where the piece was over before they came."""
    wanted = {"wanted": evaluation.checkpoint, "simulations": evaluation.simulations}
    before = read_evaluation(path)
    if before is not None:
      return before | wanted  # another job, or this one before it grew, may have called it otherwise
    if self._piece.is_over:
      return None
    run = self._folder / job.run_name
    arguments: list[str | Path] = ["evaluate", run, "--checkpoint", found.name, "--json", "--returns"]
    arguments += ["--episodes", str(evaluation.episodes)]
    if evaluation.simulations is not None:
      arguments += ["--simulations", str(evaluation.simulations)]
    printed = self._command(job, arguments)
    if printed is None:
      return None
    figures: dict[str, Any] = wanted | {"wall_s": found.meta.get("wall_s")} | json.loads(printed)
    write_json(path, figures, indent=None)
    self._tell(
      f"{job.name}: {found.name}, {evaluation.simulations or 'its own'} simulations: "
      f"{figures['return_mean']:.2f} over {evaluation.episodes} episodes"
    )
    return figures

  def _command(
    self, job: Job, arguments: Sequence[str | Path], on_wait: Callable[[], None] = lambda: None
  ) -> str | None:
    """What a command printed; None where the piece ended it.

    Raises: CommandError: it ended by itself, and not well.
    """
    log = self._folder / f"{job.run_name}.log"
    with tempfile.TemporaryFile("w+") as out, log.open("a") as errors:
      status = self._piece.run([*self._moozi, *arguments], out, errors, on_wait, self._lock)
      out.seek(0)
      printed = out.read()
      errors.write(printed)
    if status == 0:
      return printed
    if self._piece.is_over:
      return None
    last = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()][-1:]
    said = last[0] if last else "it said nothing"
    raise CommandError(f"{arguments[0]} ended with status {status}: {said} ({log})")


class _Shown:
  """Tells once a minute how far a run has come."""

  def __init__(self, path: Path, tell: Callable[[str], None]) -> None:
    self._metrics, self._tell, self._next = path / "metrics.jsonl", tell, time.monotonic() + _TELL_S

  def __call__(self) -> None:
    if time.monotonic() < self._next:
      return
    self._next = time.monotonic() + _TELL_S
    with contextlib.suppress(UserError):  # not there yet
      ticks = read_metrics(self._metrics)
      if ticks:
        self._tell(_figures_of(ticks))


def _figures_of(ticks: list[dict[str, Any]]) -> str:
  """The newest figures in a line."""
  last = ticks[-1]
  tested = [t["test/return_mean"] for t in ticks if t.get("test/return_mean") is not None]
  parts = [f"{last['env_steps']:,} steps", f"{last['wall_s'] / 60:.1f} min"]
  if last.get("system/env_steps_per_s") is not None:
    parts.append(f"{last['system/env_steps_per_s']:,.0f} steps/s")
  if last.get("train/return_mean") is not None:
    parts.append(f"return while acting {last['train/return_mean']:.1f}")
  if tested:
    parts.append(f"in evaluation {tested[-1]:.1f}")
  return ", ".join(parts)

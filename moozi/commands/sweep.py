"""The command `moozi sweep`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moozi.commands import common
from moozi.core.errors import UserError
from moozi.core.text import shell_command
from moozi.io.output import say

if TYPE_CHECKING:
  from moozi.experiments.jobs import Job


def sweep(
  file: Annotated[
    Path, typer.Argument(metavar="FILE", help="A YAML file: config, seeds, overrides, variants.")
  ],
  minutes: Annotated[
    float | None, typer.Option(metavar="M", help="Time limit in minutes. Default: `minutes` of the file.")
  ] = None,
  parallel: Annotated[
    int | None, common.integer("Number of runs at a time. Default: `parallel` of the file.", maximum=64)
  ] = None,
  only: Annotated[
    list[str] | None, typer.Option("--only", metavar="VARIANT", help="Run this variant only. Repeatable.")
  ] = None,
  status: Annotated[bool, typer.Option("--status", help="Print the state of each run and exit.")] = False,
  dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands and exit.")] = False,
  allow_code: Annotated[
    bool,
    typer.Option(
      "--allow-code", help="Allow the runs that are named as players to import the modules that they name."
    ),
  ] = False,
) -> int:
  """Train variants of a configuration, each with several seeds; the same command resumes a stopped sweep.

  `moozi compare FOLDER` compares the variants at any time.
  """
  from moozi.commands.seeds import print_group
  from moozi.experiments.jobs import Job
  from moozi.experiments.runner import MIN_TRAINING_S, Runner, share_cores
  from moozi.experiments.sweep_file import load_sweep
  from moozi.experiments.time_budget import TimeBudget

  plan = load_sweep(file)
  names = list(dict.fromkeys(_variant(job) for job in plan.jobs))
  if unknown := [name for name in only or () if name not in names]:
    raise UserError(f"--only={unknown[0]}: unknown variant; choose from {', '.join(names)}")
  jobs = [job for job in plan.jobs if _variant(job) in (only or names)]
  limit = plan.minutes if minutes is None else minutes
  if limit is not None and not limit * 60 > MIN_TRAINING_S:
    raise UserError(
      f"--minutes={limit:g}: must be more than {MIN_TRAINING_S / 60:g}; no run starts with less time left"
    )
  at_once = parallel or plan.parallel
  with TimeBudget(float("inf") if limit is None else 60.0 * limit) as budget:
    runner = Runner[Job](
      plan.folder,
      budget,
      at_once=at_once,
      env=share_cores(at_once),
      lock=plan.folder,
      allow_code=allow_code,
    )
    if dry_run:
      for job in jobs:
        if not runner.is_done(job):
          say(shell_command("moozi", *runner.next_command(job)))
      return 0
    is_ok = status or runner.run(jobs)
  say(_table(jobs, plan.folder))
  say()
  print_group([plan.folder / job.name for job in jobs], str(plan.folder))
  return 0 if is_ok else 1


def _variant(job: "Job") -> str:
  return job.name.rpartition("-seed")[0]


def _table(jobs: "list[Job]", folder: Path) -> str:
  """Returns the state of each job as text: steps, minutes, and the mean of its last evaluations."""
  from moozi.api.compare import text_table
  from moozi.experiments.comparison import read_run
  from moozi.experiments.jobs import progress_of
  from moozi.io.run_lock import is_locked

  rows = []
  for job in jobs:
    cells = ["", "", ""]
    try:
      env_steps, is_done = progress_of(job, folder)
      is_running = is_locked(folder / job.run_name)
      state = "done" if is_done else "running" if is_running else "stopped" if env_steps else "not started"
      if env_steps:
        run = read_run(folder / job.name)
        figures = (f"{run.minutes[-1]:.1f}", f"{run.final:.2f}") if len(run.returns) else ("", "")
        cells = [f"{env_steps:,}", *figures]
    except UserError as error:
      state = str(error)
    rows.append([job.name, state, *cells])
  return text_table(("run", "state", "env steps", "minutes", "final score"), rows)

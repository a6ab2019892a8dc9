"""The command `moozi sweep`."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moozi.commands import common
from moozi.core.errors import UserError
from moozi.core.text import shell_command
from moozi.io.output import say

if TYPE_CHECKING:
  from moozi.experiments.jobs import Job, Sweep
  from moozi.experiments.runner import Runner


def sweep(
  file: Annotated[
    Path, typer.Argument(metavar="FILE", help="A YAML file: config, seeds, variants and more.")
  ],
  overrides: Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings of all variants.")
  ] = None,
  minutes: Annotated[
    float | None, typer.Option(metavar="M", help="Time limit in minutes. Default: `minutes` of the file.")
  ] = None,
  parallel: Annotated[
    int | None, common.integer("Number of runs at a time. Default: `parallel` of the file.", maximum=64)
  ] = None,
  cores: Annotated[
    int | None, common.integer("Number of cores of each run. Default: `cores` of the file.", maximum=4096)
  ] = None,
  only: Annotated[
    list[str] | None,
    typer.Option("--only", metavar="NAME", help="Run this variant, or this run, only. Repeatable."),
  ] = None,
  out: Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Write the results into this folder, and the runs into its `runs`."),
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
  """Train and evaluate variants of configurations, each with several seeds; the same command resumes a sweep.

  `moozi compare FOLDER` compares the variants at any time.
  """
  from moozi.commands.seeds import print_group
  from moozi.experiments.runner import MIN_TRAINING_S, Runner
  from moozi.experiments.sweep_file import load_sweep
  from moozi.experiments.time_budget import TimeBudget

  plan = load_sweep(file, overrides or (), out)
  names = list(dict.fromkeys(name for job in plan.jobs for name in (job.variant, job.name)))
  if unknown := [name for name in only or () if name not in names]:
    variants = dict.fromkeys(job.variant for job in plan.jobs)
    raise UserError(f"--only={unknown[0]}: unknown variant; choose from {', '.join(variants)}")
  jobs = tuple(job for job in plan.jobs if {job.variant, job.name}.intersection(only or names))
  limit = plan.minutes if minutes is None else minutes
  if limit is not None and not limit * 60 > MIN_TRAINING_S:
    raise UserError(
      f"--minutes={limit:g}: must be more than {MIN_TRAINING_S / 60:g}; no run starts with less time left"
    )
  plan = dataclasses.replace(plan, jobs=jobs, parallel=parallel or plan.parallel, cores=cores or plan.cores)
  with TimeBudget(float("inf") if limit is None else 60.0 * limit) as budget:
    runner = Runner(plan, budget, allow_code=allow_code)
    if dry_run:
      for job in jobs:
        if not runner.is_done(job):
          say(shell_command("moozi", *runner.next_command(job)))
      return 0
    is_ok = status or runner.run()
  say(_table(plan, runner))
  say()
  found = [_path_of(plan, job) for job in jobs if job.run is None]
  folders = [path.parent for path in found]
  print_group(found, str(plan.folder if plan.folder in folders or not folders else folders[0]))
  return 0 if is_ok else 1


def _path_of(plan: "Sweep", job: "Job") -> Path:
  """Returns the folder of a job's run, or of its result if there is no run."""
  run = plan.folder / job.run_name
  return run if plan.results is None or (run / "config.yaml").exists() else plan.results / job.name


def _table(plan: "Sweep", runner: "Runner") -> str:
  """Returns the state of each job as text: steps, minutes, and the mean of its last evaluations."""
  from moozi.api.compare import text_table
  from moozi.experiments.comparison import read_run

  rows = []
  for job in plan.jobs:
    state, env_steps = runner.state_of(job)
    cells = ["", "", ""]
    if env_steps or (state == "done" and job.run is None):
      run = read_run(_path_of(plan, job))
      figures = (f"{run.minutes[-1]:.1f}", f"{run.final:.2f}") if len(run.returns) else ("", "")
      cells = [f"{env_steps or int(run.env_steps.max(initial=0)):,}", *figures]
    rows.append([job.name, state, *cells])
  return text_table(("run", "state", "env steps", "minutes", "final score"), rows)

"""The command `moozi surgery`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moozi.commands import common
from moozi.core.errors import UserError
from moozi.core.text import shell_command
from moozi.io.output import notice, say

if TYPE_CHECKING:
  from moozi.core.config import Config
  from moozi.io.run_directory import RunDirectory


def surgery(
  run: Annotated[Path, typer.Argument(metavar="RUN", help="The run to convert; it stays as it is.")],
  overrides: Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Values that override the configuration."),
  ] = None,
  to: Annotated[
    str | None,
    typer.Option(metavar="CONFIG", help="The new configuration, as for `moozi train`. Default: RUN's own."),
  ] = None,
  out: Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Name of the new run, beside RUN. Default: run.name, or RUN-surgery."),
  ] = None,
  mapping: Annotated[
    Path | None,
    typer.Option(
      "--map", metavar="FILE", help="YAML file that says which planes and actions of environments correspond."
    ),
  ] = None,
  lossy: Annotated[
    bool, typer.Option("--lossy", help="Accept what cannot be preserved; the plan lists it.")
  ] = False,
  keep_replay: Annotated[
    bool,
    typer.Option(
      "--keep-replay",
      help="Keep replay and trajectories if env.kwargs, env.wrappers or your own env.name changes.",
    ),
  ] = False,
  dry_run: Annotated[
    bool,
    typer.Option("--dry-run", help="Print the plan for each array; write nothing."),
  ] = False,
  allow_code: common.AllowCode = False,
) -> int:
  """Continue a run with a larger network, another environment or another learner, as a new run."""
  import contextlib

  from moozi.api.run_access import check_code, open_run
  from moozi.envs.registry import env_spec
  from moozi.io import jax_process
  from moozi.training.checks import check_start
  from moozi.training.surgery_run import plan_run, write_run

  directory, old = open_run(run, allow_code)
  if directory.is_zoo_agent:
    raise UserError(
      f"{run}: a zoo agent has no run to continue; checkpoint.start_from={run} checkpoint.surgery=true "
      "starts a new run with its parameters"
    )
  new = _new_config(directory, to, list(overrides or []), out, writes=not dry_run)
  check_code(new, "config", allow_code)
  jax_process.use_cpu_only()
  with contextlib.ExitStack() as stack:
    stack.enter_context(common.stdout_to_stderr())
    if not dry_run:
      stack.enter_context(directory.claim())
    new = new.allowing_code(allow_code)
    specs = tuple(env_spec(config.env.name, **config.env.arguments) for config in (old, new))
    check_start(new, specs[1], is_new=False)
    planned = plan_run(directory, (old, specs[0]), (new, specs[1]), mapping, keep_replay)
    lines = planned.describe()
    if not dry_run:
      for text in lines:
        if text.startswith(("not preserved", "left behind", "kept")):
          notice(f"moozi: {text}")
      planned.operation.check(lossy, "--lossy accepts that, and --dry-run lists all")
      made = write_run(planned, new, specs[1])
  if dry_run:
    say(*lines)
    return 0
  say(f"run directory: {made.path}")
  say(f"continue with: {shell_command('moozi', 'train', '--resume', made.path)}")
  return 0


def _new_config(
  directory: "RunDirectory", to: str | None, overrides: list[str], out: str | None, *, writes: bool
) -> "Config":
  """Returns the configuration of the new run; the section `run` of `to`, or of the old run, is not used.

  Raises: UserError: it is invalid, or `writes` is set and a run of its name exists.
  """
  from moozi.io.config import load_config
  from moozi.io.run_directory import check_name

  unset = [text for text in overrides if "=" not in text]
  if unset:
    raise UserError(f"{unset[0]}: must be KEY=VALUE; --to names a configuration")
  place = {"run": {"dir": str(directory.path.parent), "name": None}}
  config = load_config(directory.config_path if to is None else to, [place, *overrides])
  given = config.run.name
  if None not in (given, out) and given != out:
    raise UserError(f"run.name={given}: --out={out} names the new run; give one of them")
  name, key = f"{directory.name}-surgery", "default name"
  if out is not None:
    name, key = out, "--out"
  elif given is not None:
    name, key = given, "run.name"
  check_name(name, key)
  if writes and os.path.lexists(config.run.folder / name):
    raise UserError(f"{key}={name}: {config.run.folder / name} exists; a run is never overwritten")
  return config.model_copy(update={"run": config.run.model_copy(update={"name": name})})

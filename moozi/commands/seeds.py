"""Trains one run for each seed with `moozi train CONFIG --seeds …`; the same command resumes the runs."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from moozi.core.errors import UserError
from moozi.core.seeds import are_seeds
from moozi.core.text import shell_command
from moozi.io.output import say

MAX_SEEDS = 1000


def parse_seeds(text: str) -> tuple[int, ...]:
  """Returns the seeds that --seeds names: 1 to 5 for `5`; 1, 2 and 7 for `1,2,7`.

  Raises: UserError: the text has neither form, or a number is out of range or repeated.
  """
  with contextlib.suppress(ValueError):
    seeds = tuple(int(part) for part in text.split(","))
    if "," not in text and 0 < seeds[0] <= MAX_SEEDS:
      return tuple(range(1, seeds[0] + 1))
    if "," in text and are_seeds(seeds):
      return seeds
  raise UserError(
    f"--seeds={text}: must be a number of seeds from 1 to {MAX_SEEDS}, or different seeds such as 1,2,3 "
    "(each below 2**31)"
  )


def group_name(name: str) -> str:
  """Returns the common name of the runs: `minatar-breakout` for config/minatar/breakout.yaml."""
  config = Path(name)
  parts = [*config.parent.parts, config.name.removesuffix(".yaml").removesuffix(".yml")]
  if "config" in parts[:-1]:
    parts = parts[len(parts) - parts[::-1].index("config") :]
  elif config.suffix:
    parts = parts[-1:]
  return "-".join(parts)


def train_seeds(
  config: str, overrides: Sequence[str], seeds: Sequence[int], parallel: int, allow_code: bool
) -> int:
  """Trains a run for each seed, and prints a table at the end; returns the exit status.

  Skips finished runs and resumes stopped runs. SIGINT, SIGTERM or SIGHUP ends the runs in progress with a
  checkpoint.
  """
  from moozi.experiments.jobs import Job, Sweep
  from moozi.experiments.runner import Runner
  from moozi.experiments.time_budget import TimeBudget
  from moozi.io.config import load_config
  from moozi.io.run_directory import check_name

  if given := [text for text in overrides if text.partition("=")[0].strip() in ("seed", "seed.")]:
    raise UserError(f"{given[0]}: --seeds sets the seeds; remove one of the two")
  settings = load_config(config, overrides).run
  name, folder = settings.name or group_name(config), settings.folder
  jobs = [
    Job(name=check_name(f"{name}-seed{seed}"), config=config, overrides=tuple(overrides), seed=seed)
    for seed in seeds
  ]
  plan = Sweep(folder=folder, jobs=tuple(jobs), parallel=parallel, is_exclusive=False)
  with TimeBudget(float("inf")) as budget:
    is_ok = Runner(plan, budget, is_shown=parallel == 1, allow_code=allow_code).run()
  print_group([folder / job.name for job in jobs], f"{folder}{os.sep}{name}-seed*")
  return 0 if is_ok else 1


def print_group(runs: Sequence[Path], pattern: str) -> None:
  """Prints a comparison of the runs, or why they cannot be compared."""
  from moozi.api.compare import compare

  started = [path for path in runs if (path / "config.yaml").exists()]
  try:
    say(compare(started))
    say(f"curves: {shell_command('moozi', 'compare', pattern)} --out DIR")
  except UserError as error:
    say(error)

"""Short runs side by side, one core and one process each, of which only some figures are kept."""

import concurrent.futures
import dataclasses
import json
import subprocess
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.lib.jobs import GROWS, may_stand_for, settings_of
from experiments.lib.pieces import MOOZI, RUNS, Piece, lock_experiments
from experiments.lib.results import machine, write_json
from moozi.core.config import Config
from moozi.core.errors import RunError, UserError
from moozi.io.config import load_config
from moozi.io.run_lock import RunLock

# The runs have each other beside them: one thread each, or they would fight for the cores.
_ONE_THREAD = {"NPROC": "1", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}


@dataclasses.dataclass(frozen=True)
class Together:
  """What runs side by side share.

  Attributes:
    piece: ends them all.
    lock: keeps other experiments out for as long as one of them goes on.
  """

  piece: Piece
  lock: RunLock


# What all of them have beside their own.
_OWN = ("runtime=local", "logging.progress=none", "evaluation.gif=false")

Work = Callable[[Together], dict[str, Any]]
"""Makes the content of a file."""


def run_whole(
  together: Together, config: Path, overrides: Sequence[str], keys: Sequence[str]
) -> dict[str, Any]:
  """A run to its end, in a folder that goes away.

  Args:
    together: with the others.
    config: the YAML file.
    overrides: `key=value` each.
    keys: of the metrics that are kept.
  Returns: `settings` by their keys, `machine`, `summary` as the run wrote it, and `curve`, a list of its
    ticks.
  Raises: RunError: the run failed, or ended before it had made all its steps and was evaluated; such runs are
    held against each other at equal steps.
  """
  wanted = config_of(config, overrides)
  with tempfile.TemporaryDirectory() as folder:
    where = (f"run.dir={folder}", "run.name=run")
    command = [*MOOZI, "train", str(config), *_OWN, *where, *overrides]
    status = together.piece.run(
      command, stdout=subprocess.DEVNULL, stderr=None, lock=together.lock, env=_ONE_THREAD
    )
    if status != 0:
      raise RunError(f"a run of {config.name} ended with status {status}: {' '.join(overrides)}")
    summary = json.loads((Path(folder) / "run" / "summary.json").read_text())
    lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
  if summary["reason"] != "max_env_steps":
    raise RunError(
      f"a run of {config.name} ended at {summary['env_steps']:,} steps, before max_env_steps: "
      f"{summary['reason']}"
    )
  evaluated = summary["test_at_env_steps"], summary["test_episodes"]
  if evaluated != (summary["env_steps"], wanted.evaluation.final_episodes):
    raise RunError(f"a run of {config.name} was not evaluated at its end: {' '.join(overrides)}")
  ticks = [json.loads(line) for line in lines]
  return {
    "settings": settings_of(wanted),
    "machine": machine(),
    "summary": summary,
    "curve": [{k: tick[k] for k in keys if k in tick} for tick in ticks],
  }


def config_of(config: Path, overrides: Sequence[str]) -> Config:
  """The configuration that `run_whole` begins a run with, but for where it lies."""
  return load_config(config, (*_OWN, *overrides))


def check_settings(path: Path, figures: Mapping[str, Any], wanted: Config) -> None:
  """Raises UserError where a result was made with other settings, its seed and number of steps aside.

  Settings that only one of the two has are passed over, but for the environment's own: they came or went with
  a
  version. A result that names none is of before they were kept.
  """
  if "settings" not in figures:
    return
  made, now = figures["settings"], settings_of(wanted)
  keys = (made.keys() & now.keys()) | {k for k in made.keys() ^ now.keys() if k.startswith("env.kwargs")}
  others = [k for k in sorted(keys - {"seed", *GROWS}) if made.get(k) != now.get(k)]
  if others:
    raise UserError(f"{path}: made with another {', '.join(others)}; move it away to make it anew")


def check_made(
  path: Path, figures: Mapping[str, Any], allowed: Collection[Sequence[str]], steps: int
) -> None:
  """Raises UserError where a result is not of the changes or the environment steps that are asked for now.

  Args:
    path: of the result.
    figures: with `overrides` and `summary`.
    allowed: the `key=value` that it may have been made with.
    steps: that are asked for.
  """
  made, overrides = figures["summary"]["env_steps"], tuple(figures["overrides"])
  if overrides not in [tuple(a) for a in allowed]:
    raise UserError(f"{path}: made with {' '.join(overrides) or 'no changes'}; move it away to make it anew")
  if not may_stand_for(made, steps):
    raise UserError(
      f"{path}: made with {made:,} steps, and {steps:,} are asked for: say --steps, or move it away to make "
      "it anew"
    )


def make_missing(work: Mapping[Path, Work], at_once: int, runs: Path = RUNS) -> None:
  """Makes the JSON files that are not there yet, each written when its work is done.

  SIGINT and SIGTERM end what goes on, and nothing else begins then.

  Args:
    work: what makes the content of each.
    at_once: so many side by side.
    runs: the folder of which `lock_experiments` keeps other experiments out.
  Raises: RunError: another experiment is at work, or what `run_whole` raises.
  """
  if all(path.exists() for path in work):
    return
  with Piece(None) as piece, lock_experiments(runs) as lock:
    together = Together(piece, lock)
    missing = [path for path in work if not path.exists()]  # another experiment may have made some until now

    def make(path: Path) -> None:
      if piece.is_over:
        raise RunError(f"stopped before {path.name} was begun; what is done is kept")
      write_json(path, work[path](together), indent=None)

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
      for future in [pool.submit(make, path) for path in missing]:
        future.result()

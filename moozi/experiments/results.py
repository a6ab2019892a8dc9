"""Results of finished jobs, which can be committed: one folder for each job.

config.yaml        the run's configuration
metrics.jsonl      its metrics, thinned; absent if another result of the same run has them
summary.json       the run's summary; absent if the run has none
evaluations.json   a list: `moozi evaluate --json --returns` of each evaluation, with the wall time of its
                   checkpoint, and the checkpoint and the simulations as the job names them
machine.json       cores, processor, versions, and the commit of the code that wrote the result; if measured,
                   the device and the seconds of bare acting per step and of the bare update per sample
job.json           steps and time of the run, the commit that trained last (absent in older results), and the
                   evaluations of the job
"""

import dataclasses
import importlib.metadata
import json
import platform
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from moozi.core.errors import UserError
from moozi.experiments.jobs import GROWABLE, Job, PlannedEvaluation, differences, reaches_end
from moozi.io.atomic_write import write_bytes
from moozi.io.checkpoints import code_commit, find_checkpoint
from moozi.io.config import save_config
from moozi.io.machine import num_cores
from moozi.io.metrics import read_metrics, thin_ticks
from moozi.io.plain_data import to_plain_json
from moozi.io.run_directory import RunDirectory, read_run_config

MACHINE = ("runtime", "ray.", "workers.resources.", "evaluation.resources.", "checkpoint.", "timeline.")
"""Prefixes of settings in which a result may differ from its job, such as where it ran and what it stored."""

_MAX_TICKS = 200
_PACKAGES = ("jax", "mctx", "minatar", "ray")


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
  """Writes a JSON file atomically, and creates its folder if it is missing."""
  path.parent.mkdir(parents=True, exist_ok=True)
  text = json.dumps(to_plain_json(value), indent=indent, allow_nan=False)
  write_bytes(path, (text + "\n").encode())


def write_result(
  path: Path,
  run: RunDirectory,
  job: Job,
  evaluations: Sequence[dict[str, Any]],
  columns: Collection[str] | None = None,
  measured: Mapping[str, Any] | None = None,
) -> None:
  """Writes or replaces the folder of a finished job; an interruption leaves no partial folder at `path`.

  `run` must be complete. Its metrics are left out if another job trained it.

  Args:
    columns: the metrics to keep; None keeps all.
    measured: further entries of `machine.json`.
  """
  temporary, old = (path.with_name(f".{path.name}.{suffix}") for suffix in ("tmp", "old"))
  for folder in (temporary, old):
    shutil.rmtree(folder, ignore_errors=True)
  temporary.mkdir(parents=True)
  config, last = run.load_config(), find_checkpoint(run.checkpoints_path)
  plain_run = config.run.model_copy(update={"dir": "runs"})
  save_config(config.model_copy(update={"run": plain_run}), temporary / "config.yaml")
  if job.run is None:
    ticks = read_metrics(run.metrics_path)
    if columns is not None:
      ticks = [{name: value for name, value in tick.items() if name in columns} for tick in ticks]
    lines = [json.dumps(to_plain_json(tick)) for tick in thin_ticks(ticks, _MAX_TICKS, digits=6)]
    (temporary / "metrics.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
  if run.summary_path.exists():
    shutil.copyfile(run.summary_path, temporary / "summary.json")
  write_json(temporary / "evaluations.json", evaluations, indent=None)
  write_json(temporary / "machine.json", machine() | dict(measured or {}))
  job_json = {
    "env_steps": last.env_steps,
    "wall_s": run.trained_s_at_end(last.env_steps, last.learner_steps),
    "commit": last.meta.get("commit"),
    "evaluations": [dataclasses.asdict(evaluation) for evaluation in job.evaluations],
  }
  write_json(temporary / "job.json", job_json)
  if path.exists():
    path.rename(old)
  temporary.rename(path)
  shutil.rmtree(old, ignore_errors=True)


def has_result(job: Job, results: Path) -> bool:
  """Returns whether a job's result has all its steps (or all its time) and all its evaluations.

  Raises: UserError: the folder is not a result, or its settings differ from the job's in more than the
    length of the run, `MACHINE` and `job.may_differ`.
  """
  path, wanted = results / job.name, job.load_config(results)
  if not (path / "job.json").exists():
    return False
  try:
    found = json.loads((path / "job.json").read_text("utf-8"))
    env_steps, wall_s = int(found["env_steps"]), float(found["wall_s"])
    evaluations = {PlannedEvaluation(**evaluation) for evaluation in found["evaluations"]}
  except (OSError, ValueError, KeyError, TypeError) as error:
    raise UserError(f"{path}: not a result: {type(error).__name__}: {error}") from None
  if not reaches_end(env_steps, wall_s, wanted) or not evaluations.issuperset(job.evaluations):
    return False
  changed = differences(read_run_config(path / "config.yaml"), wanted)
  if changed := [key for key in changed if not key.startswith((*GROWABLE, *MACHINE, *job.may_differ))]:
    raise UserError(f"{path}: differs from the job in {', '.join(changed)}; move it and its run away")
  return True


def machine() -> dict[str, Any]:
  """Returns facts on which wall times depend: cores, processor, versions, and the commit of the code."""
  installed = importlib.metadata.distributions()
  return {
    "cores": num_cores(),
    "processor": platform.machine(),
    "python": platform.python_version(),
    "packages": {dist.name.lower(): dist.version for dist in installed if dist.name.lower() in _PACKAGES},
    "commit": code_commit(),
  }

"""Committed results: one folder for each job.

config.yaml        the run's configuration
metrics.jsonl      its metrics, thinned; absent if another result of the same run has them
summary.json       the run's summary
evaluations.json   a list: `moozi evaluate --json --returns` of each checkpoint, with its wall time
machine.json       cores, versions, and the commit of the code that wrote the result; if measured, the device
                   and the seconds of the bare search per step and of the bare update per sample
job.json           steps and time of the run, the commit that trained last (absent in older results), and the
                   evaluations of the job
"""

import argparse
import dataclasses
import functools
import importlib.metadata
import json
import platform
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from experiments.lib.command import command
from experiments.lib.jobs import Evaluation, Job
from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.envs.suites import minatar
from moozi.experiments.comparison import CONDITIONS, training_seconds
from moozi.experiments.jobs import GROWABLE, differences, reaches_end
from moozi.io.atomic_write import write_bytes, write_text
from moozi.io.checkpoints import code_commit, find_checkpoint
from moozi.io.config import save_config
from moozi.io.machine import num_cores
from moozi.io.metrics import read_metrics, thin_ticks
from moozi.io.plain_data import to_plain_json
from moozi.io.run_directory import RunDirectory, read_run_config

_MAX_TICKS = 200
_PACKAGES = ("jax", "mctx", "minatar", "ray")


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
  """Returns a table in Markdown."""
  lines = [f"| {' | '.join(cells)} |" for cells in (columns, *rows)]
  return "\n".join([lines[0], "|" + "---|" * len(columns), *lines[1:]])


def with_interval(value: float, low: float, high: float, digits: int = 0) -> str:
  """Returns a figure with its interval in brackets."""
  return f"{value:z.{digits}f} [{low:z.{digits}f}, {high:z.{digits}f}]"


def mean_of(ticks: Sequence[Mapping[str, Any]], key: str) -> float:
  """Returns the mean of a metric that all ticks have."""
  return sum(tick[key] for tick in ticks) / len(ticks)


def swing_of(returns: ArrayLike) -> float:
  """Returns the sample standard deviation of the mean returns of checkpoints, divided by their mean."""
  return float(np.std(returns, ddof=1) / np.mean(returns))


def write_between_markers(path: Path, name: str, text: str) -> None:
  """Replaces the text between the markers of a name in a file.

  Raises: UserError: the file does not have both markers once, in order.
  """
  begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
  whole = path.read_text("utf-8")
  if whole.count(begin) != 1 or whole.count(end) != 1 or whole.index(begin) > whole.index(end):
    raise UserError(f"{path}: needs one line {begin} and, after it, one line {end}")
  before, _, rest = whole.partition(begin)
  write_text(path, f"{before}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}")


@command
def print_table(
  make: Callable[[], str],
  experiment: Path,
  doc: str,
  arguments: Sequence[str] | None = None,
  marker: str | None = None,
) -> int:
  """Runs the command line of a table: prints it; with `--readme`, also writes it into the README.

  The markers in `README.md` have the name `marker`, by default that of the experiment's folder.

  Returns: the exit status: 0; 2 for a user's error.
  """
  parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--readme", action="store_true", help="also write the table into README.md")
  options, text = parser.parse_args(arguments), make()
  if options.readme:
    write_between_markers(experiment / "README.md", marker or experiment.name, text)
  print(text)
  return 0


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
  """Writes a JSON file atomically, with its folder."""
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


def is_result_of(path: Path, job: Job, wanted: Config) -> bool:
  """Returns whether a result has all steps (or all time) of a configuration and all evaluations of a job.

  Raises: UserError: the folder is not a result.
  """
  if not (path / "job.json").exists():
    return False
  try:
    found = json.loads((path / "job.json").read_text("utf-8"))
    env_steps, wall_s = int(found["env_steps"]), float(found["wall_s"])
    evaluations = {Evaluation(**evaluation) for evaluation in found["evaluations"]}
  except (OSError, ValueError, KeyError, TypeError) as error:
    raise UserError(f"{path}: not a result: {type(error).__name__}: {error}") from None
  return reaches_end(env_steps, wall_s, wanted) and evaluations.issuperset(job.evaluations)


def machine() -> dict[str, Any]:
  """Returns what wall times depend on: cores, processor, versions, and the commit of the code."""
  installed = importlib.metadata.distributions()
  return {
    "cores": num_cores(),
    "processor": platform.machine(),
    "python": platform.python_version(),
    "packages": {dist.name.lower(): dist.version for dist in installed if dist.name.lower() in _PACKAGES},
    "commit": code_commit(),
  }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
  """A committed result: its folder, configuration and evaluations, and machine.json."""

  path: Path
  config: Config
  evaluations: list[dict[str, Any]]
  machine: dict[str, Any]

  @property
  def cores(self) -> int:
    return int(self.machine["cores"])

  @property
  def agent(self) -> str:
    return "PPO" if self.config.algorithm == "ppo" else "MooZi"

  @property
  def game(self) -> str:
    return self.config.env.name.partition(":")[2]

  @property
  def sticky_action_prob(self) -> float | None:
    """The configured probability of sticky actions, or MinAtar's default; None if there is neither."""
    value = self.config.env.kwargs.get("sticky_action_prob")
    if value is None and self.config.env.name.startswith("minatar:"):
      value = minatar.MinAtarOptions().sticky_action_prob
    return None if value is None else float(value)

  @property
  def processor(self) -> str | None:
    """The name of the run's processor, such as `Intel Xeon`; None if the result does not have it."""
    path = self.path / "summary.json"
    summary = json.loads(path.read_text("utf-8")) if path.exists() else {}
    name = summary.get("machine", {}).get("cpu") or self.machine.get("device")
    return None if name is None else name.replace("(R)", "").removesuffix(" Processor")

  def wall_s_at(self, env_steps: ArrayLike) -> Float[np.ndarray, " N"]:
    """Returns the seconds of training until each of N environment steps, without evaluations."""
    return training_seconds(self.ticks, self.config, np.asarray(env_steps, np.float64))

  @functools.cached_property
  def ticks(self) -> list[dict[str, Any]]:
    return read_metrics(self.path / "metrics.jsonl")

  @functools.cached_property
  def job(self) -> dict[str, Any]:
    """The content of job.json."""
    job: dict[str, Any] = json.loads((self.path / "job.json").read_text("utf-8"))
    return job


def conditions_of(config: Config) -> dict[str, Any]:
  """Returns the settings of `evaluation` that returns depend on."""
  return {key: getattr(config.evaluation, key) for key in CONDITIONS}


def read_results(directory: Path) -> list[Result]:
  """Reads all results in a directory, in order of name. Raises UserError: a folder is not a result."""
  if not directory.is_dir():
    return []
  folders = [p for p in sorted(directory.iterdir()) if p.is_dir() and not p.name.startswith(".")]
  return [read_result(path) for path in folders]


def read_finished(directory: Path, names: Iterable[str]) -> list[Result]:
  """Reads the results in a directory that have one of the names, in the order of the names."""
  return [read_result(directory / name) for name in names if (directory / name / "job.json").exists()]


def read_result(path: Path) -> Result:
  """Reads the result in a folder. Raises UserError: the folder is not a result."""
  try:
    evaluations = json.loads((path / "evaluations.json").read_text("utf-8"))
    machine = json.loads((path / "machine.json").read_text("utf-8"))
    int(machine["cores"])
  except (OSError, ValueError, KeyError, TypeError) as error:
    raise UserError(f"{path}: not a result: {type(error).__name__}: {error}") from None
  config = read_run_config(path / "config.yaml")
  return Result(path=path, config=config, evaluations=evaluations, machine=machine)


def check_alike(results: Sequence[Result], may_differ: Sequence[str] = ()) -> None:
  """Raises UserError if two results have the same seed, or differ in more than the seed and the length.

  `may_differ` has the prefixes of further settings that may differ.
  """
  by_seed: dict[int, Result] = {}
  for result in results:
    if (seed := result.config.seed) in by_seed:
      raise UserError(f"{by_seed[seed].path} and {result.path}: both have seed {seed}; remove one")
    by_seed[seed] = result
    changed = differences(results[0].config, result.config)
    if changed := [key for key in changed if not key.startswith(("seed", *GROWABLE, *may_differ))]:
      raise UserError(
        f"{results[0].path} and {result.path}: differ in {', '.join(changed)}; only seeds may differ"
      )


def check_same_conditions(results: Sequence[Result]) -> None:
  """Raises UserError if the evaluations of two results differ in one of `CONDITIONS`."""
  for result in results:
    for key, value in conditions_of(result.config).items():
      if value != (other := conditions_of(results[0].config)[key]):
        raise UserError(
          f"{results[0].path} and {result.path}: evaluated with evaluation.{key} of {other} and of {value}"
        )

"""Reads committed results, whose files `moozi.experiments.results` describes."""

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.experiments.comparison import CONDITIONS, training_seconds
from moozi.experiments.jobs import GROWABLE, Sweep, differences
from moozi.experiments.sweep_file import load_sweep
from moozi.io.metrics import read_metrics
from moozi.io.run_directory import read_run_config

ROOT = Path(__file__).resolve().parents[2]
"""The repository."""

RUNS = ROOT / "runs"
"""The folder of all runs; each sweep has a folder in it."""


@functools.cache
def sweep_of(experiment: Path) -> Sweep:
  """Returns the sweep of an experiment's folder."""
  return load_sweep(experiment / f"{experiment.name}.yaml")


def mean_of(ticks: Sequence[Mapping[str, Any]], key: str) -> float:
  """Returns the mean of a metric that all ticks have."""
  return sum(tick[key] for tick in ticks) / len(ticks)


def swing_of(returns: ArrayLike) -> float:
  """Returns the sample standard deviation of the mean returns of checkpoints, divided by their mean."""
  values = np.asarray(returns)
  return float(np.std(values, ddof=1) / np.mean(values))


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
  def game(self) -> str:
    return self.config.env.name.partition(":")[2]

  @property
  def processor(self) -> str | None:
    """The name of the run's processor, such as `Intel Xeon`; None if the result does not have it."""
    summary = self.summary if (self.path / "summary.json").exists() else {}
    name = summary.get("machine", {}).get("cpu") or self.machine.get("device")
    return None if name is None else name.replace("(R)", "").removesuffix(" Processor")

  @property
  def training_return(self) -> float:
    """The mean return of training episodes that the run reported last."""
    return float([tick["train/return_mean"] for tick in self.ticks if "train/return_mean" in tick][-1])

  def wall_s_at(self, env_steps: ArrayLike) -> Float[np.ndarray, " N"]:
    """Returns the seconds of training until each of N environment steps, without evaluations."""
    return training_seconds(self.ticks, self.config, np.asarray(env_steps, np.float64))

  @functools.cached_property
  def ticks(self) -> list[dict[str, Any]]:
    return read_metrics(self.path / "metrics.jsonl")

  @functools.cached_property
  def job(self) -> dict[str, Any]:
    """The content of job.json."""
    return self._read("job")

  @functools.cached_property
  def summary(self) -> dict[str, Any]:
    """The content of summary.json."""
    return self._read("summary")

  def _read(self, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((self.path / f"{name}.json").read_text("utf-8"))
    return found


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


def finished(experiment: Path, results: Path | None = None) -> list[Result]:
  """Reads an experiment's results, from `results` or its own folder, in the order of its sweep's jobs."""
  sweep = sweep_of(experiment)
  return read_finished(results or experiment / "results", [job.name for job in sweep.jobs])


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

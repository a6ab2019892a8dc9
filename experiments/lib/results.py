"""Committed results: a folder for each job, there whole or not at all.

config.yaml        the run's configuration
metrics.jsonl      its ticks, thinned; not where another result has the same run's
summary.json       what the run said at its end
evaluations.json   a list: `moozi evaluate --json --returns` of each checkpoint, with its wall time
machine.json       cores, versions, and the commit of the code that wrote the result
job.json           how far the run had come, the commit of the code that trained last (not in a result older
                   than this entry), and which evaluations were asked for
"""

import dataclasses
import functools
import importlib.metadata
import json
import os
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.lib.jobs import (
  GROWS,
  Evaluation,
  Job,
  differences,
  is_complete,
  newest_resumable,
)
from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.envs.suites import minatar
from moozi.io.atomic_write import write_bytes
from moozi.io.checkpoints import code_commit
from moozi.io.config import save_config
from moozi.io.metrics import read_metrics
from moozi.io.plain_data import to_plain_json
from moozi.io.run_directory import RunDirectory, read_run_config

CONDITIONS = ("noise_free", "max_random_starts", "max_episode_steps", "seed")
"""Settings of `evaluation` under which returns come about."""

MAX_TICKS = 200
"""Ticks that a result keeps beside those of evaluations."""

_DIGITS = 6
_ROUNDED_S = 0.01  # what they leave out of a tick's time, for some hours
_PACKAGES = ("jax", "mctx", "minatar", "ray")


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
  """Writes a file of JSON, whole or not at all, and its folder where there is none."""
  path.parent.mkdir(parents=True, exist_ok=True)
  text = json.dumps(to_plain_json(value), indent=indent, allow_nan=False)
  write_bytes(path, (text + "\n").encode())


def write_result(path: Path, run: RunDirectory, job: Job, evaluations: Sequence[dict[str, Any]]) -> None:
  """Makes the folder of a job that is done; one that is there is replaced.

  Args:
    path: the folder.
    run: of the job; complete.
    job: where it names a run that other jobs share, the metrics are left to the one the run is called after.
    evaluations: their figures.
  """
  temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
  shutil.rmtree(temporary, ignore_errors=True)
  temporary.mkdir(parents=True)
  config = run.load_config()
  # Where it lay is no part of the result.
  save_config(
    config.model_copy(update={"run": config.run.model_copy(update={"dir": "runs"})}),
    temporary / "config.yaml",
  )
  if job.run is None:
    lines = [json.dumps(to_plain_json(tick)) for tick in thin(read_metrics(run.metrics_path))]
    write_bytes(temporary / "metrics.jsonl", ("\n".join(lines) + "\n").encode())
  if run.summary_path.exists():
    shutil.copyfile(run.summary_path, temporary / "summary.json")
  write_json(temporary / "evaluations.json", evaluations, indent=None)
  write_json(temporary / "machine.json", machine())
  write_json(temporary / "job.json", _came_of(job, run))
  old = path.with_name(f".{path.name}.{os.getpid()}.old")
  if path.exists():
    path.rename(old)
  temporary.rename(path)
  shutil.rmtree(old, ignore_errors=True)


def _came_of(job: Job, run: RunDirectory) -> dict[str, Any]:
  newest = newest_resumable(run)
  assert newest is not None, "the run is complete"
  return {
    "env_steps": newest.env_steps,
    "wall_s": run.trained_s_at_end(newest.env_steps, newest.learner_steps),
    "commit": newest.meta.get("commit"),
    "evaluations": [dataclasses.asdict(evaluation) for evaluation in job.evaluations],
  }


def is_result_of(path: Path, job: Job, wanted: Config) -> bool:
  """Whether the folder has all that the job asks for now: its steps or its time, and its evaluations.

  Args:
    path: where its result would lie.
    job: it may have grown since the result was made.
    wanted: its configuration.
  Raises: UserError: what is there is no result.
  """
  if not (path / "job.json").exists():
    return False  # one of an older kind is made again, of what its run has left
  try:
    came = json.loads((path / "job.json").read_text("utf-8"))
    env_steps, wall_s = int(came["env_steps"]), float(came["wall_s"])
    made = {Evaluation(**evaluation) for evaluation in came["evaluations"]}
  except (OSError, ValueError, KeyError, TypeError) as error:
    raise UserError(f"{path}: not a result: {type(error).__name__}: {error}") from None
  return is_complete(env_steps, wall_s, wanted) and made.issuperset(job.evaluations)


def machine() -> dict[str, Any]:
  """What a wall time depends on."""
  return {
    "cores": len(os.sched_getaffinity(0)),
    "processor": platform.machine(),
    "python": platform.python_version(),
    "packages": {name: version for name in _PACKAGES if (version := _version(name)) is not None},
    "commit": code_commit(),
  }


def _version(package: str) -> str | None:
  try:
    return importlib.metadata.version(package)
  except importlib.metadata.PackageNotFoundError:
    return None


def thin(ticks: Sequence[dict[str, Any]], most: int = MAX_TICKS) -> list[dict[str, Any]]:
  """The ticks of evaluations, and so many of the others, evenly, the last among them; six digits each."""
  others = [i for i, tick in enumerate(ticks) if "test/return_mean" not in tick]
  step = max(1, -(-len(others) // most))
  kept = set(others[::-1][::step])
  return [
    {name: _short(value) for name, value in tick.items()}
    for i, tick in enumerate(ticks)
    if i in kept or "test/return_mean" in tick
  ]


def _short(value: Any) -> Any:
  is_rounded = isinstance(value, float) and not value.is_integer()
  return float(f"{value:.{_DIGITS}g}") if is_rounded else value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
  """A committed result.

  Attributes:
    path: its folder.
    config: of the run.
    evaluations: their figures.
    cores: of the machine that it was made on.
  """

  path: Path
  config: Config
  evaluations: list[dict[str, Any]]
  cores: int

  @property
  def agent(self) -> str:
    """As figures and tables call it."""
    return "PPO" if self.config.algorithm == "ppo" else "MooZi"

  @property
  def game(self) -> str:
    """The environment's name without its library."""
    return self.config.env.name.partition(":")[2]

  @property
  def sticky_action_prob(self) -> float | None:
    """Of the environment; where nobody said it, MinAtar's is the package's, and None that of others."""
    value = self.config.env.kwargs.get("sticky_action_prob")
    if value is None and self.config.env.name.startswith("minatar:"):
      value = minatar.Options().sticky_action_prob
    return None if value is None else float(value)

  @property
  def conditions(self) -> dict[str, Any]:
    """Of its evaluations: what `CONDITIONS` names."""
    return conditions_of(self.config)

  @property
  def has_curve(self) -> bool:
    """Whether it has metrics."""
    return (self.path / "metrics.jsonl").exists()

  @property
  def has_evaluations_in_its_course(self) -> bool:
    """Whether training waited for its evaluations; with Ray they are made beside it."""
    return self.config.algorithm == "ppo" or self.config.runtime == "local"

  def without_evaluations(self, wall_s: float) -> float:
    """Of so many seconds since the run's start those in which it was not evaluating."""
    if not (self.has_evaluations_in_its_course and self.has_curve):
      return wall_s
    return wall_s - sum(seconds for end, seconds in self._evaluating if end <= wall_s + _ROUNDED_S)

  def wall_s_at(self, env_steps: Sequence[float]) -> np.ndarray:
    """Seconds of training [N] until the run had so many steps [N], between its ticks in proportion.

    Not when their evaluations arrived: those that Ray makes beside training come later.
    """
    steps, first = np.unique([tick["env_steps"] for tick in self.ticks], return_index=True)
    seconds = [self.without_evaluations(self.ticks[i]["wall_s"]) for i in first]
    return np.interp(env_steps, steps, seconds)

  @functools.cached_property
  def _evaluating(self) -> list[tuple[float, float]]:
    """When each evaluation ended, and how long it took, in seconds."""
    return [(tick["wall_s"], tick["test/seconds"]) for tick in self.ticks if "test/seconds" in tick]

  @functools.cached_property
  def ticks(self) -> list[dict[str, Any]]:
    """The ticks of its metrics."""
    return read_metrics(self.path / "metrics.jsonl")


def conditions_of(config: Config) -> dict[str, Any]:
  """Of its evaluations: what `CONDITIONS` names."""
  return {key: getattr(config.evaluation, key) for key in CONDITIONS}


def read_results(directory: Path) -> list[Result]:
  """The results there are, by name.

  Raises: UserError: a folder among them is no result.
  """
  if not directory.is_dir():
    return []
  folders = [p for p in sorted(directory.iterdir()) if p.is_dir() and not p.name.startswith(".")]
  return [_read_result(path) for path in folders]


def _read_result(path: Path) -> Result:
  try:
    evaluations = json.loads((path / "evaluations.json").read_text("utf-8"))
    cores = int(json.loads((path / "machine.json").read_text("utf-8"))["cores"])
  except (OSError, ValueError, KeyError, TypeError) as error:
    raise UserError(f"{path}: not a result: {type(error).__name__}: {error}") from None
  config = read_run_config(path / "config.yaml")
  return Result(path=path, config=config, evaluations=evaluations, cores=cores)


def check_alike(results: Sequence[Result]) -> None:
  """Refuses what cannot be pooled as seeds of one thing.

  Raises: UserError: two have one seed, or settings that differ in more than the seed and how long a run may
    last.
  """
  by_seed: dict[int, Result] = {}
  for result in results:
    seed = result.config.seed
    if seed in by_seed:
      raise UserError(f"{by_seed[seed].path} and {result.path}: are of one seed, {seed}; they count as two")
    by_seed[seed] = result
    others = [k for k in differences(results[0].config, result.config) if k not in ("seed", *GROWS)]
    if others:
      raise UserError(
        f"{results[0].path} and {result.path}: differ in {', '.join(others)}; seeds of one experiment "
        "differ in nothing but the seed"
      )


def check_same_conditions(results: Sequence[Result]) -> None:
  """Refuses to hold returns against each other that came about under other conditions.

  Raises: UserError: evaluations of two results differ in one of `CONDITIONS`.
  """
  for result in results:
    for key, value in result.conditions.items():
      other = results[0].conditions[key]
      if value != other:
        raise UserError(
          f"{results[0].path} and {result.path}: were evaluated with evaluation.{key} of {other} and of "
          f"{value}"
        )

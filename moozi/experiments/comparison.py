"""Compares runs: groups them by configuration, separately for each environment and evaluation protocol.

Source: Agarwal et al. 2021 ("Deep RL at the edge of the statistical precipice"): interquartile mean,
percentile bootstrap over runs, probability of improvement. Departure: returns are not normalized, so returns
of different environments are never averaged. Each interval resamples the seeds of one environment.
"""

import dataclasses
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from moozi.core.config import Config
from moozi.core.config.budget import limits_of_rate
from moozi.core.errors import UserError
from moozi.envs.registry import options_of
from moozi.experiments.jobs import settings_of, without_seed
from moozi.experiments.statistics import (
  CONFIDENCE,
  MIN_SEEDS_FOR_INTERVAL,
  Statistic,
  aggregate_improvement,
  bootstrap_interval,
  interquartile_mean,
)
from moozi.io.metrics import read_metrics
from moozi.io.plain_data import number_in
from moozi.io.run_directory import ENDS, RunDirectory

LAST = 5
"""A run's final score is the mean return of this number of last evaluations, or of all if there are fewer."""

INTERVAL_NOTE = (
  f"{CONFIDENCE:.0%}: percentile bootstrap interval over seeds; none with one seed, too narrow with few."
)
AXES = ("env_steps", "minutes")
CENTERS: Mapping[str, Statistic] = {"iqm": interquartile_mean, "mean": np.mean}
CONDITIONS = ("noise_free", "max_random_starts", "max_episode_steps", "seed")
"""Keys of `evaluation` that are part of a task's protocol; `conditions_of` adds the opponent."""

_NOT_METHOD = (
  *("seed", "max_wall_s", "env.", "evaluation.", "timeline.", "trajectories."),
  *("checkpoint.period_s", "checkpoint.first_s", "checkpoint.keep", "checkpoint.milestones"),
  *("ray.address", "ray.num_", "ray.object"),
)
"""Prefixes of settings that do not affect the group of a run. `env.` and the protocol determine its task."""

_METHOD = "evaluation.network"
"""A setting that affects the group although it has a prefix of _NOT_METHOD; so do `limits_of_rate`."""

_SHOWN = ("sticky_action_prob", "max_episode_steps")  # options that are always in the name of a task
_MAX_POINTS = 200
_MAX_IN_NAME = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunCurve:
  """The N evaluations of a run, in order of environment steps.

  Attributes:
    env_steps: environment steps of the run at each evaluation.
    minutes: minutes of training until each evaluation, without the time that training waited for evaluations.
    returns: mean return of each evaluation.
    is_finished: whether the run ended at its limit of steps or of time, or at its `stop_value`.
  """

  path: Path
  config: Config
  env_steps: Float[np.ndarray, " N"]
  minutes: Float[np.ndarray, " N"]
  returns: Float[np.ndarray, " N"]
  is_finished: bool

  @property
  def name(self) -> str:
    return self.path.resolve().name

  @property
  def seed(self) -> int:
    return self.config.seed

  @property
  def final(self) -> float:
    """The final score: the mean return of the last `LAST` evaluations, or of all if there are fewer."""
    return float(self.returns[-LAST:].mean())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Band:
  """A statistic over a group's curves at N points, with its interval.

  `low` and `high` are None if the group has one seed, or if there are no points.
  """

  x: Float[np.ndarray, " N"]
  center: Float[np.ndarray, " N"]
  low: Float[np.ndarray, " N"] | None
  high: Float[np.ndarray, " N"] | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
  """The runs of one configuration in one task, sorted by seed."""

  name: str
  runs: tuple[RunCurve, ...]

  @property
  def finals(self) -> Float[np.ndarray, " S"]:
    return np.array([run.final for run in self.runs])

  def final(self, center: str) -> tuple[float, float | None, float | None]:
    """Returns a statistic of the S final scores and the bounds of its interval, which are None if S is 1.

    Args:
      center: the statistic, a key of CENTERS.
    """
    value = float(CENTERS[center](self.finals))
    if len(self.runs) < MIN_SEEDS_FOR_INTERVAL:
      return value, None, None
    low, high = bootstrap_interval(self.finals, CENTERS[center])
    return value, float(low), float(high)

  def band(self, axis: str, center: str) -> Band:
    """Returns a statistic of the curves in the range of `axis` that all seeds cover.

    Args:
      axis: "env_steps" or "minutes". Returns are interpolated linearly between evaluations.
      center: the statistic, a key of CENTERS.
    """
    curves = [(getattr(run, axis), run.returns) for run in self.runs]
    x = common_points([points for points, _ in curves])
    values = np.stack([np.interp(x, *curve) for curve in curves], axis=-1)
    interval: tuple[Any, Any] = (None, None)
    if len(self.runs) >= MIN_SEEDS_FOR_INTERVAL and len(x):
      interval = bootstrap_interval(values, CENTERS[center])
    return Band(x=x, center=CENTERS[center](values, axis=-1), low=interval[0], high=interval[1])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
  """The groups of one environment and protocol; `conditions` has the options of both."""

  name: str
  conditions: Mapping[str, Any]
  groups: tuple[Group, ...]

  def differing_settings(self) -> dict[str, list[Any]]:
    """Returns the settings in which the groups differ: a value for each group, by key."""
    return _differing([_method(group.runs[0].config) for group in self.groups])

  def checkpoints(self) -> Float[np.ndarray, " N"]:
    """Returns the environment steps at which the runs are compared, within the range that all runs cover."""
    return common_points([run.env_steps for group in self.groups for run in group.runs])


def read_runs(paths: Sequence[Path]) -> tuple[list[RunCurve], list[Path]]:
  """Reads runs; a repeated path counts once.

  Returns: the runs that have evaluations, and the paths of those that have none.

  Raises: UserError: a path is not a run, or no run has an evaluation.
  """
  unique = {path.resolve(): path for path in paths}
  runs = {path: read_run(path) for path in unique.values()}
  found = [run for run in runs.values() if len(run.returns)]
  if not found:
    names = ", ".join(map(str, paths)) or "no runs"
    raise UserError(f"{names}: no evaluations; a run has one every evaluation.period_env_steps steps")
  return found, [path for path, run in runs.items() if not len(run.returns)]


def read_run(path: Path) -> RunCurve:
  """Reads a run directory, or a folder that has only config.yaml, metrics.jsonl and summary.json of a run.

  Raises: UserError: config.yaml is missing, or config.yaml or metrics.jsonl is damaged.
  """
  run = RunDirectory(path)
  if not run.config_path.is_file():
    raise UserError(f"{path}: not a run: it has no config.yaml; `moozi train` makes run directories")
  config = run.load_config()
  ticks = read_metrics(run.metrics_path) if run.metrics_path.exists() else []
  try:
    is_finished = run.read_summary().get("reason") in ENDS
  except UserError:
    is_finished = False
  returns: dict[float, float] = {}
  for tick in ticks:
    at, value = number_in(tick.get("test/at_env_steps")), number_in(tick.get("test/return_mean"))
    if value is not None:
      # The final evaluation replaces a shorter one at the same step.
      returns[number_in(tick.get("env_steps")) or 0.0 if at is None else at] = value
  steps = np.array(sorted(returns), np.float64)
  return RunCurve(
    path=path,
    config=config,
    env_steps=steps,
    minutes=np.maximum.accumulate(training_seconds(ticks, config, steps) / 60),
    returns=np.array([returns[at] for at in steps], np.float64),
    is_finished=is_finished,
  )


def training_seconds(
  ticks: Sequence[Mapping[str, Any]], config: Config, env_steps: Float[np.ndarray, " N"]
) -> Float[np.ndarray, " N"]:
  """Returns the seconds of training until each of N environment steps, interpolated between ticks.

  In one process (`Config.has_one_process`), training waits for evaluations. This time is excluded.
  """
  seconds: dict[float, float] = {}
  waited = 0.0
  for tick in ticks:
    steps, wall_s = number_in(tick.get("env_steps")), number_in(tick.get("wall_s"))
    waited += (number_in(tick.get("test/seconds")) or 0.0) if config.has_one_process else 0.0
    if steps is not None and wall_s is not None:
      seconds.setdefault(steps, wall_s - waited)
  known = sorted(seconds)
  if not known:
    return np.zeros_like(env_steps)
  return np.interp(env_steps, known, [seconds[at] for at in known])


def make_tasks(runs: Sequence[RunCurve]) -> list[Task]:
  """Groups runs by environment and protocol, then by the settings of the method, as `_method` returns them.

  Raises: UserError: two runs of a group have the same seed.
  """
  by_task: dict[str, list[RunCurve]] = {}
  for run in runs:
    by_task.setdefault(_key(conditions_of(run.config)), []).append(run)
  members = sorted(by_task.values(), key=lambda found: found[0].config.env.name)
  conditions = [conditions_of(found[0].config) for found in members]
  return [
    Task(name=_task_name(own, conditions), conditions=own, groups=_groups(found))
    for own, found in zip(conditions, members, strict=True)
  ]


def conditions_of(config: Config) -> dict[str, Any]:
  """Returns the environment, its options with their defaults, its wrappers, and the evaluation protocol."""
  protocol = {f"evaluation.{key}": getattr(config.evaluation, key) for key in CONDITIONS}
  protocol["evaluation.opponent"] = config.evaluation.opponent_name
  wrappers = {"env.wrappers": list(config.env.wrappers)} if config.env.wrappers else {}
  return {"env": config.env.name, **options_of(config.env.name, config.env.kwargs), **wrappers, **protocol}


def _task_name(conditions: Mapping[str, Any], everything: Sequence[Mapping[str, Any]]) -> str:
  """Returns a task's name: the environment, the options _SHOWN, and what differs among that environment's."""
  same = [other for other in everything if other["env"] == conditions["env"]]
  shown = {key: conditions[key] for key in _SHOWN if conditions.get(key) is not None}
  shown |= {key: conditions.get(key) for key in _differing(same)}
  # Settings of `evaluation` are shown without the prefix, unless the environment has an option of that name.
  plain = {key: key.removeprefix("evaluation.") for key in shown}
  names = {key: key if plain[key] in conditions else plain[key] for key in shown}
  text = ", ".join(f"{names[key]}={_text(value)}" for key, value in shown.items())
  return f"{conditions['env']} ({text})" if text else str(conditions["env"])


def _groups(runs: Sequence[RunCurve]) -> tuple[Group, ...]:
  members: dict[str, list[RunCurve]] = {}
  for run in runs:
    members.setdefault(_key(_method(run.config)), []).append(run)
  for found in members.values():
    found.sort(key=lambda run: run.seed)
    for first, second in itertools.pairwise(found):
      if first.seed == second.seed:
        raise UserError(
          f"{first.path} and {second.path}: both have seed {first.seed} and one configuration; seeds are the "
          "unit of the comparison, so leave one out"
        )
  differing = _differing([_method(found[0].config) for found in members.values()])
  stems = [_stem(found) for found in members.values()]
  names: list[str] = []
  for i, stem in enumerate(stems):
    values = [f"{key}={_text(of_group[i])}" for key, of_group in differing.items()]
    more = f", +{len(values) - _MAX_IN_NAME} more" if len(values) > _MAX_IN_NAME else ""
    name = stem if stems.count(stem) == 1 else f"{stem} ({', '.join(values[:_MAX_IN_NAME])}{more})"
    names.append(name if name not in names else f"{name} #{i + 1}")
  named = zip(names, members.values(), strict=True)
  return tuple(Group(name=name, runs=tuple(found)) for name, found in sorted(named, key=lambda x: x[0]))


def _stem(runs: Sequence[RunCurve]) -> str:
  """Returns the runs' common name without seed and game, or the algorithm if they have no common name."""
  game = re.escape(runs[0].config.env.name.rpartition(":")[2])
  stems = {without_seed(run.name) for run in runs}
  stems = {re.sub(rf"(?:^|[-_.]){game}(?=$|[-_.])", "", stem).strip("-_.") for stem in stems}
  return (stems.pop() if len(stems) == 1 else "") or runs[0].config.algorithm


def _method(config: Config) -> dict[str, Any]:
  """Returns the settings that determine a run's group: `settings_of` without _NOT_METHOD.

  _METHOD and the limits until which the learning rate falls stay.
  """
  settings, own = settings_of(config).items(), (_METHOD, *limits_of_rate(config))
  return {key: value for key, value in settings if key in own or not key.startswith(_NOT_METHOD)}


def _differing(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
  keys = dict.fromkeys(key for own in settings for key in own)
  columns = {key: [own.get(key) for own in settings] for key in keys}
  return {key: values for key, values in columns.items() if any(value != values[0] for value in values)}


def _key(settings: Mapping[str, Any]) -> str:
  return repr(sorted((key, repr(value)) for key, value in settings.items()))


def _text(value: Any) -> str:
  return value if isinstance(value, str) else json.dumps(value)


def common_points(curves: Sequence[Float[np.ndarray, " _"]]) -> Float[np.ndarray, " N"]:
  """Returns the ends of the range that all curves cover, and at most 200 points between them.

  The points between the ends are those of the curve that has the most there; if it has over 200, they are
  evenly spaced. Without a common range, there are no points.
  """
  begin, end = max(x[0] for x in curves), min(x[-1] for x in curves)
  if begin > end:
    return np.zeros(0)
  inside = max((x[(x > begin) & (x < end)] for x in curves), key=len)
  if len(inside) > _MAX_POINTS:
    inside = np.linspace(begin, end, _MAX_POINTS)[1:-1]
  return np.unique(np.concatenate([[begin], inside, [end]]))


def comparison_data(
  tasks: Sequence[Task], center: str = "iqm", left_out: Sequence[Path] = ()
) -> dict[str, Any]:
  """Returns the comparison as plain data, from which the page and the figure are drawn.

  `low` and `high` are None for a group with one seed.
  """
  return {
    "center": center,
    "interval": INTERVAL_NOTE,
    "last": LAST,
    "left_out": [path.name for path in left_out],
    "tasks": [_task_data(task, center) for task in tasks],
  }


def _task_data(task: Task, center: str) -> dict[str, Any]:
  differing = task.differing_settings()
  return {
    "name": task.name,
    "conditions": dict(task.conditions),
    "settings": {key: [_text(value) for value in values] for key, values in differing.items()},
    "groups": [_group_data(group, center) for group in task.groups],
    "pairs": pairs_of(task),
  }


def _group_data(group: Group, center: str) -> dict[str, Any]:
  finals = {name: dict(zip(("value", "low", "high"), group.final(name), strict=True)) for name in CENTERS}
  bands = {}
  for axis in AXES:
    band = group.band(axis, center)
    bands[axis] = {name: _list(getattr(band, name)) for name in ("x", "center", "low", "high")}
  return {
    "name": group.name,
    "algorithm": group.runs[0].config.algorithm,
    "finals": finals,
    "bands": bands,
    "runs": [
      {
        "name": run.name,
        "seed": run.seed,
        "is_finished": run.is_finished,
        "final": run.final,
        **{name: _list(getattr(run, name)) for name in (*AXES, "returns")},
      }
      for run in group.runs
    ],
  }


def pairs_of(task: Task) -> list[dict[str, Any]]:
  """Returns the probability of improvement of each pair of groups, as in `comparison_data`."""
  out = []
  for i, first in enumerate(task.groups):
    for second in task.groups[i + 1 :]:
      found = aggregate_improvement([first.finals], [second.finals])
      out.append({"first": first.name, "second": second.name, **dataclasses.asdict(found)})
  return out


def scores(tasks: Sequence[Task]) -> dict[str, dict[str, list[list[float]]]]:
  """Returns {group: {task: [runs × checkpoints]}}: the returns at `Task.checkpoints`."""
  out: dict[str, dict[str, list[list[float]]]] = {}
  for task in tasks:
    points = task.checkpoints()
    for group in task.groups:
      curves = [np.interp(points, run.env_steps, run.returns).tolist() for run in group.runs]
      out.setdefault(group.name, {})[task.name] = curves
  return out


def _list(values: np.ndarray | None) -> list[float] | None:
  return None if values is None else [float(f"{value:.6g}") for value in values]

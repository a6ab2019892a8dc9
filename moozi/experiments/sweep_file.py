"""Sweeps from a YAML file: variants of configurations, each with its seeds, and their evaluations.

    config: minatar/breakout        # as for `moozi train`; a path may be relative to this file
    seeds: 3                        # the seeds 1, 2 and 3; or a list of seeds
    minutes: 55                     # time limit of one call; no limit by default
    overrides: {max_env_steps: 500_000}
    variants:
      default: {}
      n_step_5: {targets.n_step: 5}
    evaluations: [{checkpoint: last, episodes: 100}]

By default, each run is in `<run.dir>/<name of the file>/<variant>-seed<n>`. docs/compare.md describes all
keys.
"""

import dataclasses
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pydantic
from pydantic import Field

from moozi.core.config import PositiveInt, Section
from moozi.core.errors import UserError
from moozi.core.seeds import are_seeds
from moozi.experiments.jobs import Job, PlannedEvaluation, Sweep
from moozi.experiments.runner import MIN_TRAINING_S
from moozi.io.config import load_config
from moozi.io.plain_data import read_yaml
from moozi.io.run_directory import check_name, flatten_settings

Settings = dict[str, Any] | None
_MIN_MINUTES = MIN_TRAINING_S / 60
_SEED_KEYS = ("seed", "run.name")


class EvaluationGrid(Section):
  """Evaluations of a run's checkpoints: one for each combination, if keys have lists of values."""

  checkpoint: str | int | tuple[str | int, ...]
  episodes: PositiveInt = 100
  simulations: PositiveInt | tuple[PositiveInt, ...] | None = None
  opponent: str | tuple[str, ...] | None = None

  def all(self) -> Iterator[PlannedEvaluation]:
    values = (getattr(self, key) for key in ("checkpoint", "simulations", "opponent"))
    for checkpoint, simulations, opponent in itertools.product(
      *(value if isinstance(value, tuple) else (value,) for value in values)
    ):
      yield PlannedEvaluation(
        checkpoint=str(checkpoint), episodes=self.episodes, simulations=simulations, opponent=opponent
      )


class SweepGroup(Section):
  """Variants with common settings. A group takes the keys that it lacks from the file."""

  config: str | None = None
  seeds: PositiveInt | tuple[int, ...] | None = None
  name: str | None = None
  run: str | None = None
  overrides: Settings = None
  variants: dict[str, Settings] | None = Field(None, min_length=1)
  evaluations: tuple[EvaluationGrid, ...] | None = None
  may_differ: tuple[str, ...] | None = None


class SweepFile(SweepGroup):
  """The keys of a sweep file."""

  minutes: Annotated[float, Field(gt=_MIN_MINUTES)] | None = None
  parallel: PositiveInt | None = None
  cores: PositiveInt | None = None
  results: str | None = None
  columns: tuple[str, ...] | None = None
  measures_speed: bool = False
  groups: tuple[SweepGroup, ...] | None = Field(None, min_length=1)

  def complete_groups(self) -> list[SweepGroup]:
    """Returns the groups, each with the keys of the file that it lacks, and with the file's overrides."""
    if self.groups is None:
      return [self]
    out = []
    for group in self.groups:
      own = {key: value for key in SweepGroup.model_fields if (value := getattr(group, key)) is not None}
      overrides = flatten_settings(self.overrides or {}) | flatten_settings(group.overrides or {})
      inherited = {key: getattr(self, key) for key in SweepGroup.model_fields}
      out.append(SweepGroup.model_construct(**inherited | own | {"overrides": overrides}))
    return out


def load_sweep(path: Path, overrides: Sequence[str] = (), out: Path | None = None) -> Sweep:
  """Reads a sweep file and checks the settings of every variant.

  The jobs of a group are ordered by seed: all variants with the first seed come before those with the
  second. Groups follow one another in the order of the file.

  Args:
    overrides: further settings `key=value` of all variants.
    out: the folder of the results, with the runs in `out/runs`, instead of those of the file.

  Raises: UserError: the file, or a variant's setting, is invalid.
  """
  file = _read(path)
  jobs = [job for group in file.complete_groups() for job in _jobs_of(group, path, overrides)]
  names = [job.name for job in jobs]
  if repeated := [name for name in names if names.count(name) > 1]:
    raise UserError(f"{path}: {repeated[0]}: two runs have this name; `name` sets the names of a group")
  if unknown := [job for job in jobs if job.run is not None and job.run not in names]:
    raise UserError(f"{path}: run={unknown[0].run}: no variant has this name")
  common = [*_overrides(file.overrides), *overrides]
  folder = load_config(jobs[0].config, common).run.folder / check_name(path.stem, "the name of the file")
  results = None if file.results is None else path.absolute().parent / file.results
  return Sweep(
    folder=folder if out is None else out / "runs",
    jobs=tuple(jobs),
    minutes=file.minutes,
    parallel=file.parallel,
    cores=file.cores,
    results=results if out is None else out,
    columns=file.columns,
    measures_speed=file.measures_speed,
  )


def _read(path: Path) -> SweepFile:
  data = read_yaml(path)
  if not isinstance(data, Mapping):
    raise UserError(f"{path}: not a sweep; needs at least config: and variants:")
  try:
    found = SweepFile.model_validate_json(json.dumps(data), strict=True)
  except pydantic.ValidationError as error:
    raise UserError(f"{path}: {_describe(error)}") from None
  except TypeError as error:
    raise UserError(f"{path}: {error}; only plain values are allowed") from None
  for i, group in enumerate(found.complete_groups()):
    where = f"groups.{i}." if found.groups else ""
    for key in ("config", "variants"):
      if getattr(group, key) is None:
        raise UserError(f"{path}: {where}{key}: missing; a value is required")
  return found


def _describe(error: pydantic.ValidationError) -> str:
  """Returns the first problem of a sweep file: its key, the value and what is allowed."""
  first = error.errors(include_url=False)[0]
  # In a union, the name of a member type follows the key.
  models: list[type[Section]] = [SweepFile, SweepGroup, EvaluationGrid]
  fields = {"extra_forbidden": None} | {key: None for model in models for key in model.model_fields}
  is_extra = first["type"] == "extra_forbidden"
  parts = [part for part in first["loc"] if isinstance(part, int) or part in fields]
  if is_extra:
    parent = next((part for part in reversed(parts) if isinstance(part, str)), None)
    known: dict[str | None, type[Section]] = {"groups": SweepGroup, "evaluations": EvaluationGrid}
    model = known.get(parent, SweepFile)
    key = ".".join(map(str, [*parts, first["loc"][-1]]))
    return f"{key}: unknown key; must be one of {', '.join(model.model_fields)}"
  key = ".".join(map(str, parts))
  if first["type"] == "missing":
    return f"{key}: missing; a value is required"
  return f"{key}={json.dumps(first['input'])}: {first['msg'].replace('Input should be', 'must be')}"


def _jobs_of(group: SweepGroup, path: Path, overrides: Sequence[str]) -> Iterator[Job]:
  """Yields the jobs of a group, ordered by seed."""
  seeds = group.seeds if group.seeds is not None else 3
  seeds = tuple(range(1, seeds + 1)) if isinstance(seeds, int) else seeds
  if not are_seeds(seeds):
    raise UserError(f"{path}: seeds={list(seeds)}: must be different seeds from 0 to 2**31 - 1")
  common = _overrides(group.overrides)
  evaluations = tuple(each for row in group.evaluations or () for each in row.all())
  checked = []
  for name, settings in (group.variants or {}).items():
    own = _overrides(settings)
    taken = tuple(f"{key}=" for key in _SEED_KEYS)
    if given := [text for text in (*common, *own, *overrides) if text.startswith(taken)]:
      raise UserError(f"{path}: variants.{name}: {given[0]}: the sweep sets {' and '.join(_SEED_KEYS)}")
    if given := [text for text in own if text.startswith("run.dir=")]:
      raise UserError(f"{path}: variants.{name}: {given[0]}: set it in overrides, for all variants")
    config = str(group.config).replace("{variant}", name)
    beside = path.absolute().parent / config
    # Unlike Path.is_file, os.path does not raise for a name that is too long.
    config_path = beside if os.path.isfile(beside) else config
    job = Job(
      name=check_name(name, "variants"),
      config=config_path,
      overrides=(*common, *own, *overrides),
      evaluations=evaluations,
      may_differ=group.may_differ or (),
    )
    try:
      load_config(job.config, job.overrides)
    except UserError as error:
      raise UserError(f"{path}: variants.{name}: {error}") from None
    checked.append(job)
  for seed in seeds:
    for job in checked:
      made = _named(group.name or "{variant}-seed{seed}", job.name, seed)
      run = None if group.run is None else _named(group.run, job.name, seed)
      yield dataclasses.replace(job, name=check_name(made, "name"), seed=seed, run=run)


def _named(template: str, variant: str, seed: int) -> str:
  return template.replace("{variant}", variant).replace("{seed}", str(seed))


def _overrides(settings: Settings) -> tuple[str, ...]:
  """Returns `key=value` for each setting; the keys of sections may be nested or dotted."""
  return tuple(f"{key}={json.dumps(value)}" for key, value in flatten_settings(settings or {}).items())

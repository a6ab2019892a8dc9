"""Sweeps from a YAML file: variants of one configuration, each with several seeds.

    config: minatar/breakout        # as for `moozi train`; a path may be relative to this file
    seeds: 3                        # the seeds 1, 2 and 3; or a list of seeds
    minutes: 55                     # time limit of one call; no limit by default
    overrides: {max_env_steps: 500_000}
    variants:
      default: {}
      n_step_5: {targets.n_step: 5}

Each run is in `<run.dir>/<name of the file>/<variant>-seed<n>`.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pydantic
from pydantic import Field

from moozi.core.config import PositiveInt, Section
from moozi.core.errors import UserError
from moozi.core.seeds import are_seeds
from moozi.experiments.jobs import Job
from moozi.experiments.runner import MIN_TRAINING_S
from moozi.io.config import load_config
from moozi.io.plain_data import read_yaml
from moozi.io.run_directory import check_name, flatten_settings

Settings = dict[str, Any] | None
_MIN_MINUTES = MIN_TRAINING_S / 60
_SEED_KEYS = ("seed", "run.name")


class SweepFile(Section):
  """The keys of a sweep file."""

  config: str
  seeds: PositiveInt | tuple[int, ...] = 3
  minutes: Annotated[float, Field(gt=_MIN_MINUTES)] | None = None
  parallel: PositiveInt = 1
  overrides: Settings = None
  variants: dict[str, Settings] = Field(min_length=1)


@dataclasses.dataclass(frozen=True)
class Sweep:
  """The content of a sweep file. Its runs are in `folder`; `minutes` is None without a time limit."""

  folder: Path
  jobs: tuple[Job, ...]
  minutes: float | None
  parallel: int


def load_sweep(path: Path) -> Sweep:
  """Reads a sweep file and checks the settings of every variant.

  The jobs are ordered by seed: all variants with the first seed come before those with the second.

  Raises: UserError: the file, or a variant's setting, is invalid.
  """
  data = read_yaml(path)
  if not isinstance(data, Mapping):
    raise UserError(f"{path}: not a sweep; needs at least config: and variants:")
  try:
    found = SweepFile.model_validate_json(json.dumps(data), strict=True)
  except pydantic.ValidationError as error:
    first = error.errors(include_url=False)[0]
    # Only the first part of the location is a key; in a union, the name of a member type follows.
    key = next((str(part) for part in first["loc"]), "")
    text = f"={json.dumps(first['input'])}: {first['msg'].replace('Input should be', 'must be')}"
    if first["type"] == "extra_forbidden":
      text = f": unknown key; must be one of {', '.join(SweepFile.model_fields)}"
    elif first["type"] == "missing":
      text = ": missing; a value is required"
    raise UserError(f"{path}: {key}{text}") from None
  except TypeError as error:
    raise UserError(f"{path}: {error}; only plain values are allowed") from None
  beside = path.parent / found.config
  # Unlike Path.is_file, os.path does not raise for a name that is too long.
  config = beside if os.path.isfile(beside) else found.config
  seeds = tuple(range(1, found.seeds + 1)) if isinstance(found.seeds, int) else found.seeds
  if not are_seeds(seeds):
    raise UserError(f"{path}: seeds={list(seeds)}: must be different seeds from 0 to 2**31 - 1")
  common = _overrides(found.overrides)
  variants = {check_name(name, "variants"): _overrides(own) for name, own in found.variants.items()}
  for name, own in variants.items():
    if given := [text for text in (*common, *own) if text.startswith(tuple(f"{key}=" for key in _SEED_KEYS))]:
      raise UserError(f"{path}: variants.{name}: {given[0]}: the sweep sets {' and '.join(_SEED_KEYS)}")
    if given := [text for text in own if text.startswith("run.dir=")]:
      raise UserError(f"{path}: variants.{name}: {given[0]}: set it in overrides, for all variants")
    try:
      load_config(config, [*common, *own])
    except UserError as error:
      raise UserError(f"{path}: variants.{name}: {error}") from None
  jobs = [
    Job(name=f"{name}-seed{seed}", config=config, overrides=(*common, *own), seed=seed)
    for seed in seeds
    for name, own in variants.items()
  ]
  folder = load_config(config, common).run.folder / check_name(path.stem, "the name of the file")
  return Sweep(folder, tuple(jobs), found.minutes, found.parallel)


def _overrides(settings: Settings) -> tuple[str, ...]:
  """Returns `key=value` for each setting; the keys of sections may be nested or dotted."""
  return tuple(f"{key}={json.dumps(value)}" for key, value in flatten_settings(settings or {}).items())

"""One thing changed at a time: short runs of variants at equal environment steps, and their table."""

import argparse
import dataclasses
import functools
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.lib.scratch import (
  Together,
  check_made,
  check_settings,
  config_of,
  make_missing,
  run_whole,
)
from moozi.core.errors import UserError

Curve = Sequence[Mapping[str, float]]
"""A run's ticks: those of `KEYS` that each has, by name."""
KEYS = ("env_steps", "train/return_mean", "test/return_mean", "search/root_value", "error/value")
"""Metrics that are kept of a run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ablation:
  """Variants of one configuration.

  Attributes:
    config: the YAML file.
    results: the folder of the finished runs' figures.
    variants: `key=value` each, by name; nothing is the configuration as it is.
    common: `key=value` each, of all of them.
    steps: environment steps of each run, where nobody says otherwise.
    measures: further columns of the table: a figure of a run's curve, by the column's heading.
  """

  config: Path
  results: Path
  variants: Mapping[str, tuple[str, ...]]
  common: tuple[str, ...] = ()
  steps: int = 300_000
  measures: Mapping[str, Callable[[Curve], float]] = dataclasses.field(default_factory=dict)

  def run(self, together: Together, variant: str, seed: int, steps: int) -> dict[str, Any]:
    """A run of so many environment steps to its end, beside others."""
    settings = self.settings(variant, seed, steps)
    return {"overrides": self.variants[variant], **run_whole(together, self.config, settings, KEYS)}

  def settings(self, variant: str, seed: int, steps: int) -> tuple[str, ...]:
    """`key=value` each of a run, over the configuration's own."""
    return (f"seed={seed}", f"max_env_steps={steps}", *self.common, *self.variants[variant])

  def path_of(self, variant: str, seed: int) -> Path:
    """Where a finished run's figures are."""
    return self.results / f"{variant}_seed{seed}.json"

  def found(self, variant: str, steps: int) -> list[dict[str, Any]]:
    """The figures that there are of a variant.

    Raises: UserError: some are of other changes, of other settings, or of another number of steps.
    """
    out, wanted = [], config_of(self.config, self.settings(variant, 0, steps))
    for path in sorted(self.results.glob(f"{variant}_seed*.json")):
      figures = json.loads(path.read_text("utf-8"))
      check_made(path, figures, [self.variants[variant]], steps)
      check_settings(path, figures, wanted)
      out.append(figures)
    return out

  def table(self, steps: int) -> str:
    """What there is, in Markdown: the figure of each seed, then their mean.

    Beside the evaluation of each seed stand two standard errors of its episodes' mean.

    Raises: UserError: as `found` does.
    """
    headings = ["variant", "steps", "return while acting, last 100 episodes", "return, evaluation at the end"]
    headings += [*self.measures, "wall s"]
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    for variant in self.variants:
      found = self.found(variant, steps)
      if not found:
        continue
      acting = [[t["train/return_mean"] for t in r["curve"] if "train/return_mean" in t][-1] for r in found]
      summaries = [r["summary"] for r in found]
      tested = [s["test_return_mean"] for s in summaries]
      errors = [2 * s["test_return_std"] / np.sqrt(s["test_episodes"]) for s in summaries]
      told = " ".join(f"{x:.1f} ± {e:.1f}" for x, e in zip(tested, errors, strict=True))
      made = " ".join(f"{count:,}" for count in sorted({s["env_steps"] for s in summaries}))
      cells = [variant, made, _each(acting), f"{told} {_mean(tested)}"]
      cells += [_each([measure(run["curve"]) for run in found]) for measure in self.measures.values()]
      cells.append(f"{np.mean([s['wall_s'] for s in summaries]):.0f}")
      lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _each(values: Sequence[float]) -> str:
  return f"{' '.join(f'{value:.1f}' for value in values)} {_mean(values)}"


def _mean(values: Sequence[float]) -> str:
  return f"(mean {np.mean(values):.1f})"


def main(ablation: Ablation, doc: str, arguments: Sequence[str] | None = None) -> int:
  """The program of an ablation: makes what is missing, and prints the table.

  Args:
    ablation: what is run.
    doc: the program's own text.
    arguments: without the program's name; None takes the process's own.
  Returns: the exit status: 2 after an error of the user's, a run that failed, or a signal.
  """
  parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
  names = tuple(ablation.variants)
  parser.add_argument(
    "--steps", type=int, default=ablation.steps, help="environment steps of each run (%(default)s)"
  )
  parser.add_argument("--seeds", type=int, default=2, help="so many, from 0 on")
  parser.add_argument("--variants", nargs="*", choices=names, default=names, help="these and no others")
  parser.add_argument("--table", action="store_true", help="only print what there is")
  given = parser.parse_args(arguments)
  jobs = [(variant, seed) for seed in range(given.seeds) for variant in given.variants]
  try:
    for variant in names:
      ablation.found(variant, given.steps)
    if not given.table:
      work = {
        ablation.path_of(variant, seed): functools.partial(
          ablation.run, variant=variant, seed=seed, steps=given.steps
        )
        for variant, seed in jobs
      }
      make_missing(work, len(os.sched_getaffinity(0)))
    print(ablation.table(given.steps))
  except UserError as error:
    print(f"error: {error}", file=sys.stderr)
    return 2
  return 0

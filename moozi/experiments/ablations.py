"""One thing changed at a time: short runs of variants at equal environment steps, and their table."""

import argparse
import dataclasses
import functools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from moozi.experiments.scratch import make_missing, run_whole

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
  """

  config: Path
  results: Path
  variants: Mapping[str, tuple[str, ...]]
  common: tuple[str, ...] = ()

  def run(self, variant: str, seed: int, steps: int) -> dict[str, Any]:
    """A run of so many environment steps to its end."""
    own, overrides = (f"seed={seed}", f"max_env_steps={steps}"), self.variants[variant]
    return {"overrides": overrides, **run_whole(self.config, (*own, *self.common, *overrides), KEYS)}

  def path_of(self, variant: str, seed: int) -> Path:
    """Where a finished run's figures are."""
    return self.results / f"{variant}_seed{seed}.json"

  def table(self) -> str:
    """What there is, in Markdown: the figure of each seed, then their mean."""
    lines = [
      "| variant | steps | return while acting, last 100 episodes | return, evaluation at the end | wall s |",
      "|---|---|---|---|---|",
    ]
    for variant in self.variants:
      found = [json.loads(p.read_text("utf-8")) for p in sorted(self.results.glob(f"{variant}_seed*.json"))]
      if not found:
        continue
      acting = [[t["train/return_mean"] for t in r["curve"] if "train/return_mean" in t][-1] for r in found]
      summaries = [r["summary"] for r in found]
      steps = " ".join(f"{count:,}" for count in sorted({s["env_steps"] for s in summaries}))
      cells = f"{_cell(acting)} | {_cell([s['test_return_mean'] for s in summaries])}"
      lines.append(f"| {variant} | {steps} | {cells} | {np.mean([s['wall_s'] for s in summaries]):.0f} |")
    return "\n".join(lines)


def _cell(values: Sequence[float]) -> str:
  return f"{' '.join(f'{x:.1f}' for x in values)} (mean {np.mean(values):.1f})"


def main(ablation: Ablation, doc: str, arguments: Sequence[str] | None = None) -> None:
  """The program of an ablation: makes what is missing, and prints the table.

  Args:
    ablation: what is run.
    doc: the program's own text.
    arguments: without the program's name; None takes the process's own.
  """
  parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
  names = tuple(ablation.variants)
  parser.add_argument("--steps", type=int, default=300_000, help="environment steps of each run")
  parser.add_argument("--seeds", type=int, default=2, help="so many, from 0 on")
  parser.add_argument("--variants", nargs="*", choices=names, default=names, help="these and no others")
  parser.add_argument("--table", action="store_true", help="only print what there is")
  given = parser.parse_args(arguments)
  jobs = [(variant, seed) for seed in range(given.seeds) for variant in given.variants]
  if not given.table:
    work = {ablation.path_of(*job): functools.partial(ablation.run, *job, given.steps) for job in jobs}
    make_missing(work, len(os.sched_getaffinity(0)))
  print(ablation.table())

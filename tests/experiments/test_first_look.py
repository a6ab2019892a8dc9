"""Tests of the repetition of `make train` with several seeds."""

import json
import re

from experiments.first_look.sweep import CONFIG, HERE, SEEDS, jobs
from experiments.first_look.table import table_of
from experiments.lib.jobs import ROOT
from moozi.experiments.jobs import differences
from moozi.io.config import load_config


def test_jobs_are_make_train_with_other_seeds(tmp_path):
  configs = [job.load_config(tmp_path) for job in jobs()]
  assert [config.seed for config in configs] == list(SEEDS)
  for config in configs:
    changed = differences(load_config(CONFIG), config)
    assert set(changed) <= {"seed", "run.name", "run.dir", "logging.tensorboard", "evaluation.gif"}


def test_the_table_of_all_seeds_is_in_the_readme():
  table = table_of(HERE / "results")
  assert len(table.splitlines()) == 2 + len(SEEDS)
  assert table in (HERE / "README.md").read_text("utf-8")
  printed = [float(line.split("|")[2]) for line in table.splitlines()[2:]]
  assert min(printed) >= 12
  span = f"{min(printed):.1f} to {max(printed):.1f} (five seeds"
  at = {}
  for folder in sorted((HERE / "results").iterdir()):
    ticks = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    for tick in ticks:
      steps = tick.get("test/at_env_steps", 0)
      if steps and steps % 100_000 < 10_000:  # an evaluation in a run's course, not that at its end
        at.setdefault(round(steps, -5), []).append(tick["test/return_mean"])
  (header,) = [x for x in CONFIG.read_text("utf-8").splitlines() if x.startswith("# Curve: ")]
  found = re.findall(r"([0-9]+) to ([0-9]+) after ([0-9,]+)", header)
  assert len(found) == 4
  for low, high, count in found:
    returns = at[int(count.replace(",", ""))]
    assert (low, high) == (f"{min(returns):.0f}", f"{max(returns):.0f}")
    assert len(returns) == 5
  steps = [round(int(line.split("|")[4].replace(",", "")), -4) for line in table.splitlines()[2:]]
  text = " ".join((ROOT / "README.md").read_text("utf-8").split())
  assert f"makes {min(steps):,} to {max(steps):,} steps, and its agent returns {span}" in text

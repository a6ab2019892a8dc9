"""Trains an agent through three surgeries, and one with the last configuration from nothing.

    python -m experiments.surgery.run --seed 0

The same command continues where it stopped. Writes `results/seedS.json`: evaluations before and after each
surgery, evaluations during training, and the seconds of training.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.lib.command import command
from experiments.lib.results import RUNS
from moozi.core.errors import UserError
from moozi.experiments.comparison import training_seconds
from moozi.experiments.jobs import reaches_end
from moozi.experiments.results import write_json
from moozi.experiments.runner import MOOZI
from moozi.io.config import load_config
from moozi.io.metrics import read_metrics
from moozi.io.run_directory import RunDirectory

HERE = Path(__file__).resolve().parent
CONFIG = "minatar/asterix"
STEPS = 300_000
"""Environment steps of each stage."""
EPISODES = 100


class Stage(NamedTuple):
  """A part of the run, which ends with a surgery, or with the end of the run.

  Attributes:
    name: of the stage's run.
    changes: the settings that differ from those of the stage before; at the first, from CONFIG.
  """

  name: str
  changes: dict[str, Any]


STAGES = (
  Stage("start", {"targets.history_length": 1, "network.channels": 8}),
  Stage("history", {"targets.history_length": 2}),
  Stage("width", {"network.channels": 16}),
  Stage("sticky", {"env.kwargs.sticky_action_prob": 0.1}),
)
TOTAL = STEPS * len(STAGES)


def settings(stage: int, seed: int) -> dict[str, Any]:
  """Returns the settings of the run of a stage, by key.

  The learning rate decays over the learner steps of all stages together.
  """
  changed: dict[str, Any] = {}
  for earlier in STAGES[: stage + 1]:
    changed |= earlier.changes
  whole = load_config(CONFIG, [f"max_env_steps={TOTAL}"])
  return changed | {
    "seed": seed,
    "max_env_steps": STEPS * (stage + 1),
    "learner.learning_rate.decay_steps": whole.decay_steps,
    "runtime": "local",
    "evaluation.period_env_steps": 50_000,
    "evaluation.gif": False,
    "logging.tensorboard": False,
  }


def _overrides(values: dict[str, Any], folder: Path, name: str) -> list[str]:
  given = values | {"run.dir": str(folder), "run.name": name}
  return [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in given.items()]


def _moozi(*arguments: str) -> str:
  """Runs a command of MooZi; returns what it prints to stdout. Raises UserError: it failed."""
  done = subprocess.run([*MOOZI, *arguments], stdout=subprocess.PIPE, text=True, check=False)
  if done.returncode:
    raise UserError(f"moozi {' '.join(arguments)}: exit status {done.returncode}")
  return done.stdout


def _train(path: Path, overrides: Sequence[str]) -> None:
  """Trains a run to its end; a run that has begun is resumed, and one that has ended stays as it is."""
  if not (path / "config.yaml").exists():
    _moozi("train", CONFIG, *overrides)
    return
  run = RunDirectory.open(path)
  ticks = read_metrics(run.metrics_path)
  if not ticks or not reaches_end(ticks[-1]["env_steps"], ticks[-1]["wall_s"], run.load_config()):
    _moozi("train", "--resume", str(path))


def _evaluate(path: Path) -> dict[str, Any]:
  text = _moozi("evaluate", str(path), "--episodes", str(EPISODES), "--json", "--returns")
  found: dict[str, Any] = json.loads(text)
  return found


def _curve(path: Path) -> dict[str, Any]:
  """Returns the evaluations of a run and the seconds of its training."""
  run = RunDirectory.open(path)
  ticks = read_metrics(run.metrics_path)
  tests = [(tick["env_steps"], tick["test/return_mean"]) for tick in ticks if "test/return_mean" in tick]
  return {
    "env_steps": [steps for steps, _ in tests],
    "returns": [value for _, value in tests],
    "training_s": float(training_seconds(ticks, run.load_config(), np.array([ticks[-1]["env_steps"]]))[0]),
  }


def train_with_surgeries(folder: Path, seed: int, results: Path) -> None:
  """Trains through all stages, and writes an evaluation before and after each surgery, and the curve."""
  found = _read(results)
  joints = found.setdefault("joints", [])
  path = folder
  for number, stage in enumerate(STAGES):
    before, path = path, folder / f"{stage.name}_seed{seed}"
    overrides = _overrides(settings(number, seed), folder, path.name)
    if number and not (path / "config.yaml").exists():
      # Replay stays through the joint that changes the rules.
      keep = ["--keep-replay"] if any(key.startswith("env.") for key in stage.changes) else []
      _moozi("surgery", str(before), "--to", CONFIG, "--out", path.name, *keep, *overrides)
    if number > len(joints):
      # Before the new run trains, so that it is the converted agent that plays.
      joints.append({"stage": stage.name, "before": _evaluate(before), "after": _evaluate(path)})
      write_json(results, found)
    _train(path, overrides)
  write_json(results, found | {"surgeries": _curve(path) | {"last": _evaluate(path)}})


def train_from_nothing(folder: Path, seed: int, results: Path) -> None:
  """Trains with the settings of the last stage for the steps of all stages, and writes the curve."""
  path = folder / f"from_nothing_seed{seed}"
  _train(path, _overrides(settings(len(STAGES) - 1, seed), folder, path.name))
  write_json(results, _read(results) | {"from_nothing": _curve(path) | {"last": _evaluate(path)}})


def _read(path: Path) -> dict[str, Any]:
  found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
  return found


@command
def main() -> int:
  """Runs the command line; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--runs", type=Path, default=RUNS / "surgery")
  parser.add_argument("--results", type=Path, default=HERE / "results")
  args = parser.parse_args()
  args.results.mkdir(parents=True, exist_ok=True)
  results = args.results / f"seed{args.seed}.json"
  train_with_surgeries(args.runs, args.seed, results)
  train_from_nothing(args.runs, args.seed, results)
  return 0


if __name__ == "__main__":
  sys.exit(main())

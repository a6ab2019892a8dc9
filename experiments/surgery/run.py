"""Trains an agent through three surgeries, and one with the last configuration from nothing.

    python -m experiments.surgery.run --seed 0

The same command continues where it stopped. Writes to `results/`:

seedS.json            evaluations before and after each surgery, evaluations during training, and the seconds
                      of training
lineage_seedS.json    the surgeries of the last run
report_seedS.html     its page
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.lib.command import command
from moozi.api.loading import agent_of
from moozi.core.config import EnvConfig
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
PAGE_STEPS = 50
"""Maximum number of steps of the episode in the page."""
RUNS = Path("runs") / "surgery"
"""The folder of the runs. It is relative, because the committed lineage and page name it."""


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


def _evaluate_in(env: EnvConfig, path: Path) -> dict[str, Any]:
  """Returns the result of `_evaluate` if a run's agent plays another environment."""
  run = RunDirectory.open(path)
  agent = agent_of(run, run.load_config().model_copy(update={"env": env}), None)
  result = agent.evaluate(EPISODES)
  figures = {"env_steps": agent.checkpoint.env_steps, "returns": result.returns, "lengths": result.lengths}
  return result.summary() | figures


def _joint(stage: Stage, before: Path, after: Path) -> dict[str, Any]:
  """Returns the evaluations of a surgery: of the old agent and of the converted one, before it trains.

  If the environment changes, the old agent plays the new one too.
  """
  joint = {"stage": stage.name, "before": _evaluate(before), "after": _evaluate(after)}
  old, new = (RunDirectory.open(path).load_config().env for path in (before, after))
  return joint if old == new else joint | {"old_agent": _evaluate_in(new, before)}


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
  """Trains through all stages; writes evaluations before and after each surgery, the curve, and the page."""
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
      joints.append(_joint(stage, before, path))
      write_json(results, found)
    _train(path, overrides)
  write_json(results, found | {"surgeries": _curve(path) | {"last": _evaluate(path)}})
  shutil.copyfile(RunDirectory.open(path).lineage_path, results.with_name(f"lineage_{results.name}"))
  page = results.with_name(f"report_{results.stem}.html")
  _moozi("report", str(path), "--max-steps", str(PAGE_STEPS), "--out", str(page))


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
  parser.add_argument("--runs", type=Path, default=RUNS)
  parser.add_argument("--results", type=Path, default=HERE / "results")
  args = parser.parse_args()
  args.results.mkdir(parents=True, exist_ok=True)
  results = args.results / f"seed{args.seed}.json"
  if not (args.runs / f"{STAGES[0].name}_seed{args.seed}").exists():
    results.unlink(missing_ok=True)  # of runs that this command cannot continue
  train_with_surgeries(args.runs, args.seed, results)
  train_from_nothing(args.runs, args.seed, results)
  return 0


if __name__ == "__main__":
  sys.exit(main())

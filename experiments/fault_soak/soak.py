"""An hour of training with a fault every few minutes, beside runs without.

  python experiments/fault_soak/soak.py faults --minutes 60 --every 180     # with faults
  python experiments/fault_soak/soak.py calm --minutes 60 --seed 1          # one without; seeds 1, 2, 3
  python experiments/fault_soak/soak.py table                               # what results/ holds

`table` draws results/curves.png, too. `--steps N` ends a run earlier, where it has made N steps. Each run
needs the machine to itself. Faults are drawn from a fixed seed among: a training or testing worker, the
replay buffer or the parameter server killed; the driver killed and the run resumed; SIGTERM and the run
resumed; the newest checkpoint cut short before the driver is killed.
"""

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from moozi.io.checkpoints import list_checkpoints, load_flat
from moozi.io.metrics import read_metrics

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RUNS = ROOT / "runs"
RESULTS = HERE / "results"
ACTORS = ("TrainingWorker", "TestingWorker", "ReplayActor", "ParameterServer")
FAULTS = (*ACTORS, "driver", "sigterm", "cut checkpoint")
SAMPLE_S = 10.0


class Soak:
  """A run, the faults in it, and what its processes take."""

  def __init__(self, name: str, seed: int, minutes: float) -> None:
    self.run, self.minutes = RUNS / name, minutes
    self.begin = [
      "train",
      str(ROOT / "config" / "minatar" / "breakout.yaml"),
      f"run.dir={RUNS}",
      f"run.name={name}",
      f"seed={seed}",
      "max_env_steps=1000000000",
      "evaluation.period_env_steps=250000",
      "evaluation.episodes=50",
      "checkpoint.period_s=60",
    ]
    self.samples: list[dict[str, Any]] = []
    self.faults: list[dict[str, Any]] = []
    self.process = self._start(self.begin)
    self.started = time.monotonic()

  def _start(self, arguments: list[str]) -> psutil.Popen:
    log = open(HERE / f"{self.run.name}.log", "a")  # noqa: SIM115 - the process holds it
    return psutil.Popen(
      [sys.executable, "-m", "moozi.cli", *arguments], stdout=log, stderr=log, start_new_session=True
    )

  def elapsed(self) -> float:
    """Seconds since the first start."""
    return time.monotonic() - self.started

  def sample(self) -> None:
    """Notes memory and open files of all of the run's processes."""
    resident, files = 0, 0
    for process in [self.process, *self.process.children(recursive=True)]:
      try:
        resident += process.memory_info().rss
        files += process.num_fds()
      except psutil.Error:
        continue
    self.samples.append({"s": round(self.elapsed()), "resident_mib": resident >> 20, "files": files})

  def inject(self, kind: str) -> None:
    """Does one fault."""
    self.faults.append({"s": round(self.elapsed()), "kind": kind})
    if kind in ACTORS:
      for process in self.process.children(recursive=True):
        if kind in "".join(process.cmdline()):
          process.kill()
      return
    if kind == "cut checkpoint":
      newest = max((self.run / "checkpoints").glob("step_*"))
      arrays = newest / "arrays.safetensors"
      os.truncate(arrays, arrays.stat().st_size // 2)
    self.process.send_signal(signal.SIGTERM if kind == "sigterm" else signal.SIGKILL)
    if kind == "sigterm":
      self.process.wait(timeout=120)
    else:
      psutil.wait_procs([self.process, *self.process.children(recursive=True)], timeout=120)
    self.process = self._start(["train", "--resume", str(self.run)])

  def ticks(self) -> list[dict[str, Any]]:
    """The lines of metrics so far."""
    path = self.run / "metrics.jsonl"
    return read_metrics(path) if path.exists() else []

  def env_steps(self) -> int:
    """Made so far."""
    ticks = self.ticks()
    return ticks[-1]["env_steps"] if ticks else 0

  def end(self) -> dict[str, Any]:
    """Stops the run, and returns what came of it."""
    self.process.send_signal(signal.SIGTERM)
    status = self.process.wait(timeout=300)
    ticks, last = self.ticks(), self.ticks()[-1]
    newest = list_checkpoints(self.run / "resume")[-1]
    state, _ = load_flat(newest.path)
    summary = json.loads((self.run / "summary.json").read_text())
    evaluations = [
      {"env_steps": int(t["test/at_env_steps"]), "return_mean": t["test/return_mean"]}
      for t in ticks
      if "test/return_mean" in t
    ]
    return {
      "exit_status": status,
      "env_steps": summary["env_steps"],
      "learner_steps": summary["learner_steps"],
      "wall_s": last["wall_s"],
      "faults": summary["faults"],
      # Both are of the last checkpoint: what replay was ever given, and the run's own count.
      "replay_added": int(state["replay/counter/added"]),
      "checkpoint_env_steps": newest.env_steps,
      "injected": self.faults,
      "evaluations": evaluations,
      "samples": self.samples,
    }


def soak(arguments: argparse.Namespace) -> None:
  name = "soak_faults" if arguments.kind == "faults" else f"soak_calm_{arguments.seed}"
  if (RUNS / name).exists():
    shutil.rmtree(RUNS / name)
  run = Soak(name, arguments.seed, arguments.minutes)
  chance, next_fault = random.Random(arguments.seed), arguments.every
  while run.elapsed() < arguments.minutes * 60:
    time.sleep(SAMPLE_S)
    if run.process.poll() is not None:
      raise SystemExit(f"the run ended by itself, status {run.process.returncode}: {HERE / name}.log")
    run.sample()
    if arguments.steps is not None and run.env_steps() >= arguments.steps:
      break
    if arguments.kind == "faults" and run.elapsed() >= next_fault:
      next_fault += arguments.every
      run.inject(chance.choice(FAULTS))
  RESULTS.mkdir(exist_ok=True)
  (RESULTS / f"{name}.json").write_text(json.dumps(run.end(), indent=1) + "\n")


def table(_: argparse.Namespace) -> None:
  """Prints what came of each run, and where the last five evaluations with faults lie; draws the curves."""
  results = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("soak_*.json"))}
  for name, result in results.items():
    unaccounted = result["checkpoint_env_steps"] - result["replay_added"] - result["faults"]["lost_steps"]
    told = {kind: count for kind, count in result["faults"].items() if count}
    minutes, count = result["wall_s"] / 60, len(result["injected"])
    print(f"{name}: {result['env_steps']:,} steps in {minutes:.0f} min, exit status {result['exit_status']}")
    print(f"  {count} faults; told: {told or 'nothing'}; steps not accounted for: {unaccounted}")
    for what in ("resident_mib", "files"):
      values = [sample[what] for sample in result["samples"]]
      fifth = max(1, len(values) // 5)
      print(f"  {what}, median of each fifth: {[statistics.median(f) for f in batched(values, fifth)]}")
  calm = [r["evaluations"] for name, r in results.items() if "calm" in name]
  for evaluation in results.get("soak_faults", {"evaluations": []})["evaluations"][-5:]:
    at = evaluation["env_steps"]
    beside = [min(es, key=lambda e: abs(e["env_steps"] - at)) for es in calm]
    others = ", ".join(f"{e['return_mean']:.1f} at {e['env_steps'] / 1e6:.2f}M" for e in beside)
    print(f"with faults {evaluation['return_mean']:.1f} at {at / 1e6:.2f}M steps; without: {others}")
  if results:
    draw(results)


def batched(values: list[Any], size: int) -> list[list[Any]]:
  """The values in five parts of `size`; what is left over goes with the last."""
  return [values[i * size : (i + 1) * size if i < 4 else None] for i in range(5) if values[i * size :]]


def draw(results: dict[str, Any]) -> None:
  """Writes results/curves.png: returns by environment steps, memory and open files by time."""
  import matplotlib

  matplotlib.use("Agg")
  import matplotlib.pyplot as plt

  figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
  for color, (name, result) in zip(
    ("#009E73", "#0072B2", "#CC79A7", "#D55E00"), results.items(), strict=False
  ):
    evaluations, samples = result["evaluations"], result["samples"]
    minutes = [sample["s"] / 60 for sample in samples]
    steps = [e["env_steps"] / 1e6 for e in evaluations]
    axes[0].plot(steps, [e["return_mean"] for e in evaluations], "o-", ms=3, color=color, label=name)
    axes[1].plot(minutes, [sample["resident_mib"] / 1024 for sample in samples], color=color)
    axes[2].plot(minutes, [sample["files"] for sample in samples], color=color)
    for fault in result["injected"]:
      axes[1].axvline(fault["s"] / 60, color=color, alpha=0.25, lw=0.8)
  titles = (
    ("environment steps (millions)", "return, 50 evaluation episodes"),
    ("minutes (lines: faults)", "resident memory of all processes, GiB"),
    ("minutes", "open files of all processes"),
  )
  for axis, (x, y) in zip(axes, titles, strict=True):
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
  axes[0].legend(frameon=False)
  figure.savefig(RESULTS / "curves.png", dpi=110)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("kind", choices=["faults", "calm", "table"])
  parser.add_argument("--minutes", type=float, default=60.0)
  parser.add_argument("--every", type=float, default=180.0, help="seconds between two faults")
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--steps", type=int, help="end where so many environment steps are made")
  arguments = parser.parse_args()
  (table if arguments.kind == "table" else soak)(arguments)


if __name__ == "__main__":
  main()

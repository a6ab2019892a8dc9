"""An hour of training with a fault every few minutes, beside runs without.

  python experiments/fault_soak/soak.py faults --minutes 60 --every 180     # with faults
  python experiments/fault_soak/soak.py calm --minutes 60 --seed 1          # one without; seeds 1, 2, 3
  python experiments/fault_soak/soak.py table                               # what results/ holds

Each needs the machine to itself. Faults are drawn from a fixed seed among: a training worker, the testing
worker, the replay buffer or the parameter server killed; the driver killed and the run resumed; SIGTERM and
the run resumed; the newest checkpoint cut short before the driver is killed.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil

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
      "evaluation.period_env_steps=100000",
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

  def end(self) -> dict[str, Any]:
    """Stops the run, and returns what came of it."""
    self.process.send_signal(signal.SIGTERM)
    status = self.process.wait(timeout=300)
    ticks = [json.loads(line) for line in (self.run / "metrics.jsonl").read_text().splitlines()]
    last = ticks[-1]
    evaluations = [
      {"env_steps": int(t["test/at_env_steps"]), "return_mean": t["test/return_mean"]}
      for t in ticks
      if "test/return_mean" in t
    ]
    return {
      "exit_status": status,
      "env_steps": last["env_steps"],
      "learner_steps": last["learner_steps"],
      "wall_s": last["wall_s"],
      "faults": {k: v for k, v in last.items() if k.startswith("faults/")},
      "replay_added": last.get("replay/added"),
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
    if arguments.kind == "faults" and run.elapsed() >= next_fault:
      next_fault += arguments.every
      run.inject(chance.choice(FAULTS))
  RESULTS.mkdir(exist_ok=True)
  (RESULTS / f"{name}.json").write_text(json.dumps(run.end(), indent=1) + "\n")


def table(_: argparse.Namespace) -> None:
  """Prints the last five evaluations of each run, and what its processes took."""
  for path in sorted(RESULTS.glob("soak_*.json")):
    result = json.loads(path.read_text())
    last = [f"{e['return_mean']:.1f}@{e['env_steps'] / 1e6:.2f}M" for e in result["evaluations"][-5:]]
    memory = [s["resident_mib"] for s in result["samples"]]
    third = max(1, len(memory) // 3)
    print(
      f"{path.stem}: {result['env_steps']:,} steps, {len(result['injected'])} faults, "
      f"{result['faults']}; last evaluations {', '.join(last)}; resident MiB, mean of the first and last "
      f"third: {sum(memory[:third]) / third:.0f}, {sum(memory[-third:]) / third:.0f}"
    )


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("kind", choices=["faults", "calm", "table"])
  parser.add_argument("--minutes", type=float, default=60.0)
  parser.add_argument("--every", type=float, default=180.0, help="seconds between two faults")
  parser.add_argument("--seed", type=int, default=0)
  arguments = parser.parse_args()
  (table if arguments.kind == "table" else soak)(arguments)


if __name__ == "__main__":
  main()

"""An hour of training with a fault every few minutes, beside runs without.

  python -m experiments.fault_soak.soak faults --minutes 60 --every 180     # with faults
  python -m experiments.fault_soak.soak calm --minutes 60 --seed 1          # one without; seeds 1, 2, 3
  python -m experiments.fault_soak.soak table                               # what results/ holds

`--steps N` ends a run earlier, where it has made N steps. Each run needs the machine to itself. README.md
says which faults there are, and what is asked of the run with them.
"""

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from experiments.fault_soak import analysis
from experiments.lib.pieces import lock_experiments
from moozi.core.errors import UserError
from moozi.io.checkpoints import ARRAYS, CheckpointInfo, list_checkpoints, load_flat
from moozi.io.metrics import read_metrics

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RUNS = ROOT / "runs"
ACTORS = ("TrainingWorker", "TestingWorker", "ReplayActor", "ParameterServer")
SIGNALS = {"SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}
# What is done to the newest checkpoint after the driver was killed: to which half of it.
DAMAGES = {"checkpoint cut": "checkpoints", "checkpoint altered": "resume"}
PAUSES = {"learner stopped": "ParameterServer", "worker stopped": "TrainingWorker"}
ENVS = {"environment raises": "raise", "environment hangs": "hang"}
FAULTS = (*ACTORS, "driver", *SIGNALS, *DAMAGES, *PAUSES, *ENVS)
SAMPLE_S = 10.0
# Environments are given longer: one that stands still with its worker has not hung.
PAUSE_S = 15.0
# Before the run's end: for what was done to it to be told, and for the run to go on.
QUIET_S = 120.0
# A run that has not gone on by then will not.
PATIENCE_S = 900.0


class Soak:
  """A run, the faults in it, and what its processes take.

  Args:
    name: of the run's folder in `runs`, where one of that name is removed.
    seed: the run's.
  """

  def __init__(self, name: str, seed: int) -> None:
    self.run, self.world, self.log = RUNS / name, RUNS / f"{name}_world", RUNS / f"{name}.log"
    for folder in (self.run, self.world):
      shutil.rmtree(folder, ignore_errors=True)
    self.world.mkdir(parents=True)
    self.log.write_text("")
    self.samples: list[dict[str, Any]] = []
    self.faults: list[dict[str, Any]] = []
    self._seen: set[psutil.Process] = set()
    # The last tick before the latest fault, and the step at which the run was seen to have gone on since.
    self._before: dict[str, Any] = {}
    self._settled_at: int | None = None
    self.started = time.monotonic()
    settings = [
      *(f"run.dir={RUNS}", f"run.name={name}", f"seed={seed}"),
      *("env.name=breakable:make_env", f"env.kwargs.folder={self.world}"),
      *("max_env_steps=1000000000", "max_wall_s=null", f"workers.env_timeout_s={PAUSE_S + 5:g}"),
      *("evaluation.period_env_steps=250000", "evaluation.episodes=50", "checkpoint.period_s=60"),
    ]
    self.process = self._start(["train", str(ROOT / "config" / "minatar" / "breakout.yaml"), *settings])

  def _start(self, arguments: list[str]) -> psutil.Popen:
    # The environment's module is found by name, in Ray's processes too.
    path = os.pathsep.join([str(ROOT), str(HERE), os.environ.get("PYTHONPATH", "")])
    with self.log.open("a") as log:
      process = psutil.Popen(
        [sys.executable, "-m", "moozi.cli", *arguments],
        stdout=log,
        stderr=log,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": path},
      )
    self._seen = {process}
    return process

  def elapsed(self) -> float:
    """Seconds since the first start."""
    return time.monotonic() - self.started

  def processes(self) -> list[psutil.Process]:
    """The run's living processes, and those seen before: Ray's are nobody's children without the driver."""
    everybody = list(psutil.process_iter(["ppid"]))
    self._seen = {process for process in self._seen if is_alive(process)}
    children = self._seen
    while children:
      parents = {process.pid for process in children}
      children = {p for p in everybody if p.info["ppid"] in parents} - self._seen
      self._seen |= children
    return list(self._seen)

  def actors(self, kind: str) -> list[psutil.Process]:
    """Those of one kind of actor; Ray names processes by class and method."""
    found = []
    for process in self.processes():
      with contextlib.suppress(psutil.Error):
        if kind in "".join(process.cmdline()):
          found.append(process)
    return found

  def sample(self) -> None:
    """Notes memory and open files of all of the run's processes."""
    resident, files = 0, 0
    for process in self.processes():
      with contextlib.suppress(psutil.Error):
        memory, count = process.memory_info().rss, process.num_fds()
        resident, files = resident + memory, files + count
    self.samples.append({"s": round(self.elapsed()), "resident_mib": resident >> 20, "files": files})

  def ticks(self) -> list[dict[str, Any]]:
    """The lines of metrics so far."""
    path = self.run / "metrics.jsonl"
    return read_metrics(path) if path.exists() else []

  def last_tick(self) -> dict[str, Any]:
    """The last of them; one of zeros before the first."""
    return (self.ticks() or [{"env_steps": 0, "learner_steps": 0}])[-1]

  # --- faults -------------------------------------------------------------------------------------

  def has_settled(self) -> bool:
    """Whether acting and learning have gone on since the latest fault, which is told and in a checkpoint.

    Before that another fault could take back what is to be told of this one.
    """
    if self._settled_at is None:
      last, grows = self.last_tick(), ["env_steps", "learner_steps"]
      if self.faults and self.faults[-1]["kind"] in analysis.TOLD:
        grows.append(f"faults/{analysis.TOLD[self.faults[-1]['kind']]}")
      if not all(last[key] > self._before.get(key, 0) for key in grows):
        return False
      self._settled_at = last["env_steps"]
    checkpoints = resumable(self.run)
    return bool(checkpoints) and checkpoints[-1].env_steps >= self._settled_at

  def inject(self, kind: str) -> bool:
    """Does one fault; false where it cannot be done now."""
    before = self.last_tick()
    fault = {"s": round(self.elapsed()), "kind": kind, "env_steps": before["env_steps"]}
    if kind in ACTORS or kind in PAUSES:
      actors = self.actors(PAUSES.get(kind, kind))
      if len(actors) != 1 or not (kill(actors[0]) if kind in ACTORS else pause(actors[0])):
        return False
    elif kind in ENVS:
      # Whole at once: an environment may look at any moment.
      (self.world / "new").write_text(ENVS[kind])
      (self.world / "new").rename(self.world / "fault")
    elif kind in DAMAGES and len(resumable(self.run)) < 2:
      return False
    else:
      # A run that ends by itself writes another tick.
      before = self._end_driver(kind, fault)
    self.faults.append(fault)
    self._before, self._settled_at = before, None
    return True

  def _end_driver(self, kind: str, fault: dict[str, Any]) -> dict[str, Any]:
    """Ends the driver, waits until nothing is left of it, and resumes the run; returns the tick before."""
    processes, since = self.processes(), time.monotonic()
    self.process.send_signal(SIGNALS.get(kind, signal.SIGKILL))
    fault["status"] = self.process.wait(timeout=120)
    fault["ended_after_s"] = round(time.monotonic() - since, 1)
    while any(is_alive(process) for process in processes):
      if time.monotonic() - since > 300:
        raise RuntimeError(f"processes are left 5 min after {kind}: {processes}")
      time.sleep(0.5)
    last = self.last_tick()
    fault["last_tick"] = last["env_steps"]
    damaged = damage(self.run, DAMAGES[kind]) if kind in DAMAGES else None
    begins_at = self.log.stat().st_size
    self.process = self._start(["train", "--resume", str(self.run), "--allow-code"])
    said = self._wait_for_words(begins_at, r"resuming from step_(\d+)")
    fault["resumed_at"] = int(said[1])
    if damaged is not None:
      fault["is_passed_over"] = f"passed over {damaged}" in said.string
    return last

  def _wait_for_words(self, begins_at: int, pattern: str) -> re.Match[str]:
    end = time.monotonic() + 180
    while (said := re.search(pattern, self.log.read_bytes()[begins_at:].decode(errors="replace"))) is None:
      self.check()
      if time.monotonic() > end:
        raise RuntimeError(f"waited in vain for {pattern!r} in {self.log}")
      time.sleep(0.5)
    return said

  # --- the end ------------------------------------------------------------------------------------

  def check(self) -> None:
    """Raises where the run ended by itself, or does not go on."""
    if self.process.poll() is not None:
      raise RuntimeError(f"the run ended by itself, status {self.process.returncode}: {self.log}")
    since = self.faults[-1]["s"] if self.faults else 0
    if self.elapsed() - since > PATIENCE_S and not self.has_settled():
      raise RuntimeError(f"the run has not gone on since {self.faults[-1:]}: {self.log}")

  def so_far(self) -> dict[str, Any]:
    """What is known while the run goes on."""
    evaluations = [
      {
        "env_steps": int(t["test/at_env_steps"]),
        "return_mean": t["test/return_mean"],
        "return_std": t["test/return_std"],
        "episodes": int(t["test/episodes"]),
      }
      for t in self.ticks()
      if "test/return_mean" in t
    ]
    return {"injected": self.faults, "evaluations": evaluations, "samples": self.samples}

  def end(self) -> dict[str, Any]:
    """Stops the run, and returns what came of it."""
    self.process.send_signal(signal.SIGTERM)
    status = self.process.wait(timeout=300)
    newest = resumable(self.run)[-1]
    state, _ = load_flat(self.run / "resume" / newest.name)
    summary = json.loads((self.run / "summary.json").read_text())
    return {
      "exit_status": status,
      "env_steps": summary["env_steps"],
      "learner_steps": summary["learner_steps"],
      "wall_s": summary["wall_s"],
      "faults": summary["faults"],
      # Both are of the last checkpoint: what replay was ever given, and the run's own count.
      "replay_added": int(state["replay/counter/added"]),
      "checkpoint_env_steps": newest.env_steps,
    } | self.so_far()

  def kill(self) -> None:
    """Ends all of the run's processes at once."""
    for _ in range(20):
      if not (processes := self.processes()):
        return
      for process in processes:
        kill(process)
      time.sleep(0.5)


def is_alive(process: psutil.Process) -> bool:
  """Whether it is there and no zombie."""
  with contextlib.suppress(psutil.NoSuchProcess):
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
  return False


def kill(process: psutil.Process) -> bool:
  """Kills it; false where it had ended before."""
  with contextlib.suppress(psutil.NoSuchProcess):
    process.kill()
    return True
  return False


def pause(process: psutil.Process) -> bool:
  """Holds it up for a while; false where it had ended before."""
  with contextlib.suppress(psutil.NoSuchProcess):
    process.suspend()
    try:
      time.sleep(PAUSE_S)
    finally:
      process.resume()
    return True
  return False


def resumable(run: Path) -> list[CheckpointInfo]:
  """Its checkpoints of which both halves are there, in order."""
  names = {info.name for info in list_checkpoints(run / "resume")}
  return [info for info in list_checkpoints(run / "checkpoints") if info.name in names]


def damage(run: Path, half: str) -> str:
  """Cuts a checkpoint's file in two, or alters a byte of what a resumed run needs beside it.

  Args:
    run: nobody may be writing there.
    half: "checkpoints" or "resume".
  Returns: the newest checkpoint's name.
  """
  newest = resumable(run)[-1]
  arrays = run / half / newest.name / ARRAYS
  middle = arrays.stat().st_size // 2
  if half == "checkpoints":
    os.truncate(arrays, middle)
  else:
    with arrays.open("r+b") as file:
      file.seek(middle)
      byte = file.read(1)[0]
      file.seek(middle)
      file.write(bytes([byte ^ 1]))
  return newest.name


def in_turn(chance: random.Random) -> Iterator[str]:
  """Faults in random order, each once before any comes again."""
  while True:
    yield from chance.sample(FAULTS, len(FAULTS))


def write(path: Path, result: dict[str, Any]) -> None:
  """Writes a result beside its place and renames it."""
  path.parent.mkdir(exist_ok=True)
  new = path.with_suffix(".tmp")
  new.write_text(json.dumps(result, indent=1) + "\n")
  new.replace(path)


def soak(arguments: argparse.Namespace) -> None:
  """One run, from its start to its result."""
  name = "soak_faults" if arguments.kind == "faults" else f"soak_calm_{arguments.seed}"
  run = Soak(name, arguments.seed)
  try:
    attend(run, arguments)
    write(analysis.RESULTS / f"{name}.json", run.end())
  finally:
    run.kill()


def attend(run: Soak, arguments: argparse.Namespace) -> None:
  """Watches over a run until it is to end, and injects faults where they are asked for."""
  faults = in_turn(random.Random(arguments.seed))
  kind, next_s, end_s = next(faults), arguments.every, arguments.minutes * 60
  while run.elapsed() < end_s or not run.has_settled():
    time.sleep(SAMPLE_S)
    run.check()
    run.sample()
    write(RUNS / f"{run.run.name}.json", run.so_far())
    if arguments.steps is not None and run.last_tick()["env_steps"] >= arguments.steps:
      return
    is_time = arguments.kind == "faults" and next_s <= run.elapsed() < end_s - QUIET_S
    if is_time and run.has_settled() and run.inject(kind):
      kind, next_s = next(faults), max(next_s, run.elapsed() - arguments.every / 2) + arguments.every


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("kind", choices=["faults", "calm", "table"])
  parser.add_argument("--minutes", type=float, default=60.0)
  parser.add_argument("--every", type=float, default=180.0, help="seconds between two faults")
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--steps", type=int, help="end where so many environment steps are made")
  arguments = parser.parse_args()
  # So that whoever ends this ends the run, too.
  signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
  if arguments.kind == "table":
    analysis.main()
    return
  try:
    with lock_experiments():
      soak(arguments)
  except UserError as error:
    sys.exit(f"error: {error}")


if __name__ == "__main__":
  main()

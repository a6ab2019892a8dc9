"""Trains with a fault every few minutes, or without faults for comparison.

  python -m experiments.fault_soak.soak faults --minutes 60 --every 180     # with faults
  python -m experiments.fault_soak.soak calm --minutes 60 --seed 1          # without faults; seeds 1, 2, 3
  python -m experiments.fault_soak.soak table                               # prints the results

With `--steps N` a run ends early, at N environment steps. Each run needs the whole machine. README.md lists
the faults.
"""

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from experiments.fault_soak import analysis
from experiments.lib.results import ROOT, RUNS
from moozi.core.errors import UserError
from moozi.experiments.results import write_json
from moozi.io.checkpoints import CheckpointInfo, ResumeStore, list_checkpoints, path_of
from moozi.io.metrics import read_metrics
from moozi.io.run_lock import RunLock

HERE = Path(__file__).resolve().parent
ACTORS = ("TrainingWorker", "TestingWorker", "ReplayActor", "ParameterServer")
_END_TIMEOUT_S = 300.0
SIGNALS = {"SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}
# Kinds of damage to the newest checkpoint, with the damaged folder. The driver is killed first.
DAMAGES = {"checkpoint cut": "checkpoints", "checkpoint altered": "resume"}
PAUSES = {"learner stopped": "ParameterServer", "worker stopped": "TrainingWorker"}
ENVS = {"environment raises": "raise", "environment hangs": "hang"}
FAULTS = (*ACTORS, "driver", *SIGNALS, *DAMAGES, *PAUSES, *ENVS)
# The log line in which a resumed run names its checkpoint.
RESUMED = r"from (?:checkpoint )?step_(\d+)"
SAMPLE_S = 10.0
# Shorter than `workers.env_timeout_s`, because a worker's environments are paused together with it.
PAUSE_S = 15.0
# No fault is injected in the last seconds: the run needs this time to recover and to report a fault.
QUIET_S = 120.0
# If a run has not recovered from a fault after this time, the soak fails.
PATIENCE_S = 900.0


class Soak:
  """A run, the faults injected into it, and samples of its memory and open files.

  Args:
    name: name of the run's folder in `runs`; an existing folder is removed.
    seed: seed of the run.
  """

  def __init__(self, name: str, seed: int) -> None:
    self.run, self.env_folder, self.log = RUNS / name, RUNS / f"{name}_env", RUNS / f"{name}.log"
    for folder in (self.run, self.env_folder):
      shutil.rmtree(folder, ignore_errors=True)
    self.env_folder.mkdir(parents=True)
    self.log.write_text("")
    self.samples: list[dict[str, Any]] = []
    self.faults: list[dict[str, Any]] = []
    self._seen: set[psutil.Process] = set()
    # The last tick before the latest fault, and the step at which progress was seen after it.
    self._before: dict[str, Any] = {}
    self._settled_at: int | None = None
    self.started = time.monotonic()
    settings = [
      *(f"run.dir={RUNS}", f"run.name={name}", f"seed={seed}"),
      *("env.name=breakable:make_env", f"env.kwargs.folder={self.env_folder}"),
      *("max_env_steps=1000000000", "max_wall_s=null", f"workers.env_timeout_s={PAUSE_S + 5:g}"),
      *("evaluation.period_env_steps=250000", "evaluation.episodes=50", "checkpoint.period_s=60"),
    ]
    self.process = self._start(
      ["train", str(ROOT / "experiments" / "configs" / "minatar" / "breakout.yaml"), *settings]
    )

  def _start(self, arguments: list[str]) -> psutil.Popen:
    # Ray's processes also import the environment's module by name.
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
    """Returns the seconds since the start of the soak."""
    return time.monotonic() - self.started

  def processes(self) -> list[psutil.Process]:
    """Returns the run's processes that still exist, including known orphans of a killed driver."""
    candidates = list(psutil.process_iter(["ppid"]))
    self._seen = {process for process in self._seen if is_alive(process)}
    children = self._seen
    while children:
      parents = {process.pid for process in children}
      children = {p for p in candidates if p.info["ppid"] in parents} - self._seen
      self._seen |= children
    return list(self._seen)

  def actors(self, kind: str) -> list[psutil.Process]:
    """Returns the processes of one kind of actor. Ray names processes by class and method."""
    found = []
    for process in self.processes():
      with contextlib.suppress(psutil.Error):
        if kind in "".join(process.cmdline()):
          found.append(process)
    return found

  def sample(self) -> None:
    """Records memory and open files of all processes of the run."""
    self.samples.append({"s": round(self.elapsed())} | resources_of(self.processes()))

  def ticks(self) -> list[dict[str, Any]]:
    """Returns the metrics, one dict per tick."""
    return ticks_of(self.run)

  def last_tick(self) -> dict[str, Any]:
    """Returns the last tick; zeros before the first."""
    return last_of(self.ticks())

  # --- faults -------------------------------------------------------------------------------------

  def has_settled(self) -> bool:
    """Returns whether acting and learning have progressed and a checkpoint was saved since the latest fault.

    Without such a checkpoint, recovery from the next fault could lose the count of this one.
    """
    if self._settled_at is None:
      last, keys = self.last_tick(), ["env_steps", "learner_steps"]
      if self.faults and self.faults[-1]["kind"] in analysis.COUNTERS:
        keys.append(f"faults/{analysis.COUNTERS[self.faults[-1]['kind']]}")
      if not all(last[key] > self._before.get(key, 0) for key in keys):
        return False
      self._settled_at = last["env_steps"]
    checkpoints = resumable(self.run)
    return bool(checkpoints) and checkpoints[-1].env_steps >= self._settled_at

  def inject(self, kind: str) -> bool:
    """Injects one fault; returns false if that is impossible now."""
    before = self.last_tick()
    fault = {"s": round(self.elapsed()), "kind": kind, "env_steps": before["env_steps"]}
    if kind in ACTORS or kind in PAUSES:
      actors = self.actors(PAUSES.get(kind, kind))
      if len(actors) != 1 or not (kill(actors[0]) if kind in ACTORS else pause(actors[0])):
        return False
    elif kind in ENVS:
      # The rename is atomic: an environment may read the file at any moment.
      (self.env_folder / "new").write_text(ENVS[kind])
      (self.env_folder / "new").rename(self.env_folder / "fault")
    elif kind in DAMAGES and len(resumable(self.run)) < 2:
      return False
    else:
      # A stopped run writes one more tick.
      before = self._end_driver(kind, fault)
    self.faults.append(fault)
    self._before, self._settled_at = before, None
    return True

  def _end_driver(self, kind: str, fault: dict[str, Any]) -> dict[str, Any]:
    """Ends the driver and all processes, and resumes the run; returns the last tick of the ended driver."""
    processes, since = self.processes(), time.monotonic()
    self.process.send_signal(SIGNALS.get(kind, signal.SIGKILL))
    fault["status"] = self.process.wait(timeout=120)
    fault["ended_after_s"] = round(time.monotonic() - since, 1)
    while any(is_alive(process) for process in processes):
      if time.monotonic() - since > 300:
        raise RuntimeError(f"{kind}: processes still running after 5 min: {processes}")
      time.sleep(0.5)
    last = self.last_tick()
    fault["last_tick"] = last["env_steps"]
    damaged = damage(self.run, DAMAGES[kind]) if kind in DAMAGES else None
    offset = self.log.stat().st_size
    self.process = self._start(["train", "--resume", str(self.run), "--allow-code"])
    match = self._wait_for_log(offset, RESUMED)
    fault["resumed_at"] = int(match[1])
    if damaged is not None:
      fault["is_passed_over"] = damaged in match.string[: match.start(1)]
    return last

  def _wait_for_log(self, offset: int, pattern: str) -> re.Match[str]:
    end = time.monotonic() + 180
    while (match := re.search(pattern, self.log.read_bytes()[offset:].decode(errors="replace"))) is None:
      self.check()
      if time.monotonic() > end:
        raise RuntimeError(f"{self.log}: no line matches {pattern!r} after 180 s")
      time.sleep(0.5)
    return match

  # --- the end ------------------------------------------------------------------------------------

  def check(self) -> None:
    """Raises RuntimeError if the run has ended before it was stopped, or makes no progress."""
    if self.process.poll() is not None:
      raise RuntimeError(f"the run ended with status {self.process.returncode}; see {self.log}")
    since = self.faults[-1]["s"] if self.faults else 0
    if self.elapsed() - since > PATIENCE_S and not self.has_settled():
      raise RuntimeError(f"no progress since {self.faults[-1:]}; see {self.log}")

  def partial_result(self) -> dict[str, Any]:
    """Returns the result so far; the run may still be active."""
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
    """Stops the run and returns its result."""
    summary = stopped(self.process, self.run)
    newest = resumable(self.run)[-1]
    state = ResumeStore(self.run / "resume").load(newest.name, with_replay=False).head
    return (
      summary
      | {
        # From the last checkpoint: the number of steps ever added to replay, and the run's number of steps.
        "replay_added": int(state["replay/counter/added"]),
        "checkpoint_env_steps": newest.env_steps,
      }
      | self.partial_result()
    )

  def kill(self) -> None:
    """Kills all processes of the run."""
    for _ in range(20):
      if not (processes := self.processes()):
        return
      for process in processes:
        kill(process)
      time.sleep(0.5)


def resources_of(processes: Iterable[psutil.Process]) -> dict[str, int]:
  """Returns `resident_mib` and `files`: the memory and the number of open files of processes together."""
  resident, files = 0, 0
  for process in processes:
    with contextlib.suppress(psutil.Error):
      memory, count = process.memory_info().rss, process.num_fds()
      resident, files = resident + memory, files + count
  return {"resident_mib": resident >> 20, "files": files}


def ticks_of(run: Path) -> list[dict[str, Any]]:
  """Returns the metrics of a run, one dict per tick."""
  path = run / "metrics.jsonl"
  return read_metrics(path) if path.exists() else []


def last_of(ticks: Sequence[dict[str, Any]]) -> dict[str, Any]:
  """Returns the last of a run's ticks; zeros before the first."""
  return (ticks or [{"env_steps": 0, "learner_steps": 0}])[-1]


def stopped(process: subprocess.Popen[Any] | psutil.Popen, run: Path) -> dict[str, Any]:
  """Stops a run; returns its exit status, and its steps, seconds and faults from summary.json."""
  process.send_signal(signal.SIGTERM)
  status = process.wait(timeout=_END_TIMEOUT_S)
  summary = json.loads((run / "summary.json").read_text("utf-8"))
  names = ("env_steps", "learner_steps", "wall_s", "faults")
  return {"exit_status": status} | {name: summary[name] for name in names}


def is_alive(process: psutil.Process) -> bool:
  """Returns whether a process exists and is not a zombie."""
  with contextlib.suppress(psutil.NoSuchProcess):
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
  return False


def kill(process: psutil.Process) -> bool:
  """Kills a process; returns false if it had ended."""
  with contextlib.suppress(psutil.NoSuchProcess):
    process.kill()
    return True
  return False


def pause(process: psutil.Process) -> bool:
  """Suspends a process for `PAUSE_S`; returns false if it had ended."""
  with contextlib.suppress(psutil.NoSuchProcess):
    process.suspend()
    try:
      time.sleep(PAUSE_S)
    finally:
      process.resume()
    return True
  return False


def resumable(run: Path) -> list[CheckpointInfo]:
  """Returns the checkpoints of a run that are in both `checkpoints/` and `resume/`, oldest first."""
  names = {info.name for info in list_checkpoints(run / "resume")}
  return [info for info in list_checkpoints(run / "checkpoints") if info.name in names]


def damage(run: Path, half: str) -> str:
  """Truncates the newest checkpoint's arrays, or alters a byte of its file in `resume/`.

  Args:
    run: a run that no process writes to.
    half: the damaged folder, "checkpoints" or "resume".
  Returns: the checkpoint's name.
  """
  newest = resumable(run)[-1]
  arrays = path_of(run / half, newest.name)
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


def fault_order(chance: random.Random) -> Iterator[str]:
  """Yields faults in random order, each kind once before any is repeated."""
  while True:
    yield from chance.sample(FAULTS, len(FAULTS))


def soak(arguments: argparse.Namespace) -> None:
  """Trains one run and writes its result."""
  name = "soak_faults" if arguments.kind == "faults" else f"soak_calm_{arguments.seed}"
  run = Soak(name, arguments.seed)
  try:
    attend(run, arguments)
    write_json(analysis.RESULTS / f"{name}.json", run.end())
  finally:
    run.kill()


def attend(run: Soak, arguments: argparse.Namespace) -> None:
  """Samples a run until its end, and injects faults if `kind` is `faults`."""
  faults = fault_order(random.Random(arguments.seed))
  kind, next_s, end_s = next(faults), arguments.every, arguments.minutes * 60
  while run.elapsed() < end_s or not run.has_settled():
    time.sleep(SAMPLE_S)
    run.check()
    run.sample()
    write_json(RUNS / f"{run.run.name}.json", run.partial_result())
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
  parser.add_argument("--steps", type=int, help="end after this number of environment steps")
  arguments = parser.parse_args()
  # On SIGTERM the `finally` of `soak` also ends the run.
  signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
  if arguments.kind == "table":
    analysis.main()
    return
  try:
    RUNS.mkdir(exist_ok=True)
    with RunLock(RUNS, "running an experiment"):
      soak(arguments)
  except UserError as error:
    sys.exit(f"error: {error}")


if __name__ == "__main__":
  main()

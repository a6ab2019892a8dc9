"""Trains on a cluster of two to four nodes; nodes join, leave and fail, and actors are killed and stopped.

  python -m experiments.node_soak.soak --minutes 30 --every 60     # needs the whole machine
  python -m experiments.lib.tables node_soak --readme              # the tables of the page

The nodes are processes on this machine. README.md lists the events. The script fails if the run ends, does
not recover from an event, or has lost steps or updates that it did not report.
"""

import argparse
import contextlib
import functools
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from experiments.fault_soak.soak import is_alive, kill, last_of, resources_of, resumable, stopped, ticks_of
from experiments.lib.results import ROOT, RUNS
from experiments.node_soak.cluster import ENVIRONMENT, LocalCluster
from moozi.experiments.results import write_json
from moozi.io.checkpoints import list_checkpoints
from moozi.io.run_directory import read_run_config
from moozi.io.run_lock import RunLock
from moozi.io.state_file import read_state

RESULT = Path(__file__).resolve().parent / "results" / "soak.json"
COUNTERS = {
  "TrainingWorker": "training_worker",
  "TestingWorker": "testing_worker",
  "InferenceServer": "inference_server",
  "ReplayActor": "replay_buffer",
  "ParameterServer": "parameter_server",
  "LearnerHost": "parameter_server",
}
"""The counter of each class of actor in the run's metrics. All hosts of a learner have the same one."""
NAMES = {
  "TrainingWorker": "a training worker",
  "InferenceServer": "an inference server",
  "ReplayActor": "a shard",
  "ParameterServer": "the parameter server",
  "LearnerHost": "the learner's other host",
}
"""The classes of actors that are killed and stopped, as the events name them."""
FIRST_NODES, MAX_NODES = 2, 3
SETTINGS = (
  *("ray.num_cpus=null", "max_env_steps=1000000000", "max_wall_s=null"),
  *("acting.mode=server", "ray.replay_shards=2", "learner.num_hosts=2", "ray.learner.num_threads=1"),
  *("workers.resources.num_gpus=1", "workers.num_envs=16"),
  *(f"workers.num_workers={FIRST_NODES}", "ray.min_workers=1", f"ray.max_workers={MAX_NODES}"),
  *("workers.env_timeout_s=300", "evaluation.period_env_steps=1000000000", "learner.samples_per_step=4"),
  *("checkpoint.period_s=15", "logging.period_s=1", "logging.progress=none", "logging.tensorboard=false"),
)
"""Each training worker needs the accelerator of a node, so that each node but the head has one."""
UPDATED = "loss/total"
"""A metric of the ticks in which updates were made."""
POLL_S, SAMPLE_S, PAUSE_S = 1.0, 10.0, 60.0
# If a run has not recovered from an event after this time, the soak fails.
PATIENCE_S = 600.0
HEAD = "head"
Made = dict[str, Any] | None
"""The entries of an event: its node, the class of its actor, how many actors of each class it has ended."""


class NodeSoak:
  """A run on a cluster, the events made so far, and samples of its memory and open files.

  Args:
    name: name of the run's folder in `runs`; an existing folder is removed.
    seed: seed of the run and of the choice of nodes and actors.
    config: the run's configuration.
    settings: overrides of the configuration.
  """

  def __init__(
    self, name: str, seed: int, config: str = "tiny/catch", settings: tuple[str, ...] = SETTINGS
  ) -> None:
    self.run, self.log = RUNS / name, RUNS / f"{name}.log"
    shutil.rmtree(self.run, ignore_errors=True)
    self.log.write_text("")
    self.events: list[dict[str, Any]] = []
    self.samples: list[dict[str, Any]] = []
    self._random = random.Random(seed)
    self._num_added = 0
    # The last tick before the last event, and the number of ticks at its end.
    self._before: dict[str, Any] = {}
    self._num_before = 0
    self._settled_at: int | None = None
    self.started = time.monotonic()
    self.cluster = LocalCluster(self.log)
    for _ in range(FIRST_NODES):
      self._add_node()
    command = [sys.executable, "-m", "moozi.cli", "train", config, *settings]
    command += [f"ray.address={self.cluster.address}", f"run.dir={RUNS}", f"run.name={name}", f"seed={seed}"]
    with self.log.open("a") as log:
      self.process = subprocess.Popen(
        command, stdout=log, stderr=log, start_new_session=True, env=os.environ | ENVIRONMENT, cwd=ROOT
      )

  def elapsed(self) -> float:
    """Returns the seconds since the start of the soak."""
    return time.monotonic() - self.started

  # --- what runs --------------------------------------------------------------------------------------

  def processes(self) -> list[psutil.Process]:
    """Returns the processes of the driver, of the nodes and of their actors."""
    found = []
    for number in (self.process.pid, self.cluster.process.pid):
      with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(number)
        found += [parent, *parent.children(recursive=True)]
    return found

  def actors(self, kind: str, node: str | None = None) -> list[psutil.Process]:
    """Returns the processes of a class of actors, of a node or of all nodes."""
    found = []
    for process in self.processes():
      with contextlib.suppress(psutil.Error):
        # Ray names processes by class and method.
        is_kind = process.cmdline()[:1] and process.cmdline()[0].startswith(f"ray::{kind}")
        if is_kind and is_alive(process) and node in (None, self._node_of(process)):
          found.append(process)
    return found

  def _node_of(self, process: psutil.Process) -> str | None:
    """Returns the node of a process; None for the head."""
    parents = {parent.pid for parent in process.parents()}
    return next((name for name, node in self.cluster.nodes.items() if node.scheduler in parents), None)

  def _on_node(self, node: str) -> dict[str, int]:
    """Returns the number of actors on a node by class."""
    found = {kind: len(self.actors(kind, node)) for kind in COUNTERS}
    return {kind: count for kind, count in found.items() if count}

  def sample(self) -> None:
    """Records memory and open files of all processes."""
    last = self.last_tick()
    self.samples.append(
      {
        "s": round(self.elapsed()),
        **resources_of(self.processes()),
        "nodes": 1 + len(self.cluster.nodes),
        "training_workers": last.get("system/training_workers"),
        "env_steps": last["env_steps"],
      }
    )

  def last_tick(self) -> dict[str, Any]:
    """Returns the run's last metrics; zeros before the first."""
    return last_of(ticks_of(self.run))

  def has_settled(self) -> bool:
    """Returns whether the run has recovered from the last event and saved a checkpoint after that.

    It has recovered if the actors that ended are counted, acting and learning have then progressed, and each
    node but the head has a training worker.
    """
    if self._settled_at is None:
      self._settled_at = self._recovered_at()
      if self._settled_at is None:
        return False
      if self.events:
        self.events[-1]["recovered_s"] = round(self.elapsed() - self.events[-1]["ended_s"])
    checkpoints = resumable(self.run)
    return bool(checkpoints) and checkpoints[-1].env_steps >= self._settled_at

  def _recovered_at(self) -> int | None:
    """Returns the environment steps at which the run has recovered; None: not yet."""
    wanted = {
      f"faults/{name}": self._before.get(f"faults/{name}", 0) + count
      for name, count in must_be_counted(self.events[-1:]).items()
    }
    ticks = iter(ticks_of(self.run)[self._num_before :])
    counted = next((x for x in ticks if all(x.get(key, 0) >= count for key, count in wanted.items())), None)
    later = list(ticks)
    if counted is None or not any(UPDATED in tick for tick in later):
      return None
    steps: int = later[-1]["env_steps"]
    has_workers = later[-1].get("system/training_workers") == len(self.cluster.nodes)
    return steps if has_workers and steps > counted["env_steps"] else None

  def ended(self) -> Counter[str]:
    """Returns the number of actors that ended without the driver's order, by class."""
    total: Counter[str] = Counter()
    for event in self.events:
      total.update(event["ended"])
    return total

  # --- events -----------------------------------------------------------------------------------------

  def make(self, kind: str) -> bool:
    """Makes one event of `EVENTS`; returns false if it is impossible now."""
    before = self.last_tick()
    begin = {"s": round(self.elapsed()), "kind": kind, "env_steps": before["env_steps"]}
    made = EVENTS[kind](self)
    if made is None:
      return False
    self.events.append(begin | made | {"ended_s": round(self.elapsed(), 1)})
    self._before, self._num_before = before, len(ticks_of(self.run))
    self._settled_at = None
    return True

  def _add_node(self) -> str:
    self._num_added += 1
    name = f"node{self._num_added}"
    self.cluster.add(name)
    return name

  def join(self) -> Made:
    """Adds a node."""
    if len(self.cluster.nodes) == MAX_NODES:
      return None
    return {"node": self._add_node(), "ended": {}}

  def leave(self) -> Made:
    """Announces that a node leaves, and ends it once it has no training worker."""
    if len(self.cluster.nodes) < FIRST_NODES:
      return None
    node = self._random.choice(sorted(self.cluster.nodes))
    self.cluster.announce(node)
    end_s = time.monotonic() + PATIENCE_S
    while self.actors("TrainingWorker", node):
      if time.monotonic() > end_s:
        raise RuntimeError(f"a training worker is on a node whose end was announced; see {self.log}")
      time.sleep(POLL_S)
    ended = self._on_node(node)
    self.cluster.remove(node, is_failure=False)
    return {"node": node, "ended": ended}

  def fail(self) -> Made:
    """Ends the node with the most actors, without notice."""
    if len(self.cluster.nodes) < FIRST_NODES:
      return None
    on_nodes = {node: self._on_node(node) for node in sorted(self.cluster.nodes)}
    node = max(on_nodes, key=lambda node: sum(on_nodes[node].values()))
    self.cluster.remove(node, is_failure=True)
    return {"node": node, "ended": on_nodes[node]}

  def kill_one(self, kind: str) -> Made:
    """Kills the process of one actor of a class."""
    process = self._one(kind)
    if process is None:
      return None
    node = self._node_of(process)
    return {"actor": kind, "node": node or HEAD, "ended": {kind: 1}} if kill(process) else None

  def pause_one(self, kind: str) -> Made:
    """Stops the process of one actor of a class for a minute."""
    process = self._one(kind)
    if process is None:
      return None
    node = self._node_of(process)
    with contextlib.suppress(psutil.NoSuchProcess):
      process.suspend()
      try:
        time.sleep(PAUSE_S)
      finally:
        process.resume()
      return {"actor": kind, "node": node or HEAD, "ended": {}}
    return None

  def _one(self, kind: str) -> psutil.Process | None:
    actors = self.actors(kind)
    return self._random.choice(actors) if actors else None

  # --- the end ----------------------------------------------------------------------------------------

  def check(self) -> None:
    """Raises RuntimeError if the run has ended, or has not recovered from the last event in time."""
    if self.process.poll() is not None:
      raise RuntimeError(f"the run ended with status {self.process.returncode}; see {self.log}")
    since = self.events[-1]["ended_s"] if self.events else 0.0
    if self.elapsed() - since > PATIENCE_S and not self.has_settled():
      raise RuntimeError(f"the run has not recovered from {self.events[-1:]}; see {self.log}")

  def end(self) -> dict[str, Any]:
    """Stops the run and returns its result."""
    summary = stopped(self.process, self.run)
    newest = list_checkpoints(self.run / "resume")[-1]
    state = read_state(newest.path, newest.digest)
    learned = resumable(self.run)[-1]
    training = read_state(learned.path, learned.digest)
    batch_size = read_run_config(self.run / "config.yaml").learner.batch_size
    return summary | {
      "ended": dict(self.ended()),
      # From the last checkpoint: the run's steps, and the steps ever added to each shard of replay.
      "checkpoint_env_steps": newest.env_steps,
      "added": [int(state[f"replay/shard/{index}/counter/added"]) for index in range(2)],
      # Also from it: the updates that the run has counted, and those that are in the optimizer's state.
      "updates": int(state["progress/pacer/samples_done"]) // batch_size,
      "optimizer_steps": int(training["opt_state/1/count"]),
      "events": self.events,
      "samples": self.samples,
    }

  def kill(self) -> None:
    """Kills all processes of the run and of the cluster."""
    for process in self.processes():
      kill(process)


Event = Callable[[NodeSoak], Made]
NODE_EVENTS: dict[str, Event] = {
  "a node joins": NodeSoak.join,
  "a node leaves with notice": NodeSoak.leave,
  "a node fails": NodeSoak.fail,
}
ACTOR_EVENTS: dict[str, Event] = {
  f"{NAMES[kind]} {what}": functools.partial(make, kind=kind)
  for what, make in (("is killed", NodeSoak.kill_one), ("is stopped for a minute", NodeSoak.pause_one))
  for kind in NAMES
}
EVENTS = NODE_EVENTS | ACTOR_EVENTS
"""By kind, what makes an event."""


def must_be_counted(events: Sequence[dict[str, Any]]) -> Counter[str]:
  """Returns the number of faults by counter after these events.

  All hosts of a learner end if one does, which is one fault.
  """
  total: Counter[str] = Counter()
  for event in events:
    learner = COUNTERS["LearnerHost"]
    for kind, count in event["ended"].items():
      total[COUNTERS[kind]] += count if COUNTERS[kind] != learner else 0
    total[learner] += any(COUNTERS[kind] == learner for kind in event["ended"])
  return total


def unaccounted(result: dict[str, Any]) -> int:
  """Returns the environment steps of a result that no shard received and the run did not report as lost."""
  steps: int = result["checkpoint_env_steps"] - sum(result["added"]) - result["faults"]["lost_steps"]
  return steps


def unaccounted_updates(result: dict[str, Any]) -> int:
  """Returns the updates of a result that are not in the optimizer's state and were not reported as lost."""
  updates: int = result["updates"] - result["optimizer_steps"] - result["faults"]["lost_updates"]
  return updates


def attend(soak: NodeSoak, minutes: float, every_s: float, chance: random.Random) -> None:
  """Makes an event every `every_s` seconds, if the run has recovered from the last one, for some minutes.

  Events of nodes and of actors alternate. Of both, each kind is made once, in random order, before any is
  repeated; a kind that is impossible waits. The soak continues until all kinds were made, at most for twice
  the time.
  """
  groups = itertools.cycle([(list(NODE_EVENTS), list[str]()), (list(ACTOR_EVENTS), list[str]())])
  missing = set(EVENTS)
  next_s, end_s, sampled_s = every_s, 60 * minutes, 0.0
  while True:
    now_s = soak.elapsed()
    is_over = now_s >= (2 * end_s if missing else end_s)
    if is_over and soak.has_settled():
      return
    time.sleep(POLL_S)
    soak.check()
    if now_s - sampled_s >= SAMPLE_S:
      sampled_s = now_s
      soak.sample()
    if is_over or now_s < next_s or not soak.has_settled():
      continue
    made = make_next(soak, *next(groups), chance)
    missing.discard(made)
    next_s = max(next_s + every_s, soak.elapsed() + every_s / 2)


def make_next(soak: NodeSoak, kinds: list[str], left: list[str], chance: random.Random) -> str:
  """Makes the first possible event of `left`; if none is possible, first adds all kinds to it in a new order.

  Returns: the kind, or an empty string if none is possible.
  """
  made = next((kind for kind in left if soak.make(kind)), "")
  if not made:
    more = chance.sample(kinds, len(kinds))
    left += more
    made = next((kind for kind in more if soak.make(kind)), "")
  if made:
    left.remove(made)
    print(f"{soak.events[-1]}", flush=True)
  return made


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--minutes", type=float, default=30.0)
  parser.add_argument("--every", type=float, default=60.0, help="seconds between two events (%(default)g)")
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--out", type=Path, default=RESULT, help="the file of the result")
  arguments = parser.parse_args()
  # On SIGTERM the processes are ended too.
  signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
  RUNS.mkdir(exist_ok=True)
  with RunLock(RUNS, "running an experiment"):
    soak = NodeSoak("node_soak", arguments.seed)
    try:
      attend(soak, arguments.minutes, arguments.every, random.Random(arguments.seed))
      result = soak.end()
      soak.cluster.close()
    finally:
      soak.kill()
  write_json(arguments.out, {"minutes": arguments.minutes, "every_s": arguments.every} | result)
  steps, updates = unaccounted(result), unaccounted_updates(result)
  if steps or updates:
    sys.exit(f"{steps:,} environment steps and {updates:,} updates are not accounted for")


if __name__ == "__main__":
  main()

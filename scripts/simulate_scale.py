"""Simulates the driver with given service times, and compares the simulation with `bench_scale.py`.

    python scripts/bench_scale.py --json bench.json
    python scripts/simulate_scale.py bench.json [--from 8]

The simulated driver requests calls as the real one does, with the real `Pacer`. Workers, replay and the
parameter server have a queue each. Processor time is taken in short slices from the machine's cores. Between
nodes, objects share one link at replay. The script takes the service times from the row of `--from` workers,
and prints the rates that the benchmark measured, the simulation and the formula of `moozi plan` for each row.
"""

import collections
import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import simpy
from measuring import make_parser, report

from moozi.core.config import Config
from moozi.io.config import load_config
from moozi.run.pacing import Pacer, slack_steps
from moozi.training.sizing import CallCost, Hardware, PartCosts, plan_of

# Processors switch between processes; on many cores hardly any process waits.
_SLICE_S, _MAX_SLICED_CORES = 0.002, 16
Process = Generator[Any, Any, None]


class SimulatedRun:
  """A run with Ray that learns from replay, in simulated time.

  Args:
    config: the run's configuration; without reanalyze.
    costs: the service times.
    hardware: cores and nodes.

  Attributes:
    pacer: counts what is requested and done.
    busy_s: busy seconds of the driver, replay and the parameter server.
  """

  def __init__(self, config: Config, costs: PartCosts, hardware: Hardware) -> None:
    if config.is_on_policy or config.has_one_process or config.reanalyze.ratio:
      raise ValueError("only runs with Ray and replay, without reanalyze, are simulated")
    self._config, self._costs = config, costs
    self._env = simpy.Environment()
    num_cores = hardware.cpus * hardware.nodes
    self._slice_s = _SLICE_S if num_cores <= _MAX_SLICED_CORES else float("inf")
    self._cores = simpy.Resource(self._env, num_cores)
    self._link = simpy.Resource(self._env, 1)
    self._bytes_per_s = hardware.network_gbit * 1e9 / 8 if hardware.nodes > 1 else float("inf")
    self.pacer = Pacer(config, slack_steps(config))
    self.busy_s = collections.Counter[str]()
    self._segment_steps = config.worker_envs * config.segment_length
    self._segments_in_flight = [0] * config.num_acting_workers
    self._batches_in_flight = 0
    self._inbox = simpy.Store(self._env)
    self._to_replay = simpy.Store(self._env)
    self._to_learner = simpy.Store(self._env)
    self._to_workers = [simpy.Store(self._env) for _ in self._segments_in_flight]
    self._env.process(self._driver())
    self._env.process(self._replay())
    self._env.process(self._learner())
    for index in range(len(self._to_workers)):
      self._env.process(self._worker(index))

  def steps_per_s(self, seconds: float) -> float:
    """Returns the environment steps per second in the second half of some simulated seconds."""
    self._env.run(until=seconds / 2)
    before = self.pacer.env_steps
    self._env.run(until=seconds)
    return (self.pacer.env_steps - before) / (seconds / 2)

  def _compute(self, cost: CallCost, part: str = "") -> Process:
    """Takes the call's processor time from the cores, and waits for the rest of its seconds."""
    begin_s, left_s = self._env.now, cost.cpu_s
    while left_s > 0:
      with self._cores.request() as core:
        yield core
        now_s = min(left_s, self._slice_s)
        yield self._env.timeout(now_s)
      left_s -= now_s
    if cost.seconds > cost.cpu_s:
      yield self._env.timeout(cost.seconds - cost.cpu_s)
    self.busy_s[part] += self._env.now - begin_s

  def _send(self, cost: CallCost, num_bytes: float, queue: simpy.Store, message: Any) -> Process:
    """Puts a message into a queue after Ray's work and the transfer of an object."""
    ray_s = max(0.0, cost.cpu_s - cost.seconds)  # the rest is the driver's
    yield from self._compute(CallCost(0.0, ray_s))
    if num_bytes / self._bytes_per_s:
      with self._link.request() as link:
        yield link
        yield self._env.timeout(num_bytes / self._bytes_per_s)
    queue.put(message)

  def _driver(self) -> Process:
    costs, steps = self._costs, self._segment_steps
    event_s = costs.pass_segment.seconds / 2  # a segment has two results: acted and stored
    while True:
      self._request()
      kind, index = yield self._inbox.get()
      seconds = costs.pass_batch.seconds if kind == "updated" else event_s
      yield from self._compute(CallCost(seconds, seconds), "driver")
      if kind == "acted":
        self._segments_in_flight[index] -= 1
        segment = self._send(costs.pass_segment, costs.segment_bytes, self._to_replay, ("add", index))
        self._env.process(segment)
      elif kind == "stored":
        self.pacer.done_act(steps)
      else:
        self._batches_in_flight -= 1
        self.pacer.learn.finish()

  def _request(self) -> None:
    """Requests calls up to the limits of work in flight, as `actors.segments` and `actors.updates` do."""
    ray, in_flight = self._config.ray, self._segments_in_flight
    while self._batches_in_flight < ray.batches_in_flight and self.pacer.may_learn(can_sample=True):
      self.pacer.learn.request()
      self._batches_in_flight += 1
      self._to_replay.put(("draw", 0))
    for index in sorted(range(len(in_flight)), key=in_flight.__getitem__):
      while in_flight[index] < ray.segments_in_flight and self.pacer.may_act(can_sample=True):
        self.pacer.request_act(self._segment_steps)
        in_flight[index] += 1
        self._to_workers[index].put(None)

  def _worker(self, index: int) -> Process:
    while True:
      yield self._to_workers[index].get()
      yield from self._compute(self._costs.act)
      self._inbox.put(("acted", index))

  def _replay(self) -> Process:
    costs = self._costs
    while True:
      kind, index = yield self._to_replay.get()
      yield from self._compute(costs.add if kind == "add" else costs.draw, "replay")
      if kind == "add":
        self._inbox.put(("stored", index))
      else:
        batch = self._send(costs.pass_batch, costs.batch_bytes, self._to_learner, None)
        self._env.process(batch)

  def _learner(self) -> Process:
    while True:
      yield self._to_learner.get()
      yield from self._compute(self._costs.learn, "server")
      self._inbox.put(("updated", 0))


def costs_of(row: dict[str, Any], act_s: float, learn_s: float, call_samples: int) -> PartCosts:
  """Returns the service times of canned actors from a row of `bench_scale.py`.

  What workers and the server compute is theirs; replay's time is divided between segments and batches as it
  is measured: by the calls. Ray's processes work for segments only.
  """
  segments, used = row["segments_per_s"], row["cores"]
  batches = row["samples_per_s"] / call_samples
  driver_s = used["driver"] / (segments + batches)
  replay_s = used["replay"] / (segments + batches)
  worker_s = used["workers"] / segments
  server_s = used["server"] / batches if batches else 0.0
  return PartCosts(
    act=CallCost(act_s + worker_s, worker_s),
    learn=CallCost(learn_s + server_s, server_s),
    add=CallCost(replay_s, replay_s),
    draw=CallCost(replay_s, replay_s),
    pass_segment=CallCost(driver_s, driver_s + used["Ray"] / segments),
    pass_batch=CallCost(driver_s, driver_s),
  )


def compare(found: dict[str, Any], base: int, seconds: float) -> list[dict[str, float]]:
  """Returns the measured, simulated and predicted rates of each row of a benchmark's figures."""
  from bench_scale import SETTINGS

  (row,) = [row for row in found["rows"] if row["workers"] == base]
  hardware = Hardware(found["cores"], 0, float("inf"))
  out = []
  for each in found["rows"]:
    settings = [*SETTINGS, *found["overrides"], f"workers.num_workers={each['workers']}"]
    config = load_config(found["config"], [*settings, "replay.min_steps_to_learn=1"])
    call_samples = config.learner.batch_size * config.learner.updates_per_call
    costs = costs_of(row, found["act_s"], found["learn_s"], call_samples)
    out.append(
      {
        "workers": each["workers"],
        "measured": each["env_steps_per_s"],
        "simulated": SimulatedRun(config, costs, hardware).steps_per_s(seconds),
        "formula": plan_of(config, costs, hardware, 0.0).steps_per_s,
      }
    )
  return out


def main() -> None:
  parser = make_parser(__doc__)
  parser.add_argument("bench", type=Path, help="the figures that `bench_scale.py --json` wrote")
  parser.add_argument("--from", dest="base", type=int, default=8, help="workers of the row with the times")
  parser.add_argument("--seconds", type=float, default=20.0, help="simulated seconds (%(default)g)")

  def measure(args: Any) -> list[dict[str, float]]:
    found = json.loads(args.bench.read_text("utf-8"))
    if args.base not in [row["workers"] for row in found["rows"]]:
      sys.exit(f"--from={args.base}: the figures have no row with this number of workers")
    rows = compare(found, args.base, args.seconds)
    print(f"{'workers':>7} {'measured':>10} {'simulated':>10} {'formula':>10}")
    for row in rows:
      rates = " ".join(f"{row[name]:>10,.0f}" for name in ("measured", "simulated", "formula"))
      print(f"{row['workers']:>7} {rates}")
    return rows

  report(parser, measure)


if __name__ == "__main__":
  main()

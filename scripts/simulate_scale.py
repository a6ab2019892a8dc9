"""Simulates the driver with given service times, and compares the simulation with `bench_scale.py`.

    python scripts/bench_scale.py --json bench.json
    python scripts/simulate_scale.py bench.json [--from 8]

The simulated driver requests calls as the real one does, with the real `Pacer`. Workers, the shards of replay
and the parameter server have a queue each. Each shard draws an equal part of a batch, and the parameter
server waits for all parts. Processor time is taken in short slices from the machine's cores. Between nodes,
objects pass the link of their shard, and batches also that of the parameter server. The script takes the
service times from the row of `--from` workers, and prints the rates that the benchmark measured, the
simulation and the formula of `moozi plan` for each row.
"""

import collections
import functools
import json
import math
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import simpy
from measuring import make_parser, report

from moozi.core.config import Config
from moozi.io.config import load_config
from moozi.replay.shards import workers_of
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
    learner_nodes: number of nodes that receive parts of batches at the same time.

  Attributes:
    pacer: counts what is requested and done.
    busy_s: busy seconds of the driver, of all shards of replay together, and of the parameter server.
  """

  def __init__(self, config: Config, costs: PartCosts, hardware: Hardware, learner_nodes: int = 1) -> None:
    if config.is_on_policy or config.has_one_process or config.reanalyze.ratio:
      raise ValueError("only runs with Ray and replay, without reanalyze, are simulated")
    self._config, self._costs = config, costs
    self._env = simpy.Environment()
    num_cores = hardware.cpus * hardware.nodes
    self._slice_s = _SLICE_S if num_cores <= _MAX_SLICED_CORES else float("inf")
    self._cores = simpy.Resource(self._env, num_cores)
    shards = workers_of(config)
    self._shard_of = [shard for shard, workers in enumerate(shards) for _ in workers]
    self._links = [simpy.Resource(self._env, 1) for _ in range(min(len(shards), hardware.nodes))]
    self._server_link = simpy.Resource(self._env, learner_nodes)
    self._bytes_per_s = hardware.network_gbit * 1e9 / 8 if hardware.nodes > 1 else float("inf")
    self.pacer = Pacer(config, slack_steps(config))
    self.busy_s = collections.Counter[str]()
    self._segment_steps = config.worker_envs * config.segment_length
    self._segments_in_flight = [0] * config.num_acting_workers
    self._batches_in_flight = 0
    self._inbox = simpy.Store(self._env)
    self._to_replay = [simpy.Store(self._env) for _ in shards]
    self._to_learner = simpy.Store(self._env)
    # By the number of a batch, how many of its parts the parameter server has not received.
    self._missing_parts: dict[int, int] = {}
    self._num_batches = 0
    self._to_workers = [simpy.Store(self._env) for _ in self._segments_in_flight]
    self._env.process(self._driver())
    for shard in range(len(shards)):
      self._env.process(self._replay(shard))
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
    """Takes the call's processor time from the cores, and waits for the rest of its seconds.

    A call whose processor time is longer than its duration has several threads.
    """
    begin_s = self._env.now
    num_threads = max(1, math.ceil(cost.cpu_s / cost.seconds - 1e-9)) if cost.seconds else 1
    thread_s = cost.cpu_s / num_threads
    yield simpy.AllOf(self._env, [self._env.process(self._thread(thread_s)) for _ in range(num_threads)])
    if cost.seconds > thread_s:
      yield self._env.timeout(cost.seconds - thread_s)
    self.busy_s[part] += self._env.now - begin_s

  def _thread(self, left_s: float) -> Process:
    while left_s > 0:
      with self._cores.request() as core:
        yield core
        now_s = min(left_s, self._slice_s)
        yield self._env.timeout(now_s)
      left_s -= now_s

  def _send(
    self, ray_s: float, num_bytes: float, links: Sequence[simpy.Resource], deliver: Callable[[], Any]
  ) -> Process:
    """Delivers an object after `ray_s` seconds of processors and the transfer over each link in turn."""
    yield from self._compute(CallCost(0.0, ray_s))
    for each in links if num_bytes / self._bytes_per_s else ():
      with each.request() as link:
        yield link
        yield self._env.timeout(num_bytes / self._bytes_per_s)
    deliver()

  def _link(self, shard: int) -> simpy.Resource:
    return self._links[shard % len(self._links)]

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
        shard = self._shard_of[index]
        deliver = functools.partial(self._to_replay[shard].put, ("add", index))
        segment = self._send(_ray_s(costs.pass_segment), costs.segment_bytes, [self._link(shard)], deliver)
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
      self._num_batches += 1
      self._missing_parts[self._num_batches] = len(self._to_replay)
      for shard in self._to_replay:
        shard.put(("draw", self._num_batches))
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

  def _replay(self, shard: int) -> Process:
    """Adds segments, and draws a part of each batch; `number` is that of the worker or of the batch."""
    costs, share = self._costs, 1 / len(self._to_replay)
    draw = CallCost(share * costs.draw.seconds, share * costs.draw.cpu_s)
    while True:
      kind, number = yield self._to_replay[shard].get()
      yield from self._compute(costs.add if kind == "add" else draw, "replay")
      if kind == "add":
        self._inbox.put(("stored", number))
        continue
      ray_s, num_bytes = share * _ray_s(costs.pass_batch), share * costs.batch_bytes
      deliver = functools.partial(self._receive, number)
      self._env.process(self._send(ray_s, num_bytes, [self._link(shard), self._server_link], deliver))

  def _receive(self, number: int) -> None:
    """Counts a part of a batch that the parameter server has received."""
    self._missing_parts[number] -= 1
    if not self._missing_parts[number]:
      del self._missing_parts[number]
      self._to_learner.put(None)

  def _learner(self) -> Process:
    while True:
      yield self._to_learner.get()
      yield from self._compute(self._costs.learn, "server")
      self._inbox.put(("updated", 0))


def _ray_s(cost: CallCost) -> float:
  """Returns the processor seconds of passing that are not the driver's."""
  return max(0.0, cost.cpu_s - cost.seconds)


def costs_of(row: dict[str, Any], act_s: float, learn_s: float, call_samples: int) -> PartCosts:
  """Returns the service times of canned actors from a row of `bench_scale.py`.

  The processor time of the driver and of replay is divided equally among their calls for segments and
  batches. That of Ray's processes is counted for segments only.
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

"""Predicts the speed, memory and placement of a run from the costs of its calls. Starts neither JAX nor Ray.

Speed is in environment steps per second, without evaluations, games of the gate and checkpoints. A run whose
parts work at the same time is as fast as the slowest of its resources allows. A run whose parts take turns
needs the sum of their times. `training.calibration` measures the costs.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping

from moozi.actors.resources import SHARES, check_resources, demands
from moozi.actors.roles import actors_of, is_spread, roles_of
from moozi.core.actor_report import REANALYZE_WORKER, REPLAY, SERVER, TESTING_WORKER, WORKER
from moozi.core.config import Config
from moozi.core.errors import UserError

CORES = "cores"
DRIVER = "driver"
NETWORK = "network"
RUN_PROCESS = "run"
"""The name of the only process of a run in one process."""

# Bits per second of the network between nodes, unless the caller knows better.
_NETWORK_GBIT = 10.0
# Idle processes leave at least this share of a core.
_MIN_CORES = 0.1
# The share of the processor time that may pass objects without a warning.
_LARGE_SHARE = 0.25


@dataclasses.dataclass(frozen=True)
class CallCost:
  """The cost of one call.

  Attributes:
    seconds: its duration when nothing else runs.
    cpu_s: its processor seconds, over all threads; of acting and learning, when both work at the same time,
      unless they take turns.
    crowded_s: its duration when acting and learning work at the same time, on a machine with
      `PartCosts.crowded_cpus` cores; 0 if it was not measured.
  """

  seconds: float = 0.0
  cpu_s: float = 0.0
  crowded_s: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartCosts:
  """The costs of a run's calls; parts that the run does not have cost nothing.

  Attributes:
    act: a segment of one training worker.
    learn: one call of the learner: its U updates, or the updates of a round of an on-policy algorithm.
    add: adding a segment to replay.
    draw: replay's work for one call of the learner: drawing the targets and setting their priorities.
    reanalyze: one call of a reanalyze worker.
    pass_segment, pass_batch: with Ray, the calls around a segment and around a call of the learner, without
      the work of the parts. `seconds` are those of the driver, `cpu_s` those of all processes.
    crowded_cpus: number of cores of the machine on which the durations `crowded_s` were measured.
    idle_cores: processor seconds per second of the driver and of Ray's processes when nothing is passed.
    segment_bytes, batch_bytes, parameter_bytes: sizes of a segment, of the targets of a call of the learner,
      and of the published parameters.
    memory_mib: resident memory by role; that of replay is without stored steps.
    act_by_width: environment steps per second of a worker, by its number of environments.
    env_share: the share of a segment's duration that the environments take; None if they are compiled
      together with the agent.
  """

  act: CallCost = CallCost()
  learn: CallCost = CallCost()
  add: CallCost = CallCost()
  draw: CallCost = CallCost()
  reanalyze: CallCost = CallCost()
  pass_segment: CallCost = CallCost()
  pass_batch: CallCost = CallCost()
  crowded_cpus: int = 0
  idle_cores: float = 0.0
  segment_bytes: int = 0
  batch_bytes: int = 0
  parameter_bytes: int = 0
  memory_mib: Mapping[str, float] = dataclasses.field(default_factory=dict)
  act_by_width: Mapping[int, float] = dataclasses.field(default_factory=dict)
  env_share: float | None = None


@dataclasses.dataclass(frozen=True)
class Hardware:
  """Machines of one kind: their number, the cores, GPUs and MiB of memory of each, and their network."""

  cpus: int
  gpus: int
  memory_mib: float
  nodes: int = 1
  network_gbit: float = _NETWORK_GBIT


@dataclasses.dataclass(frozen=True)
class SizePlan:
  """What a run needs and how fast it is.

  Attributes:
    limits: environment steps per second that each resource allows, if it were the only one.
    limit: the name of the resource that limits the run. If parts take turns, the part that takes longest.
    steps_per_s: expected environment steps per second; infinite if nothing takes time.
    hours: time to `max_env_steps`.
    memory: by kind of process, the number of processes and the MiB of each.
    object_store_mib: MiB of the objects in flight; 0 in one process.
    placement: for each node that has actors, their number by role; the first node is the driver's.
    warnings: one line for each reason why the run does not fit, and for each doubt about the prediction.
  """

  limits: Mapping[str, float]
  limit: str
  steps_per_s: float
  hours: float
  memory: Mapping[str, tuple[int, float]]
  object_store_mib: float
  placement: tuple[Mapping[str, int], ...]
  warnings: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class CallRates:
  """The number of calls of each kind per environment step."""

  segments: float
  updates: float
  searches: float


def call_rates(config: Config) -> CallRates:
  """Returns the number of calls per environment step that the configuration asks for."""
  segment_steps = config.worker_envs * config.segment_length
  segments = 1 / segment_steps if config.num_acting_workers else 0.0
  if config.is_on_policy:
    return CallRates(segments, 1 / (segment_steps * config.num_acting_workers), 0.0)
  learner, again = config.learner, config.reanalyze
  updates = learner.samples_per_step / (learner.batch_size * learner.updates_per_call)
  return CallRates(segments, updates, again.ratio / (1 - again.ratio) / again.batch_size)


def limits_of(config: Config, costs: PartCosts, hardware: Hardware) -> dict[str, float]:
  """Returns the environment steps per second that each resource allows; infinite if it is not used.

  If parts take turns (in one process, and in the rounds of on-policy algorithms), the limits are those of the
  parts, and the run's speed is the inverse of the sum of their inverses (`takes_turns`).
  """
  rates, workers = call_rates(config), config.num_acting_workers
  pace: dict[str, float] = {}  # seconds per environment step
  if takes_turns(config):
    acting = costs.act.seconds * rates.segments
    if not config.has_one_process:
      # The workers act at the same time, as far as there are cores.
      crowded = costs.act.cpu_s * rates.segments / (hardware.cpus * hardware.nodes)
      acting = max(acting / workers, crowded)
      pace[DRIVER] = costs.pass_segment.seconds * rates.segments + costs.pass_batch.seconds * rates.updates
    pace |= {WORKER: acting, SERVER: costs.learn.seconds * rates.updates}
    if not config.is_on_policy:
      pace[REPLAY] = costs.add.seconds * rates.segments + costs.draw.seconds * rates.updates
      pace[REANALYZE_WORKER] = costs.reanalyze.seconds * rates.searches
    return _inverses(pace)
  pace[WORKER] = costs.act.seconds * rates.segments / max(1, workers)
  pace[SERVER] = costs.learn.seconds * rates.updates
  if hardware.cpus * hardware.nodes <= costs.crowded_cpus:
    acting = costs.act.crowded_s * rates.segments / max(1, workers)
    learning = costs.learn.crowded_s * rates.updates
    others = costs.add.cpu_s * rates.segments + costs.draw.cpu_s * rates.updates + _passing_s(config, costs)
    pace[WORKER] = _crowded_pace(pace[WORKER], acting, learning + others)
    if config.ray.learner.num_threads or config.ray.learner.num_gpus:
      pace[SERVER] = _crowded_pace(pace[SERVER], learning, acting + others)
    else:
      # Threads on all cores wait for each other, so the learner waits while another process has a core.
      # Acting has a lower priority.
      pace[SERVER] = _crowded_pace(pace[SERVER] + others, learning + others, acting)
  # Each shard of replay stores its share of the segments, and draws its share of the rows.
  pace[REPLAY] = costs.add.seconds * rates.segments + costs.draw.seconds * rates.updates
  pace[REPLAY] /= config.ray.replay_shards
  pace[REANALYZE_WORKER] = costs.reanalyze.seconds * rates.searches / config.reanalyze.num_workers
  pace[DRIVER] = costs.pass_segment.seconds * rates.segments + costs.pass_batch.seconds * rates.updates
  free_cores = max(hardware.cpus * hardware.nodes - costs.idle_cores, _MIN_CORES)
  pace[CORES] = (_parts_s(config, costs) + _passing_s(config, costs)) / free_cores
  if hardware.nodes > 1:
    # No segment and no batch stays on its node. The nodes of the shards pass on all segments and batches
    # together; the node of the parameter server receives all batches.
    segments, batches = costs.segment_bytes * rates.segments, costs.batch_bytes * rates.updates
    shard_nodes = min(config.ray.replay_shards, hardware.nodes)
    num_bytes = max(batches, (segments + batches) / shard_nodes)
    pace[NETWORK] = 8 * num_bytes / (hardware.network_gbit * 1e9)
  return _inverses(pace)


def step_s_by_call(config: Config, costs: PartCosts) -> dict[str, float]:
  """Returns the seconds of an environment step that each kind of call takes, by its name in `PartCosts`.

  They are the durations in a run in one process, in which they add up to that of a step; else the processor
  seconds.
  """
  rates = call_rates(config)
  calls = {
    **dict.fromkeys(("act", "add", "pass_segment"), rates.segments),
    **dict.fromkeys(("learn", "draw", "pass_batch"), rates.updates),
    "reanalyze": rates.searches,
  }
  field = "seconds" if config.has_one_process else "cpu_s"
  return {name: getattr(getattr(costs, name), field) * rate for name, rate in calls.items()}


def _crowded_pace(alone_s: float, crowded_s: float, other_s: float) -> float:
  """Returns the seconds per step of a part that works all the time, beside another that works as needed.

  Args:
    alone_s, crowded_s: the part's seconds per step when the other never works, and when it always works.
    other_s: the other's seconds per step when this part always works.
  """
  slower_s = max(0.0, crowded_s - alone_s)
  # p = alone_s + slower_s · other_s / p: the other works for other_s of the p seconds of a step.
  pace = (alone_s + math.sqrt(alone_s**2 + 4 * slower_s * other_s)) / 2
  return min(pace, alone_s + slower_s)


def _parts_s(config: Config, costs: PartCosts) -> float:
  """Returns the processor seconds per environment step of the parts."""
  rates = call_rates(config)
  acting_s = (costs.act.cpu_s + costs.add.cpu_s) * rates.segments
  learning_s = (costs.learn.cpu_s + costs.draw.cpu_s) * rates.updates
  return acting_s + learning_s + costs.reanalyze.cpu_s * rates.searches


def _passing_s(config: Config, costs: PartCosts) -> float:
  """Returns the processor seconds per environment step of passing objects between the parts."""
  rates = call_rates(config)
  return costs.pass_segment.cpu_s * rates.segments + costs.pass_batch.cpu_s * rates.updates


def takes_turns(config: Config) -> bool:
  """Returns whether acting and learning wait for each other: in one process, and in on-policy rounds."""
  return config.has_one_process or config.is_on_policy


def _inverses(pace: Mapping[str, float]) -> dict[str, float]:
  return {name: 1 / seconds if seconds else math.inf for name, seconds in pace.items()}


def memory_of(config: Config, costs: PartCosts, stored_mib: float) -> dict[str, tuple[int, float]]:
  """Returns the number of processes and the MiB of each, by role; without Ray's own processes.

  A testing worker is taken to be as large as a training worker.

  Args:
    stored_mib: the steps of a full replay buffer.
  """
  known = dict(costs.memory_mib)
  known[TESTING_WORKER] = known.get(WORKER, 0.0)
  if config.has_one_process:
    # The larger process has the libraries; of the others, only what exceeds the process without work counts.
    bare = known.get(DRIVER, 0.0)
    own = [known.get(name, 0.0) - bare for name in (WORKER, SERVER, REANALYZE_WORKER)]
    return {RUN_PROCESS: (1, bare + sum(max(0.0, mib) for mib in own) + stored_mib)}
  known[REPLAY] = known.get(REPLAY, 0.0) + stored_mib / config.ray.replay_shards
  counts = {role: len(actors_of(role, config)) for role in roles_of(config)}
  return {DRIVER: (1, known.get(DRIVER, 0.0))} | {
    role: (count, known.get(role, 0.0)) for role, count in counts.items() if count
  }


def object_store_mib(config: Config, costs: PartCosts) -> float:
  """Returns the MiB of the objects that are in Ray's object store at one time, at most."""
  if config.has_one_process:
    return 0.0
  ray, workers = config.ray, config.num_acting_workers
  segments = workers * (1 if config.is_on_policy else ray.segments_in_flight) * costs.segment_bytes
  batches = 0 if config.is_on_policy else ray.batches_in_flight * costs.batch_bytes
  # An object is removed after its reader has finished: for a moment the next one is there too.
  return (segments + 2 * batches + 2 * costs.parameter_bytes + workers * costs.segment_bytes) / 2**20


def place(config: Config, hardware: Hardware) -> tuple[list[Counter[str]], list[str]]:
  """Places the actors by the resources that they reserve, as Ray does on an empty cluster of equal nodes.

  Of the nodes with enough free resources, an actor that `is_spread` is placed on the first of those with the
  fewest actors of its role. Another actor is placed on the first of those whose cores are less than half
  reserved, else on the one with the smallest reserved share. Ray chooses the nodes of a run itself.

  Returns: the number of actors by role for each node, of which the first is the driver's, and the role of
    each actor for which no node has enough free resources.
  """
  nodes: list[Counter[str]] = [Counter() for _ in range(hardware.nodes)]
  # The local Ray counts as many cores and GPUs as the configuration says.
  cpus = float(config.ray.num_cpus or hardware.cpus) if hardware.nodes == 1 else float(hardware.cpus)
  gpus = hardware.gpus if config.ray.num_gpus is None or hardware.nodes > 1 else config.ray.num_gpus
  free = [{"num_cpus": cpus, "num_gpus": float(gpus)} for _ in nodes]
  unplaced: list[str] = []
  for role, kind in roles_of(config).items():
    wants = {field: getattr(kind.resources(config), field) for _, field in SHARES}
    for actor in actors_of(role, config):
      fitting = [i for i, has in enumerate(free) if all(wants[f] <= has[f] + 1e-9 for f in wants)]
      if not fitting:
        unplaced.append(role)
        continue
      spread = is_spread(actor)
      where = min(fitting, key=lambda i: nodes[i][role] if spread else _load(free[i]["num_cpus"] / cpus))
      nodes[where][role] += 1
      free[where] = {field: free[where][field] - wants[field] for field in wants}
  return nodes, unplaced


def _load(free_share: float) -> float:
  """Returns the reserved share of a node's cores as Ray compares nodes by it: below a half, 0."""
  return 1 - free_share if free_share <= 0.5 else 0.0


def plan_of(config: Config, costs: PartCosts, hardware: Hardware, stored_mib: float) -> SizePlan:
  """Returns the plan of a run; the arguments are as in `limits_of` and `memory_of`."""
  limits = limits_of(config, costs, hardware)
  limit = min(limits, key=lambda name: limits[name])
  steps_per_s = limits[limit]
  if takes_turns(config) and math.isfinite(steps_per_s):
    steps_per_s = 1 / sum(1 / value for value in limits.values())
  memory = memory_of(config, costs, stored_mib)
  store_mib = object_store_mib(config, costs)
  nodes: list[Counter[str]] = []
  warnings: list[str] = []
  if not config.has_one_process:
    nodes, unplaced = place(config, hardware)
    warnings += _resource_warnings(config, hardware, unplaced)
    if hardware.nodes == 1 and store_mib > config.ray.object_store_mib:
      warnings.append(
        f"ray.object_store_mib={config.ray.object_store_mib}: objects in flight take {store_mib:,.0f} MiB; "
        "Ray then writes objects to disk"
      )
    parts_s, passing_s = _parts_s(config, costs), _passing_s(config, costs)
    if passing_s > _LARGE_SHARE * (parts_s + passing_s):
      warnings.append(
        f"{passing_s / (parts_s + passing_s):.0%} of the processor time passes objects between processes; a "
        "larger workers.segment_length and learner.updates_per_call make fewer calls"
      )
  warnings += _memory_warnings(memory, nodes, hardware, store_mib)
  return SizePlan(
    limits=limits,
    limit=limit,
    steps_per_s=steps_per_s,
    hours=config.max_env_steps / steps_per_s / 3600,
    memory=memory,
    object_store_mib=store_mib,
    placement=tuple(dict(node) for node in nodes if node),
    warnings=tuple(warnings),
  )


def _resource_warnings(config: Config, hardware: Hardware, unplaced: list[str]) -> list[str]:
  cpus, gpus = hardware.cpus * hardware.nodes, hardware.gpus * hardware.nodes
  if hardware.nodes == 1:
    cpus = config.ray.num_cpus or cpus
    gpus = gpus if config.ray.num_gpus is None else config.ray.num_gpus
  try:
    check_resources(config, {"CPU": float(cpus), "GPU": float(gpus)})
  except UserError as error:
    return [str(error)]
  key_of = {role: kind.key for role, kind in roles_of(config).items()}
  return [
    f"{role}: no node has room for {count} of {demands(config)[key_of[role]][0]}; use smaller {key_of[role]}"
    for role, count in Counter(unplaced).items()
  ]


def _memory_warnings(
  memory: Mapping[str, tuple[int, float]],
  nodes: list[Counter[str]],
  hardware: Hardware,
  store_mib: float,
) -> list[str]:
  """Returns a line for each node whose processes need more memory than it has."""
  if not nodes:
    needs = [sum(count * mib for count, mib in memory.values())]
  else:
    # The driver and the objects in flight are on the first node.
    needs = [sum(memory[role][1] * count for role, count in node.items()) for node in nodes]
    needs[0] += memory[DRIVER][1] + store_mib
  return [
    f"node {number}: its processes need {need / 1024:,.1f} GiB; it has {hardware.memory_mib / 1024:,.1f} GiB"
    for number, need in enumerate(needs)
    if need > hardware.memory_mib
  ]


def enough_workers(config: Config, costs: PartCosts, hardware: Hardware) -> int | None:
  """Returns the smallest number of training workers with which acting does not limit the run.

  None if parts take turns, the run does not act, or nothing else takes time.
  """
  if takes_turns(config) or not config.num_acting_workers:
    return None
  limits = limits_of(config, costs, hardware)
  other = min(value for name, value in limits.items() if name != WORKER)
  one = limits[WORKER] / config.num_acting_workers
  return max(1, math.ceil(other / one - 1e-9)) if math.isfinite(other) and math.isfinite(one) else None

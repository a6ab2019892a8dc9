"""Writes the tables of docs/scale.md: the measured ones, and what limits a run on larger machines.

    python scripts/make_scale_page.py

experiments/scale/results has what the benchmarks wrote (`MEASURED` has the commands). The limits are those of
the formula of `moozi plan`, with costs of calls that are measured on smaller machines or assumed; the page
says which. The simulation is that of `simulate_scale.py`.
"""

import dataclasses
import functools
import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from simulate_scale import SimulatedRun, compare

from moozi.core.actor_report import REPLAY, SERVER, WORKER
from moozi.core.config import Config
from moozi.io.config import load_config
from moozi.io.metrics import read_metrics
from moozi.training.sizing import (
  CORES,
  DRIVER,
  NETWORK,
  CallCost,
  Hardware,
  PartCosts,
  call_rates,
  limits_of,
  plan_of,
)

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "experiments" / "scale" / "results"
GPU_RESULTS = ROOT / "experiments" / "gpu" / "results"
MEASURED = {
  "bench_scale": "scripts/bench_scale.py",
  "bench_scale_learning": "scripts/bench_scale.py --workers 1 2 4 8 --learn 0.4",
  "bench_scale_long": "scripts/bench_scale.py config/minatar/freeway.yaml workers.segment_length=64 "
  "replay.capacity=2_097_152 --act 0.4 --workers 1 32 48 64",
  **dict.fromkeys(
    ("bench_scale_first_1", "bench_scale_now_1", "bench_scale_first_2", "bench_scale_now_2"),
    "scripts/bench_scale.py --workers 1 32",
  ),
  "bench_inference": "scripts/bench_inference.py workers.num_envs=128 acting.max_batch=1",
  "bench_inference_widths": "scripts/bench_inference.py acting.max_batch=1 --num-envs 128 256 512 "
  "--segments 16 --no-slow",
  "bench_inference_learning": "scripts/bench_inference.py ray.num_cpus=4 workers.num_envs=128 "
  "acting.max_batch=1 --learn-s 110 --rounds 2",
  "bench": "scripts/bench.py",
  "bench_passing_pong": "scripts/bench_passing.py atari/gpu/pong replay.capacity=65_536",
  "check_plan_others": "scripts/check_plan.py --plan-s 45 --run-s 30 --config minatar/space_invaders "
  "reanalyze.ratio=0.5 --config gymnasium/pendulum --config dm_control/cartpole_swingup runtime=local "
  "--config pgx/breakout --config q_learning/minatar/breakout --config alphazero/boards/tic_tac_toe",
  "check_plan": "scripts/check_plan.py",
}
"""Files of `RESULTS`, with the commands that wrote them."""
BASE_WORKERS = 8
"""The simulation has the service times that were measured with this number of workers."""
CONFIG = "atari/gpu/pong"
NUM_ENVS, LENGTH, BATCH, UPDATES = 256, 16, 256, 4
CORES_PER_WORKER = 8
CALLS = ("act", "learn", "add", "draw", "reanalyze", "pass_segment", "pass_batch")
"""The fields of `PartCosts` that are a CallCost."""
MS, US, GB = 1e-3, 1e-6, 1e9


@functools.cache
def measured(name: str) -> Any:
  """Returns the content of a file of `RESULTS`."""
  return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


# --- what was measured --------------------------------------------------------------------------------------


def bench_table() -> str:
  """Returns the rates by number of workers that wait in place of acting."""
  from bench_scale import SETTINGS

  rows = []
  for name in ("bench_scale", "bench_scale_long"):
    found = measured(name)
    config = load_config(found["config"], [*SETTINGS, *found["overrides"]])
    steps = config.worker_envs * config.segment_length
    for row in found["rows"]:
      used = sum(row["cores"].values())
      cells = [
        f"{steps:,.0f}",
        f"{row['workers']}",
        f"{row['env_steps_per_s']:,.0f}",
        f"{row['of_linear']:.2f}",
      ]
      cells += [f"{used:.2f}", f"{1e3 * used / row['segments_per_s']:.1f}", _words(row["limit"])]
      rows.append(cells)
  columns = (
    "steps in a segment",
    "workers",
    "steps/s",
    "of linear",
    "busy cores",
    "processor ms for a segment",
  )
  return _table((*columns, "limit"), rows)


def first_table() -> str:
  """Returns the rates with 32 workers at f8022bfd and at present, in the order of the measurements."""
  rows = []
  for turn in (1, 2):
    first, now = (
      measured(f"bench_scale_{name}_{turn}")["rows"][-1]["env_steps_per_s"] for name in ("first", "now")
    )
    rows.append([f"{turn}", f"{first:,.0f}", f"{now:,.0f}", f"{now / first:.2f}"])
  return _table(("round", "steps/s at f8022bfd", "steps/s at present", "ratio"), rows)


def run_table() -> str:
  """Returns the rate of a whole run relative to limits of the search and the update alone."""
  found = measured("bench")
  parts, rate = found["parts"], found["end_to_end"]["env_steps_per_s"]
  own = f"{parts['num_envs']} environments and batches of {parts['batch_size']}, as in the run"
  limits = [(own, found["limit_own"]), ("the best of four widths and batches", found["limit"])]
  rows = [[name, f"{limit:,.0f}", f"{rate:,.0f}", f"{rate / limit:.2f}"] for name, limit in limits]
  return _table(("limit with", "its steps/s", "measured steps/s", "of the limit"), rows)


def inference_table() -> str:
  """Returns the rates of acting with an inference server relative to one worker that decides itself.

  A comparison that is in several files is that of the first one.
  """
  rows, comparisons = [], dict[str, Any]()
  for name in ("bench_inference_widths", "bench_inference", "bench_inference_learning"):
    comparisons = measured(name)["rates"] | comparisons
  for title, rates in sorted(comparisons.items()):
    first = rates["worker"]
    for name, found in rates.items():
      ratios = [rate / other for rate, other in zip(found, first, strict=True)]
      spread = f"{min(ratios):.2f} to {max(ratios):.2f}" if found is not first else "–"
      cells = [title, name, f"{statistics.median(found):,.0f}", f"{statistics.median(ratios):.2f}", spread]
      rows.append(cells)
  return _table(("environment", "acting", "steps/s, median", "of worker mode", "range"), rows)


def simulated_table() -> str:
  """Returns the measured and simulated rates by number of workers."""
  rows = []
  for title, name in (("acting", "bench_scale"), ("learning", "bench_scale_learning")):
    for row in compare(measured(name), BASE_WORKERS, 20.0):
      rates = [f"{row[which]:,.0f}" for which in ("measured", "simulated", "formula")]
      errors = [f"{row[which] / row['measured'] - 1:+.0%}" for which in ("simulated", "formula")]
      rows.append([title, f"{row['workers']:.0f}", *rates, *errors])
  columns = ("waits in", "workers", "measured", "simulated", "formula", "error of simulation", "of formula")
  return _table(columns, rows)


def plan_table(name: str = "check_plan") -> str:
  """Returns the predicted and measured rates of the configurations of a file of `check_plan.py`.

  The predictions are those of the present formula with the costs that were measured.
  """
  from check_plan import SETTINGS

  rows = []
  for row in measured(name):
    plan = row["plan"]
    config = load_config(row["config"], [*row["overrides"], *SETTINGS])
    hardware = Hardware(**plan["hardware"])
    found = plan_of(config, costs_from_json(plan["costs"]), hardware, stored_mib=0.0)
    text, rate = " ".join([row["config"], *row["overrides"]]), row["measured"]
    error = f"{found.steps_per_s / rate - 1:+.0%}"
    rows.append([f"`{text}`", f"{found.steps_per_s:,.0f}", f"{rate:,.0f}", error, _words(found.limit)])
  return _table(("configuration", "predicted", "measured", "error", "predicted limit"), rows)


def costs_from_json(costs: Mapping[str, Any]) -> PartCosts:
  """Returns the costs that `moozi plan --json` has printed."""
  return PartCosts(
    **{name: CallCost(**x) if name in CALLS else x for name, x in costs.items() if x is not None}
  )


def _words(name: str) -> str:
  return name.replace("_", " ")


# --- the model ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Assumption:
  """A number of the model, with its unit and its source."""

  text: str
  value: float
  unit: str
  source: str


def emulator_ms() -> float:
  """Returns the milliseconds of each of a worker's cores for a step of an environment, in a run on a GPU."""
  ticks = read_metrics(GPU_RESULTS / "pong_large_network" / "metrics.jsonl")
  names = "train/env_share", "train/worker_steps_per_s"
  return 1e3 * statistics.median(
    tick[names[0]] / tick[names[1]] for tick in ticks if all(name in tick for name in names)
  )


def assumptions() -> dict[str, Assumption]:
  """Returns the numbers of the model, by name."""
  found = measured("bench_passing_pong")
  call_ms = json.loads((GPU_RESULTS / "h200.json").read_text("utf-8"))["call_ms"]
  gpu, here, assumed = "[experiments/gpu](../experiments/gpu/README.md)", "`bench_passing.py`", "assumed"
  passing = {
    f"{part}_{who}": 1e3 * found[f"pass_{part}"][f"{who}_s"]
    for part in ("segment", "batch")
    for who in ("driver", "total")
  }
  return {
    "emulator": Assumption(
      "a step of an Atari environment on eight cores, of each core", emulator_ms(), "ms", gpu
    ),
    "search": Assumption(
      "a search of 32 simulations for 256 positions", call_ms["search_256"], "ms of a GPU", gpu
    ),
    "update": Assumption(
      "an update of 256 samples, with their transfer", call_ms["update_256"], "ms of a GPU", gpu
    ),
    "exchange": Assumption("the exchange of gradients of an update on several GPUs", 1, "ms", assumed),
    "add": Assumption("adding a step to replay", 1e6 * found["add_s_per_step"], "µs of a core", here),
    "draw": Assumption("drawing a sample", 1e6 * found["draw_s_per_sample"], "µs of a core", here),
    "join": Assumption(
      "joining the samples of several shards, each", 1e6 * found["join_s_per_sample"], "µs of a core", here
    ),
    "segment_driver": Assumption(
      "the driver, for a segment", passing["segment_driver"], "ms of a core", here
    ),
    "segment_total": Assumption(
      "all processes, to pass a segment", passing["segment_total"], "ms of cores", here
    ),
    "batch_driver": Assumption(
      "the driver, for the samples that a shard draws for a call",
      passing["batch_driver"],
      "ms of a core",
      here,
    ),
    "batch_total": Assumption(
      "all processes, to pass 1,024 samples", passing["batch_total"], "ms of cores", here
    ),
    "step": Assumption("a step of a segment", found["step_bytes"], "bytes", here),
    "sample": Assumption("a sample: five frames of 84×84", found["sample_bytes"], "bytes", here),
    "network": Assumption("the network between two nodes", 100, "Gbit/s", assumed),
  }


@dataclasses.dataclass(frozen=True)
class Setting:
  """A row of a table.

  Attributes:
    change: what differs from the row above.
    workers: training workers, each with 256 environments, eight cores and half a GPU.
    learner_gpus, learner_nodes: GPUs of the learner, each with 256 samples of a batch, and their nodes.
    shards: shards of replay, which work at the same time.
    is_direct: whether shards send each node of the learner its own samples, which MooZi does not do. Else
      the parameter server joins all samples, and sends the other nodes theirs.
  """

  change: str
  workers: int
  learner_gpus: int = 1
  learner_nodes: int = 1
  shards: int = 1
  is_direct: bool = False


MACHINES = {
  "8 GPUs, 128 cores, one node": (
    Hardware(128, 8, 2**20),
    (
      Setting("one worker", 1),
      Setting("14 workers on seven GPUs", 14),
      Setting("a learner on four GPUs, eight workers on the others", 8, 4),
      Setting("four shards of replay", 8, 4, 1, 4),
      Setting("a learner on five GPUs, six workers", 6, 5, 1, 4),
    ),
  ),
  "64 GPUs, 2,048 cores, eight nodes": (
    Hardware(256, 8, 2**20, nodes=8, network_gbit=100.0),
    (
      Setting("a learner on eight GPUs of one node, 64 workers, eight shards of replay", 64, 8, 1, 8),
      Setting("a learner on 16 GPUs of two nodes", 64, 16, 2, 8),
      Setting("a learner on 32 GPUs of four nodes", 64, 32, 4, 8),
      Setting("shards send each node of the learner its samples (not built)", 64, 32, 4, 8, True),
      Setting("16 shards of replay", 64, 32, 4, 16, True),
      Setting("a learner on 48 GPUs of six nodes, 32 workers on two nodes", 32, 48, 6, 16, True),
    ),
  ),
}
NAMES = {
  WORKER: "acting",
  SERVER: "learning",
  REPLAY: "replay",
  DRIVER: "the driver",
  CORES: "the cores",
  NETWORK: "the network",
}


def costs_of(setting: Setting, assumed: Mapping[str, Assumption]) -> PartCosts:
  """Returns the costs of a setting's calls.

  The parameter server joins the rows of shards, sends the other nodes of the learner theirs, and then makes
  the updates.
  """
  a = {name: each.value for name, each in assumed.items()}
  gpus, nodes, shards = setting.learner_gpus, setting.learner_nodes, setting.shards
  steps, samples = NUM_ENVS * LENGTH, BATCH * gpus * UPDATES
  emulators_s = CORES_PER_WORKER * steps * a["emulator"] * MS
  act_s = LENGTH * a["search"] * MS + emulators_s / CORES_PER_WORKER
  join_s = samples * a["join"] * US if shards > 1 else 0.0
  if setting.is_direct:
    join_s /= nodes
  else:
    join_s += samples * (nodes - 1) / nodes * a["batch_total"] * MS / (BATCH * UPDATES)
  learn_s = UPDATES * (a["update"] + (a["exchange"] if gpus > 1 else 0.0)) * MS + join_s
  add_s, draw_s = steps * a["add"] * US, samples * a["draw"] * US
  return PartCosts(
    act=CallCost(act_s, emulators_s),
    learn=CallCost(learn_s, join_s),
    add=CallCost(add_s, add_s),
    draw=CallCost(draw_s, draw_s),
    pass_segment=CallCost(a["segment_driver"] * MS, a["segment_total"] * MS),
    # The driver makes the calls of each shard; the bytes are those of all samples.
    pass_batch=CallCost(shards * a["batch_driver"] * MS, max(shards, gpus) * a["batch_total"] * MS),
    segment_bytes=round(steps * a["step"]),
    batch_bytes=round(samples * a["sample"]),
  )


def config_of(setting: Setting) -> Config:
  """Returns the configuration of a setting's run."""
  config = load_config(CONFIG)
  own = config.workers.num_envs, config.workers.segment_length, config.learner.batch_size
  assert (*own, config.learner.updates_per_call) == (NUM_ENVS, LENGTH, BATCH, UPDATES), "the file has changed"
  sizes = (
    f"workers.num_workers={setting.workers}",
    f"replay.capacity={setting.workers * 2**17}",  # replay needs some steps for each environment
    f"ray.replay_shards={setting.shards}",
    f"learner.batch_size={BATCH * setting.learner_gpus}",
  )
  return load_config(CONFIG, sizes)


def limits(setting: Setting, hardware: Hardware, assumed: Mapping[str, Assumption]) -> dict[str, float]:
  """Returns the environment steps per second that each resource allows."""
  config, costs = config_of(setting), costs_of(setting, assumed)
  found = limits_of(config, costs, hardware)
  if setting.is_direct:
    # The formula of `moozi plan` has one node that receives all batches.
    rates, shard_nodes = call_rates(config), min(setting.shards, hardware.nodes)
    segments, batches = costs.segment_bytes * rates.segments, costs.batch_bytes * rates.updates
    num_bytes = max(batches / setting.learner_nodes, (segments + batches) / shard_nodes)
    found[NETWORK] = hardware.network_gbit * GB / 8 / num_bytes
  return found


def simulated(setting: Setting, hardware: Hardware, assumed: Mapping[str, Assumption]) -> float:
  """Returns the environment steps per second of the simulation."""
  config = config_of(setting)
  config = config.model_copy(update={"replay": config.replay.model_copy(update={"min_steps_to_learn": 1})})
  receivers = setting.learner_nodes if setting.is_direct else 1
  run = SimulatedRun(config, costs_of(setting, assumed), hardware, receivers)
  return run.steps_per_s(20.0)


def assumptions_table() -> str:
  rows = [(a.text, f"{_short(a.value)} {a.unit}", a.source) for a in assumptions().values()]
  return _table(("assumption", "value", "source"), rows)


def machine_table(title: str) -> str:
  """Returns the limits of each setting of a machine."""
  hardware, settings = MACHINES[title]
  rows, assumed = [], assumptions()
  for setting in settings:
    found = sorted(limits(setting, hardware, assumed).items(), key=lambda item: item[1])
    (first, rate), (second, above) = found[:2]
    queued = _rounded(simulated(setting, hardware, assumed))
    cells = [setting.change, _rounded(rate), NAMES[first], f"{NAMES[second]}, {_rounded(above)}", queued]
    rows.append(cells)
  return _table((title, "steps/s", "limit", "next limit", "simulated"), rows)


def _short(value: float) -> str:
  """Returns a number with three digits, or a whole number."""
  return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _rounded(rate: float) -> str:
  """Returns a rate with two significant digits, which is more than the model is good for."""
  return f"{round(rate, 2 - len(str(int(rate)))):,.0f}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
  from experiments.lib.tables import markdown_table

  return markdown_table(columns, rows)


BLOCKS = {
  "docs/scale.md": {
    "bench": bench_table,
    "first": first_table,
    "run": run_table,
    "inference": inference_table,
    "plans": plan_table,
    "others": functools.partial(plan_table, "check_plan_others"),
    "simulated": simulated_table,
    "assumptions": assumptions_table,
    **{f"machine-{i}": functools.partial(machine_table, title) for i, title in enumerate(MACHINES)},
  },
}
"""For each page, the blocks between markers of these names."""


if __name__ == "__main__":
  sys.path.append(str(ROOT))
  from experiments.lib.tables import write_between_markers

  for path, blocks in BLOCKS.items():
    for name, block in blocks.items():
      write_between_markers(ROOT / path, name, block())

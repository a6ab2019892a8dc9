"""Tests that the parts of `make bench` run; they measure nothing."""

import argparse
import contextlib
import importlib
import inspect
import itertools
import json
import os
import subprocess
import sys
import types

import jax
import numpy as np
import pytest

from moozi.actors import passing
from moozi.core.actor_report import REPLAY
from moozi.core.pytree import fields_of
from moozi.envs import registry
from moozi.io import jax_process
from moozi.io.config import load_config
from moozi.replay.mixture import make_replay
from moozi.replay.shards import join
from moozi.training import speed
from tests.actors import in_process_ray
from tests.experiments.sample_results import ROOT

TINY = (
  *("network.latent_size=8", "network.head_size=8", "planners.train.num_simulations=2"),
  *("workers.num_envs=4", "workers.segment_length=4", "learner.batch_size=4", "learner.updates_per_call=2"),
  *("replay.capacity=256", "replay.min_steps_to_learn=16", "reanalyze.batch_size=8"),
)
NAMES = sorted(path.stem for path in (ROOT / "scripts").glob("bench*.py"))


@pytest.fixture
def script(monkeypatch):
  """Returns a function that imports a script by its name. A measurement is one call."""

  def call_once(call, *_, **__):
    jax.block_until_ready(call())
    return 1.0, 1.0

  monkeypatch.syspath_prepend(ROOT / "scripts")
  monkeypatch.setattr(speed, "call_seconds", call_once)
  monkeypatch.setattr(jax_process, "reuse_freed_memory", lambda: None)
  return lambda name: importlib.import_module(f"scripts.{name}")


@pytest.fixture
def catch():
  return load_config("tiny/catch", TINY)


def test_make_bench_runs_all_scripts():
  makefile = (ROOT / "Makefile").read_text("utf-8")
  assert [name for name in NAMES if f"scripts/{name}.py" in makefile] == NAMES


@pytest.mark.parametrize("name", [*NAMES, "check_plan", "compare_commits", "simulate_scale"])
def test_script_is_imported(script, name):
  assert callable(script(name).main)


def test_environment_and_replay(script, catch, monkeypatch):
  bench = script("bench")
  monkeypatch.setattr(bench, "FILLED_STEPS", 300)
  assert set(bench.parts(catch)) == {"env_steps_per_s", "replay_samples_per_s", "num_envs", "batch_size"}


def test_limit_with_the_widths_of_a_run(script):
  """The best number of threads of each width: 1/100 s for a step and 4 · 1/400 s for its samples."""
  one = {"act": {"8": 100.0, "16": 500.0}, "learn": {"32": 200.0}}
  two = {"act": {"8": 80.0, "16": 400.0}, "learn": {"32": 400.0}}
  assert script("bench").limit_at({1: one, 2: two}, 4.0, num_envs=8, batch_size=32) == 50.0


@pytest.mark.slow
def test_search_and_update(script, catch, monkeypatch):
  bench = script("bench")
  monkeypatch.setattr(bench, "ACT_WIDTHS", (2,))
  monkeypatch.setattr(bench, "LEARN_WIDTHS", (4,))
  rates = bench.floor(catch, with_scan=True)
  widths = {"act": sorted({2, catch.workers.num_envs}), "learn": sorted({4, catch.learner.batch_size})}
  assert {name: list(rates[name]) for name in ("act", "learn")} == widths
  assert rates["scan"] > 0


@pytest.mark.slow
def test_parts_of_an_atari_step(script, monkeypatch, tmp_path):
  """Freed memory is kept, as in a run."""
  kept, bench_atari, out = [], script("bench_atari"), tmp_path / "parts.json"
  monkeypatch.setattr(jax_process, "reuse_freed_memory", lambda: kept.append(True))
  monkeypatch.setattr(bench_atari, "agent_parts", lambda config: {"search": 1.0 * len(kept)})
  monkeypatch.setattr(sys, "argv", ["bench_atari", "atari/pong", *TINY, "--parts", "--json", str(out)])
  bench_atari.main()
  parts = json.loads(out.read_text())
  assert parts.pop("search") == 1.0
  assert {"emulator", "screens", "resizing", "new game"} <= set(parts)


@pytest.mark.slow
def test_search_and_update_of_an_atari_step(script):
  config = load_config("atari/pong", (*TINY, "network.channels=2"))
  assert set(script("bench_atari").agent_parts(config)) == {"search", "copies", "learning"}


def test_limits_of_an_atari_run(script):
  parts = {"emulator": 0.5, "search": 0.25, "copies": 0.25, "learning": 1.0}
  limits = script("bench_atari").limits_of(parts, samples_per_step=2.0, reuse=1.0, cores=3)
  assert limits == (3 / (0.25 + 0.5), 3 / (1.0 + 0.5))


@pytest.mark.slow
def test_reanalyze(script, catch, monkeypatch):
  bench = script("bench_reanalyze")
  monkeypatch.setattr(bench, "NUM_STEPS", 64)
  rates = bench.measure(catch, rounds=1, seconds=0.0)
  assert len(rates) == 9


@pytest.mark.slow
def test_rollout(script):
  bench = script("bench_rollout")
  config = load_config("minatar/breakout", (*TINY, "network.channels=2"))
  assert set(bench.measure(config, "gymnax:Breakout-MinAtar", False, 0.0)) == set(bench.KINDS)


@pytest.mark.slow
def test_acting_outside_the_search(script):
  costs = script("bench_acting").measure(load_config("minatar/breakout", TINY), rounds=2, seconds=0.0)
  assert list(costs) == ["package", "environment", "acting", "replay", "outside the search"]
  acting, replay, total = (costs[name] for name in ("acting", "replay", "outside the search"))
  assert total == [a + b for a, b in zip(acting, replay, strict=True)]


@pytest.mark.slow
def test_inference(script, catch):
  bench = script("bench_inference")
  for config in (catch, bench.slowed(catch)):
    with in_process_ray.connected() as ray:
      rates = bench.measure(ray, config, {"worker": 1, "server": 2}, rounds=1, num_segments=1)
      call = bench.start(ray, bench.settings(config, 2), 1)
      # Ray ends an actor without a handle; the handles of workers' clients do not count.
      assert inspect.getclosurevars(call).nonlocals["servers"]
    assert all(rate > 0 for case in rates.values() for rate in case)
    assert [name for name, _ in ray.made][:4] == [
      "TrainingWorker",
      "InferenceServer",
      *["TrainingWorker"] * 2,
    ]


def test_inference_with_several_numbers_of_environments(script, monkeypatch):
  bench, measured = script("bench_inference"), []

  def measure(ray, config, cases, rounds, num_segments):
    measured.append((config.workers.num_envs, list(cases), num_segments))
    return {name: [1.0] for name in cases}

  monkeypatch.setattr(bench, "measure", measure)
  monkeypatch.setattr(bench.cluster, "started", contextlib.nullcontext)
  arguments = ["tiny/catch", "workers.num_envs=8", "--segments", "16"]
  for more in ([], ["--num-envs", "4", "8", "--no-slow"]):
    monkeypatch.setattr(sys, "argv", ["x", *arguments, *more])
    bench.main()
  two, eight = (list(cases) for cases in (bench.MINATAR, bench.SLOW))
  assert measured == [(8, two, 16), (8, eight, 2), (4, two, 16), (8, two, 16)]


def test_inference_with_a_learner(script, monkeypatch):
  """The environments of a run are as many with a server; a setting may stand without a configuration."""
  bench, runs = script("bench_inference"), []
  measuring = sys.modules["measuring"]

  def end_to_end(config, overrides, seconds, batch_size):
    runs.append((config, overrides))
    return {"env_steps_per_s": 100.0 * len(runs)}

  monkeypatch.setattr(bench, "end_to_end", end_to_end)
  parser = measuring.make_parser("", "config/tiny/catch.yaml")
  for option, kind in (("--rounds", int), ("--learn-s", float)):
    parser.add_argument(option, type=kind)
  monkeypatch.setattr(sys, "argv", ["x", "workers.num_envs=8", "--rounds", "2", "--learn-s", "90"])
  measured = []
  measuring.report(parser, lambda args: measured.append(bench.measure_all(args)))
  assert measured == [{"with a learner": {"worker": [100.0, 300.0], "server, 2 workers": [200.0, 400.0]}}]
  assert [config for config, _ in runs] == ["config/tiny/catch.yaml"] * 4
  for _, overrides in runs[:2]:
    config = load_config("tiny/catch", [*overrides, "runtime=ray"])
    assert config.workers.num_workers * config.workers.num_envs == 8
  assert [f"acting.mode={mode}" in runs[n][1] for n, mode in enumerate(("worker", "server"))] == [True, True]


@pytest.mark.slow
def test_saving(script, catch):
  assert len(script("bench_saving").measure(catch, new_steps=16, count=1)) == 2


def test_passing(script, monkeypatch):
  """A segment of 16 steps and a call of 8 samples; each cost is one of a step or of a sample."""
  bench = script("bench_passing")
  monkeypatch.setattr(bench, "FILLED_STEPS", 64)
  costs = passing.Passing(passing.PassCost(1.0, 2.0), passing.PassCost(3.0, 4.0), 0.0)
  monkeypatch.setattr(passing, "measure_passing", lambda *_: costs)
  found = bench.measure_config(load_config("minatar/breakout", TINY), seconds=0.0)
  assert (found["segment_steps"], found["call_samples"]) == (16, 8)
  assert found["add_s_per_step"] == pytest.approx(1 / 16)
  assert found["draw_s_per_sample"] == found["join_s_per_sample"] == pytest.approx(1 / 8)
  assert found["pass_batch"] == {"driver_s": 3.0, "total_s": 4.0}
  # A frame has 400 bits; a sample has the bools of five.
  assert 50 < found["step_bytes"] < 200
  assert 5 * 400 < found["sample_bytes"] < 5 * 400 + 600


def test_parts_of_shards_are_joined_again(script, catch):
  bench, replay = script("bench_passing"), make_replay(catch, registry.env_spec("tiny:catch"), None)
  play = script("random_segments").RandomSegments("tiny:catch", {}, 4)
  for _ in range(8):
    replay.add(play.next(4), 0)
  targets = replay.sample_many(2, 4)
  joined = join(bench.parts_of(targets), 4, normalizes=False)
  for name, x in fields_of(targets).items():
    np.testing.assert_array_equal(fields_of(joined)[name], x, name)


def test_parts_of_a_gpu_run_have_seconds_for_a_step(script, catch):
  """Each call takes a second: a search of 4 environments, a segment of 16 steps, an update of 4 samples."""
  found, transfer_s = script("bench_gpu").parts(catch, 0.0)
  per_step = catch.learner.samples_per_step / 4
  assert found == {
    "search": 1 / 4,
    "environments": 1 / 4,
    "replay: add": 1 / 16,
    "replay: draw": per_step / 2,  # two batches in a call
    "update": per_step,
  }
  assert transfer_s == per_step


def test_the_gpu_is_that_of_the_inference_server(script):
  config = load_config("tiny/catch", (*TINY, "workers.resources.num_gpus=0.3"))
  bench = script("bench_gpu")
  one, several = bench.acting_config(config, 1), bench.acting_config(config, 2)
  assert (one.workers.resources.num_gpus, one.num_inference_servers) == (0.3, 0)
  assert (several.workers.resources.num_gpus, several.acting.resources.num_gpus) == (0.0, 0.3)
  assert (several.workers.num_workers, several.workers.num_envs) == (2, 2)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["parts", "modes", "learning"])
def test_the_gpu_script_runs_to_its_end_on_a_cpu(what, tmp_path):
  out = tmp_path / "figures.json"
  options = ["--rounds", "1", "--seconds", "60", "--json", str(out)]
  command = [sys.executable, "scripts/bench_gpu.py", what, "tiny/catch", *TINY, "max_env_steps=128", *options]
  subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
  figures = json.loads(out.read_text("utf-8"))["figures"]
  if what == "learning":
    assert [run["ticks"][-1]["env_steps"] for run in figures.values()] == [128, 128]
    assert all(run["evaluation"]["test_episodes"] for run in figures.values())
  else:
    rates = figures["seconds_per_step"] if what == "parts" else {name: min(x) for name, x in figures.items()}
    assert len(rates) == {"parts": 5, "modes": 2}[what]
    assert min(rates.values()) > 0


def test_memory(script):
  assert script("bench_memory").measure("tiny:catch", 1200, 4)["steps"] > 0


@pytest.mark.parametrize("config", ["config/minatar/breakout.yaml", "atari/pong"])
def test_commits_are_compared_on_a_configuration(script, monkeypatch, tmp_path, config):
  """Only Breakout gets the settings that it had in older commits."""
  compare = script("compare_commits")

  def train(tree, *arguments):
    assert arguments[0] == config
    assert set(compare.BREAKOUT).issubset(arguments) == (config == compare.BREAKOUT_CONFIG)
    (tmp_path / "run").mkdir()
    ticks = [{"wall_s": 50.0 + n, "env_steps": 1000 * n} for n in range(3)]
    (tmp_path / "run" / "metrics.jsonl").write_text("\n".join(map(json.dumps, ticks)))

  monkeypatch.setattr(compare, "_train", train)
  assert compare._steps_per_s(tmp_path, tmp_path, "run", config) == 1000


def test_a_closed_segment_follows_itself(script, catch):
  """Replay stores it again and again, without a refusal and without a cut episode."""
  spec = registry.env_spec(catch.env.name, **catch.env.arguments)
  play = script("random_segments").RandomSegments(catch.env.name, catch.env.kwargs, 4)
  first, second = play.next(4), play.next(4)
  segment = script("canned_actors").closed_segment(first)
  replay = make_replay(catch, spec, None)
  for _ in range(3):
    assert replay.add_or_refuse(segment, 0, 4, 16).num_lost == 0
  assert replay.stats()["replay/cut"] == 0
  with pytest.raises(ValueError, match="first steps"):
    script("canned_actors").closed_segment(second)


def test_the_control_plane_is_that_of_a_run(script, catch, monkeypatch):
  """Steps, segments and samples are counted in the window, and samples keep their ratio to steps."""
  bench = script("bench_scale")
  monkeypatch.setattr(bench, "WARM_UP_S", 0.0)
  # A millisecond for each event.
  monkeypatch.setattr(bench, "time", types.SimpleNamespace(monotonic=itertools.count(0.0, 1e-3).__next__))
  settings = ("logging.period_s=1e-9", "workers.num_workers=3", "learner.samples_per_step=0.5")
  config = load_config("tiny/catch", [*bench.SETTINGS, *TINY, *settings])
  with in_process_ray.connected() as ray:
    row = bench.measure_one(config, argparse.Namespace(seconds=0.3, act=1e-3, learn=1e-3, parameters=8))
  made = [name for name, _ in ray.made]
  assert {name: made.count(name) for name in made} == {
    "CannedServer": 1,
    "CannedWorker": 3,
    "ReplayActor": 1,
    "IdleTester": 1,
  }
  assert row["env_steps_per_s"] == pytest.approx(16 * row["segments_per_s"], rel=0.5)
  assert row["samples_per_s"] > 0
  assert set(row["busy"]) == {"parameter_server", REPLAY}


@pytest.mark.parametrize(
  ("busy", "used", "limit"),
  [
    ({"replay_buffer": 0.5}, {"driver": 0.2, "workers": 0.4}, "the wait"),
    ({"replay_buffer": 0.95}, {"driver": 0.2, "workers": 0.4}, "replay_buffer (busy)"),
    ({"replay_buffer": 0.5}, {"driver": 0.97, "workers": 0.4}, "driver"),
    ({"replay_buffer": 0.5}, {"driver": 0.6, "workers": 1.3}, "all 2 cores"),
  ],
)
def test_the_busiest_part_is_saturated_first(script, busy, used, limit):
  assert script("bench_scale").first_limit({"busy": busy, "cores": used}, cores=2) == limit


@pytest.mark.parametrize(
  ("command", "part"),
  [
    ("ray::CannedWorker.run", "workers"),
    ("ray::ReplayActor", "replay"),
    ("/usr/lib/ray/core/src/ray/raylet/raylet --socket=/tmp/ray::CannedWorker", "Ray"),
  ],
)
def test_processes_have_parts(script, command, part):
  assert script("bench_scale").part_of(command) == part


PASSING = (
  *("workers.num_envs=10", "workers.segment_length=10", "workers.num_workers=4", "runtime=ray"),
  *("learner.batch_size=10", "learner.updates_per_call=5", "learner.samples_per_step=2"),
  *("replay.min_steps_to_learn=1", "max_env_steps=1_000_000_000"),
)


@pytest.mark.parametrize(
  ("costs", "hardware", "rate"),
  [
    # Four workers make segments of 100 steps, and a call of the learner is due for each 25 steps.
    ({"act": (1.0, 0.0)}, (64, 1), 400),
    ({"act": (0.1, 0.0), "learn": (0.05, 0.0)}, (64, 1), 500),
    ({"act": (0.1, 0.1), "learn": (0.02, 0.02)}, (2, 1), 200 / 0.18),
    ({"act": (0.1, 0.1), "pass_segment": (0.01, 0.05)}, (2, 1), 200 / 0.15),
    ({"act": (0.1, 0.0), "segment_bytes": 125e6}, (64, 2), 1000),
    # Four threads; of four cores, all workers together have as much as one alone.
    ({"act": (0.5, 2.0)}, (64, 1), 800),
    ({"act": (0.5, 2.0)}, (4, 1), 200),
    # For each segment, replay passes on a segment and four batches of 25 MB.
    ({"act": (0.1, 0.0), "segment_bytes": 25e6, "batch_bytes": 25e6}, (64, 2), 1000),
  ],
)
def test_the_simulated_driver_keeps_the_limiting_part_busy(script, costs, hardware, rate):
  simulation = script("simulate_scale")
  made = {name: x if isinstance(x, float) else simulation.CallCost(*x) for name, x in costs.items()}
  config = load_config(None, PASSING)
  cpus, nodes = hardware
  run = simulation.SimulatedRun(
    config, simulation.PartCosts(**made), simulation.Hardware(cpus, 0, float("inf"), nodes)
  )
  assert run.steps_per_s(40.0) == pytest.approx(rate, rel=0.03)
  reuse = run.pacer.learn.done / run.pacer.env_steps
  assert reuse == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize(
  ("costs", "rate"),
  [
    # For each 100 steps, a shard of two adds half a segment, and draws half of four batches.
    ({"draw": (0.05, 0.0)}, 100 / (4 * 0.05 / 2)),
    # The shards pass on 125 MB for each 100 steps, and the parameter server receives 100 MB.
    ({"segment_bytes": 25e6, "batch_bytes": 25e6}, 1250),
  ],
)
def test_shards_divide_the_work(script, costs, rate):
  simulation = script("simulate_scale")
  made = {name: x if isinstance(x, float) else simulation.CallCost(*x) for name, x in costs.items()}
  config = load_config(None, [*PASSING, "ray.replay_shards=2"])
  hardware = simulation.Hardware(64, 0, float("inf"), nodes=2)
  all_costs = simulation.PartCosts(act=simulation.CallCost(0.1), **made)
  run = simulation.SimulatedRun(config, all_costs, hardware)
  assert run.steps_per_s(40.0) == pytest.approx(rate, rel=0.05)
  assert simulation.plan_of(config, all_costs, hardware, 0.0).steps_per_s == pytest.approx(rate)


def test_batches_wait_behind_segments_at_replay(script):
  """Replay makes its calls in order, so that a run can be slower than its slowest part alone."""
  simulation = script("simulate_scale")
  costs = simulation.PartCosts(act=simulation.CallCost(0.1), add=simulation.CallCost(0.05))
  hardware = simulation.Hardware(64, 0, float("inf"))
  rate = simulation.SimulatedRun(load_config(None, PASSING), costs, hardware).steps_per_s(40.0)
  assert 1500 < rate < 1900 < 2000 == 100 / 0.05


def test_rows_of_the_benchmark_are_simulated(script):
  """With the times of its own row, a run that waits for its workers is as fast as measured."""
  simulation = script("simulate_scale")
  rows = [
    {
      "workers": workers,
      "env_steps_per_s": 10_000.0 * workers,
      "segments_per_s": 9.8 * workers,
      "samples_per_s": 2500.0 * workers,
      "cores": dict.fromkeys(("driver", "replay", "workers", "server", "Ray"), 0.01 * workers),
    }
    for workers in (1, 4)
  ]
  found = {
    "cores": 2,
    "config": "minatar/freeway",
    "overrides": [],
    "act_s": 0.1,
    "learn_s": 0.02,
    "rows": rows,
  }
  for row in simulation.compare(found, base=1, seconds=10.0):
    assert row["simulated"] == pytest.approx(row["measured"], rel=0.05)
    assert row["formula"] == pytest.approx(row["measured"], rel=0.05)

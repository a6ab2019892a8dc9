"""Tests of predictions from costs that are made by hand."""

import dataclasses
import math
import re

import pytest

from moozi.core.actor_report import REANALYZE_WORKER, REPLAY, SERVER, TESTING_WORKER, WORKER
from moozi.io.config import load_config
from moozi.training import sizing
from moozi.training.sizing import CORES, DRIVER, NETWORK, CallCost, Hardware, PartCosts

# Segments of 100 steps; a call of the learner is of 50 samples, and one is due for each 25 steps.
SETTINGS = (
  *("workers.num_envs=10", "workers.segment_length=10", "workers.num_workers=4"),
  *("learner.batch_size=10", "learner.updates_per_call=5", "learner.samples_per_step=2"),
)
COSTS = PartCosts(
  act=CallCost(1.0, 1.1),
  learn=CallCost(0.05, 0.08),
  add=CallCost(0.01, 0.01),
  draw=CallCost(0.005, 0.005),
  reanalyze=CallCost(0.5, 0.6),
  pass_segment=CallCost(0.002, 0.01),
  pass_batch=CallCost(0.001, 0.02),
  segment_bytes=2 * 2**20,
  batch_bytes=3 * 2**20,
  parameter_bytes=2**20,
  memory_mib={WORKER: 300.0, SERVER: 500.0, REPLAY: 100.0, REANALYZE_WORKER: 250.0, DRIVER: 200.0},
)
SMALL = Hardware(cpus=2, gpus=0, memory_mib=4096.0)
LARGE = Hardware(cpus=64, gpus=8, memory_mib=65536.0)


def config_of(*overrides):
  return load_config(None, [*SETTINGS, "runtime=ray", *overrides])


def test_each_resource_allows_its_own_rate():
  """Of 100 steps: one segment, four calls of the learner."""
  limits = sizing.limits_of(config_of(), COSTS, SMALL)
  assert limits[WORKER] == pytest.approx(4 * 100 / 1.0)
  assert limits[SERVER] == pytest.approx(100 / (4 * 0.05))
  assert limits[REPLAY] == pytest.approx(100 / (0.01 + 4 * 0.005))
  assert limits[DRIVER] == pytest.approx(100 / (0.002 + 4 * 0.001))
  busy_s = 1.1 + 0.01 + 0.01 + 4 * (0.08 + 0.005 + 0.02)
  assert limits[CORES] == pytest.approx(2 * 100 / busy_s)
  assert limits[REANALYZE_WORKER] == math.inf
  assert NETWORK not in limits


def test_shards_divide_the_work_and_the_steps_of_replay():
  config = config_of("ray.replay_shards=4")
  assert sizing.limits_of(config, COSTS, SMALL)[REPLAY] == pytest.approx(4 * 100 / (0.01 + 4 * 0.005))
  assert sizing.memory_of(config, COSTS, stored_mib=1000.0)[REPLAY] == (4, 350.0)


def test_the_smallest_rate_is_the_run():
  assert sizing.plan_of(config_of(), COSTS, SMALL, 0).limit == CORES
  plan = sizing.plan_of(config_of("max_env_steps=1_440_000"), COSTS, LARGE, 0)
  assert (plan.limit, plan.steps_per_s) == (WORKER, pytest.approx(400))
  assert plan.hours == pytest.approx(1.0)
  many = sizing.plan_of(config_of("workers.num_workers=6", "ray.num_cpus=64"), COSTS, LARGE, 0)
  assert (many.limit, many.steps_per_s) == (SERVER, pytest.approx(500))


@pytest.mark.parametrize(
  ("act_s", "learn_s", "limits"),
  [
    # Alone, a step takes 2.5 ms of acting and 2 ms of learning.
    (1.0, 0.05, (400, 500)),
    # Beside acting, learning takes 3 ms; acting works for 2.5 ms of each step.
    (1.0, 0.075, (400, 1000 / 2.87083)),
    (1.2, 0.05, (1000 / 2.85078, 500)),
    # Acting always works while learning does, which is then as slow as it was measured.
    (4.0, 0.1, (1000 / 6.86805, 250)),
  ],
)
def test_parts_take_cores_from_each_other(act_s, learn_s, limits):
  """Of 100 steps: one segment of four workers, four calls of the learner."""
  costs = PartCosts(
    act=CallCost(1.0, 1.1, crowded_s=act_s),
    learn=CallCost(0.05, 0.08, crowded_s=learn_s),
    crowded_cpus=2,
  )
  found = sizing.limits_of(config_of(), costs, SMALL)
  assert (found[WORKER], found[SERVER]) == pytest.approx(limits, rel=1e-4)
  # More cores than those of the machine that measured are free.
  free = sizing.limits_of(config_of(), costs, Hardware(cpus=3, gpus=0, memory_mib=4096.0))
  assert (free[WORKER], free[SERVER]) == pytest.approx((400, 500))


def test_replay_and_passing_take_cores_too():
  """Of 100 steps, 0.03 s of processor time of replay and 0.09 s of passing, beside 1 s of acting."""
  slow = CallCost(0.05, 0.08, crowded_s=0.1)
  alone = dataclasses.replace(COSTS, act=CallCost(), learn=slow, crowded_cpus=2)
  # A learner on one core has 2 ms alone and 4 ms crowded; the others work for 1.2 ms of each step.
  found = sizing.limits_of(config_of("ray.learner.num_threads=1"), alone, SMALL)
  assert found[SERVER] == pytest.approx(2000 / (2 + math.sqrt(4 + 4 * 2 * 1.2)))
  # On all cores it waits for them.
  assert sizing.limits_of(config_of(), alone, SMALL)[SERVER] == pytest.approx(1000 / 3.2)


def test_idle_processes_use_cores():
  found = sizing.limits_of(config_of(), dataclasses.replace(COSTS, idle_cores=0.5), SMALL)[CORES]
  assert found == pytest.approx(0.75 * sizing.limits_of(config_of(), COSTS, SMALL)[CORES])


def test_workers_that_are_enough_feed_the_slowest_other_resource():
  assert sizing.enough_workers(config_of(), COSTS, LARGE) == 5
  assert sizing.enough_workers(config_of("workers.num_workers=1"), COSTS, LARGE) == 5
  assert sizing.enough_workers(config_of("runtime=local"), COSTS, LARGE) is None


def test_reanalyze_searches_its_share_of_positions():
  """With ratio 0.75, three positions are searched for each step: 300 of 100 steps, in 6 calls of 50."""
  config = config_of("reanalyze.ratio=0.75", "reanalyze.batch_size=50", "reanalyze.num_workers=2")
  limits = sizing.limits_of(config, COSTS, SMALL)
  assert limits[REANALYZE_WORKER] == pytest.approx(100 / (6 * 0.5 / 2))
  without = sizing.limits_of(config_of(), COSTS, SMALL)[CORES]
  assert 200 / limits[CORES] - 200 / without == pytest.approx(6 * 0.6)


def test_parts_of_one_process_take_turns():
  plan = sizing.plan_of(config_of("runtime=local"), COSTS, SMALL, 0)
  assert plan.steps_per_s == pytest.approx(100 / (1.0 + 0.01 + 4 * (0.05 + 0.005)))
  assert plan.limit == WORKER
  assert plan.placement == ()
  # Ray's calls cost nothing.
  assert DRIVER not in plan.limits


def test_calls_of_one_process_add_up_to_a_step():
  """Of 100 steps: one segment, four calls of the learner."""
  config = config_of("runtime=local")
  step_s = sizing.step_s_by_call(config, COSTS)
  assert step_s["act"] == pytest.approx(1.0 / 100)
  assert step_s["learn"] == pytest.approx(4 * 0.05 / 100)
  assert step_s["reanalyze"] == 0
  alone = dataclasses.replace(COSTS, pass_segment=CallCost(), pass_batch=CallCost())
  whole = sum(sizing.step_s_by_call(config, alone).values())
  assert whole == pytest.approx(1 / sizing.plan_of(config, COSTS, SMALL, 0).steps_per_s)


def test_calls_of_several_processes_have_their_processor_time():
  """With ratio 0.75, 300 positions are searched for 100 steps, in 6 calls of 50."""
  step_s = sizing.step_s_by_call(config_of("reanalyze.ratio=0.75", "reanalyze.batch_size=50"), COSTS)
  assert step_s == pytest.approx(
    {
      "act": 1.1 / 100,
      "add": 0.01 / 100,
      "pass_segment": 0.01 / 100,
      "learn": 4 * 0.08 / 100,
      "draw": 4 * 0.005 / 100,
      "pass_batch": 4 * 0.02 / 100,
      "reanalyze": 6 * 0.6 / 100,
    }
  )


def test_rounds_of_ppo_wait_for_their_updates():
  """A round is of four segments of 100 steps, which act at the same time as far as there are cores."""
  config = config_of("algorithm=ppo", "ppo.num_envs=40", "ppo.segment_length=10")
  costs = PartCosts(act=CallCost(1.0, 1.2), learn=CallCost(0.6, 0.9), pass_segment=CallCost(0.01, 0.05))
  assert sizing.plan_of(config, costs, LARGE, 0).steps_per_s == pytest.approx(400 / (1.0 + 0.6 + 0.04))
  assert sizing.plan_of(config, costs, SMALL, 0).steps_per_s == pytest.approx(400 / (2.4 + 0.6 + 0.04))


def test_bytes_between_nodes():
  """Of 100 steps: a segment of 2 MiB and four batches of 3 MiB, at 10 Gbit/s."""
  limits = sizing.limits_of(config_of(), COSTS, Hardware(64, 8, 65536.0, nodes=2))
  assert limits[NETWORK] == pytest.approx(100 * 10e9 / (8 * 14 * 2**20))


@pytest.mark.parametrize(("shards", "nodes", "mib"), [(1, 4, 14), (2, 4, 12), (4, 8, 12), (4, 1, None)])
def test_shards_divide_the_bytes_that_replay_passes_on(shards, nodes, mib):
  """The parameter server receives 12 MiB for 100 steps; with one shard, replay passes on 14 MiB."""
  config = config_of(f"ray.replay_shards={shards}")
  limits = sizing.limits_of(config, COSTS, Hardware(64, 8, 65536.0, nodes=nodes))
  expected = None if mib is None else pytest.approx(100 * 10e9 / (8 * mib * 2**20))
  assert limits.get(NETWORK) == expected


def test_memory_by_process():
  memory = sizing.memory_of(config_of(), COSTS, stored_mib=1000.0)
  assert memory == {
    DRIVER: (1, 200.0),
    SERVER: (1, 500.0),
    REPLAY: (1, 1100.0),
    WORKER: (4, 300.0),
    TESTING_WORKER: (1, 300.0),
  }


def test_one_process_has_the_libraries_once():
  memory = sizing.memory_of(config_of("runtime=local"), COSTS, stored_mib=1000.0)
  assert memory == {sizing.RUN_PROCESS: (1, 200.0 + 100.0 + 300.0 + 50.0 + 1000.0)}


def test_objects_in_flight():
  """Two segments in flight at each of four workers and one more being read, two batches twice, parameters."""
  assert sizing.object_store_mib(config_of(), COSTS) == 4 * 3 * 2 + 2 * 2 * 3 + 2
  assert sizing.object_store_mib(config_of("runtime=local"), COSTS) == 0


@pytest.mark.parametrize(("workers", "testing_node"), [(2, 0), (3, 1), (5, 1)])
def test_workers_are_spread_and_other_actors_stay_on_a_node_until_half_is_reserved(workers, testing_node):
  resources = ("workers.resources.num_cpus=1", "evaluation.resources.num_cpus=0.5")
  config = config_of(f"workers.num_workers={workers}", *resources)
  plan = sizing.plan_of(config, COSTS, Hardware(5, 0, 65536.0, nodes=2), 0)
  # The learner reserves a core, and replay an eighth of one. With three workers, 3.125 of the first node's 5
  # cores are reserved.
  expected = {SERVER: 1, REPLAY: 1, WORKER: (workers + 1) // 2}, {WORKER: workers // 2}
  expected[testing_node][TESTING_WORKER] = 1
  assert plan.placement == expected
  assert plan.warnings == ()


def test_actors_that_are_spread_are_placed_on_nodes_that_have_room():
  resources = ("workers.resources.num_cpus=1", "ray.learner.num_cpus=4.5")
  config = config_of("workers.num_workers=4", *resources)
  nodes, unplaced = sizing.place(config, Hardware(5, 0, 65536.0, nodes=2))
  assert [node[WORKER] for node in nodes] == [0, 4]
  assert unplaced == []


def test_shards_are_placed_on_different_nodes():
  config = config_of(
    *("workers.num_workers=3", "workers.resources.num_cpus=2", "ray.replay_shards=3"),
    *("ray.learner.num_cpus=1", "ray.replay.num_cpus=1", "evaluation.resources.num_cpus=0.5"),
  )
  nodes, unplaced = sizing.place(config, Hardware(4, 0, 65536.0, nodes=3))
  assert [node[REPLAY] for node in nodes] == [1, 1, 1]
  assert unplaced == []
  nodes, _ = sizing.place(config, Hardware(8, 0, 65536.0, nodes=2))
  assert [node[REPLAY] for node in nodes] == [2, 1]
  # Without shards, replay is on the first node with room.
  nodes, _ = sizing.place(config_of("ray.learner.num_cpus=4"), Hardware(4, 0, 65536.0, nodes=2))
  assert [node[REPLAY] for node in nodes] == [0, 1]


@pytest.mark.parametrize(
  ("overrides", "hardware", "text"),
  [
    (["workers.num_workers=9"], SMALL, "the actors request .* the Ray cluster has 2; set ray.num_cpus="),
    (
      ["ray.learner.num_gpus=1"],
      Hardware(64, 0, 65536.0),
      r"the actors request 1 GPUs \(ray.learner.num_gpus: 1\)",
    ),
    (["ray.object_store_mib=20"], LARGE, "ray.object_store_mib=20: objects in flight take 38 MiB"),
    ([], Hardware(64, 0, 1024.0), "node 0: its processes need 2.3 GiB; it has 1.0 GiB"),
    (["runtime=local"], Hardware(64, 0, 128.0), "node 0: its processes need 0.6 GiB; it has 0.1 GiB"),
    (
      ["ray.learner.num_cpus=6"],
      Hardware(4, 0, 65536.0, nodes=4),
      "parameter_server: no node has room for 1 of 1; use smaller ray.learner",
    ),
  ],
)
def test_a_run_that_does_not_fit_is_warned_of(overrides, hardware, text):
  plan = sizing.plan_of(config_of(*overrides), COSTS, hardware, 0)
  (warning,) = plan.warnings
  assert re.search(text, warning), warning


def test_short_segments_are_warned_of():
  """Of 100 steps, parts take 1.45 s of processor time; passing may take a third of that."""
  for passing_s, warnings in ((0.48, 0), (0.50, 1)):
    costs = dataclasses.replace(COSTS, pass_segment=CallCost(0.002, passing_s), pass_batch=CallCost())
    found = sizing.plan_of(config_of(), costs, LARGE, 0).warnings
    assert [text.partition(" ")[0] for text in found] == ["26%"] * warnings


def test_what_costs_nothing_has_no_limit():
  plan = sizing.plan_of(config_of(), PartCosts(), SMALL, 0)
  assert plan.steps_per_s == math.inf
  assert plan.hours == 0

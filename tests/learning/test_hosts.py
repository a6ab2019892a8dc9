"""Tests of learners on several hosts: two processes of `jax.distributed`, which gloo connects."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from moozi.agent.devices import OneDevice, devices_of
from moozi.core.config import LearnerConfig
from moozi.io.machine import free_port
from tests.learning.many_devices import difference
from tests.learning.test_devices import GRADIENTS, REST, UPDATE_NORM
from tests.learning.two_hosts import CASES
from tests.long.test_catch import train
from tests.run_events import assert_equal_trees

ROOT = Path(__file__).parents[2]
TWO = "--xla_force_host_platform_device_count=2"
# Most of the time is that of compiling.
FLAGS = f"{TWO} --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"


def start(folder: Path, name: str, port: int = 0) -> subprocess.Popen:
  command = [sys.executable, "-m", "tests.learning.two_hosts", str(folder), name, str(port)]
  env = os.environ | {"XLA_FLAGS": FLAGS, "JAX_PLATFORMS": "cpu"}
  return subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
  """Returns what each process of `two_hosts` writes, by name; the hosts are 0 and 1."""
  folder, port = tmp_path_factory.mktemp("hosts"), free_port("127.0.0.1")
  for names in (["one"], ["0", "1"], ["again"]):
    processes = [start(folder, name, port if len(names) > 1 else 0) for name in names]
    try:
      for process in processes:
        _, err = process.communicate(timeout=560)
        assert process.returncode == 0, err
    finally:
      for process in processes:
        process.kill()
  return {path.stem: pickle.loads(path.read_bytes()) for path in folder.glob("*.pickle")}


@pytest.mark.slow
def test_an_update_of_two_hosts_is_that_of_one_up_to_the_order_of_sums(found):
  one, first = found["one"]["outcomes"], found["0"]["outcomes"]
  assert one.keys() == first.keys()
  assert set(CASES) < one.keys()
  for case, expected in one.items():
    assert {"gradients", "params", "priorities", "metrics loss/total"} <= expected.keys()
    bounds = dict.fromkeys(expected, REST) | {
      "step": 0,
      "gradients": GRADIENTS,
      "metrics update/update_norm": UPDATE_NORM,
    }
    for name, value in expected.items():
      if any(np.any(x) for x in jax.tree_util.tree_leaves(value)):
        assert difference(value, first[case][name]) <= bounds[name], f"{case}: {name}"


@pytest.mark.slow
def test_both_hosts_have_the_same_state(found):
  for name in ("outcomes", "first", "from one", "from two"):
    assert_equal_trees(found["0"][name], found["1"][name])


@pytest.mark.slow
def test_a_checkpoint_is_read_with_another_number_of_hosts(found):
  assert difference(found["one"]["from one"], found["0"]["from one"]) <= REST
  assert difference(found["0"]["from two"], found["again"]["from two"]) <= REST
  assert difference(found["0"]["first"], found["0"]["from two"]) > 100 * REST
  # Two updates, five versions that were skipped, and two updates.
  assert found["again"]["from two"]["step"] == 2 + 5 + 2
  assert found["0"]["from one"]["net_state"]["discount"] == np.float32(0.9)


@pytest.mark.slow
def test_both_hosts_have_the_rate_of_the_time(found):
  """After a quarter of the time, a linear rate from 1e-4 to 0."""
  for name in ("one", "0", "1"):
    assert found[name]["from one"]["rate"] == pytest.approx(0.75e-4)


@pytest.mark.slow
def test_hosts_listen_at_their_own_address(found):
  for host in ("0", "1"):
    assert found[host]["listens"]
    assert found[host]["listens"] <= {"127.0.0.1", "::ffff:127.0.0.1"}


@pytest.mark.learning
def test_catch_on_two_hosts(tmp_path):
  """The samples are those of `test_catch`, in a quarter of the updates: each is a sum over both hosts."""
  options = ["runtime=ray", "ray.num_cpus=4", "learner.num_hosts=2", "ray.learner.num_threads=1"]
  batches = ["learner.batch_size=256", "learner.learning_rate.peak=4e-3"]
  schedule = ["learner.learning_rate.decay_steps=1_900", "ray.publish_period_updates=16"]
  # The best return is 1; random play has about -0.6.
  assert train(tmp_path, *options, *batches, *schedule)["test_return_mean"] >= 0.9
  starts = (tmp_path / "one" / "logs" / "parameter_server_1.log").read_text()
  assert starts.count("ready at learner step 0") == 1


def test_a_process_alone_has_its_own_devices():
  """Such as one that checks the settings of a run on several hosts."""
  assert isinstance(devices_of(LearnerConfig(num_hosts=2)), OneDevice)

"""Tests of learners on several devices, of micro-batches of an update, and of their refusals."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.learning.many_devices import CASES
from tests.long.test_catch import train
from tests.tiny_run import TINY

ROOT = Path(__file__).parents[2]
FOUR = "--xla_force_host_platform_device_count=4"
# Most of the time is that of compiling.
FLAGS = f"{FOUR} --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
# Relative to the largest entry of a tree. Devices add the same numbers in another order.
GRADIENTS = 1e-6
# After Adam, which also makes steps of rounding noise; see `many_devices.known`.
REST, UPDATE_NORM = 5e-6, 1e-3


@pytest.fixture(scope="module")
def found(tmp_path_factory):
  """Returns the differences that `many_devices` prints."""
  command = [sys.executable, "-m", "tests.learning.many_devices", str(tmp_path_factory.mktemp("devices"))]
  env = os.environ | {"XLA_FLAGS": FLAGS}
  done = subprocess.run(command, capture_output=True, text=True, timeout=560, check=False, cwd=ROOT, env=env)
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout)


@pytest.mark.slow
def test_an_update_is_that_of_one_device_up_to_the_order_of_sums(found):
  updates = found["updates"]
  assert len(updates) == sum(map(len, CASES.values())) + 1
  for case, differences in updates.items():
    assert {"gradients", "params", "priorities", "metrics loss/total"} <= differences.keys()
    assert differences["step"] == 0
    bounds = dict.fromkeys(differences, REST) | {
      "gradients": GRADIENTS,
      "metrics update/update_norm": UPDATE_NORM,
    }
    for name, difference in differences.items():
      assert difference <= bounds[name], f"{case}: {name}"


@pytest.mark.slow
def test_each_device_computes_its_share(found):
  """The optimizer's step is computed on each device, so a share is more than a quarter."""
  assert 0.2 < found["share_of_work"] < 0.6


@pytest.mark.slow
def test_a_checkpoint_is_read_with_another_number_of_devices(found):
  assert found["checkpoints"].keys() == {"four to one", "one to four"}
  for differences in found["checkpoints"].values():
    assert differences["read"] == 0
    assert differences["next"] <= REST


@pytest.mark.learning
def test_catch_on_four_devices(tmp_path, monkeypatch):
  monkeypatch.setenv("XLA_FLAGS", FOUR)
  assert train(tmp_path, "runtime=local", "learner.num_devices=4")["test_return_mean"] >= 0.95


@pytest.mark.parametrize("runtime", ["local", "ray"])
def test_more_devices_than_the_process_has(refused, tmp_path, runtime):
  line = refused(
    "train", "tiny/catch", *TINY, f"runtime={runtime}", f"run.dir={tmp_path}", "learner.num_devices=8"
  )
  assert line == (
    "moozi: error: learner.num_devices=8: the learner's process has 1 CPU device; must be at most 1. With "
    "runtime=ray, ray.learner.num_gpus gives it GPUs\n"
  )
  assert not list(tmp_path.iterdir())

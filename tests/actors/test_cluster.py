"""Tests of the checks of actor resources and of the cluster's address."""

import socket

import pytest

from moozi.actors import cluster
from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.io.config import load_config


def test_default_fits_two_cores():
  cluster.check_resources(Config(), {"CPU": 2.0})
  cluster.check_resources(load_config(None, ["reanalyze.ratio=0.5"]), {"CPU": 2.0})


def test_too_many_cpus_are_named():
  config = load_config(None, ["workers.num_workers=30", "workers.num_envs=4"])
  with pytest.raises(
    UserError, match=r"16.25 CPUs.*ray.learner.num_cpus: 1.*workers.resources.num_cpus: 15.*has 2"
  ):
    cluster.check_resources(config, {"CPU": 2.0})


def test_gpus_are_counted_separately():
  config = load_config(None, ["ray.learner.num_gpus=1"])
  with pytest.raises(UserError, match=r"1 GPUs.*has 0"):
    cluster.check_resources(config, {"CPU": 8.0})
  cluster.check_resources(config, {"CPU": 8.0, "GPU": 1.0})


def test_a_note_says_that_gpus_are_idle():
  available = {"CPU": 8.0, "GPU": 2.0}
  note = cluster.idle_gpu_note(Config(), available)
  assert note == ("GPUs that no actor uses: 2; with ray.learner.num_gpus=1 learning uses one (docs/faq.md)")
  assert cluster.idle_gpu_note(load_config(None, ["workers.resources.num_gpus=0.1"]), available) is None
  assert cluster.idle_gpu_note(Config(), {"CPU": 8.0}) is None


def test_every_actor_is_counted():
  config = Config()
  total = sum(count * share.num_cpus for count, share in cluster.demands(config).values())
  parts = (config.ray.learner, config.ray.replay, config.workers.resources, config.evaluation.resources)
  assert total == sum(part.num_cpus for part in parts)


def test_reanalyze_workers_are_counted():
  shares = ["reanalyze.num_workers=3", "reanalyze.resources.num_cpus=1"]
  cluster.check_resources(load_config(None, shares), {"CPU": 2.0})
  with pytest.raises(UserError, match=r"reanalyze.resources.num_cpus: 3"):
    cluster.check_resources(load_config(None, [*shares, "reanalyze.ratio=0.5"]), {"CPU": 2.0})


def test_workers_of_offline_learning_are_not_counted():
  overrides = ["workers.num_workers=4", "workers.resources.num_cpus=1", "offline.trajectories=runs/old"]
  cluster.check_resources(load_config(None, [*overrides, "offline.fraction=1"]), {"CPU": 2.0})
  with pytest.raises(UserError, match=r"workers.resources.num_cpus: 4"):
    cluster.check_resources(load_config(None, [*overrides, "offline.fraction=0.5"]), {"CPU": 2.0})


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_no_cluster_at_the_address(scheme):
  with socket.socket() as closed:
    closed.bind(("127.0.0.1", 0))
    address = f"{scheme}127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(UserError, match=rf"ray\.address='{address}': no Ray cluster answers"):
      cluster._check_reachable(address)


def test_only_host_and_port_are_checked():
  cluster._check_reachable("auto")

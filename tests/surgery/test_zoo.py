"""Surgery on the agents of the zoo, whose networks are trained, keeps their outputs."""

import pytest

from moozi.io.checkpoints import list_checkpoints
from moozi.io.config import config_to_dict, load_config
from moozi.io.run_directory import RunDirectory
from moozi.io.zoo_files import agent_names
from moozi.run import build
from moozi.surgery.check import TOLERANCE
from moozi.training.surgery import operate_on

pytestmark = pytest.mark.slow


def operate(name, change):
  directory = RunDirectory.open(f"zoo:{name}")
  config = directory.load_config()
  start = {"checkpoint": {"start_from": f"zoo:{name}", "surgery": True}}
  new = load_config(None, [config_to_dict(config), start, change(config)])
  (info,) = list_checkpoints(directory.checkpoints_path)
  return operate_on(info, new, build.env_spec(new))


def enlarged(config):
  network = config.network
  sizes = {name: 2 * getattr(network, name) for name in ("latent_size", "head_size", "channels")}
  return {
    "network": sizes | {"num_prediction_blocks": network.num_prediction_blocks + 1},
    "targets": {"history_length": config.targets.history_length + 1},
    "scalar_transform": {"support_max": config.scalar_transform.support_max + 10},
  }


@pytest.mark.parametrize("name", agent_names())
def test_larger_networks_compute_the_same(name):
  operation = operate(name, enlarged)
  assert not operation.lost
  assert operation.differences.largest < 1e-6


@pytest.mark.parametrize("name", agent_names())
def test_chance_nodes_compute_nearly_the_same(name):
  config = RunDirectory.open(f"zoo:{name}").load_config()
  if config.network.kind == "resnet":
    return  # it has no chance nodes
  operation = operate(name, lambda config: {"chance": {"codes": 8}})
  assert operation.differences.largest < 3e-5
  assert bool(operation.lost) == (operation.differences.largest > TOLERANCE)

"""Learns on two hosts or on one, and writes what the updates give.

`test_hosts` runs this module in processes of its own: twice as the hosts 0 and 1, and as one host. In each
process, XLA makes two devices of the CPU.

    XLA_FLAGS=--xla_force_host_platform_device_count=2 python -m tests.learning.two_hosts FOLDER NAME PORT
"""

import pickle
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import psutil

from moozi.actors.remote.learner_hosts import divided
from moozi.agent.devices import devices_of
from moozi.io.checkpoints import expected_of, load_checkpoint, path_of, save_checkpoint
from moozi.io.config import load_config
from moozi.io.jax_process import HostOf, join
from moozi.run import build
from moozi.training.algorithms import algorithm_of
from tests.learning.many_devices import COMMON, FAMILIES, U, known, make_batch, make_learner, outcome

LATE_S = 35
# By family, the settings of the learner on two hosts. On one host it has the default ones.
CASES: dict[str, dict[str, int]] = {
  "batch_norm": {},
  "centred": {"num_devices": 2, "accumulate": 2},
}


def configure(family: str, num_hosts: int) -> Any:
  """Returns a configuration whose parameters carry the discount, and whose rate follows the time."""
  learner = CASES[family] | {"num_hosts": num_hosts} if num_hosts > 1 else {}
  schedule = "targets.discount_schedule=[{env_steps: 9, discount: 0.9}]"
  settings = [f"learner.{key}={value}" for key, value in learner.items()]
  rate = ("learner.learning_rate.kind=linear", "learner.learning_rate.decay_steps=progress", "max_wall_s=60")
  return load_config(None, [*COMMON, *FAMILIES[family], schedule, *rate, *settings])


def compare(num_hosts: int, index: int) -> dict[str, Any]:
  """Returns the outcome of updates by case."""
  found = {}
  for family in CASES:
    config = configure(family, num_hosts)
    batch = make_batch(config)
    own = divided(batch, num_hosts)[index]
    found[family] = outcome(config, batch, own)
    if family == "batch_norm":
      # As on a GPU: all updates in one compiled scan.
      with mock.patch.object(jax, "default_backend", return_value="gpu"):
        found[f"{family} scan"] = outcome(config, batch, own)
  return found


def train(folder: Path, source: str | None, target: str, num_hosts: int, index: int) -> Any:
  """Makes updates from the checkpoint `source`, or from a perturbed state, with another discount and rate.

  Host 0 writes the checkpoint `target`.

  Returns: the last state, in which parameters whose gradient is rounding noise are 0, and the rate.
  """
  config = configure("batch_norm", num_hosts)
  spec, learner, batch = build.env_spec(config), make_learner(config), make_batch(config)
  expected = expected_of(config, spec)
  learner.warm_up()
  if source is not None:
    template = algorithm_of(config).training_state_template(config, spec)
    saved = load_checkpoint(path_of(folder, source), template, expected)
    learner.start_from(jax.device_get(saved), int(saved.learner_step) + 5)
  learner.set_discount(0.9)
  learner.set_time_share(0.25)
  own = divided(batch, num_hosts)[index]
  _, metrics = learner.update(batch, own)
  state = learner.get_state()
  if index == 0:
    save_checkpoint(folder, target, state, {"env_steps": 1, "learner_steps": U} | expected)
  own = {"step": state.learner_step, "rate": metrics["update/learning_rate"], "net_state": state.net_state}
  return own | {"params": known(state.params, state)}


def main() -> None:
  folder, name, port = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
  num_hosts, index = (2, int(name)) if port else (1, 0)
  if port:
    join(HostOf(f"127.0.0.1:{port}", "127.0.0.1", index, 2))
    assert not jax.config.jax_enable_compilation_cache
    for family in CASES:
      devices_of(configure(family, num_hosts).learner).connect()
    # One host compiles for longer than gloo waits in a first sum.
    time.sleep(LATE_S * index)
  assert len(jax.local_devices()) == 2
  assert len(jax.devices()) == 2 * num_hosts
  found: dict[str, Any] = {}
  if name == "again":
    found["from two"] = train(folder, "two.1", "one.2", num_hosts, index)
  else:
    found["outcomes"] = compare(num_hosts, index)
    target = "one.1" if num_hosts == 1 else "two.1"
    found["first"] = train(folder, None, target, num_hosts, index)
  if port:
    found["from one"] = train(folder, "one.1", "two.2", num_hosts, index)
    found["from two"] = train(folder, "two.1", "two.3", num_hosts, index)
    connections = psutil.Process().net_connections("inet")
    found["listens"] = {c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN}
  elif name == "one":
    found["from one"] = train(folder, "one.1", "one.3", num_hosts, index)
  (folder / f"{name}.pickle").write_bytes(pickle.dumps(found))


if __name__ == "__main__":
  main()

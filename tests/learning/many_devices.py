"""Compares learners on several devices with a learner on one, and prints the differences as JSON.

`test_devices` runs this module in a process of its own, in which XLA makes four devices of the CPU.

    XLA_FLAGS=--xla_force_host_platform_device_count=4 python -m tests.learning.many_devices FOLDER
"""

import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np

from moozi.agent.devices import devices_of
from moozi.agent.update import make_update
from moozi.baselines.q_learning import algorithm as q_learning
from moozi.baselines.q_learning.update import QBatch
from moozi.core.pytree import map_fields, replace
from moozi.io.checkpoints import expected_of, load_checkpoint, save_checkpoint
from moozi.io.config import load_config
from moozi.learning.learner import Learner
from moozi.run import build
from moozi.training.algorithms import algorithm_of
from moozi.training.speed import make_targets
from tests.tiny_run import TINY, shaken

U, B = 2, 16
COMMON = (
  *TINY,
  "learner.learning_rate.peak=1e-4",
  "targets.unroll_steps=1",
  f"learner.updates_per_call={U}",
  f"learner.batch_size={B}",
)
FAMILIES = {
  "batch_norm": ("network.norm=batch", "learner.target_decay=0.9", "learner.max_shift=1"),
  "centred": ("network.center_frames=true", "learner.intensity_jitter=0.05", "learner.max_shift=1"),
  "chance": ("chance.codes=2", "network.center_frames=true"),
  "q_learning": ("algorithm=q_learning", "q_learning.network.hidden_sizes=[16]", "learner.max_grad_rms=1"),
}
CASES = {
  "batch_norm": ({"num_devices": 2}, {"num_devices": 4}),
  "centred": ({"accumulate": 2}, {"num_devices": 2, "accumulate": 4}),
  "chance": ({"num_devices": 2, "accumulate": 2},),
  "q_learning": ({"num_devices": 4}, {"num_devices": 2, "accumulate": 2}),
}


def configure(family: str, **learner: int) -> Any:
  return load_config(None, [*COMMON, *FAMILIES[family], *(f"learner.{k}={v}" for k, v in learner.items())])


def make_learner(config: Any) -> Learner:
  """Returns a learner with perturbed parameters: with initial ones, most outputs are equal."""
  builder = q_learning if config.algorithm == "q_learning" else build
  learner = builder.build_learner(config, build.env_spec(config))
  state = learner.get_state()
  params = shaken(state.params)
  targets = {} if state.target_params is None else {"target_params": shaken(state.target_params, 1)}
  learner.set_state(replace(state, params=params, **targets))
  return learner


def make_batch(config: Any) -> Any:
  """Returns U batches with masked steps, different importance ratios, and for Q-learning last frames."""
  spec, random = build.env_spec(config), np.random.default_rng(1)
  targets = make_targets(config, spec, (U, B))
  targets = replace(
    targets,
    unroll_mask=(random.random(targets.unroll_mask.shape) < 0.7).astype(np.float32),
    consistency_mask=(random.random((U, B)) < 0.7).astype(np.float32),
    importance_ratio=random.random((U, B), np.float32),
  )
  if config.algorithm != "q_learning":
    return targets
  shared = "importance_ratio", "slot", "sequence", "acted_version", "searched_version"
  legal = np.ones((U, B, spec.num_actions), bool)
  return QBatch(
    frames=targets.frames[:, :, :1],
    legal_actions_mask=legal,
    action=targets.actions[:, :, 0],
    reward=targets.n_step_returns[:, :, 0],
    bootstrap=random.random((U, B), np.float32),
    next_frames=targets.frames[:, :, 1:],
    next_legal_actions_mask=legal,
    is_live=random.random((U, B)) < 0.7,  # not the same number in each part of the batch
    **{name: getattr(targets, name) for name in shared},
  )


def difference(expected: Any, found: Any) -> float:
  """Returns the largest absolute difference of two trees, divided by the largest entry of the first."""
  pairs = list(zip(*map(jax.tree_util.tree_leaves, (expected, found)), strict=True))
  pairs = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in pairs if np.size(a)]
  assert all(a.shape == b.shape for a, b in pairs)
  return float(max(np.abs(a - b).max() for a, b in pairs) / max(np.abs(a).max() for a, _ in pairs))


def known(params: Any, state: Any) -> Any:
  """Returns parameters with 0 in place of those whose gradient is rounding noise.

  Adam divides a gradient by its own size, so it makes a whole step of the noise in a gradient whose true
  value is 0, such as that of a bias before a batch norm.
  """
  squares = state.opt_state[1].nu
  least = 1e-10 * max(x.max() for x in jax.tree_util.tree_leaves(squares))
  return jax.tree_util.tree_map(lambda x, square: np.where(square > least, x, 0), params, squares)


def outcome(config: Any, batch: Any, own: Any = None) -> dict[str, Any]:
  """Returns what U updates give: Adam's averages of gradients, the rest of the state, δ and metrics."""
  learner = make_learner(config)
  priorities, metrics = learner.update(batch, own)
  state = learner.get_state()
  adam = state.opt_state[1]
  del metrics["learner/samples_per_s"]
  return {
    "gradients": adam.mu,
    "squares": adam.nu,
    "params": known(state.params, state),
    "target_params": known(state.target_params, state),
    "net_state": state.net_state,
    "step": state.learner_step,
    "priorities": priorities.delta,
    **{f"metrics {name}": value for name, value in metrics.items()},
  }


def compare(family: str, case: dict[str, int], expected: dict[str, Any], batch: Any) -> dict[str, float]:
  found = outcome(configure(family, **case), batch)
  assert found.keys() == expected.keys()
  return {
    name: difference(expected[name], found[name])
    for name in expected
    if any(np.any(x) for x in jax.tree_util.tree_leaves(expected[name]))
  }


def compare_all() -> dict[str, dict[str, float]]:
  found = {}
  for family, cases in CASES.items():
    config = configure(family)
    batch = make_batch(config)
    expected = outcome(config, batch)
    for case in cases:
      found[f"{family} {case}"] = compare(family, case, expected, batch)
    if family == "centred":
      # As on a GPU: all updates in one compiled scan, and so are the micro-batches.
      with mock.patch.object(jax, "default_backend", return_value="gpu"):
        found[f"{family} scan {cases[1]}"] = compare(family, cases[1], expected, batch)
  return found


def pass_a_checkpoint(folder: Path, first: dict[str, int], second: dict[str, int]) -> dict[str, float]:
  """Returns how states and next updates differ after a learner reads the checkpoint of another one."""
  config, batch = configure("batch_norm", **first), make_batch(configure("batch_norm"))
  spec, writer = build.env_spec(config), make_learner(config)
  writer.update(batch)
  saved = writer.get_state()
  meta = {"env_steps": 1, "learner_steps": U} | expected_of(config, spec)
  path = save_checkpoint(folder, f"from_{first.get('num_devices', 1)}", saved, meta)
  other = configure("batch_norm", **second)
  reader = make_learner(other)
  template = algorithm_of(other).training_state_template(other, spec)
  reader.set_state(jax.device_get(load_checkpoint(path, template, expected_of(other, spec))))
  read = difference(saved, reader.get_state())
  for learner in (writer, reader):
    learner.update(batch)
  ends = [known(state.params, state) for state in (writer.get_state(), reader.get_state())]
  return {"read": read, "next": difference(*ends)}


def share_of_work() -> float:
  """Returns the operations of one of four devices in an update, divided by those of one device alone."""
  flops = []
  for count in (1, 4):
    config = configure("centred", accumulate=2, num_devices=count)
    spec, devices = build.env_spec(config), devices_of(config.learner)
    update = devices.compile(make_update(build.build_model(config, spec), config, spec))
    state = devices.put(build.initial_training_state(config, spec))
    batch = devices.put_batch(map_fields(lambda x: x[0], make_batch(config)))
    flops.append(update.lower(state, batch).compile().cost_analysis()["flops"])
  return flops[1] / flops[0]


def main() -> None:
  assert len(jax.devices()) == 4
  folder = Path(sys.argv[1])
  found = {
    "updates": compare_all(),
    "share_of_work": share_of_work(),
    "checkpoints": {
      "four to one": pass_a_checkpoint(folder, {"num_devices": 4}, {}),
      "one to four": pass_a_checkpoint(folder, {}, {"num_devices": 4}),
    },
  }
  print(json.dumps(found))


if __name__ == "__main__":
  main()

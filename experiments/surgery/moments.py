"""Compares second moments of new weights by the losses of the updates after a surgery.

    python -m experiments.surgery.moments RUN

RUN is a run of `moozi train gymnasium/pendulum seed=2 runtime=local`. Writes `results/moments.json`: the loss
of each update, by change and kind of second moments, and without a surgery.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.lib.command import command
from moozi.core.config import Config
from moozi.core.flat_state import State, tree_of_state, tree_state
from moozi.core.spec import EnvSpec
from moozi.envs.registry import env_spec
from moozi.experiments.results import write_json
from moozi.io.config import config_to_dict, load_config
from moozi.io.run_directory import RunDirectory
from moozi.learning.learner import to_jax
from moozi.run import build
from moozi.run.state import RunState
from moozi.surgery.plan import Plan, make_plan
from moozi.surgery.transform import transform
from moozi.training.resume import load_saved

RESULTS = Path(__file__).parent / "results" / "moments.json"
NUM_UPDATES = 100
# At the end of a run, a learning rate that decays would hide how large the steps are.
LEARNER = {"learner": {"learning_rate": {"kind": "constant", "decay_steps": None}, "batch_size": 64}}
CHANGES: dict[str, dict[str, Any]] = {
  "blocks": {"network": {"num_prediction_blocks": 1, "num_dynamics_blocks": 2}},
  "history": {"targets": {"history_length": 3}},
}
NONE = "none"


def with_moments_of_zero(state: State, plan: Plan) -> State:
  """Returns a converted training state whose second moments of new weights are 0."""
  out = dict(state)
  for name in (name for name in state if name.startswith("opt_state/1/nu/")):
    array, moments = plan.arrays[name.removeprefix("opt_state/1/nu/")], np.array(state[name])
    if array.source is None:
      moments[:] = 0
    for i, axis in enumerate(array.maps):
      np.moveaxis(moments, i, 0)[axis.is_new] = 0
    out[name] = moments
  return out


def losses(saved: RunState, config: Config, spec: EnvSpec, training: State) -> list[float]:
  """Returns the loss of each of NUM_UPDATES updates of a training state, with batches of the run's replay."""
  replay = build.build_replay(config, spec)
  assert saved.replay is not None
  replay.restore(saved.replay)
  batches = replay.sample_many(NUM_UPDATES, config.learner.batch_size)
  update = build.make_update_many(build.build_model(config, spec), config, spec)
  template = jax.eval_shape(lambda: build.initial_training_state(config, spec))
  state, out = to_jax(tree_of_state(template, training)), []
  for k in range(NUM_UPDATES):
    state, output = update(state, jax.tree.map(lambda x, k=k: x[k : k + 1], batches))
    out.append(round(float(output.metrics["loss/total"]), 4))
  return out


def measure(run: RunDirectory) -> dict[str, dict[str, list[float]]]:
  """Returns the losses by change and by second moments of new weights."""
  config = run.load_config()
  spec = env_spec(config.env.name, **config.env.arguments)
  saved = load_saved(config, spec, run).state
  assert saved is not None
  before = tree_state(saved.training)
  old = load_config(None, [config_to_dict(config), LEARNER])
  found = {NONE: {NONE: losses(saved, old, spec, before)}}
  for name, change in CHANGES.items():
    new = load_config(None, [config_to_dict(old), change])
    plan = make_plan(old, spec, new, spec)
    after = transform(before, plan)
    variants = {"zero": with_moments_of_zero(after, plan), "mean": after}
    found[name] = {kind: losses(saved, new, spec, state) for kind, state in variants.items()}
  return found


@command
def main() -> int:
  """Runs the command line; returns the exit status."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("run", type=Path)
  args = parser.parse_args()
  write_json(RESULTS, measure(RunDirectory.open(args.run)))
  return 0


if __name__ == "__main__":
  sys.exit(main())

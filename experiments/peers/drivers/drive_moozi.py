"""Trains with MooZi's Python API, and times the events of acting and of learning in one run."""

import tempfile
import time

import jax
from fixed_cartpole import NAME
from job import print_result, read_job

import moozi
from moozi.agent.update import init_training_state
from moozi.run import build
from moozi.run.events import Acted, Updated

job = read_job()
planner = {"algorithm": "gumbel", "num_simulations": job.simulations}
steps_per_call = job.num_envs * job.segment_length
settings = {
  "runtime": "local",
  "env": {"name": f"gymnasium:{NAME}"},
  "network": {
    "kind": "mlp",
    "latent_size": job.width,
    "head_size": job.head_width,
    "num_dynamics_blocks": 1,
    "num_prediction_blocks": 1,
  },
  "targets": {"unroll_steps": job.unroll_steps, "n_step": job.n_step},
  "scalar_transform": {"support_min": -(job.bins // 2), "support_max": job.bins // 2},
  "planners": {"train": planner, "test": planner},
  "workers": {"num_workers": 1, "num_envs": job.num_envs, "segment_length": job.segment_length},
  "learner": {
    "batch_size": job.batch_size,
    "samples_per_step": job.samples_per_step,
    "updates_per_call": round(steps_per_call * job.samples_per_step / job.batch_size),
    "consistency_coef": 0,
  },
  "replay": {
    "sampling": "uniform",
    "capacity": job.replay_size,
    "min_steps_to_learn": job.min_steps_to_learn,
  },
  "max_env_steps": 1_000_000,
  "evaluation": {"period_env_steps": 1_000_000, "gif": False},
  "logging": {"progress": "none", "tensorboard": False},
}

seconds = {Acted: 0.0, Updated: 0.0}
samples = steps = begin = 0
with tempfile.TemporaryDirectory() as folder:
  with moozi.train_events(settings, run={"dir": folder, "name": "peers"}) as training:
    config = training.config
    is_warm, before = False, time.perf_counter()
    for event in training:
      now = time.perf_counter()
      if is_warm and type(event) in seconds:
        seconds[type(event)] += now - before
        samples += event.num_samples if isinstance(event, Updated) else 0
        if isinstance(event, Updated) and event.env_steps >= begin + job.steps:
          steps = event.env_steps - begin
          break
      elif isinstance(event, Updated) and event.env_steps >= job.warm_steps:
        is_warm, begin, began = True, event.env_steps, now
      before = time.perf_counter()
    wall = time.perf_counter() - began

spec = build.env_spec(config)
params = init_training_state(build.build_model(config, spec), config, spec, jax.random.PRNGKey(0)).params
# Modules are named like dynamics/block_0/dense_0. The projection of the consistency loss has no use here.
counts = {"representation": 0, "dynamics": 0, "prediction": 0}
for name, tree in params.items():
  part = name.partition("/")[0]
  if part in counts:
    counts[part] += sum(x.size for x in jax.tree.leaves(tree))
print_result(
  ("moozi", "jax"),
  parameters=sum(counts.values()),
  parameters_per_simulation=counts["dynamics"] + counts["prediction"],
  act_steps_per_s=steps / seconds[Acted],
  learn_samples_per_s=samples / seconds[Updated],
  train_steps_per_s=steps / wall,
  samples_per_step=samples / steps,
)

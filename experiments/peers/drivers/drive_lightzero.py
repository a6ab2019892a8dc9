"""Trains with LightZero's `train_muzero`, and separates acting from learning by the times of the steps.

A cycle of `train_muzero` collects one episode of each environment, and then makes the cycle's updates. There
are no updates between the steps of a cycle.
"""

import os
import tempfile
import time

import torch
from easydict import EasyDict
from fixed_cartpole import NAME, STAMPS
from job import print_result, read_job
from lzero.entry import train_muzero

job = read_job()
torch.set_num_threads(1)
cycle = job.num_envs * job.episode_length
num_cycles = max(1, job.steps // cycle)
environment = {
  "env_id": NAME,
  "continuous": False,
  "manually_discretization": False,
  "collector_env_num": job.num_envs,
  "evaluator_env_num": 1,
  "n_evaluator_episode": 1,
  "stop_value": 1e9,
  "manager": {"shared_memory": False},
}
policy = {
  "model": {
    "observation_shape": 4,
    "action_space_size": 2,
    "model_type": "mlp",
    "latent_state_dim": job.width,
    "reward_head_hidden_channels": [job.head_width],
    "value_head_hidden_channels": [job.head_width],
    "policy_head_hidden_channels": [job.head_width],
    "support_scale": job.bins // 2,
    "reward_support_size": job.bins,
    "value_support_size": job.bins,
    "self_supervised_learning_loss": False,
    "discrete_action_encoding_type": "one_hot",
    "res_connection_in_dynamics": False,
    "norm_type": "BN",
  },
  "cuda": False,
  "env_type": "not_board_games",
  "game_segment_length": job.episode_length,
  "replay_ratio": job.samples_per_step / job.batch_size,
  "update_per_collect": None,
  "batch_size": job.batch_size,
  "optim_type": "Adam",
  "max_num_considered_actions": 2,
  "piecewise_decay_lr_scheduler": False,
  "learning_rate": 1e-3,
  "num_simulations": job.simulations,
  "num_unroll_steps": job.unroll_steps,
  "td_steps": job.n_step,
  "reanalyze_ratio": 0,
  "use_priority": False,
  "n_episode": job.num_envs,
  "eval_freq": 1_000_000_000,
  "replay_buffer_size": job.replay_size,
  "collector_env_num": job.num_envs,
  "evaluator_env_num": 1,
  # Read by the training loop, and missing in this policy's defaults.
  "use_wandb": False,
  "collect_with_pure_policy": False,
  "use_ture_chance_label_in_chance_encoder": False,
}
create = {
  "env": {
    "type": "cartpole_lightzero",
    "import_names": ["zoo.classic_control.cartpole.envs.cartpole_lightzero_env"],
  },
  "env_manager": {"type": "base"},
  "policy": {"type": "gumbel_muzero", "import_names": ["lzero.policy.gumbel_muzero"]},
}

with tempfile.TemporaryDirectory() as folder:
  os.chdir(folder)
  main = EasyDict({"exp_name": "peers", "env": environment, "policy": policy})
  trained = train_muzero([main, EasyDict(create)], seed=0, max_env_step=num_cycles * cycle)
  ended = time.perf_counter()

# The only evaluation makes the first steps; it also warms up the search.
steps = STAMPS[job.episode_length :]
if len(steps) != num_cycles * cycle:
  raise SystemExit(
    f"{len(steps)} steps instead of {num_cycles * cycle}: the cycles are not the expected ones"
  )
acting = learning = 0.0
for index in range(num_cycles):
  collected = steps[index * cycle : (index + 1) * cycle]
  # From the first step of the first search's actions to that of the last one's: all searches but one.
  seconds = (collected[-job.num_envs] - collected[0]) * job.episode_length / (job.episode_length - 1)
  until = steps[(index + 1) * cycle] if index + 1 < num_cycles else ended
  acting += seconds
  learning += until - collected[0] - seconds

model = trained.learn_mode.get_attribute("model")
counts = {name: sum(x.numel() for x in part.parameters()) for name, part in model.named_children()}
samples = int(cycle * job.samples_per_step / job.batch_size) * job.batch_size * num_cycles
print_result(
  ("LightZero", "torch"),
  parameters=sum(counts.values()),
  parameters_per_simulation=sum(count for name, count in counts.items() if "representation" not in name),
  act_steps_per_s=len(steps) / acting,
  learn_samples_per_s=samples / learning,
  train_steps_per_s=len(steps) / (acting + learning),
  samples_per_step=samples / len(steps),
)

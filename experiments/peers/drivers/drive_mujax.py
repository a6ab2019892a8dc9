"""Runs mujax: its actor loop alone, its learner alone, and `run_experiment`."""

import functools
import threading
import time

import gymnasium as gym
import jax
import mujax
from fixed_cartpole import NAME, STAMPS
from job import print_result, rate_of, read_job, steps_per_second
from mujax.experiment import make_optimizer
from mujax.reanalyze import Reanalyzer
from mujax.replay import Buffer

job = read_job()


def make_environment(seed: int = 0) -> gym.vector.VectorEnv:
  return gym.make_vec(
    NAME,
    num_envs=job.num_envs,
    vectorization_mode="sync",
    vector_kwargs={"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP},
  )


config = mujax.GMZConfig(
  num_simulations=job.simulations,
  num_unroll_steps=job.unroll_steps,
  num_bootstrapping=job.n_step,
  num_bins=job.bins,
  support_min=-(job.bins // 2),
  support_max=job.bins // 2,
  embedding_dim=job.width,
  representation_layer_sizes=(job.width,),
  dynamics_layer_sizes=(job.width,),
  prediction_layer_sizes=(job.mujax_prediction_width,),
  max_replay_size=job.replay_size,
  min_replay_size=job.min_steps_to_learn,
  batch_size=job.batch_size,
  replay_ratio=job.samples_per_step,
  reanalyze_ratio=0.0,
)
algorithm = mujax.algorithm_for(config)
environment = make_environment()
spec = mujax.make_environment_spec(environment)
graphdef, params = algorithm.init(spec, config, jax.random.PRNGKey(0))
counts = {str(path[0]): 0 for path, _ in jax.tree_util.tree_leaves_with_path(params)}
for path, leaf in jax.tree_util.tree_leaves_with_path(params):
  counts[str(path[0])] += leaf.size

stop = threading.Event()
replay = Buffer(
  spec,
  num_envs=job.num_envs,
  max_size=config.max_replay_size,
  min_size=config.min_replay_size,
  sample_batch_size=config.batch_size,
  sequence_length=config.sequence_length,
)
learner = mujax.Learner(
  functools.partial(algorithm.loss, graphdef, config), params, make_optimizer(config), replay=replay
)
actor = mujax.Actor(
  algorithm.make_policy(graphdef, spec, config, False),
  jax.random.PRNGKey(1),
  learner.get_params,
  num_actions=spec.num_actions,
  replay=replay.adder(0),
  value_fn=algorithm.make_value_fn(graphdef, config),
  update_period=config.variable_update_period,
)
loop = mujax.EnvironmentLoop(environment, actor, stop_event=stop)
thread = threading.Thread(target=loop.run, daemon=True)
thread.start()
while len(STAMPS) < job.warm_steps and thread.is_alive():
  time.sleep(0.05)
start, first = time.perf_counter(), len(STAMPS)
time.sleep(job.seconds)
act = (len(STAMPS) - first) / (time.perf_counter() - start)
stop.set()
thread.join()

batches = Reanalyzer(
  replay,
  config=config,
  policy=algorithm.make_policy(graphdef, spec, config, False),
  value_fn=algorithm.make_value_fn(graphdef, config),
  get_params=learner.get_params,
  device=None,
  random_key=jax.random.PRNGKey(2),
  stop_event=threading.Event(),
)
updates = rate_of(
  lambda: learner.step(next(batches)), job.seconds, lambda: jax.block_until_ready(learner.get_params()[0])
)

STAMPS.clear()
trained = mujax.run_experiment(
  mujax.ExperimentConfig(
    config=config,
    environment_factory=make_environment,
    max_num_learner_steps=round((job.warm_steps + job.steps) * job.samples_per_step / job.batch_size),
  )
)
# Steps are delivered in chunks, and the limiter of samples per step holds the actor at their ends. Counted
# from one end to another, the ratio is exact.
chunk = config.sequence_length * job.num_envs
first, last = -(-job.warm_steps // chunk) * chunk, (len(STAMPS) - 1) // chunk * chunk
print_result(
  ("mujax", "jax"),
  parameters=sum(counts.values()),
  parameters_per_simulation=sum(count for name, count in counts.items() if "representation" not in name),
  act_steps_per_s=act,
  learn_samples_per_s=updates * job.batch_size,
  train_steps_per_s=steps_per_second(STAMPS[: last + 1], first),
  samples_per_step=trained.learn_steps * job.batch_size / (last - job.min_steps_to_learn),
)

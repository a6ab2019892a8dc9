"""Runs muax: `MuZero.act` on a batch, its replay buffer with `MuZero.update`, and `muax.fit`."""

import tempfile

import gymnasium as gym
import haiku as hk
import jax
import muax
import numpy as np
from fixed_cartpole import NAME, STAMPS
from job import print_result, rate_of, read_job, steps_per_second

job = read_job()


def dense(x: jax.Array, *sizes: int) -> jax.Array:
  """Dense layers; each but the last has a layer norm and a relu."""
  for size in sizes[:-1]:
    x = hk.LayerNorm(-1, True, True)(hk.Linear(size)(x))
    x = jax.nn.relu(x)
  return hk.Linear(sizes[-1])(x)


def represent(observation: jax.Array) -> jax.Array:
  return muax.nn.min_max_normalize(dense(observation, job.width, job.width))


def predict(state: jax.Array) -> tuple[jax.Array, jax.Array]:
  x = jax.nn.relu(dense(state, job.width, job.width))
  return dense(x, job.head_width, job.bins), dense(x, job.head_width, 2)


def advance(state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
  both = jax.numpy.concatenate([state, jax.nn.one_hot(action, 2)], axis=1)
  state = muax.nn.min_max_normalize(dense(both, job.width, job.width))
  return dense(state, job.head_width, job.bins), state


def make_model() -> muax.MuZero:
  return muax.MuZero(represent, predict, advance, policy="gumbel", discount=0.997, support_size=job.bins // 2)


environments = gym.make_vec(NAME, num_envs=job.num_envs, vectorization_mode="sync")
observations, _ = environments.reset(seed=0)
model, key = make_model(), jax.random.PRNGKey(0)
params = model.init(key, observations)
counts = {name: sum(x.size for x in jax.tree.leaves(tree)) for name, tree in params.items()}


def act() -> None:
  global key, observations
  key, now = jax.random.split(key)
  actions, _, _ = model.act(
    now,
    observations,
    with_pi=True,
    with_value=True,
    obs_from_batch=True,
    num_simulations=job.simulations,
  )
  observations = environments.step(actions)[0]


acted = rate_of(act, job.seconds)

random, replay = np.random.default_rng(0), muax.TrajectoryReplayBuffer(500)
for _ in range(job.num_envs):
  tracer, trajectory = muax.NStep(job.n_step, 0.997), muax.Trajectory()
  for index in range(job.episode_length):
    tracer.add(
      random.normal(size=4).astype(np.float32),
      int(random.integers(2)),
      1.0,
      index == job.episode_length - 1,
      v=1.0,
      pi=np.full((1, 2), 0.5, np.float32),
    )
    while tracer:
      trajectory.add(tracer.pop())
  trajectory.finalize()
  replay.add(trajectory)


def update() -> None:
  batch = replay.sample(num_trajectory=job.batch_size, sample_per_trajectory=1, k_steps=job.unroll_steps)
  model.update(batch)


updates = rate_of(update, job.seconds)

STAMPS.clear()
num_updates = round(job.episode_length * job.samples_per_step / job.batch_size)
num_episodes = job.steps // job.episode_length
with tempfile.TemporaryDirectory() as folder:
  muax.fit(
    make_model(),
    NAME,
    tracer=muax.NStep(job.n_step, 0.997),
    buffer=muax.TrajectoryReplayBuffer(500),
    max_episodes=num_episodes,
    num_test_episodes=1,
    test_interval=num_episodes + 1,
    save_every_n_epochs=num_episodes + 1,
    num_simulations=job.simulations,
    k_steps=job.unroll_steps,
    buffer_warm_up=4,
    num_trajectory=job.batch_size,
    sample_per_trajectory=1,
    num_update_per_episode=num_updates,
    name="peers",
    tensorboard_dir=folder,
    model_save_path=folder,
  )
# Four episodes fill the buffer, one trains, and one is the only test. Compilation is in them.
print_result(
  ("muax", "jax"),
  parameters=sum(counts.values()),
  parameters_per_simulation=sum(count for name, count in counts.items() if "representation" not in name),
  act_steps_per_s=acted * job.num_envs,
  learn_samples_per_s=updates * job.batch_size,
  train_steps_per_s=steps_per_second(STAMPS, 8 * job.episode_length),
  samples_per_step=num_updates * job.batch_size / job.episode_length,
)

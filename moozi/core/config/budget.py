"""The number of learner steps of a run that takes all of its environment steps."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from moozi.core.config import Config


def num_updates(config: "Config") -> int:
  """Returns the number of learner steps of a run that takes all its environment steps and loses none.

  Training starts with the first round of segments after which replay has `min_steps_to_learn` steps and can
  draw a batch. From then on each step allows `samples_per_step` samples, and only whole learner calls are
  made; `run.pacing` counts in this way. With Ray, the segments of different workers arrive one by one.
  """
  workers, learner, targets = config.workers, config.learner, config.targets
  segment = workers.num_envs * workers.segment_length
  is_local = config.has_one_process
  round_steps = segment * workers.num_workers if is_local else segment
  batch = learner.batch_size
  if config.offline.trajectories is not None:
    batch -= config.offline.share_of(batch)
  # Each lane's newest K + n steps cannot be drawn yet.
  lane_steps = targets.unroll_steps + targets.n_step + -(-batch // (workers.num_envs * workers.num_workers))
  least = max(config.replay.min_steps_to_learn, lane_steps * workers.num_envs * workers.num_workers)
  begin = -(-least // round_steps) * round_steps if batch else 0
  end = -(-config.max_env_steps // round_steps) * round_steps
  call_samples = learner.batch_size * learner.updates_per_call
  num_calls = int(max(0, end - begin) * learner.samples_per_step // call_samples)
  return num_calls * learner.updates_per_call

"""What depends on the limits of a run: its number of learner steps, and the decay of its learning rate."""

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


def limits_of_rate(config: "Config") -> tuple[str, ...]:
  """Returns the keys of the limits until which the learning rate falls; with PPO, also the clip range.

  They are `max_env_steps` and, if the run has one, `max_wall_s`. Empty if the rate depends on no limit: it is
  constant or falls over a number of learner steps, or the algorithm has no such rate or is the user's own.
  """
  rate, ppo = config.learner.learning_rate, config.ppo
  if config.algorithm == "ppo":
    falls = ppo.anneal_learning_rate or ppo.anneal_clip_range
    has_time = ppo.anneal_by == "progress"
  else:
    is_table = config.algorithm == "q_learning" and config.q_learning.kind == "table"
    falls = rate.kind != "constant" and isinstance(rate.decay_steps, str)
    falls = falls and not (is_table or config.is_on_policy)
    has_time = rate.decay_steps == "progress"
  if not falls:
    return ()
  return ("max_env_steps", "max_wall_s") if has_time and config.max_wall_s is not None else ("max_env_steps",)


def takes_time_share(config: "Config") -> bool:
  """Returns whether the learner's update takes the share of max_wall_s that has passed.

  PPO's does not: its rates are computed outside of the update.
  """
  return config.algorithm != "ppo" and "max_wall_s" in limits_of_rate(config)

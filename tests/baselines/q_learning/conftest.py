"""Fixtures of the Q-learning tests: settings of a run that takes seconds."""

TINY = (
  "algorithm=q_learning",
  "env.name=tiny:catch",
  "q_learning.network.hidden_sizes=[16]",
  "q_learning.capacity=512",
  "targets.unroll_steps=1",
  "targets.n_step=2",
  "workers.num_envs=4",
  "workers.segment_length=8",
  "replay.capacity=4096",
  "replay.min_steps_to_learn=64",
  "learner.batch_size=16",
  "learner.updates_per_call=2",
  "learner.optimizer=adam",
  "evaluation.num_envs=4",
  "evaluation.episodes=4",
  "evaluation.final_episodes=5",
  "evaluation.max_random_starts=2",
  "evaluation.period_env_steps=200",
  "checkpoint.milestones_env_steps=100",
  "checkpoint.period_s=1e9",
  "checkpoint.first_s=null",
  "max_env_steps=320",
)
TABLE = "q_learning.kind=table"

"""Fixtures of the PPO tests: a run that takes seconds."""

TINY = (
  "algorithm=ppo",
  "runtime=local",
  "env.name=tiny:catch",
  "ppo.num_envs=4",
  "ppo.segment_length=16",
  "ppo.num_minibatches=2",
  "ppo.num_epochs=2",
  "ppo.network.hidden_sizes=[16]",
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

"""The baselines PPO and Q-learning, and users' own algorithms."""

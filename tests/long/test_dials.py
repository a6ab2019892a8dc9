"""Trains where each action has dimensions with more than 32 joint actions, and the best return is known."""

import pytest

from moozi.io.config import load_config
from moozi.run.build import env_spec
from moozi.run.events import Evaluated
from moozi.run.session import RunInputs
from moozi.training.algorithms import algorithm_of

DIALS = (
  "env.name=tiny:dials",
  "env.kwargs.num_dials=2",
  "env.kwargs.num_positions=6",
  "evaluation.max_random_starts=0",
  "evaluation.period_env_steps=1000000",
  "evaluation.final_episodes=200",
  "evaluation.num_envs=50",
)
"""36 joint actions; the best return is 1, and random play has about 0.62."""
MUZERO = (
  "runtime=local",
  "targets.unroll_steps=1",
  "targets.n_step=1",
  "learner.batch_size=128",
  "learner.samples_per_step=32",
  "learner.learning_rate.peak=3e-3",
  "learner.learning_rate.decay_steps=budget",
  "max_env_steps=14000",
)
PPO = (
  "algorithm=ppo",
  "ppo.num_envs=16",
  "ppo.segment_length=32",
  "ppo.learning_rate=3e-3",
  "ppo.entropy_coef=0",
  "ppo.network.hidden_sizes=[32]",
  "max_env_steps=16000",
)


@pytest.mark.learning
@pytest.mark.parametrize("options", [MUZERO, PPO], ids=["muzero", "ppo"])
def test_the_best_return_is_reached_within_two_percent(options):
  config = load_config("tiny/catch", [*DIALS, *options])
  spec = env_spec(config)
  assert spec.is_factored
  *_, final = (e for e in algorithm_of(config).run(RunInputs(config, spec)) if isinstance(e, Evaluated))
  assert final.is_final
  assert final.result.returns.mean() >= 0.98

"""Tests that the baselines learn a game of two players by self-play."""

import jax
import numpy as np
import pytest

from moozi.envs.vector import blank_step
from moozi.io.config import load_config
from moozi.run import build
from moozi.run.session import RunInputs
from moozi.training.algorithms import algorithm_of
from tests.baselines.ppo.conftest import TINY as TINY_PPO
from tests.baselines.q_learning.conftest import TABLE
from tests.baselines.q_learning.conftest import TINY as TINY_Q
from tests.run_events import final_state

# (sticks, player to move): the won positions that are reachable from (7, 0), and those of good play, which
# PPO visits most.
WON = ((7, 0), (6, 1), (5, 1), (5, 0), (3, 1), (3, 0), (2, 1), (2, 0), (1, 1), (1, 0))
WON_ON_POLICY = ((7, 0), (3, 0), (2, 0), (1, 0))
LOST = (4, 1)
COMMON = ("env.name=tests.envs.environments:make_nim", "evaluation.period_env_steps=1000000")
PPO = (
  *TINY_PPO,
  "ppo.num_envs=32",
  "ppo.segment_length=16",
  "ppo.num_epochs=4",
  "ppo.num_minibatches=4",
  "ppo.discount=1",
  "ppo.learning_rate=0.003",
  "ppo.network.hidden_sizes=[64]",
  "workers.max_random_starts=3",
  "max_env_steps=60000",
)
PAST = ("opponents.past_share=0.25", "opponents.period_updates=200")
Q = (*TINY_Q, "targets.discount=1", "targets.n_step=1", "workers.num_envs=16", "q_learning.epsilon_end=0.5")
NETWORK = (
  "q_learning.network.hidden_sizes=[64,64]",
  "learner.batch_size=64",
  "learner.samples_per_step=8",
  "learner.target_update_period=50",
  "learner.learning_rate.peak=0.002",
  "replay.sampling=uniform",
  "max_env_steps=30000",
)


@pytest.mark.learning
@pytest.mark.parametrize(
  ("settings", "won"),
  [
    (PPO, WON_ON_POLICY),
    ((*PPO, *PAST), WON_ON_POLICY),
    ((*Q, TABLE, "max_env_steps=8000"), WON),
    ((*Q, *NETWORK), WON),
  ],
  ids=["ppo", "ppo_past", "table", "network"],
)
def test_nim_is_won(settings, won):
  """The player wins who leaves a multiple of four sticks; with the wrong sign, values would be reversed."""
  config = load_config(None, [*settings, *COMMON])
  spec = build.env_spec(config)
  assert spec.num_players == 2
  algorithm = algorithm_of(config)
  events = list(algorithm.run(RunInputs(config, spec)))
  training = final_state(events).training
  sticks, player = np.array([*won, LOST]).T
  step = blank_step(spec, len(sticks))
  step.is_first[:], step.to_play[:] = True, player
  step.frame[:, 0, 0] = [*won, LOST]
  step.legal_actions_mask[:, 1:] = np.arange(3) < sticks[:, None]
  evaluator = algorithm.build_evaluator(config, spec, None)
  carry = evaluator.agent.init(len(sticks))
  _, output = evaluator.decide(training.variables, carry, step, jax.random.PRNGKey(0))
  assert np.asarray(output.action)[:-1].tolist() == (sticks % 4)[:-1].tolist()
  values = np.asarray(output.root_value)
  assert (values[:-1] > 0).all()
  assert values[-1] < -0.3

"""Tests of runs in one process with an environment of each Python library."""

import jax
import numpy as np
import pytest

from moozi.baselines.ppo import algorithm as ppo_algorithm
from moozi.core.errors import UserError
from moozi.evaluation.random_play import random_returns
from moozi.io.config import load_config
from moozi.run import build, local
from moozi.run.events import Evaluated, Finished, Updated
from moozi.run.session import RunInputs
from moozi.training.checks import check_opponent
from tests.baselines.ppo.conftest import TINY as TINY_PPO
from tests.envs.suites.user_fakes import Watched
from tests.run_events import final_state
from tests.tiny_run import TINY

WATCHED = "env.name=tests.envs.suites.user_fakes:Watched"
SHORT = ("evaluation.max_random_starts=0", "evaluation.max_episode_steps=12", "max_env_steps=128")


@pytest.fixture
def watched():
  """Returns the class `Watched` with its counts reset."""
  Watched.open_envs.clear()
  Watched.num_made = 0
  return Watched


@pytest.mark.parametrize(
  ("env", "package"),
  [
    pytest.param("gymnasium:CartPole-v1", "gymnasium", marks=pytest.mark.slow),
    pytest.param("open_spiel:tic_tac_toe", "pyspiel", marks=pytest.mark.slow),
    pytest.param("open_spiel:kuhn_poker", "pyspiel", marks=pytest.mark.slow),
    pytest.param("tests.envs.suites.user_fakes:Watched", "dm_env", marks=pytest.mark.slow),
  ],
)
def test_run_learns_and_is_evaluated(env, package, watched):
  pytest.importorskip(package)
  config = load_config(None, [*TINY, *SHORT, f"env.name={env}", "evaluation.period_env_steps=64"])
  spec = build.env_spec(config)
  num_tried = watched.num_made
  events, num_open = [], set()
  for event in local.run(RunInputs(config, spec)):
    events.append(event)
    num_open.add(len(watched.open_envs))
  assert isinstance(events[-1], Finished)
  assert events[-1].learner_steps > 0
  losses = [event.metrics["loss/total"] for event in events if isinstance(event, Updated)]
  assert np.isfinite(losses).all()
  state = final_state(events)
  assert all(np.isfinite(x).all() for x in jax.tree_util.tree_leaves(state.training.params))
  results = [event.result for event in events if isinstance(event, Evaluated)]
  assert [len(result.returns) for result in results] == [4, 5]
  assert (results[-1].lengths > 0).all()
  assert (results[-1].seats is None) == (spec.num_players == 1)
  assert not watched.open_envs
  if env == "tests.envs.suites.user_fakes:Watched":
    # During the run only the training environments are open; each evaluation closes its own.
    assert num_open == {config.workers.num_envs}
    num_tested = 2 * config.evaluation.num_envs
    assert (num_tried, watched.num_made) == (1, 1 + config.workers.num_envs + num_tested)


@pytest.mark.slow
def test_failed_or_closed_run_closes_its_environments(watched):
  config = load_config(None, [*TINY, *SHORT, WATCHED, "env.kwargs.fails_at=7"])
  events = local.run(RunInputs(config, build.env_spec(config.model_copy(update={"env": plain(config)}))))
  with pytest.raises(UserError, match="reward=None"):
    list(events)
  assert watched.num_made > 1
  assert not watched.open_envs
  config = config.model_copy(update={"env": plain(config)})
  events = local.run(RunInputs(config, build.env_spec(config)))
  next(events)
  assert watched.open_envs
  events.close()
  assert not watched.open_envs


def plain(config):
  return config.env.model_copy(update={"kwargs": {}})


def test_stopped_evaluation_closes_its_environments(watched):
  config = load_config(None, [*TINY, *SHORT, WATCHED])
  evaluator = build.build_evaluator(config, build.env_spec(config))
  assert evaluator.run({}, num_episodes=4, should_stop=lambda: True) is None
  assert watched.num_made == 1 + config.evaluation.num_envs
  assert not watched.open_envs


def test_random_play_closes_its_environments(watched):
  config = load_config(None, [*TINY, *SHORT, WATCHED])
  assert len(random_returns(config, num_episodes=3)) == 3
  assert watched.num_made == 1
  assert not watched.open_envs


def test_opponent_check_closes_its_environment(watched):
  config = load_config(None, [*TINY, WATCHED, "env.kwargs.num_players=2", "evaluation.opponent=mcts"])
  spec = build.env_spec(config)
  with pytest.raises(UserError, match=r"evaluation\.opponent=mcts:100: .* has no such player"):
    check_opponent(config, spec)
  assert watched.num_made == 2
  assert not watched.open_envs


@pytest.mark.slow
def test_ppo_run_closes_its_environments(watched):
  config = load_config(None, [*TINY_PPO, *SHORT, WATCHED])
  events = list(ppo_algorithm.run(RunInputs(config, build.env_spec(config))))
  assert isinstance(events[-1], Finished)
  assert watched.num_made == 1 + config.ppo.num_envs + config.evaluation.num_envs
  assert not watched.open_envs

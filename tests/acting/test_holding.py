"""Tests of temporally extended exploration."""

import jax
import numpy as np
import pytest

from moozi.acting.holding import hold_probs, with_holding
from moozi.agent.agent import Decision, PureAgent
from moozi.core.errors import UserError
from moozi.core.spec import DUMMY_ACTION
from moozi.envs.vector import blank_step
from moozi.io.config import load_config
from moozi.run import build
from moozi.run.collector_state import check_collector, have_same_settings
from moozi.training.checks import check_players
from tests.replay.replay_lanes import make_spec
from tests.tiny_run import TINY

ACTION = 2


def recorder(seen):
  """Returns an agent that appends the `forced` of each call."""

  def act(variables, carry, timestep, key, temperature, forced, position):
    seen.append(np.asarray(forced))
    return carry, Decision(action=forced, action_probs=None, root_value=None, extras={})

  return PureAgent(init=np.zeros, act=act, observe=lambda variables, carry, step, action: carry)


def forced_actions(step, last, num_holding, seed):
  """Returns the `forced` that the wrapped agent is called with."""
  seen = []
  agent = with_holding(recorder(seen), num_holding)
  carry = agent.observe((), agent.init(len(last)), step, np.asarray(last, np.int32))
  after, decision = agent.act((), carry, step, jax.random.PRNGKey(seed), 1.0)
  assert after["last_action"] is decision.action
  return seen[0]


def test_environments_are_reset_where_the_setting_changed():
  plain = {"lanes/carry/last_action": np.zeros(2, np.int32), "lanes/rng_key": np.zeros(2)}
  counted = plain | {"lanes/carry/steps_made": np.zeros(2, np.int32)}
  assert have_same_settings([counted], [counted])
  assert not have_same_settings([plain], [counted])
  assert not have_same_settings([counted], [plain])
  check_collector(counted, counted, env_steps=0)
  with pytest.raises(ValueError, match="steps_made"):
    check_collector(counted | {"lanes/carry/steps_made": np.array([0, -1], np.int32)}, counted, env_steps=0)


def test_means_of_the_lengths():
  np.testing.assert_allclose(1 / (1 - hold_probs(8)), [2, 4, 8, 16, 32, 64, 2, 4], rtol=1e-5)


def test_only_holding_lanes_repeat_and_as_often_as_stated():
  num_lanes, num_holding = 13_000, 12_000
  step = blank_step(make_spec(), num_lanes)
  step.legal_actions_mask[:] = True
  step.is_first[:] = False
  forced = forced_actions(step, [ACTION] * num_lanes, num_holding, seed=0)
  assert set(np.unique(forced)) == {-1, ACTION}
  assert (forced[num_holding:] == -1).all()
  shares = (forced[:num_holding] == ACTION).reshape(-1, 6).mean(0)
  # Five standard errors of a mean of 2,000 draws.
  np.testing.assert_allclose(shares, hold_probs(6), atol=0.056)


def test_first_frames_illegal_actions_and_the_dummy_are_not_repeated():
  step = blank_step(make_spec(), 4)
  step.legal_actions_mask[:] = True
  step.legal_actions_mask[:, DUMMY_ACTION] = False
  step.is_first[:] = [True, False, False, False]
  step.legal_actions_mask[1, ACTION] = False
  last = [ACTION, ACTION, DUMMY_ACTION, ACTION]
  forced = np.array([forced_actions(step, last, 4, i) for i in range(50)])
  assert (forced[:, :3] == -1).all()
  assert (forced[:, 3] == ACTION).any()


@pytest.mark.parametrize("first_step", [0, 3, 9, 2**40])
def test_actions_are_repeated_in_the_first_steps_only(first_step):
  num_lanes, num_steps = 600, 5
  step = blank_step(make_spec(), num_lanes)
  step.legal_actions_mask[:] = True
  step.is_first[:] = False
  seen, last = [], np.full(num_lanes, ACTION, np.int32)
  agent = with_holding(recorder(seen), num_lanes, num_steps, first_step)
  observed = acted = agent.observe((), agent.init(num_lanes), step, last)
  for i in range(8):
    acted, _ = agent.act((), {**acted, "last_action": last}, step, jax.random.PRNGKey(i), 1.0)
    observed = agent.observe((), observed, step, last)
  # The first of them was observed, not acted.
  repeats = [bool((forced == ACTION).any()) for forced in seen]
  assert repeats == [first_step + 1 + i < num_steps for i in range(8)]
  # An inference server's client counts with `observe`.
  np.testing.assert_array_equal(acted["steps_made"], observed["steps_made"])
  assert isinstance(observed["steps_made"], np.ndarray)
  assert observed["steps_made"][0] == min(first_step + 9, 2**30)


@pytest.mark.slow
def test_a_collector_holds_actions_in_the_first_lanes():
  config = load_config(
    None, [*TINY, "env.name=tiny:corridor", "workers.num_holding_envs=2", "workers.segment_length=64"]
  )
  spec = build.env_spec(config)
  collector = build.build_collector(config, spec, worker=0)
  state = build.initial_training_state(config, spec)
  collector.set_parameters(state.variables, 0)
  segment, _ = collector.run(0)
  collector.close()
  is_inside = ~segment.is_first[1:] & ~segment.is_last[1:]
  is_repeat = segment.action[1:] == segment.action[:-1]
  shares = (is_repeat & is_inside).sum(0) / is_inside.sum(0)
  assert shares[:2].min() > shares[2:].max()


def test_collectors_use_the_settings(monkeypatch):
  seen = []
  monkeypatch.setattr(build, "with_holding", lambda agent, *numbers: seen.append(numbers) or agent)
  for num_holding, until, num_workers, began_at in (
    (0, 100, 1, 0),
    (2, "null", 1, 0),
    (9, 100, 1, 0),  # of four environments
    (2, 101, 2, 0),
    (2, 100, 2, 5000),
  ):
    settings = {"num_holding_envs": num_holding, "holding_env_steps": until, "num_workers": num_workers}
    config = load_config(None, [*TINY, *(f"workers.{name}={value}" for name, value in settings.items())])
    build.build_collector(config, build.env_spec(config), 0, began_at).close()
  assert seen == [(2, None, 0), (4, 25, 0), (2, 13, 0), (2, 13, 625)]


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    (["algorithm=ppo"], "num_holding_envs=1 needs algorithm=muzero or q_learning, not ppo"),
    (["offline.trajectories=there", "offline.fraction=1"], "num_holding_envs=1: no worker acts"),
  ],
)
def test_refused_settings(settings, message):
  with pytest.raises(UserError, match=message):
    load_config(None, [*TINY, "workers.num_holding_envs=1", *settings])


def test_self_play_is_refused():
  config = load_config(None, [*TINY, "workers.num_holding_envs=1"])
  check_players(config, make_spec())
  with pytest.raises(UserError, match=r"num_holding_envs=1: must be 0 with env\.name=tiny:catch; in self-"):
    check_players(config, make_spec(num_players=2))

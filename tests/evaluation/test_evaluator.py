"""Tests of the evaluator."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.agent.agent import Decision, make_agent
from moozi.core.config import Config
from moozi.envs.wrappers import EnvironmentWrapper
from moozi.evaluation.evaluator import Evaluator
from moozi.evaluation.evaluator import evaluation_planner as planner_of
from moozi.evaluation.lanes import one_lane
from moozi.evaluation.random_play import random_returns
from moozi.io.config import load_config
from moozi.run import build
from tests.envs.environments import LIVES_SPEC, make_lives
from tests.tiny_run import TINY

BASE = (*TINY, "targets.history_length=2")
BOARD = (
  "env.name=open_spiel:tic_tac_toe",
  "evaluation.max_random_starts=0",
  "targets.history_length=4",
  "targets.discount=0.5",
)


def last_legal(spec):
  """Returns an agent that plays the last legal action."""

  def decide(variables, history, timestep, key, temperature, position):
    legal = timestep.legal_actions_mask
    action = legal.shape[1] - 1 - jnp.argmax(legal[:, ::-1], axis=1)
    zeros = jnp.zeros(legal.shape)
    return Decision(action=action, action_probs=zeros, root_value=zeros[:, 0], extras={})

  return make_agent(decide, spec, 1)


_COMPILED: dict[str, tuple[Any, Any]] = {}


def prepare(overrides=()):
  """Returns (evaluator, variables) with a perturbed network. Equal agents are compiled once."""
  config = load_config(None, [*BASE, *overrides])
  spec = build.env_spec(config)
  evaluator = build.build_evaluator(config, spec)
  without_evaluation = config.model_copy(update={"evaluation": Config().evaluation})
  key = f"{without_evaluation.model_dump_json()} {planner_of(config)}"
  if key not in _COMPILED:
    (params, net_state), _ = build.build_learner(config, spec).parameters()
    # The initial network gives equal values everywhere, and mctx breaks exact ties randomly.
    random = np.random.default_rng(0)
    params = jax.tree_util.tree_map(lambda x: x + 0.3 * random.standard_normal(x.shape, np.float32), params)
    _COMPILED[key] = evaluator._act, (params, net_state)
  evaluator._act, variables = _COMPILED[key]
  return evaluator, variables


def evaluate(overrides=(), num_episodes=7, **kwargs):
  evaluator, variables = prepare(overrides)
  return evaluator.run(variables, num_episodes=num_episodes, **kwargs)


@pytest.fixture(scope="module")
def result():
  return evaluate(record=True)


def test_every_episode_is_played_once(result):
  assert result.returns.shape == (7,)
  assert set(result.returns) <= {-1.0, 1.0}
  # An episode of Catch has nine steps; random starts replace up to two of them.
  assert ((result.lengths >= 7) & (result.lengths <= 9)).all()


def test_idle_lanes_change_nothing():
  """With episodes of different lengths, some environments idle at the end."""
  narrow, wide = (play_last_legal(f"evaluation.num_envs={n}") for n in (3, 11))
  np.testing.assert_array_equal(wide.lengths, narrow.lengths)
  assert len(set(narrow.lengths)) > 1
  assert wide.num_distinct == narrow.num_distinct


def test_sampled_actions_do_not_depend_on_the_other_episodes():
  """Episodes have different lengths, so that they are beside others in a narrower evaluation."""
  options = ("env.name=tiny:point", "planners.test.num_sampled_actions=5", "planners.test.num_simulations=8")
  narrow, wide = (evaluate([*options, f"evaluation.num_envs={n}"], record=True) for n in (2, 5))
  assert len(set(narrow.lengths)) > 1
  np.testing.assert_array_equal(narrow.returns, wide.returns)
  assert len(set(narrow.returns)) == 7
  evaluator, variables = prepare([*options, "evaluation.num_envs=2"])
  alone = list(evaluator.play(variables, 4))
  np.testing.assert_array_equal(np.stack([step.frame for step in alone]), wide.tiles[4].frames)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["gumbel", "puct", "stochastic", "stochastic_gumbel"])
def test_noisy_search_is_made_noise_free(algorithm):
  """If the search were noisy, the episodes would depend on `evaluation.num_envs`."""
  noisy = ["planners.test.gumbel_scale=10", f"planners.test.algorithm={algorithm}"]
  if algorithm.startswith("stochastic"):
    noisy += ["chance.codes=3"]
  if not algorithm.endswith("gumbel"):
    noisy += ["planners.test.dirichlet_fraction=0.9", "planners.test.temperature=3"]
  narrow = evaluate([*noisy, "evaluation.num_envs=2"])
  wide = evaluate([*noisy, "evaluation.num_envs=5"])
  np.testing.assert_array_equal(narrow.returns, wide.returns)
  loud = evaluate([*noisy, "evaluation.num_envs=5", "evaluation.noise_free=false"], num_episodes=12)
  quiet = evaluate([*noisy, "evaluation.num_envs=5"], num_episodes=12)
  assert loud.returns.tolist() != quiet.returns.tolist()


def test_should_stop_ends_the_evaluation():
  assert evaluate(should_stop=lambda: True) is None


def test_episodes_do_not_depend_on_num_episodes(result):
  few = evaluate(num_episodes=2)
  np.testing.assert_array_equal(few.returns, result.returns[:2])


def test_runs_are_repeatable(result):
  again = evaluate(record=True)
  np.testing.assert_array_equal(again.returns, result.returns)
  np.testing.assert_array_equal(again.episode.actions, result.episode.actions)


def test_record_is_the_first_episode(result):
  episode = result.episode
  assert len(episode.frames) == result.lengths[0] + 1
  assert episode.rewards[1:].sum() == result.returns[0]
  assert (episode.actions[:-1] > 0).all()
  assert episode.actions[-1] == 0


@pytest.mark.slow
def test_record_has_the_predicted_outcomes(result):
  assert result.episode.chance_probs is None
  coin = ("env.name=tiny:coin", "network.kind=mlp", "chance.codes=4", "planners.test.algorithm=stochastic")
  episode = evaluate(coin, record=True).episode
  assert episode.chance_probs.shape == (len(episode.frames), 4)
  np.testing.assert_allclose(episode.chance_probs[:-1].sum(axis=-1), 1, atol=1e-5)
  assert (episode.chance_probs[-1] == 0).all()
  assert episode.chance_probs[:-1].std() > 0


def test_gif_max_frames_limits_the_record(result):
  short = evaluate(["evaluation.gif_max_frames=3"], record=True).episode
  assert len(short.frames) == len(short.actions) == 3
  np.testing.assert_array_equal(short.frames, result.episode.frames[:3])
  np.testing.assert_array_equal(short.action_probs, result.episode.action_probs[:3])
  assert short.length == result.episode.length == result.lengths[0]


@pytest.mark.slow
def test_value_at_the_end(result):
  assert result.episode.root_values[-1] == 0
  evaluator, variables = prepare(["evaluation.max_episode_steps=3"])
  episode = evaluator.run(variables, num_episodes=1, record=True).episode
  *_, last = evaluator.play(variables, 0)
  assert last.is_truncated
  assert np.isnan([episode.root_values[-1], last.root_value]).all()
  assert np.isfinite(episode.root_values[:-1]).all()


def test_pictures_are_recorded(result):
  assert result.episode.pictures is None
  config = load_config(None, [*TINY, "evaluation.max_random_starts=0"])
  evaluator = Evaluator(last_legal(LIVES_SPEC), 0.0, config, LIVES_SPEC, lambda seed: make_lives())
  episode = evaluator.run({}, num_episodes=2, record=True).episode
  # The game with lives draws its frame's step count into each picture.
  assert len(episode.pictures) == len(episode.frames) > 2
  np.testing.assert_array_equal(episode.pictures[:, 0, 0, 0], episode.frames[:, 0, 0, 0])
  plain = evaluator.run({}, num_episodes=2)
  assert plain.episode is None


def test_different_frames_make_episodes_distinct():
  """Actions and rewards are the same in all episodes; only the frames depend on the seed."""

  result = play_last_legal("evaluation.max_random_starts=0")
  assert (result.returns.tolist(), result.lengths.tolist()) == ([0.0] * 7, [9] * 7)
  assert result.num_distinct == 7
  assert play_last_legal("evaluation.max_random_starts=0", wrap=Unseeded).num_distinct == 1


class Unseeded(EnvironmentWrapper):
  """Ignores the seed: all episodes are the same."""

  def seed(self, seed):
    super().seed(0)


def play_last_legal(*overrides, wrap=lambda env: env):
  """Evaluates `last_legal` in an environment whose frames depend on the seed; returns the result."""
  env = "tests.envs.suites.user_fakes:Counter"
  config = load_config(None, [*BASE, f"env.name={env}", *overrides])
  make = build.make_test_env(config)
  spec = build.env_spec(config)
  evaluator = Evaluator(last_legal(spec), 0.0, config, spec, lambda seed: wrap(make(seed)))
  return evaluator.run({}, num_episodes=7)


def test_max_episode_steps_ends_episodes():
  """The corridor is deterministic, so all seven episodes are the same."""
  endless = ["env.name=tiny:corridor", "env.kwargs.length=100", "env.kwargs.max_episode_steps=null"]
  result = play_last_legal(*endless, "evaluation.max_episode_steps=3", "evaluation.max_random_starts=0")
  assert result.lengths.tolist() == [3] * 7
  assert result.num_distinct == 1


def test_noise_free_planner(tiny_config):
  planner = planner_of(
    load_config(None, [*TINY, "planners.test.algorithm=puct", "planners.test.temperature=0.25"])
  )
  assert (planner.temperature, planner.dirichlet_fraction, planner.gumbel_scale) == (0.0, 0.0, 0.0)
  noisy = load_config(
    None,
    [
      *TINY,
      "planners.test.algorithm=puct",
      "planners.test.temperature=0.25",
      "evaluation.noise_free=false",
      "planners.test.dirichlet_fraction=0.1",
    ],
  )
  assert planner_of(noisy, 7).temperature == 0.25
  assert planner_of(noisy, 7).dirichlet_fraction == 0.1
  assert planner_of(noisy, 7).num_simulations == 7
  assert planner_of(tiny_config, 9).num_simulations == 9


def test_summary(result):
  summary = result.summary()
  assert summary["episodes"] == 7
  assert summary["return_mean"] == pytest.approx(result.returns.mean())
  assert summary["return_min"] == result.returns.min()


def test_random_play_of_catch(tiny_config):
  config = load_config(None, [*TINY, "evaluation.max_random_starts=0"])
  returns = random_returns(config, num_episodes=300)
  # The mean return of random play is about -0.6, with a standard error of 0.05.
  assert returns.mean() == pytest.approx(-0.6, abs=0.2)
  np.testing.assert_array_equal(returns[:5], random_returns(config, num_episodes=5))


def test_tiles_are_the_first_episodes(result):
  assert len(result.tiles) == 7
  for i, tile in enumerate(result.tiles):
    assert len(tile.frames) == len(tile.totals) == len(tile.to_play) == result.lengths[i] + 1
    assert tile.totals[0] == 0.0
    assert tile.totals[-1] == result.returns[i]
    # The ball falls one row per step, so no frame is missing.
    rows = tile.frames[..., 0].argmax(axis=1).max(axis=-1)
    assert (np.diff(rows) == 1).all()
  np.testing.assert_array_equal(result.tiles[0].frames, result.episode.frames)


def test_tiles_are_bounded_by_config():
  few = evaluate(["evaluation.gif_tiles=2", "evaluation.gif_max_frames=3"], record=True)
  assert [len(tile.frames) for tile in few.tiles] == [3, 3]
  assert evaluate(["evaluation.gif_tiles=0"], record=True, num_episodes=2).tiles == ()
  assert evaluate(num_episodes=2).tiles == ()


def test_one_lane_holds_one_episode(tiny_config):
  spec = build.env_spec(tiny_config)
  with one_lane(tiny_config, spec, build.make_test_env(tiny_config), 5) as lanes:
    probs = np.zeros((1, spec.num_actions))
    decision = Decision(action=np.array([2]), action_probs=probs, root_value=np.zeros(1), extras={})
    while not lanes.is_done:
      assert lanes.num_finished == 0
      lanes.step(decision)
    found = lanes.result(version=0, env_steps=0)
  assert found.lengths.shape == found.returns.shape == (1,)
  assert found.lengths[0] >= 7
  assert found.num_distinct == lanes.num_finished == 1


def test_play_equals_run(result):
  evaluator, variables = prepare()
  played = evaluator.run(variables, num_episodes=2, record=True)
  for episode in (0, 1):
    steps = list(evaluator.play(variables, episode))
    assert len(steps) == played.lengths[episode] + 1
    np.testing.assert_array_equal(np.stack([s.frame for s in steps]), played.tiles[episode].frames)
    assert sum(s.reward for s in steps) == played.returns[episode]
    assert [s.is_first for s in steps] == [True] + [False] * (len(steps) - 1)
    assert [s.is_last for s in steps] == [False] * (len(steps) - 1) + [True]
    assert (steps[-1].action, steps[-1].root_value) == (0, 0.0)
  first = list(evaluator.play(variables, 0))
  assert [s.action for s in first] == played.episode.actions.tolist()
  np.testing.assert_allclose([s.root_value for s in first], played.episode.root_values, rtol=1e-4, atol=1e-5)

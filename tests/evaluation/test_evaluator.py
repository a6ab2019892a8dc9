"""Evaluation: fixed episodes, whatever the width; noise-free; told apart."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.agent.policy import make_policy
from moozi.envs.wrappers import EnvironmentWrapper
from moozi.evaluation.evaluator import Evaluator
from moozi.evaluation.evaluator import evaluation_planner as planner_of
from moozi.evaluation.random_play import random_returns
from moozi.io.config import load_config
from moozi.run import build
from tests.envs.environments import LIVES_SPEC, make_lives
from tests.tiny_run import TINY


def make_params(config, spec):
  params, net_state, _ = build.build_learner(config, spec).parameters()
  # A fresh network is worth the same everywhere, and mctx breaks exact ties by the key.
  random = np.random.default_rng(0)
  params = jax.tree_util.tree_map(lambda x: x + 0.3 * random.standard_normal(x.shape, np.float32), params)
  return params, net_state


def evaluate(overrides=(), num_episodes=7, **kwargs):
  config = load_config(None, [*TINY, *overrides])
  spec = build.env_spec(config)
  params, net_state = make_params(config, spec)
  return build.build_evaluator(config, spec).run(params, net_state, num_episodes=num_episodes, **kwargs)


@pytest.fixture(scope="module")
def result():
  return evaluate(record=True)


def test_every_episode_is_played_once(result):
  assert result.returns.shape == (7,)
  assert set(result.returns) <= {-1.0, 1.0}
  # Nine steps of Catch less the k of the random start.
  assert ((result.lengths >= 7) & (result.lengths <= 9)).all()


def test_episodes_do_not_depend_on_how_many_are_played_side_by_side(result):
  wide = evaluate(["evaluation.num_envs=11"])
  np.testing.assert_array_equal(wide.returns, result.returns)
  np.testing.assert_array_equal(wide.lengths, result.lengths)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["gumbel", "puct"])
def test_a_noisy_testing_search_is_made_noise_free(algorithm):
  """Noise in `planners.test` must not reach evaluation: with it, episodes would depend on the width."""
  noisy = ["planners.test.gumbel_scale=10", f"planners.test.algorithm={algorithm}"]
  if algorithm == "puct":
    noisy += ["planners.test.dirichlet_fraction=0.9", "planners.test.temperature=3"]
  narrow = evaluate([*noisy, "evaluation.num_envs=2"])
  wide = evaluate([*noisy, "evaluation.num_envs=5"])
  np.testing.assert_array_equal(narrow.returns, wide.returns)
  loud = evaluate([*noisy, "evaluation.num_envs=5", "evaluation.noise_free=false"], num_episodes=12)
  quiet = evaluate([*noisy, "evaluation.num_envs=5"], num_episodes=12)
  assert loud.returns.tolist() != quiet.returns.tolist()


def test_a_stop_leaves_the_episodes():
  assert evaluate(should_stop=lambda: True) is None


def test_episodes_do_not_depend_on_the_number_of_episodes(result):
  few = evaluate(num_episodes=2)
  np.testing.assert_array_equal(few.returns, result.returns[:2])


def test_calling_again_plays_the_same(result):
  again = evaluate(record=True)
  np.testing.assert_array_equal(again.returns, result.returns)
  np.testing.assert_array_equal(again.episode.actions, result.episode.actions)


def test_the_record_is_the_first_episode(result):
  episode = result.episode
  assert len(episode.frames) == result.lengths[0] + 1
  assert episode.rewards[1:].sum() == result.returns[0]
  assert (episode.actions[:-1] > 0).all()
  assert episode.actions[-1] == 0


def test_a_long_episode_is_recorded_no_longer_than_the_gif(result):
  short = evaluate(["evaluation.gif_max_frames=3"], record=True).episode
  assert len(short.frames) == len(short.actions) == 3
  np.testing.assert_array_equal(short.frames, result.episode.frames[:3])
  np.testing.assert_array_equal(short.action_probs, result.episode.action_probs[:3])
  assert short.length == result.episode.length == result.lengths[0]


def test_a_terminal_frame_is_worth_0_and_a_truncated_one_was_not_searched(result):
  assert result.episode.root_values[-1] == 0
  config = load_config(None, [*TINY, "evaluation.max_episode_steps=3"])
  spec = build.env_spec(config)
  params, net_state = make_params(config, spec)
  evaluator = build.build_evaluator(config, spec)
  episode = evaluator.run(params, net_state, num_episodes=1, record=True).episode
  *_, last = evaluator.play(params, net_state, 0)
  assert last.is_truncated
  assert np.isnan([episode.root_values[-1], last.root_value]).all()
  assert np.isfinite(episode.root_values[:-1]).all()


def test_an_envs_own_pictures_are_recorded_where_it_has_them(result):
  assert result.episode.pictures is None
  config = load_config(None, [*TINY, "evaluation.max_random_starts=0"])
  planner = planner_of(config)
  policy = make_policy(build.build_model(config, LIVES_SPEC), planner, config.targets, LIVES_SPEC)
  params, net_state, _ = build.build_learner(config, LIVES_SPEC).parameters()
  evaluator = Evaluator(
    policy, 0.0, config.targets.history_length, config, LIVES_SPEC, lambda seed: make_lives()
  )
  episode = evaluator.run(params, net_state, num_episodes=2, record=True).episode
  # Each picture is of the frame beside it: the environment of lives paints the count that the frame holds.
  assert len(episode.pictures) == len(episode.frames) > 2
  np.testing.assert_array_equal(episode.pictures[:, 0, 0, 0], episode.frames[:, 0, 0, 0])
  plain = evaluator.run(params, net_state, num_episodes=2)
  assert plain.episode is None


def test_distinct_episodes_are_counted():
  alike = evaluate(
    ["evaluation.max_random_starts=0", "env.name=tiny:corridor", "env.kwargs.max_episode_steps=5"]
  )
  assert alike.num_distinct == 1, "an environment without chance, one policy without noise: one episode"


class Chosen(NamedTuple):
  """What is read of a policy's output."""

  action: Any
  root_value: Any
  action_probs: Any


def test_episodes_that_show_something_else_are_distinct():
  """The same actions and rewards in all of them: what the environment shows is drawn by each episode's
  seed.
  """

  def last_legal(params, net_state, history, timestep, key, temperature, forced):
    legal = timestep.legal_actions_mask
    action = legal.shape[1] - 1 - jnp.argmax(legal[:, ::-1], axis=1)
    return history, Chosen(action, jnp.zeros(len(legal)), jnp.zeros(legal.shape))

  env = "tests.envs.suites.user_fakes:Counter"
  config = load_config(None, [*TINY, f"env.name={env}", "evaluation.max_random_starts=0"])
  spec, make = build.env_spec(config), build.make_test_env(config)
  result = Evaluator(last_legal, 0.0, 1, config, spec, make).run({}, {}, num_episodes=7)
  assert (result.returns.tolist(), result.lengths.tolist()) == ([0.0] * 7, [9] * 7)
  assert result.num_distinct == 7
  alike = Evaluator(last_legal, 0.0, 1, config, spec, lambda seed: Unseeded(make(seed)))
  assert alike.run({}, {}, num_episodes=7).num_distinct == 1


class Unseeded(EnvironmentWrapper):
  """The same episode over and over."""

  def seed(self, seed):
    super().seed(0)


def test_an_endless_env_is_cut():
  cut = evaluate(
    [
      "evaluation.max_episode_steps=3",
      "evaluation.max_random_starts=0",
      "env.name=tiny:corridor",
      "env.kwargs.length=100",
      "env.kwargs.max_episode_steps=null",
    ]
  )
  assert cut.lengths.max() <= 3


def test_noise_free_means_no_noise(tiny_config):
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


def test_summary_has_the_figures(result):
  summary = result.summary()
  assert summary["episodes"] == 7
  assert summary["return_mean"] == pytest.approx(result.returns.mean())
  assert summary["return_min"] == result.returns.min()


def test_random_play_is_what_catch_gives(tiny_config):
  config = load_config(None, [*TINY, "evaluation.max_random_starts=0"])
  returns = random_returns(config, num_episodes=300)
  # Random play of Catch: about -0.6, standard error 0.05.
  assert returns.mean() == pytest.approx(-0.6, abs=0.2)
  np.testing.assert_array_equal(returns[:5], random_returns(config, num_episodes=5))


def test_tiles_are_the_first_episodes_as_they_looked(result):
  assert len(result.tiles) == 7, "there are fewer episodes than tiles"
  for i, tile in enumerate(result.tiles):
    assert len(tile.frames) == len(tile.returns) == len(tile.to_play) == result.lengths[i] + 1
    assert tile.returns[0] == 0.0
    assert tile.returns[-1] == result.returns[i]
    # Catch: a ball that falls one row at a time.
    rows = tile.frames[..., 0].argmax(axis=1).max(axis=-1)
    assert (np.diff(rows) == 1).all()
  np.testing.assert_array_equal(result.tiles[0].frames, result.episode.frames)


def test_tiles_are_bounded_by_config():
  few = evaluate(["evaluation.gif_tiles=2", "evaluation.gif_max_frames=3"], record=True)
  assert [len(tile.frames) for tile in few.tiles] == [3, 3]
  assert evaluate(["evaluation.gif_tiles=0"], record=True, num_episodes=2).tiles == ()
  assert evaluate(num_episodes=2).tiles == ()


def test_an_episode_that_is_watched_is_the_one_that_is_evaluated(result):
  config = load_config(None, list(TINY))
  spec = build.env_spec(config)
  params, net_state = make_params(config, spec)
  evaluator = build.build_evaluator(config, spec)
  played = evaluator.run(params, net_state, num_episodes=2, record=True)
  for episode in (0, 1):
    steps = list(evaluator.play(params, net_state, episode))
    assert len(steps) == played.lengths[episode] + 1
    np.testing.assert_array_equal(np.stack([s.frame for s in steps]), played.tiles[episode].frames)
    assert sum(s.reward for s in steps) == played.returns[episode]
    assert [s.is_first for s in steps] == [True] + [False] * (len(steps) - 1)
    assert [s.is_last for s in steps] == [False] * (len(steps) - 1) + [True]
    assert (steps[-1].action, steps[-1].root_value) == (0, 0.0)
  first = list(evaluator.play(params, net_state, 0))
  assert [s.action for s in first] == played.episode.actions.tolist()
  np.testing.assert_allclose([s.root_value for s in first], played.episode.root_values, rtol=1e-4, atol=1e-5)

"""Tests that inspected episodes equal the evaluation's and contain the search's decisions."""

import jax
import numpy as np
import pytest

from moozi.analysis import inspection
from moozi.analysis.inspection import compact_tree, inspect_episode
from moozi.core.errors import EnvError
from moozi.core.search_record import SearchTree
from moozi.envs.wrappers import EnvironmentWrapper
from moozi.io.config import load_config
from moozi.ops.history import normalize_frame, stack_history
from moozi.run import build
from tests.evaluation.test_evaluator import BASE, BOARD, prepare


class Played:
  """Holds a configuration with a perturbed network, its evaluation, and inspected episodes."""

  def __init__(self, overrides, indices, num_episodes, **kwargs):
    self.config = load_config(None, [*BASE, *overrides])
    self.spec = build.env_spec(self.config)
    evaluator, self.variables = prepare(overrides)
    if num_episodes:
      self.result = evaluator.run(self.variables, num_episodes=num_episodes, record=True)
    self.episodes = [self.inspect(index, **kwargs) for index in indices]

  def inspect(self, index, **kwargs):
    return inspect_episode(self.config, self.spec, self.variables, index=index, **kwargs)


@pytest.fixture(scope="module")
def catch():
  return Played([], [0, 2], 3)


@pytest.fixture(scope="module")
def board():
  pytest.importorskip("pyspiel")
  return Played(BOARD, [0, 1], 2)


@pytest.mark.slow
def test_inspected_episode_equals_evaluation(catch):
  for index, episode in zip([0, 2], catch.episodes, strict=True):
    assert episode.totals[-1] == catch.result.returns[index]
    assert episode.num_decisions == catch.result.lengths[index]
    assert episode.end == "terminal"
  recorded, first = catch.result.episode, catch.episodes[0]
  np.testing.assert_array_equal(first.frames, recorded.frames)
  np.testing.assert_array_equal(first.actions, recorded.actions)
  np.testing.assert_array_equal(first.rewards, recorded.rewards)
  # Inspection searches in batches of 1 instead of 3, which changes the rounding.
  np.testing.assert_allclose(first.root_values, recorded.root_values, atol=1e-3)
  np.testing.assert_allclose(first.action_probs[:-1], recorded.action_probs[:-1], atol=1e-3)


class Breaking(EnvironmentWrapper):
  """Raises an error in the environment's fifth step."""

  num_steps, is_closed = 0, False

  def step(self, action):
    self.num_steps += 1
    if self.num_steps == 5:
      raise RuntimeError("no more balls")
    return super().step(action)

  def close(self):
    self.is_closed = True
    super().close()


@pytest.mark.slow
def test_failed_env_is_reported_and_closed(catch, monkeypatch):
  make, made = build.make_test_env(catch.config), []

  def make_breaking(seed):
    made.append(Breaking(make(seed)))
    return made[-1]

  monkeypatch.setattr(inspection, "make_test_env", lambda config: make_breaking)
  with pytest.raises(EnvError, match=r"^env\.name=tiny:catch: RuntimeError: no more balls$"):
    catch.inspect(0)
  (env,) = made
  assert env.is_closed


@pytest.mark.slow
def test_env_is_closed_on_interrupt(catch, monkeypatch):
  make, made = build.make_test_env(catch.config), []

  def make_noted(seed):
    made.append(Breaking(make(seed)))
    return made[-1]

  def interrupt(step):
    raise KeyboardInterrupt

  monkeypatch.setattr(inspection, "make_test_env", lambda config: make_noted)
  with pytest.raises(KeyboardInterrupt):
    catch.inspect(0, on_step=interrupt)
  assert made[0].is_closed


@pytest.mark.slow
def test_returns_are_discounted_to_the_end(catch):
  for episode in catch.episodes:
    # Only the last step of Catch has a reward.
    last = episode.num_decisions
    want = [0.997 ** (last - t - 1) * episode.rewards[-1] for t in range(last)] + [0.0]
    np.testing.assert_allclose(episode.returns, want, rtol=1e-4)


@pytest.mark.slow
def test_every_decision_has_a_tree(catch):
  episode = catch.episodes[0]
  assert episode.num_simulations == 4
  assert episode.trees[-1] is None
  for t, tree in enumerate(episode.trees[:-1]):
    assert tree.visits[0] == 5
    assert tree.num_nodes == 5
    first = tree.depth == 1
    assert tree.visits[first].sum() == 4
    worth = tree.reward[first] + 0.997 * tree.value[first]
    np.testing.assert_allclose(worth, episode.q_values[t, tree.action[first]], atol=1e-4)
    assert tree.raw_value[0] == pytest.approx(episode.prior_values[t], abs=1e-5)


@pytest.mark.slow
def test_imagined_values_are_the_models_unroll(catch):
  """The values equal those of direct model calls on histories built by the test."""
  model, episode = build.build_model(catch.config, catch.spec), catch.episodes[0]
  root_inference = jax.jit(model.root_inference, static_argnums=3)
  recurrent_inference = jax.jit(model.recurrent_inference, static_argnums=4)
  num, length = episode.num_frames, catch.config.targets.unroll_steps
  assert episode.imagined_rewards.shape == (num, length)
  assert episode.imagined_values.shape == (num, length + 1)
  for t in (0, 3, num - 2, num - 1):
    frames = np.stack(
      [np.zeros_like(episode.frames[0]) if t == 0 else episode.frames[t - 1], episode.frames[t]]
    )
    before = np.array([episode.actions[t - 2] if t > 1 else 0, episode.actions[t - 1] if t > 0 else 0])
    stacked = stack_history(normalize_frame(frames, catch.spec.frame_dtype), before, catch.spec.policy_groups)
    output, _ = root_inference(*catch.variables, stacked[None], False)
    assert episode.imagined_values[t, 0] == pytest.approx(float(scalar(model, output.value_logits)), abs=1e-4)
    for k in range(length):
      action = np.array([episode.actions[t + k] if t + k < num else 0])
      output, _ = recurrent_inference(*catch.variables, output.hidden_state, action, False)
      reward, value = scalar(model, output.reward_logits), scalar(model, output.value_logits)
      assert episode.imagined_rewards[t, k] == pytest.approx(float(reward), abs=1e-4)
      assert episode.imagined_values[t, k + 1] == pytest.approx(float(value), abs=1e-4)


def scalar(model, logits):
  return model.transform.to_scalar(logits)[0]


@pytest.mark.slow
def test_network_q_values_are_one_model_step(catch, board):
  for played, discount in ((catch, 0.997), (board, -0.5)):
    episode = played.episodes[0]
    t = np.arange(episode.num_decisions)
    got = episode.network_q_values[t, episode.actions[t]]
    want = episode.imagined_rewards[t, 0] + discount * episode.imagined_values[t, 1]
    np.testing.assert_allclose(got, want, atol=1e-4)


@pytest.mark.slow
def test_max_steps_cuts_the_episode(catch):
  episode = catch.inspect(0, max_steps=3)
  whole = catch.episodes[0]
  assert (episode.end, episode.num_frames, episode.num_decisions) == ("cut", 4, 3)
  np.testing.assert_array_equal(episode.actions, [*whole.actions[:3], 0])
  assert episode.trees[-1] is not None
  # The return bootstraps from the search value of the last frame.
  assert episode.returns[0] == pytest.approx(0.997**3 * episode.root_values[3], rel=1e-4)


def test_time_limit_truncates():
  played = Played(["evaluation.max_episode_steps=2"], [1], 0)
  (episode,) = played.episodes
  assert (episode.end, episode.num_decisions) == ("truncated", 2)
  assert episode.root_values[-1] != 0
  assert episode.returns[-1] == episode.root_values[-1]
  want = episode.rewards[2] + 0.997 * episode.root_values[2]
  assert episode.returns[1] == pytest.approx(want, rel=1e-4)


@pytest.mark.slow
def test_signs_of_two_players(board):
  for index, episode in enumerate(board.episodes):
    assert episode.seat == index
    assert episode.totals[-1] == board.result.returns[index]
    assert episode.num_decisions == board.result.lengths[index]
    assert episode.signed_discount == -0.5
    num = episode.num_decisions
    np.testing.assert_array_equal(episode.to_play[:num], np.arange(num) % 2)
    np.testing.assert_array_equal(episode.seat_sign, np.where(episode.to_play == index, 1, -1))
    np.testing.assert_array_equal(episode.is_agents[:num], episode.to_play[:num] == index)
    assert (episode.legal_actions_mask[np.arange(num), episode.actions[:num]]).all()
    # The only reward belongs to the last mover; seen from step t, its sign alternates with the distance.
    last = num - 1
    want = [(-0.5) ** (last - t) * episode.rewards[-1] for t in range(num)]
    np.testing.assert_allclose(episode.returns[:num], want, atol=1e-6)
  assert any(episode.rewards[-1] for episode in board.episodes)


def test_compact_tree_removes_unvisited_nodes():
  columns = {
    "parent": [-1, 0, -1, 1, -1, 3],
    "action": [-1, 2, -1, 1, -1, 3],
    "depth": [0, 1, 0, 2, 0, 3],
    "visits": [6, 4, 0, 2, 0, 1],
  }
  tree = SearchTree(
    **{name: np.array(x, np.int32) for name, x in columns.items()},
    **{name: np.arange(6, dtype=np.float32) for name in ("value", "raw_value", "reward", "prior")},
    is_chance=np.zeros(6, bool),
  )
  small = compact_tree(tree)
  assert small.parent.tolist() == [-1, 0, 1, 2]
  assert small.action.tolist() == [-1, 2, 1, 3]
  assert small.visits.tolist() == [6, 4, 2, 1]
  assert small.value.tolist() == [0, 1, 3, 5]

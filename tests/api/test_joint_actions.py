"""Tests of agents in environments whose actions have dimensions: what they take, return and show."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import moozi
from moozi.core.errors import UserError
from moozi.envs import registry
from tests.commands.conftest import PPO, make_run


@pytest.fixture(name="point", scope="module")
def _point(runs):
  return moozi.load(runs["point"])


@pytest.fixture(name="dials", scope="module")
def _dials(runs):
  return moozi.load(runs["dials"])


def test_act_returns_the_environments_own_action(point):
  env = point.make_env()
  step, lengths = env.reset(), 0
  point.reset()
  while not step.last():
    found = point.search(step)
    action = point.act(step)
    assert (action.dtype, action.shape) == (np.float32, (2,))
    assert_array_equal(action, found.own_action)
    assert found.action == env.env_spec.factors.joint_action(action)
    step, lengths = env.step(action), lengths + 1
  assert lengths == 10


@pytest.mark.slow
def test_actions_of_several_games_are_stacked_and_equal_those_alone(point):
  steps = [point.make_env(seed).reset() for seed in range(3)]
  point.reset()
  together = point.act(steps)
  assert (together.dtype, together.shape) == (np.float32, (3, 2))
  for i, step in enumerate(steps):
    point.reset()
    assert_array_equal(point.act(step), together[i])
  assert len({point.spec.factors.joint_action(own) for own in point.spec.factors.split(together)}) > 1


def test_a_policys_actions_of_several_games_equal_those_alone(dials):
  steps = [dials.make_env(seed).reset() for seed in range(3)]
  dials.reset()
  together = dials.act(steps)
  for i, step in enumerate(steps):
    dials.reset()
    assert_array_equal(dials.act(step), together[i])
  dials.reset()
  assert_array_equal(dials.act(steps, lanes=[1])[1], together[1])


def test_gymnasiums_vector_environment_takes_them(dials):
  gymnasium = pytest.importorskip("gymnasium")
  envs = gymnasium.vector.SyncVectorEnv([lambda: dials.make_env().as_gymnasium()] * 3)
  frames, info = envs.reset(seed=0)
  dials.reset()
  actions = dials.act(frames.view(moozi.Frame), info["legal_actions_mask"])
  assert envs.action_space.contains(actions)
  assert (envs.step(actions)[1] <= 1).all()


def test_observed_actions_have_either_form(dials):
  env = dials.make_env()
  step, own = env.reset(), np.array([4, 0, 2])
  number = env.env_spec.factors.joint_action(own)

  def act_after(*observed):
    dials.reset()
    dials.observe(*observed)
    return dials.act(observed[0])

  expected = act_after(step.observation, number)
  assert_array_equal(act_after(step.observation, own), expected)
  rows = [step.observation] * 2
  assert_array_equal(act_after(rows, [number, number]), [expected] * 2)
  assert_array_equal(act_after(rows, np.array([own, own])), [expected] * 2)
  with pytest.raises(UserError, match="action=9: must be from 0 to 4 in dial 1"):
    dials.observe(step.observation, [0, 9, 0])
  with pytest.raises(UserError, match=r"action: must be numbers of shape \[3\]"):
    dials.observe(step.observation, [0.0, 1.0])
  with pytest.raises(UserError, match="3 rows; must have 2"):
    dials.observe(rows, np.zeros((3, 3), int))


def test_a_search_lists_its_samples(point):
  point.reset()
  found = point.search(point.make_env(seed=3).reset())
  names = [point.spec.factors.name(a) for a in found.actions]
  assert list(found.action_names) == names
  assert len(set(names)) == 6
  assert (np.diff(found.actions) > 0).all()
  assert found.action in found.actions
  assert found.visits.sum() == found.num_simulations == 4
  assert_allclose(found.policy.sum(), 1, rtol=1e-5)
  assert 0 < found.prior.sum() <= 1
  assert np.isfinite(found.network_q_values).all()
  assert point.spec.factors.name(found.action) in str(found)
  frame = found.to_frame()
  assert list(frame.index) == found.actions.tolist()
  assert (frame["q"].isna() == (found.visits == 0)).all()
  assert "named by their values of: x, y" in found.svg()
  assert names[0] in found._repr_html_()


def test_inspected_choices_are_those_of_the_search(runs):
  """The network's Q-values are those of the sampled actions, and priors the product of the marginals."""
  point = moozi.load(runs["point"])
  episode = point.inspect(0, max_steps=3)
  assert episode.choices.shape == episode.q_values.shape == episode.prior_probs.shape == (4, 6)
  for t in range(3):
    if t == 0:
      found = point.search(moozi.Observation(episode.frames[0], np.ones(14, bool), 0))
      assert_array_equal(found.actions, episode.choices[0] - 1)
      for name, values in (("policy", "action_probs"), ("prior", "prior_probs")):
        assert_allclose(getattr(found, name), getattr(episode, values)[0], rtol=1e-4, atol=1e-6)
      assert_allclose(found.network_q_values, episode.network_q_values[0], rtol=1e-4, atol=1e-5)
    tree = episode.trees[t]
    visits = tree.root_visits(episode.choices_at(t))
    assert visits.sum() == 4
    assert episode.actions[t] in episode.choices[t]
    assert tree.action[1:].min() >= 1
    assert tree.action.max() <= 49
    at_root = np.flatnonzero(tree.parent == 0)
    q_values = tree.q_values(episode.signed_discount)
    for node in at_root:
      column = episode.choices[t].tolist().index(tree.action[node])
      assert_allclose(q_values[node], episode.q_values[t, column], rtol=1e-4, atol=1e-5)
      # A node of one visit has the value of one step of the model.
      if tree.visits[node] == 1:
        assert_allclose(q_values[node], episode.network_q_values[t, column], rtol=1e-3, atol=1e-4)


def test_recorded_episodes_have_choices(point, dials):
  episode = point.evaluate(1, record=True).episode
  assert episode.choices.shape == episode.action_probs.shape == (11, 6)
  assert_allclose(episode.action_probs[:-1].sum(axis=1), 1, rtol=1e-5)
  assert (episode.choices[-1] == 0).all()
  assert (episode.action_probs[-1] == 0).all()
  episode = dials.evaluate(1, record=True).episode
  assert episode.choices.shape == (2, 12)
  assert episode.actions[0] == episode.choices[0, episode.action_probs[0].argmax()]


@pytest.mark.parametrize("num_dials", [2, 3])
def test_trajectories_of_own_actions(tmp_path, num_dials):
  env, rng = moozi.make_env("tiny:dials", num_dials=num_dials), np.random.default_rng(0)
  spec, given = env.env_spec, []
  for form in range(3):
    first = env.reset()
    action = rng.integers(0, 5, num_dials)
    last = env.step(action)
    number = spec.factors.joint_action(action)
    given.append(
      moozi.Episode(
        frames=[first.observation.frame, last.observation.frame],
        actions=([action], np.array([action]), [number])[form],
        rewards=[last.reward],
        is_terminal=True,
      )
    )
  moozi.write_trajectories(tmp_path / "new", spec, given)
  read = list(moozi.read_trajectories(tmp_path / "new"))
  assert [episode.length for episode in read] == [1, 1, 1]
  for episode, written in zip(read, given, strict=True):
    assert (episode.actions.dtype, episode.actions.shape) == (np.int64, (1, num_dials))
    own = written.actions if np.ndim(written.actions) == 2 else spec.factors.own_actions(written.actions)
    assert_array_equal(episode.actions, own)
    assert episode.action_probs.shape == (2, spec.mask_size)
    assert episode.action_probs[0].sum() == (num_dials if spec.is_factored else 1)
  moozi.write_trajectories(tmp_path / "again", spec, read)
  for episode, copy in zip(read, moozi.read_trajectories(tmp_path / "again"), strict=True):
    assert_array_equal(episode.action_probs, copy.action_probs)
    assert_array_equal(episode.actions, copy.actions)


@pytest.mark.parametrize(
  ("actions", "message"),
  [
    ([[0, 9, 0]], r"episodes\[0\]\.actions\[0\]: action=9: must be from 0 to 4 in dial 1"),
    ([[0, np.nan, 0]], r"episodes\[0\]\.actions\[0\]: action=nan: must be from 0 to 4"),
    ([[0, 1]], r"episodes\[0\]\.actions\[0\]: action: must be numbers of shape \[3\]"),
    ([125], r"episodes\[0\]\.actions\[0\]=125: must be from 0 to 124"),
    (3, r"episodes\[0\]\.actions: must have one row for each action"),
  ],
)
def test_trajectories_of_wrong_actions(tmp_path, actions, message):
  spec = registry.env_spec("tiny:dials")
  frames = np.zeros((2, *spec.frame_shape), bool)
  episode = moozi.Episode(frames=frames, actions=actions, rewards=[0.0], is_terminal=True)
  with pytest.raises(UserError, match=message):
    moozi.write_trajectories(tmp_path / "new", spec, [episode])
  assert not (tmp_path / "new").exists()


def test_a_checkpoint_of_another_action_space(runs, refused, tmp_path):
  other = make_run(tmp_path, "other", *PPO, "env.name=tiny:dials", "env.kwargs.num_positions=4")
  (checkpoint,) = (other / "checkpoints").glob("step_*")
  message = refused("evaluate", runs["dials"], "--checkpoint", checkpoint)
  assert "a checkpoint of another environment: spec." in message

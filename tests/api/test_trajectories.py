"""Tests of `moozi.read_trajectories` and `moozi.write_trajectories`."""

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import moozi
from moozi.core.errors import UserError
from moozi.io.config import load_config
from moozi.io.trajectory_folder import TrajectoryWriter, open_trajectories
from moozi.training.offline import load_stored
from tests.envs import hostile
from tests.replay.replay_lanes import make_spec, random_lanes, segment_of
from tests.tiny_run import TINY


def play(env, num_episodes, seed=0):
  """Plays episodes of random legal actions; returns them as records with the first four fields."""
  rng, out = np.random.default_rng(seed), []
  for _ in range(num_episodes):
    step = env.reset()
    frames, actions, rewards = [step.observation.frame], [], []
    while not step.last():
      actions.append(int(rng.choice(np.flatnonzero(step.observation.legal_actions_mask))))
      step = env.step(actions[-1])
      frames.append(step.observation.frame)
      rewards.append(step.reward)
    is_terminal = step.discount == 0
    record = {"frames": np.stack(frames), "actions": np.array(actions), "rewards": np.array(rewards)}
    out.append(moozi.Episode(**record, is_terminal=is_terminal, is_truncated=not is_terminal))
  return out


@pytest.fixture
def catch():
  return moozi.make_env("tiny:catch", seed=0)


@pytest.fixture
def episode(catch):
  return play(catch, 1)[0]


def assert_same(a, b):
  for field in dataclasses.fields(a):
    if field.name not in ("lane", "start"):
      assert_array_equal(getattr(a, field.name), getattr(b, field.name), err_msg=field.name)


def test_episodes_of_arrays(tmp_path, catch):
  episodes = play(catch, 3)
  out = tmp_path / "new"
  num_steps = moozi.write_trajectories(out, catch.env_spec, iter(episodes), discount=0.5)
  assert num_steps == sum(e.length + 1 for e in episodes)
  read = list(moozi.read_trajectories(out))
  assert [e.start for e in read] == np.cumsum([0, *(e.length + 1 for e in episodes[:-1])]).tolist()
  for got, given in zip(read, episodes, strict=True):
    for name in ("frames", "actions", "rewards", "is_terminal", "is_truncated"):
      assert_array_equal(getattr(got, name), getattr(given, name), err_msg=name)
    # Catch rewards only the last action.
    powers = 0.5 ** np.arange(given.length)[::-1]
    assert_allclose(got.root_values, [*(given.rewards[-1] * powers), 0])
    assert_array_equal(got.action_probs[:-1], np.eye(3)[given.actions])
    assert not got.action_probs[-1].any()
    assert got.legal_actions_mask[:-1].all()
    assert not got.legal_actions_mask[-1].any()
  config = load_config(None, [*TINY, f"offline.trajectories={out}"])
  assert load_stored(config, catch.env_spec).lane_steps == {0: num_steps}


def test_values_and_turns_of_two_players(tmp_path):
  env = moozi.make_env("open_spiel:tic_tac_toe", seed=0)
  (given,) = play(env, 1, seed=1)
  moozi.write_trajectories(tmp_path / "t", env.env_spec, [given], discount=1.0)
  (got,) = moozi.read_trajectories(tmp_path / "t")
  assert got.to_play.tolist() == [t % 2 for t in range(given.length + 1)]
  # The player of the last move gets the reward; the value is for the player to move.
  signs = (-1.0) ** (np.arange(given.length)[::-1])
  assert_array_equal(got.root_values, [*(given.rewards[-1] * signs), 0])


@pytest.mark.parametrize("num_players", [1, 2])
def test_written_again_equals_what_was_read(tmp_path, num_players):
  """Every kind of end and gap of recorded lanes is kept."""
  spec = make_spec("uint8", num_players)
  writer = TrajectoryWriter(tmp_path / "old", spec)
  lanes = random_lanes(0, 3, 120, spec)
  for first, stop, follows in ((0, 47, True), (47, 80, True), (83, 120, False)):
    writer.append(segment_of(lanes, first, stop, spec), 0, follows=follows)
    writer.flush()
  writer.close()
  old = list(moozi.read_trajectories(tmp_path / "old"))
  store = open_trajectories(tmp_path / "old")
  assert sum(e.length + 1 for e in old) == store.num_steps
  ends = {(e.is_terminal, e.is_truncated) for e in old}
  assert ends == {(True, False), (False, True), (False, False)}
  moozi.write_trajectories(tmp_path / "new", spec, old)
  new = list(moozi.read_trajectories(tmp_path / "new"))
  for a, b in zip(old, new, strict=True):
    # An episode of an unknown end is written as truncated.
    assert_same(dataclasses.replace(a, is_truncated=not a.is_terminal), b)
  for stored in open_trajectories(tmp_path / "new").read():
    assert stored.span.lane == 0


def test_a_lost_life(tmp_path, catch, episode):
  after = dataclasses.replace(episode, is_continued=True)
  moozi.write_trajectories(tmp_path / "t", catch.env_spec, [episode, after, episode])
  assert [e.is_continued for e in moozi.read_trajectories(tmp_path / "t")] == [False, True, False]
  (stored,) = open_trajectories(tmp_path / "t").read()
  assert np.flatnonzero(stored.steps.is_first).tolist() == [0, 2 * (episode.length + 1)]


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"actions": np.zeros(0, int)}, r"episodes\[1\].frames: bool\[10, 10, 5, 2\]; must be bool\[1, 10"),
    ({"actions": np.zeros(9, np.float64)}, r"episodes\[1\].actions: float64\[9\]; must be int32\[T\]"),
    ({"actions": np.full(9, 3)}, r"episodes\[1\].actions\[0\]=3: must be from 0 to 2"),
    ({"actions": np.full(9, 2**32)}, r"episodes\[1\].actions: has numbers that int32 cannot hold"),
    ({"actions": [[0], [1, 2]]}, r"episodes\[1\].actions: a list that is not an array"),
    ({"actions": hostile._Unreadable()}, r"episodes\[1\].actions: a _Unreadable that is not an array"),
    (
      {"rewards": np.ma.array(np.ones(9), mask=[1] + [0] * 8)},
      r"episodes\[1\].rewards: a MaskedArray that is",
    ),
    (
      {"frames": np.zeros((9, 10, 5, 2), bool)},
      r"episodes\[1\].frames: bool\[9, .*; must be bool\[10",
    ),
    ({"frames": np.zeros((10, 10, 5, 2))}, r"episodes\[1\].frames: float64.*; must be bool\[10, 10, 5, 2\]"),
    ({"rewards": np.full(9, np.nan)}, r"episodes\[1\].rewards: has numbers that are not finite"),
    ({"rewards": np.full(9, 1e39)}, r"episodes\[1\].rewards: .* not finite in float32"),
    ({"is_truncated": True}, r"episodes\[1\]: both is_terminal and is_truncated"),
    ({"to_play": np.ones(10, int)}, r"episodes\[1\].to_play\[0\]=1: must be from 0 to 0"),
    ({"legal_actions_mask": np.zeros((10, 3), bool)}, r"episodes\[1\].actions\[0\]=\d: illegal"),
    ({"action_probs": np.ones((10, 3))}, r"episodes\[1\]: action_probs do not sum to 1"),
    ({"root_values": np.full(10, np.inf)}, r"episodes\[1\].root_values: has numbers that are not finite"),
  ],
)
def test_an_episode_that_does_not_fit(tmp_path, catch, episode, changes, message):
  bad = dataclasses.replace(episode, **changes)
  with pytest.raises(UserError, match=f"^{message}"):
    moozi.write_trajectories(tmp_path / "t", catch.env_spec, [episode, bad])
  assert not any(tmp_path.iterdir())


def test_other_arguments(tmp_path, catch, episode):
  for arguments, message in (
    ((tmp_path, catch.env_spec, [episode]), r"path=.*: exists and is not overwritten"),
    ((tmp_path / "no" / "t", catch.env_spec, [episode]), r"path=.*: cannot be written"),
    (
      (tmp_path / "a\0b", catch.env_spec, [episode]),
      r"^path='.*a\\x00b': has a NUL character; choose another",
    ),
    ((tmp_path / "a\0b" / "t", catch.env_spec, [episode]), r"^path='.*a\\x00b/t': has a NUL character"),
    ((tmp_path / "t", catch.env_spec, []), r"episodes: there are none"),
    ((tmp_path / "t", catch.env_spec, [{}]), r"episodes\[0\]: a dict; must be a moozi.Episode"),
    ((tmp_path / "t", catch, [episode]), r"spec: a .*; must be a moozi.EnvSpec"),
    (
      (tmp_path / "t", catch.env_spec, [dataclasses.replace(episode, is_continued=True)]),
      r"episodes\[0\].is_continued: true, but no episode",
    ),
  ):
    with pytest.raises(UserError, match=message):
      moozi.write_trajectories(*arguments)
  for discount in (1.5, float("nan"), "0.9", True):
    with pytest.raises(UserError, match=r"discount=.*must be a number from 0.0 to 1.0"):
      moozi.write_trajectories(tmp_path / "t", catch.env_spec, [episode], discount=discount)
  assert not any(tmp_path.iterdir())
  with pytest.raises(UserError, match="no such folder"):
    moozi.read_trajectories(tmp_path / "missing")


def test_a_folder_without_its_first_file(tmp_path, catch):
  """Reading starts within an episode, which is then not a first one."""
  spec = make_spec("bool")
  writer = TrajectoryWriter(tmp_path / "t", spec)
  lanes = random_lanes(0, 1, 40, spec)
  for first, stop in ((0, 20), (20, 40)):
    writer.append(segment_of(lanes, first, stop, spec), 0)
    writer.flush()
  writer.close()
  first, second = sorted((tmp_path / "t").iterdir())
  whole = list(moozi.read_trajectories(tmp_path / "t"))
  parts = [*moozi.read_trajectories(first), *moozi.read_trajectories(second)]
  assert sum(e.length + 1 for e in whole) == sum(e.length + 1 for e in parts) == 40
  assert_array_equal(np.concatenate([e.frames for e in whole]), np.concatenate([e.frames for e in parts]))


@pytest.mark.slow
def test_an_agent_learns_from_arrays(tmp_path):
  """The model learns Catch's rewards from a random policy's episodes: with other actions, they would differ.

  An untrained network predicts the same reward and value everywhere. The task needs a longer run.
  """
  env = moozi.make_env("tiny:catch", seed=0)
  episodes = play(env, 600)
  folder = tmp_path / "random"
  moozi.write_trajectories(folder, env.env_spec, episodes)
  run = moozi.train(
    "tiny/catch",
    seed=1,
    runtime="local",
    max_env_steps=3000,
    run={"dir": str(tmp_path), "name": "offline"},
    offline={"trajectories": str(folder)},
    evaluation={"episodes": 2, "final_episodes": 2, "gif": False},
    logging={"progress": "none", "tensorboard": False},
  )
  network = moozi.load(run.path).network
  frames = np.stack([e.frames[-2:-1] for e in episodes])
  before = np.array([[e.actions[-2] + 1] for e in episodes], np.int32)
  root = network.root(network.parameters, frames, before)
  actions = np.array([e.actions[-1] + 1 for e in episodes], np.int32)
  after = network.recurrent(network.parameters, root.hidden_state, actions)
  rewards = [e.rewards[-1] for e in episodes]
  assert np.corrcoef(after.reward, rewards)[0, 1] > 0.2
  assert np.corrcoef(root.value, rewards)[0, 1] > 0.2

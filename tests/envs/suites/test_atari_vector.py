"""Atari on ale-py's vectorized environment: the same games, frame for frame, as one by one."""

import itertools
import logging

import numpy as np
import pytest

from moozi.core.pytree import fields_of
from moozi.envs import registry
from moozi.envs.suites.atari import environment as atari
from moozi.envs.suites.atari.chance import GameChance
from moozi.envs.suites.atari.vector import AtariVector, find_obstacle
from moozi.envs.vector import SyncVectorEnvironment, make_vector
from tests.envs.contract import check_vector, random_agent_actions

ale_py = pytest.importorskip("ale_py")
pytest.importorskip("gymnasium")


def make(game, seeds, **kwargs):
  vector = registry.make_fast_vector(f"atari:{game}", seeds, num_threads=2, **kwargs)
  assert isinstance(vector, AtariVector)
  return vector


def one_by_one(game, seeds, **kwargs):
  return SyncVectorEnvironment([registry.make(f"atari:{game}", seed, **kwargs) for seed in seeds])


def assert_same_step(left, right):
  for name, value in fields_of(left).items():
    assert value.dtype == getattr(right, name).dtype, name
    np.testing.assert_array_equal(value, getattr(right, name), err_msg=name)


@pytest.mark.parametrize(
  ("game", "num_steps", "num_ends", "kwargs"),
  [
    ("Breakout", 230, 8, {}),
    ("Breakout", 230, 8, {"sticky_action_prob": 0.25, "reseed": False}),
    ("Breakout", 130, 5, {"max_episode_steps": 40, "colour": True, "minimal_actions": False}),
    (
      "Breakout",
      100,
      2,
      {"max_episode_steps": 45, "reseed": False, "sticky_action_prob": 0.1, "max_noops": 0},
    ),
    ("Assault", 50, 2, {"max_episode_steps": 45, "clip_rewards": True, "sticky_action_prob": 0.25}),
    ("Tennis", 40, 4, {"max_episode_steps": 15, "reseed": False, "frame_size": 64, "frame_skip": 2}),
    ("Breakout", 300, 1, {"episodic_life": False, "frame_skip": 3}),
  ],
)
def test_rows_are_the_games_one_by_one(game, num_steps, num_ends, kwargs):
  seeds = [3, 2**63]
  fast, slow = make(game, seeds, **kwargs), one_by_one(game, seeds, **kwargs)
  random = np.random.default_rng(0)
  step, other = fast.reset(), slow.reset()
  ends = 0
  for _ in range(num_steps):
    assert_same_step(step, other)
    ends += int(step.is_last.sum())
    actions = random_agent_actions(step, random)
    step, other = fast.step(actions), slow.step(actions)
  assert ends >= num_ends
  fast.close()


@pytest.mark.parametrize("reseed", [True, False])
def test_rows_are_the_same_where_a_life_is_lost_about_the_cap(reseed):
  """On the step of the cap, one before it (what goes on with the game meets the cap), and two before it."""
  kwargs = {"reseed": reseed, "sticky_action_prob": 0.25}
  seeds, actions = [3], np.random.default_rng(0).integers(1, 5, (600, 1))
  worlds = one_by_one("Breakout", seeds, **kwargs)
  step, lost_at = worlds.reset(), 0
  while not step.is_last[0]:
    step, lost_at = worlds.step(actions[lost_at]), lost_at + 1
  for left in (0, 1, 2):
    fast = make("Breakout", seeds, max_episode_steps=lost_at + left, **kwargs)
    slow = one_by_one("Breakout", seeds, max_episode_steps=lost_at + left, **kwargs)
    steps = [fast.reset()]
    assert_same_step(steps[0], slow.reset())
    # To the end of the game after it and into the next, which show what was drawn for them.
    for row in actions[: 2 * lost_at + 20]:
      steps.append(fast.step(row))
      assert_same_step(steps[-1], slow.step(row))
    at_loss, after = steps[lost_at], steps[lost_at + 1]
    assert at_loss.is_last.all()
    assert at_loss.last_discount.tolist() == [0.0]
    assert not at_loss.is_truncated.any()
    assert after.is_first.tolist() == [left < 2]
    assert sum(step.is_first[0] for step in steps) >= 3
    fast.close()


def test_keeps_the_vector_contract():
  vector = make("Breakout", [0, 1, 2], reseed=False)
  steps = check_vector(vector, 200, goes_on_after_a_life_lost=True)
  copies = [step.frame.copy() for step in steps]
  vector.step(random_agent_actions(vector.reset(), np.random.default_rng(1)))
  for step, copy in zip(steps, copies, strict=True):
    np.testing.assert_array_equal(step.frame, copy)
  vector.close()


def test_step_before_reset_resets_and_nothing_is_made_before():
  vector = make("Pong", [0, 1])
  assert vector._env is None
  assert (vector.num_envs, vector.spec) == (2, registry.env_spec("atari:Pong"))
  assert vector.step(np.zeros(2, np.int32)).is_first.all()
  assert vector.render(0) is None
  vector.close()
  vector.close()


def test_a_wrong_action_is_refused_before_it_can_hang():
  vector, other = make("Pong", [0, 1]), one_by_one("Pong", [0, 1])
  vector.reset()
  other.reset()
  for bad in (0, -1, 7, 10_000):
    with pytest.raises(ValueError, match=rf"actions\[1\]={bad}: .*legal are \[1, 2, 3, 4, 5, 6\]"):
      vector.step(np.array([1, bad]))
  actions = np.array([3, 4])
  np.testing.assert_array_equal(vector.step(actions).frame, other.step(actions).frame)
  vector.close()


def test_a_reset_of_all_envs_begins_new_games():
  vector = make("Pong", [0, 1])
  vector.reset()
  vector.step(np.array([1, 1]))
  again, expected = vector.reset(), one_by_one("Pong", [0, 1])
  assert again.is_first.all()
  expected.reset()
  assert_same_step(again, expected.reset())
  vector.close()


def test_num_noops_follow_from_the_seed_as_in_the_library():
  env = ale_py.AtariVectorEnv("pong", 4, num_threads=2, stack_num=1, noop_max=31, use_fire_reset=False)
  seeds = np.random.default_rng(0).integers(2**31, size=(2, 4))
  for row in itertools.chain(seeds, [np.array([0, 1, 2**31 - 1, 5489])]):
    _, info = env.reset(seed=row)
    assert info["episode_frame_number"].tolist() == [GameChance(int(s), 30, 0.0).num_noops() for s in row]
  env.close()


def test_another_number_of_noops_is_not_passed_over(monkeypatch):
  vector = make("Pong", [0, 1])
  monkeypatch.setattr(GameChance, "num_noops", lambda self: 31)
  with pytest.raises(RuntimeError, match=r"after \[31, 31\] .*env\.kwargs\.num_threads=0"):
    vector.reset()
  vector.close()


def test_make_vector_takes_it_where_threads_are_given():
  assert isinstance(make_vector("atari:Pong", {}, 2, seed=0), SyncVectorEnvironment)
  fast = make_vector("atari:Pong", {"num_threads": 2}, 2, seed=0)
  assert isinstance(fast, AtariVector)
  fast.close()


def test_it_stands_back_where_it_cannot_do_it_all(monkeypatch):
  options = atari.Options(num_threads=1)
  pong, backgammon = atari.load_facts("Pong"), atari.load_facts("Backgammon")
  assert find_obstacle(pong, options) is None
  assert "its first action is not the no-op" in find_obstacle(backgammon, options)
  assert find_obstacle(backgammon, atari.Options(num_threads=1, minimal_actions=False)) is None
  firing = atari.Options(num_threads=1, fire_on_reset=True)
  assert "fire_on_reset=false" in find_obstacle(pong, firing)
  assert find_obstacle(atari.load_facts("Freeway"), firing) is None
  with monkeypatch.context() as patch:
    patch.setattr(ale_py, "__version__", "0.11.2")
    assert "ale-py is 0.11.2; its vectorized environment needs 0.12.1" in find_obstacle(pong, options)
  with monkeypatch.context() as patch:
    patch.setattr("sys.platform", "darwin")
    assert "outside Linux" in find_obstacle(pong, options)
  with monkeypatch.context() as patch:
    patch.delattr(ale_py, "AtariVectorEnv")
    assert "gymnasium is not installed" in find_obstacle(pong, options)


def test_that_it_stands_back_is_told_once(caplog):
  atari._tell_of_fallback.cache_clear()
  with caplog.at_level(logging.WARNING, "moozi.envs"):
    for num_threads in (0, 1, 1, 2):
      vector = make_vector("atari:Backgammon", {"num_threads": num_threads}, 1, seed=0)
      assert isinstance(vector, SyncVectorEnvironment)
  (record,) = caplog.records
  assert "num_threads: atari:Backgammon is played one by one: its first action" in record.getMessage()

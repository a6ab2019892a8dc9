"""Tests of Atari on ale-py's vectorized environment, compared with single environments.

ale-py's vectorized environment draws no-ops and sticky actions itself. Without them, all frames are equal.
"""

import logging

import numpy as np
import pytest

from moozi.core.pytree import fields_of
from moozi.envs import registry
from moozi.envs.suites.atari import suite
from moozi.envs.suites.atari.rom import AtariOptions, load_facts
from moozi.envs.suites.atari.vector import AtariVectorEnvironment, find_obstacle
from moozi.envs.vector import SyncVectorEnvironment, make_vector
from tests.envs.contract import check_vector, random_agent_actions

ale_py = pytest.importorskip("ale_py")
pytest.importorskip("gymnasium")

FIXED = {"max_noops": 0, "sticky_action_prob": 0.0}


def make(game, seeds, **kwargs):
  vector = registry.make_fast_vector(f"atari:{game}", seeds, num_threads=2, **kwargs)
  assert isinstance(vector, AtariVectorEnvironment)
  return vector


def make_loop(game, seeds, **kwargs):
  return SyncVectorEnvironment([registry.make(f"atari:{game}", seed, **kwargs) for seed in seeds])


def assert_same_step(left, right):
  for name, value in fields_of(left).items():
    assert value.dtype == getattr(right, name).dtype, name
    np.testing.assert_array_equal(value, getattr(right, name), err_msg=name)


def random_play(vector, num_steps):
  random, steps = np.random.default_rng(0), [vector.reset()]
  for _ in range(num_steps):
    steps.append(vector.step(random_agent_actions(steps[-1], random)))
  vector.close()
  return steps


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
  ("game", "num_steps", "num_ends", "kwargs"),
  [
    pytest.param("Breakout", 230, 8, {}, marks=SLOW),
    ("Breakout", 60, 2, {"max_episode_steps": 45, "colour": True, "minimal_actions": False}),
    pytest.param("Breakout", 230, 8, {"reseed": False}, marks=SLOW),
    pytest.param("Breakout", 100, 2, {"max_episode_steps": 45, "reseed": False}, marks=SLOW),
    pytest.param("Assault", 50, 2, {"max_episode_steps": 45, "clip_rewards": True}, marks=SLOW),
    pytest.param("Tennis", 40, 4, {"max_episode_steps": 15, "frame_size": 64, "frame_skip": 2}, marks=SLOW),
    pytest.param("Breakout", 300, 1, {"episodic_life": False, "frame_skip": 3}, marks=SLOW),
  ],
)
def test_rows_equal_single_games(game, num_steps, num_ends, kwargs):
  steps = random_play(make(game, [3, 2**63], **FIXED, **kwargs), num_steps)
  for step, other in zip(
    steps, random_play(make_loop(game, [3, 4], **FIXED, **kwargs), num_steps), strict=True
  ):
    assert_same_step(step, other)
  assert sum(int(step.is_last.sum()) for step in steps) >= num_ends


@pytest.mark.slow
@pytest.mark.parametrize("reseed", [True, False])
def test_life_lost_near_the_cap(reseed):
  """Compares games in which a life is lost at the step cap, or one or two steps before it."""
  kwargs = {"reseed": reseed, **FIXED}
  seeds, actions = [3], np.random.default_rng(0).integers(1, 5, (600, 1))
  envs = make_loop("Breakout", seeds, **kwargs)
  step, lost_at = envs.reset(), 0
  while not step.is_last[0]:
    step, lost_at = envs.step(actions[lost_at]), lost_at + 1
  for left in (0, 1, 2):
    vector = make("Breakout", seeds, max_episode_steps=lost_at + left, **kwargs)
    loop = make_loop("Breakout", seeds, max_episode_steps=lost_at + left, **kwargs)
    steps = [vector.reset()]
    assert_same_step(steps[0], loop.reset())
    # These steps continue past the end of the next game.
    for row in actions[: 2 * lost_at + 20]:
      steps.append(vector.step(row))
      assert_same_step(steps[-1], loop.step(row))
    at_loss, after = steps[lost_at], steps[lost_at + 1]
    assert at_loss.is_last.all()
    assert not at_loss.is_truncated.any()
    assert after.is_first.tolist() == [left < 2]
    assert sum(step.is_first[0] for step in steps) >= 3
    vector.close()


@pytest.mark.slow
def test_games_follow_from_their_seeds():
  """Environments with the same seed play the same games, with no-ops and sticky actions."""
  kwargs = {"sticky_action_prob": 0.25, "max_episode_steps": 20}
  first, second = (random_play(make("Pong", [3, 3], **kwargs), 45) for _ in range(2))
  for step, other in zip(first, second, strict=True):
    assert_same_step(step, other)
    np.testing.assert_array_equal(step.frame[0][step.is_first[0]], step.frame[1][step.is_first[1]])
  assert sum(int(step.is_first[0]) for step in first) == 3


@pytest.mark.slow
def test_num_noops():
  vector = make("Pong", list(range(8)), max_noops=3)
  vector.reset()
  _, info = vector._env.reset(seed=np.arange(8))
  noops = info["episode_frame_number"]
  assert ((noops >= 0) & (noops <= 3)).all()
  assert len(set(noops.tolist())) > 1
  vector.close()


def test_vector_contract():
  check_vector(lambda: make("Breakout", [0, 1, 2], reseed=False), 100, has_lives=True)


@pytest.mark.slow
def test_ale_is_made_at_the_first_reset():
  vector = make("Pong", [0, 1])
  assert vector._env is None
  assert (vector.num_envs, vector.spec) == (2, registry.env_spec("atari:Pong"))
  assert vector.step(np.zeros(2, np.int32)).is_first.all()
  assert vector.render(0) is None
  vector.close()
  vector.close()


@pytest.mark.slow
def test_reset_and_set_state_start_new_games():
  vector, expected = make("Pong", [0, 1], **FIXED), make_loop("Pong", [0, 1], **FIXED)
  step = vector.reset()
  vector.step(np.array([1, 1]))
  again = vector.reset()
  assert again.is_first.all()
  expected.reset()
  assert_same_step(again, expected.reset())
  shown, is_new = vector.set_state(vector.get_state(), step)
  assert is_new.all()
  assert shown.is_first.all()
  vector.close()


@pytest.mark.slow
@pytest.mark.parametrize("reseed", [True, False])
def test_restored_envs_repeat_no_seed(monkeypatch, reseed):
  def seeds_of(vector, state=None):
    seeds, draw = [], vector._draw_seeds
    monkeypatch.setattr(vector, "_draw_seeds", lambda *args: seeds.append(draw(*args)) or seeds[-1])
    step = vector.reset()
    if state is not None:
      vector.set_state(state, step)
    vector.reset()
    vector.reset()
    vector.close()
    return np.concatenate(seeds).tolist()

  first, second = (make("Pong", [0, 1], reseed=reseed) for _ in range(2))
  before = seeds_of(first)
  after = seeds_of(second, first.get_state())
  assert len(before) == 2 * 3
  assert after[:2] == before[:2]  # the constructor of the lanes resets before the state is restored
  restored = after[2:] if reseed else after[2:4]
  assert -1 not in restored
  assert not set(restored) & set(before)


def test_random_starts_have_no_threads(caplog):
  vector = make_vector("atari:Pong", {"num_threads": 1}, 1, seed=0, max_random_starts=2)
  assert isinstance(vector, SyncVectorEnvironment)
  assert "workers.max_random_starts=2: env.kwargs.num_threads has no effect" in caplog.text
  vector.close()


def test_make_vector_with_threads():
  assert isinstance(make_vector("atari:Pong", {}, 2, seed=0), SyncVectorEnvironment)
  vector = make_vector("atari:Pong", {"num_threads": 2}, 2, seed=0)
  assert isinstance(vector, AtariVectorEnvironment)
  vector.close()


def test_obstacles(monkeypatch):
  options = AtariOptions(num_threads=1)
  pong, backgammon = load_facts("Pong"), load_facts("Backgammon")
  assert find_obstacle(pong, options) is None
  assert "its first action is not the no-op" in find_obstacle(backgammon, options)
  assert find_obstacle(backgammon, AtariOptions(num_threads=1, minimal_actions=False)) is None
  firing = AtariOptions(num_threads=1, fire_on_reset=True)
  assert "fire_on_reset=false" in find_obstacle(pong, firing)
  assert find_obstacle(load_facts("Freeway"), firing) is None
  with monkeypatch.context() as patch:
    patch.setattr(ale_py, "__version__", "0.11.2")
    assert "ale-py is 0.11.2; its vectorized environment needs 0.12.1" in find_obstacle(pong, options)
  with monkeypatch.context() as patch:
    patch.delattr(ale_py, "AtariVectorEnv")
    assert "gymnasium is not installed" in find_obstacle(pong, options)


def test_fallback_warns_once(caplog):
  suite._warn_of_fallback.cache_clear()
  with caplog.at_level(logging.WARNING, "moozi.envs"):
    for num_threads in (0, 1, 1, 2):
      vector = make_vector("atari:Backgammon", {"num_threads": num_threads}, 1, seed=0)
      assert isinstance(vector, SyncVectorEnvironment)
  (record,) = caplog.records
  assert "num_threads: atari:Backgammon" in record.getMessage()
  assert "its first action" in record.getMessage()

"""Tests of `JaxEnvironment` with toy rules, as a single and as a vectorized environment."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.envs.jax.adapters import JaxDmEnvironment, JaxVectorEnvironment
from moozi.envs.jax.rules import JaxRules, env_key
from moozi.envs.vector import SyncVectorEnvironment
from tests.envs.contract import (
  IllegalActionsContract,
  TwoPlayersContract,
  check_vector,
  random_agent_actions,
)
from tests.envs.jax.toys import make_nim, make_walk

WALK, CAPPED, NIM = make_walk(), make_walk(max_episode_steps=4), make_nim()
CUT_AT_1 = (make_walk(max_episode_steps=1), make_walk(clock=1))
# With this length, the walk reaches neither end within an episode.
LONG = make_walk(max_episode_steps=3, length=50)


class TestWalk(IllegalActionsContract):
  num_steps = 40

  def make(self):
    return JaxDmEnvironment(CAPPED)


@pytest.mark.slow
class TestNim(TwoPlayersContract, IllegalActionsContract):
  num_steps = 40

  def make(self):
    return JaxDmEnvironment(NIM)


@pytest.mark.parametrize("env", [CAPPED, NIM])
def test_vector_contract(env):
  steps = check_vector(lambda: JaxVectorEnvironment(env, [1, 2, 3]), 60)
  assert sum(int(s.is_last.sum()) for s in steps) > 10


@functools.partial(jax.jit, static_argnums=0)
def reset(env, key):
  return env.reset(key)


@functools.partial(jax.jit, static_argnums=0)
def step_once(env, state, action):
  return env.step(state, action)


def start_at(env, place):
  """Returns a state after a reset in which the walk starts at `place`."""
  states = (reset(env, env_key(seed)) for seed in itertools.count())
  return next(state for state in states if int(state.game["place"]) == place)


def test_first_frame():
  step = start_at(WALK, 1).timestep
  assert bool(step.is_first)
  assert not step.is_last
  assert float(step.last_reward) == 0.0
  assert step.legal_actions_mask.tolist() == [False, True, False]
  assert step.frame[0, :, 0].tolist() == [False, True, False, False, False]


def test_left_end_costs_1():
  step = step_once(WALK, start_at(WALK, 1), 1).timestep
  assert (bool(step.is_last), bool(step.is_truncated)) == (True, False)
  assert float(step.last_reward) == -1.0
  assert step.frame[0, :, 0].tolist() == [True, False, False, False, False]


def test_terminal_frame_and_reset():
  state = step_once(WALK, start_at(WALK, 3), 2)
  step = state.timestep
  assert bool(step.is_last)
  assert not step.is_truncated
  assert float(step.last_reward) == 1.0
  assert step.legal_actions_mask.tolist() == [True, False, False]
  assert step.frame[0, :, 0].tolist() == [False, False, False, False, True]
  assert int(state.num_steps) == 1
  for action in (0, 1, 2):  # after a last step, any action resets
    fresh = step_once(WALK, state, action)
    assert bool(fresh.timestep.is_first)
    assert float(fresh.timestep.last_reward) == 0.0
    assert int(fresh.num_steps) == 0
    jax.tree.map(np.testing.assert_array_equal, fresh, reset(WALK, state.rng_key))


@pytest.mark.parametrize("env", CUT_AT_1)
def test_truncated_frame_keeps_actions(env):
  step = step_once(env, start_at(env, 2), 1).timestep
  assert bool(step.is_last)
  assert bool(step.is_truncated)
  assert step.legal_actions_mask.tolist() == [False, True, False]
  assert step.frame[0, 1, 0]


@pytest.mark.parametrize("env", CUT_AT_1)
def test_terminal_takes_precedence_over_truncated(env):
  step = step_once(env, start_at(env, 3), 2).timestep
  assert bool(step.is_last)
  assert not step.is_truncated


def test_cap_counts_each_episode():
  env = JaxVectorEnvironment(LONG, [0, 1])
  env.reset()
  kinds = []
  for i in range(12):
    step = env.step(np.full(2, 1 + (i % 2)))
    kinds.append((bool(step.is_first[0]), bool(step.is_truncated[0])))
  assert kinds == [(False, False), (False, False), (False, True), (True, False)] * 3


def test_player_0_moves_first_and_the_mover_is_rewarded():
  env = JaxVectorEnvironment(NIM, [5, 6, 7])
  step = env.reset()
  assert step.to_play.tolist() == [0] * 3
  for action, to_play in ((3, 1), (3, 0), (1, 1)):
    step = env.step(np.full(3, action))
    assert step.to_play.tolist() == [to_play] * 3
  assert step.last_reward.tolist() == [1.0] * 3
  assert env.step(np.zeros(3, int)).to_play.tolist() == [0] * 3


def test_rows_equal_single_envs():
  """`JaxVectorEnvironment` gives the same steps as `SyncVectorEnvironment` with single environments."""
  seeds = [3, 2**40, 2**64 - 1]
  mapped = JaxVectorEnvironment(CAPPED, seeds)
  single = []
  for seed in seeds:
    env = JaxDmEnvironment(CAPPED)
    env.seed(seed)
    single.append(env)
  vector = SyncVectorEnvironment(single)
  random = np.random.default_rng(0)
  left, right = mapped.reset(), vector.reset()
  starts = set()
  for _ in range(60):
    for name in type(left).__dataclass_fields__:
      np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)
    starts |= {tuple(f) for f in left.frame[left.is_first][:, 0, :, 0].tolist()}
    actions = random_agent_actions(left, random)
    left, right = mapped.step(actions), vector.step(actions)
  assert len(starts) == 3  # episodes start in each of the three inner places


def test_reset_inside_episodes():
  env = JaxVectorEnvironment(LONG, [0, 1])
  first = env.reset()
  env.step(np.array([2, 2]))
  second = env.reset()
  assert second.is_first.all()
  assert (first.frame != second.frame).any()


def test_illegal_action():
  env = JaxVectorEnvironment(NIM, [0, 1, 2])
  env.reset()
  env.step(np.array([3, 3, 3]))
  env.step(np.array([2, 1, 1]))
  with pytest.raises(ValueError, match=r"actions\[0\]=3: .*must be one of \[1, 2\]"):
    env.step(np.array([3, 3, 3]))


def test_seeds_must_not_be_empty():
  with pytest.raises(ValueError, match="seeds is empty"):
    JaxVectorEnvironment(NIM, [])


def test_state_keeps_its_types_in_a_scan():
  """`jax.lax.scan` raises if the step changes a dtype or a weak type of the state."""
  state = reset(CAPPED, env_key(0))
  after, _ = jax.lax.scan(lambda s, _: (CAPPED.step(s, jnp.int32(2)), None), state, length=20)
  assert jax.tree.map(lambda x: x.dtype, after) == jax.tree.map(lambda x: x.dtype, state)


@pytest.mark.parametrize(
  ("before", "after", "is_allowed"),
  [
    (np.int32(1), jnp.int8(2), True),
    (np.float32(1), jnp.float16(2), True),
    (np.int32(0), jnp.asarray(True), True),
    (np.float32(0), jnp.int32(2), True),
    (np.int32(0), jnp.float32(0.5), False),
    (np.bool_(False), jnp.int32(2), False),
  ],
)
def test_game_keeps_its_kinds_of_numbers(before, after, is_allowed):
  """Without the check, values could be truncated silently, such as 0.5 to 0."""
  rules = JaxRules(
    init=lambda key: {"x": before},
    step=lambda game, action, key: ({"x": after}, 0.0, jnp.asarray(False), jnp.asarray(False)),
    frame=lambda game: jnp.zeros((1, 1, 1)),
    legal_actions_mask=lambda game: jnp.ones(3, bool),
  )
  env = dataclasses.replace(NIM, rules=rules)
  if is_allowed:
    assert env.step(env.reset(env_key(0)), jnp.int32(1)).game["x"].dtype == before.dtype
  else:
    with pytest.raises(TypeError, match=rf"step changes .* from {before.dtype} to {after.dtype}"):
      env.step(env.reset(env_key(0)), jnp.int32(1))


def test_render():
  assert JaxVectorEnvironment(NIM, [0, 1]).render(1) is None


def test_seeds_of_any_size():
  keys = {tuple(env_key(seed).tolist()) for seed in (0, 1, 2**32, 2**32 + 1, 2**64 - 1, 2**100)}
  assert len(keys) == 6
  assert env_key(7).dtype == np.uint32

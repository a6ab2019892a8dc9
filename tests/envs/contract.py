"""Contract tests of environments, single or vectorized. Inherit a contract class and define `make`.

`EnvironmentContract` is for all environments. `LivesContract`, `TwoPlayersContract` and
`IllegalActionsContract` add the tests for lives, two players and illegal actions.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dm_env import TimeStep

from moozi.core.pytree import map_fields
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.envs.environment import Environment, VectorEnvironment, random_action
from moozi.envs.vector import SyncVectorEnvironment


def random_legal(step: TimeStep, random: np.random.Generator, spec: EnvSpec | None = None) -> Any:
  """Returns a random legal action of the environment; after a last step 0, which is discarded.

  A continuous action is a row [D] float32, any other one an int.

  Args:
    spec: of the environment; None: each of its actions has an entry in the mask.
  """
  if step.last():
    return 0
  mask = step.observation.legal_actions_mask
  return int(random.choice(np.flatnonzero(mask))) if spec is None else random_action(spec, mask, random)


def play(env: Environment, num_steps: int, seed: int = 0) -> list[TimeStep]:
  """Plays random legal actions, over several episodes if necessary; returns `num_steps` time steps."""
  random = np.random.default_rng(seed)
  steps = [env.reset()]
  while len(steps) < num_steps:
    steps.append(env.step(random_legal(steps[-1], random, env.env_spec)))
  return steps


def play_to_end(env: Environment, is_life_lost: bool = False) -> TimeStep:
  """Plays random legal actions to the first episode end, or the first lost life; returns the last step."""
  random, step = np.random.default_rng(0), env.reset()
  for _ in range(20_000):
    if step.last() and (env.will_continue or not is_life_lost):
      return step
    step = env.step(random_legal(step, random, env.env_spec))
  raise AssertionError("no end in 20,000 random steps; give the environment a step cap")


def assert_same(left: list[TimeStep], right: list[TimeStep]) -> None:
  """Asserts that two lists of time steps are equal to the bit."""
  assert len(left) == len(right)
  for a, b in zip(left, right, strict=True):
    assert (a.step_type, a.reward, a.discount) == (b.step_type, b.reward, b.discount)
    assert a.observation.to_play == b.observation.to_play
    assert a.observation.is_continued == b.observation.is_continued
    np.testing.assert_array_equal(a.observation.frame, b.observation.frame)
    np.testing.assert_array_equal(a.observation.legal_actions_mask, b.observation.legal_actions_mask)


class EnvironmentContract:
  """Tests the rules of every environment; the class attributes describe the environment of `make`."""

  num_steps = 150
  has_lives = False
  has_illegal_actions = False
  num_players = 1

  def make(self) -> Environment:
    """Returns a new environment with seed 0; all of them behave alike."""
    raise NotImplementedError

  @pytest.fixture
  def env(self) -> Environment:
    return self.make()

  def test_spec(self, env):
    spec = env.env_spec
    assert ":" in spec.name
    assert spec.num_players == self.num_players
    assert len(spec.action_names) == (0 if spec.is_factored else spec.num_env_actions)
    if spec.intervals is not None:
      ends = (spec.intervals.low, spec.intervals.high)
      assert all(spec.intervals.name(spec.intervals.row(env.action_spec().validate(row))) for row in ends)
    else:
      assert spec.factors is None or all(spec.factors.name(a) for a in (0, spec.num_env_actions - 1))
      assert env.action_spec().num_values == spec.num_env_actions
    assert env.reward_spec().validate(0.0) == 0.0
    hash(spec)

  def test_steps_follow_the_specs(self, env):
    steps, observation_spec = play(env, self.num_steps), env.observation_spec()
    for step in steps:
      observation_spec.frame.validate(step.observation.frame)
      observation_spec.legal_actions_mask.validate(step.observation.legal_actions_mask)
      assert type(step.observation.to_play) is int
      assert 0 <= step.observation.to_play < self.num_players
      assert type(step.observation.is_continued) is bool
      if not step.first():
        assert type(step.reward) is float
        assert np.isfinite(step.reward)
    masks = [step.observation.legal_actions_mask for step in steps if step.discount != 0.0]
    assert np.all(masks) == (not self.has_illegal_actions)

  def test_first_mid_last(self, env):
    steps = play(env, self.num_steps)
    assert steps[0].first()
    for step, after in itertools.pairwise(steps):
      assert after.first() == step.last()
    for step in steps:
      assert (step.reward is None) == (step.discount is None) == step.first()
      if step.mid():
        assert step.discount == 1.0
      if step.last():
        assert step.discount in (0.0, 1.0)
      if step.discount != 0.0:  # live, or truncated
        assert step.observation.legal_actions_mask.any()

  def test_only_lost_lives_continue_a_game(self, env):
    steps = play(env, self.num_steps)
    is_continued = [step.observation.is_continued for step in steps]
    for step, after in itertools.pairwise(steps):
      assert not after.observation.is_continued or (after.first() and step.discount == 0.0)
    assert not is_continued[0]
    assert any(is_continued) == self.has_lives

  def test_step_before_reset_resets(self, env):
    assert env.step(0).first()

  def test_reset_inside_an_episode(self, env):
    before = play(env, 3)[-1]
    step = env.reset()
    assert step.first()
    assert before.last() or not step.observation.is_continued

  def test_action_at_an_end_is_discarded(self, env):
    assert play_to_end(env).last()
    assert env.step(-5).first()

  def test_wrong_action_moves_nothing(self, env):
    other = self.make()
    left, right = env.reset(), other.reset()
    assert_same([left], [right])
    # Of dimensions, an error may name the part of the action: `action['throttle']: …`.
    pattern = "action=" if env.env_spec.factors is None else r"^action(=|:|\[)"
    for bad in _wrong_actions(env.env_spec):
      with pytest.raises(ValueError, match=pattern):
        env.step(bad)
    action = random_legal(left, np.random.default_rng(0), env.env_spec)
    same = action.copy() if env.env_spec.is_continuous else np.int32(action)
    assert_same([env.step(same)], [other.step(action)])

  def test_frames_do_not_change(self, env):
    steps = play(env, 3)
    copies = [s._replace(observation=s.observation._replace(frame=s.observation.frame.copy())) for s in steps]
    play(env, 20)
    assert_same(steps, copies)

  def test_equal_envs_play_equally(self, env):
    assert_same(play(env, self.num_steps), play(self.make(), self.num_steps))

  def test_seed_determines_episodes(self, env):
    env.seed(11)
    steps = play(env, self.num_steps)
    play(env, 17, seed=5)  # changes the state of the environment
    env.seed(11)
    assert_same(play(env, self.num_steps), steps)
    fresh = self.make()
    fresh.seed(11)
    assert_same(play(fresh, self.num_steps), steps)

  def test_seeds(self, env):
    for seed in (0, 2**32, 2**63, np.uint64(2**64 - 1)):
      env.seed(seed)
      assert env.reset().first()
    for bad in (-1, 0.5, None):
      with pytest.raises(ValueError, match="seed="):
        env.seed(bad)

  def test_vector_contract(self):
    check_vector(
      lambda: SyncVectorEnvironment([self.make() for _ in range(3)]), self.num_steps, self.has_lives
    )

  def test_close(self, env):
    env.reset()
    env.close()


def _wrong_actions(spec: EnvSpec) -> list[Any]:
  """Returns actions that an environment without illegal actions refuses."""
  if spec.intervals is None:
    num_actions = spec.num_env_actions
    return [-1, num_actions, num_actions + 10_000, 1.0, None, "0"]
  low, high = spec.intervals.low, spec.intervals.high
  return [low - 1, high + 1, np.full_like(low, np.nan), high[:-1], np.stack([low, high]), -1, None, "0"]


class LivesContract(EnvironmentContract):
  """Tests environments where a lost life ends an episode but not the game."""

  has_lives = True

  def test_seed_and_second_reset_start_a_new_game(self, env):
    play_to_end(env, is_life_lost=True)
    env.seed(3)
    assert not env.reset().observation.is_continued
    play_to_end(env, is_life_lost=True)
    assert env.reset().observation.is_continued
    assert not env.reset().observation.is_continued


class TwoPlayersContract(EnvironmentContract):
  """Tests two-player environments."""

  num_players = 2

  def test_players_alternate(self, env):
    steps = play(env, self.num_steps)
    assert {step.observation.to_play for step in steps} == {0, 1}
    for step, after in itertools.pairwise(steps):
      if not after.first() and after.discount != 0.0:
        assert after.observation.to_play == 1 - step.observation.to_play


class IllegalActionsContract(EnvironmentContract):
  """Tests environments with illegal actions."""

  has_illegal_actions = True

  def test_illegal_action_moves_nothing(self, env):
    other, random, num_illegal = self.make(), np.random.default_rng(0), 0
    step, same = env.reset(), other.reset()
    for _ in range(self.num_steps):
      if not step.last():
        for action in np.flatnonzero(~step.observation.legal_actions_mask):
          num_illegal += 1
          with pytest.raises(ValueError, match="illegal"):
            env.step(int(action))
      assert_same([step], [same])
      action = random_legal(step, random)
      step, same = env.step(action), other.step(action)
    assert num_illegal > 0


def random_agent_actions(
  step: BatchedTimeStep, random: np.random.Generator, spec: EnvSpec | None = None
) -> np.ndarray:
  """Returns random legal agent actions, [B] int32 or [B, D] float32; `spec` as in `random_legal`."""
  if spec is not None and spec.is_continuous:
    rows = np.stack([random_action(spec, step.legal_actions_mask, random) for _ in step.is_last])
    return np.where(step.is_last[:, None], np.float32(DUMMY_ACTION), rows)
  if spec is not None and spec.is_factored:
    joint = random.integers(1, spec.num_actions, len(step.is_last))
    return np.where(step.legal_actions_mask[:, DUMMY_ACTION], DUMMY_ACTION, joint).astype(np.int32)
  noise = random.random(step.legal_actions_mask.shape)
  return np.where(step.legal_actions_mask, noise, -1.0).argmax(axis=1).astype(np.int32)


def check_vector(
  make: Callable[[], VectorEnvironment], num_steps: int, has_lives: bool = False
) -> list[BatchedTimeStep]:
  """Plays a vectorized environment at random and checks every step; returns the steps.

  The environments of two calls of `make` must play alike.
  """
  env, random = make(), np.random.default_rng(0)
  dummies = np.zeros((env.num_envs, *env.spec.action_shape), env.spec.action_dtype)
  steps = [env.step(dummies)]  # before a reset, a step resets
  _check_wrong_actions(env, make())
  steps.append(env.reset())
  assert steps[-1].is_first.all()
  copies = []
  for _ in range(num_steps):
    copies.append(map_fields(np.copy, steps[-1]))
    steps.append(env.step(random_agent_actions(steps[-1], random, env.spec)))
  for step, copy in zip(steps[1:], copies, strict=False):
    map_fields(np.testing.assert_array_equal, step, copy)
  del steps[0]
  for step in steps:
    _check_step(step, env)
  assert steps[0].is_first.all()
  num_continued = 0
  for step, after in itertools.pairwise(steps):
    assert step.is_last[after.is_first].all()
    is_continued = step.is_last & ~after.is_first
    assert not step.is_truncated[is_continued].any()
    assert not after.is_last[is_continued].any()
    assert (after.last_reward[is_continued] == 0).all()
    num_continued += int(is_continued.sum())
  assert (num_continued > 0) == has_lives
  env.close()
  return steps


def _check_wrong_actions(env: VectorEnvironment, other: VectorEnvironment) -> None:
  """Checks that a wrong action of one environment moves none; `env` was reset, and `other` is like it."""
  step, spec, last = other.reset(), env.spec, env.num_envs - 1
  if spec.intervals is not None:
    legal, message = random_agent_actions(step, np.random.default_rng(0), spec), r".*must be from "
    wrong = [spec.intervals.low - 1, spec.intervals.high + 1, np.full_like(spec.intervals.low, np.nan)]
  else:
    legal = step.legal_actions_mask.argmax(axis=1).astype(np.int32)
    message = rf".*must be one of 1 to {spec.num_actions - 1}" if spec.is_factored else r".*must be one of \["
    wrong = [0, -1, spec.num_actions, spec.num_actions + 10_000]
  for bad in wrong:
    actions = legal.copy()
    actions[last] = bad
    shown = f"{bad[0]:g}" if spec.is_continuous else str(bad)
    with pytest.raises(ValueError, match=rf"actions\[{last}\]={shown}: {message}"):
      env.step(actions)
  np.testing.assert_array_equal(env.step(legal).frame, other.step(legal).frame)
  other.close()


def _check_step(step: BatchedTimeStep, env: VectorEnvironment) -> None:
  spec, shape = env.spec, (env.num_envs,)
  assert step.frame.shape == (*shape, *spec.frame_shape)
  assert step.frame.dtype == spec.frame_dtype
  assert step.last_reward.shape == shape
  assert step.last_reward.dtype == np.float32
  for flag in (step.is_first, step.is_last, step.is_truncated):
    assert flag.shape == shape
    assert flag.dtype == bool
  assert step.to_play.shape == shape
  assert step.to_play.dtype == np.int32
  assert step.legal_actions_mask.shape == (*shape, spec.policy_size)
  assert step.legal_actions_mask.dtype == bool
  terminal = step.is_last & ~step.is_truncated
  assert not (step.is_truncated & ~step.is_last).any()
  assert not (step.is_first & step.is_last).any()
  assert (step.last_reward[step.is_first] == 0).all()
  np.testing.assert_array_equal(step.legal_actions_mask[:, DUMMY_ACTION], terminal)
  assert not step.legal_actions_mask[terminal, 1:].any()
  assert step.legal_actions_mask[~terminal, 1:].any(axis=1).all()

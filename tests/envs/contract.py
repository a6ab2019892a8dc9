"""The contract that every environment keeps, one by one or side by side. Inherit, and say how to make
yours.
"""

import itertools

import numpy as np
import pytest
from dm_env import StepType, TimeStep

from moozi.core.records import BatchedTimeStep
from moozi.core.spec import DUMMY_ACTION
from moozi.envs.environment import Environment
from moozi.envs.vector import SyncVectorEnvironment

NUM_STEPS = 150


def random_legal(step: TimeStep, random: np.random.Generator) -> int:
  """A random legal action in the environment's own terms; 0 at an end, where it is discarded."""
  legal = np.flatnonzero(step.observation.legal_actions_mask)
  return int(random.choice(legal)) if not step.last() else 0


def play(env: Environment, num_steps: int, seed: int = 0) -> list[TimeStep]:
  """Random legal play from a reset on, through as many episodes as there are."""
  random = np.random.default_rng(seed)
  steps = [env.reset()]
  while len(steps) < num_steps:
    steps.append(env.step(random_legal(steps[-1], random)))
  return steps


def assert_same(left: list[TimeStep], right: list[TimeStep]) -> None:
  """Two plays are the same to the bit."""
  assert len(left) == len(right)
  for a, b in zip(left, right, strict=True):
    assert (a.step_type, a.reward, a.discount) == (b.step_type, b.reward, b.discount)
    assert a.observation.to_play == b.observation.to_play
    assert a.observation.is_continued == b.observation.is_continued
    np.testing.assert_array_equal(a.observation.frame, b.observation.frame)
    np.testing.assert_array_equal(a.observation.legal_actions_mask, b.observation.legal_actions_mask)


class EnvironmentContract:
  """Inherit, define `make`, and every test here runs on your environment."""

  num_steps = NUM_STEPS
  goes_on_after_a_life_lost = False

  def make(self) -> Environment:
    """A fresh environment, seeded with 0; every call makes an equal one."""
    raise NotImplementedError

  @pytest.fixture
  def env(self) -> Environment:
    return self.make()

  def test_spec_is_whole(self, env):
    spec = env.env_spec
    assert ":" in spec.name
    assert len(spec.action_names) == spec.num_env_actions
    assert env.action_spec().num_values == spec.num_env_actions
    assert env.reward_spec().validate(0.0) == 0.0
    hash(spec)

  def test_every_step_keeps_its_spec(self, env):
    spec, observation_spec = env.env_spec, env.observation_spec()
    for step in play(env, self.num_steps):
      observation_spec.frame.validate(step.observation.frame)
      observation_spec.legal_actions_mask.validate(step.observation.legal_actions_mask)
      assert type(step.observation.to_play) is int
      assert 0 <= step.observation.to_play < spec.num_players
      assert type(step.observation.is_continued) is bool
      if not step.first():
        assert type(step.reward) is float
        assert np.isfinite(step.reward)

  def test_first_mid_last_follow_one_another(self, env):
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
      if step.discount != 0.0:  # live, or cut short
        assert step.observation.legal_actions_mask.any()

  def test_only_a_life_lost_is_gone_on_after(self, env):
    steps = play(env, self.num_steps)
    went_on = [after.observation.is_continued for after in steps]
    for step, after in itertools.pairwise(steps):
      assert not after.observation.is_continued or (after.first() and step.discount == 0.0)
    assert not went_on[0]
    assert any(went_on) == self.goes_on_after_a_life_lost

  def test_seed_and_a_second_reset_begin_a_new_game(self, env):
    if not self.goes_on_after_a_life_lost:
      return
    random = np.random.default_rng(0)
    for has_seed in (True, False):
      step = env.reset()
      while not step.last():
        step = env.step(random_legal(step, random))
      if has_seed:
        env.seed(3)
        assert not env.reset().observation.is_continued
      else:
        assert env.reset().observation.is_continued
        assert not env.reset().observation.is_continued

  def test_step_before_reset_resets(self, env):
    assert env.step(0).first()

  def test_reset_inside_an_episode_starts_a_new_one(self, env):
    before = play(env, 3)[-1]
    step = env.reset()
    assert step.first()
    assert before.last() or not step.observation.is_continued

  def test_action_at_an_end_is_discarded(self, env):
    steps = play(env, 1)
    random = np.random.default_rng(0)
    for _ in range(20_000):
      if steps[-1].last():
        break
      steps.append(env.step(random_legal(steps[-1], random)))
    assert steps[-1].last(), "no end in 20,000 random steps; give the environment a step cap"
    assert env.step(-5).first()

  def test_players_alternate(self, env):
    if env.env_spec.num_players == 2:
      for step, after in itertools.pairwise(play(env, self.num_steps)):
        if not after.first() and after.discount != 0.0:
          assert after.observation.to_play == 1 - step.observation.to_play

  @pytest.mark.parametrize("bad", [-1, "num_env_actions", 10_000, 1.0, None, "0"])
  def test_wrong_action_is_refused_and_moves_nothing(self, env, bad):
    other = self.make()
    left, right = env.reset(), other.reset()
    assert_same([left], [right])
    with pytest.raises(ValueError, match="action="):
      env.step(env.env_spec.num_env_actions if bad == "num_env_actions" else bad)
    action = random_legal(left, np.random.default_rng(0))
    assert_same([env.step(action)], [other.step(action)])

  def test_illegal_action_is_refused(self, env):
    random = np.random.default_rng(0)
    step = env.reset()
    for _ in range(self.num_steps):
      if not step.last():
        for action in np.flatnonzero(~step.observation.legal_actions_mask):
          with pytest.raises(ValueError, match="illegal"):
            env.step(int(action))
      step = env.step(random_legal(step, random))

  def test_numpy_integers_are_actions(self, env):
    step = env.reset()
    env.step(np.int32(np.flatnonzero(step.observation.legal_actions_mask)[0]))

  def test_what_was_shown_does_not_change(self, env):
    steps = play(env, 3)
    copies = [s._replace(observation=s.observation._replace(frame=s.observation.frame.copy())) for s in steps]
    play(env, 20)
    assert_same(steps, copies)

  def test_equal_envs_play_alike(self):
    assert_same(play(self.make(), self.num_steps), play(self.make(), self.num_steps))

  def test_an_episode_is_a_function_of_its_seed(self, env):
    env.seed(11)
    steps = play(env, self.num_steps)
    play(env, 17, seed=5)  # whatever came before, and wherever it stopped
    env.seed(11)
    assert_same(play(env, self.num_steps), steps)
    fresh = self.make()
    fresh.seed(11)
    assert_same(play(fresh, self.num_steps), steps)

  @pytest.mark.parametrize("seed", [0, 2**32, 2**63, np.uint64(2**64 - 1)])
  def test_any_non_negative_seed(self, env, seed):
    env.seed(seed)
    assert env.reset().first()

  @pytest.mark.parametrize("seed", [-1, 0.5, None])
  def test_other_seeds_are_refused(self, env, seed):
    with pytest.raises(ValueError, match="seed="):
      env.seed(seed)

  def test_keeps_the_vector_contract(self):
    vector = SyncVectorEnvironment([self.make() for _ in range(3)])
    check_vector(vector, self.num_steps, self.goes_on_after_a_life_lost)

  def test_close(self, env):
    env.reset()
    env.close()


def random_agent_actions(step: BatchedTimeStep, random: np.random.Generator) -> np.ndarray:
  """Random legal actions in the agent's terms, [B] int32."""
  noise = random.random(step.legal_actions_mask.shape)
  return np.where(step.legal_actions_mask, noise, -1.0).argmax(axis=1).astype(np.int32)


def check_vector(
  env: SyncVectorEnvironment, num_steps: int, goes_on_after_a_life_lost: bool = False
) -> list[BatchedTimeStep]:
  """Plays at random; checks what every frame of a vectorized environment must be; returns the frames."""
  random = np.random.default_rng(0)
  steps = [env.reset()]
  for _ in range(num_steps):
    steps.append(env.step(random_agent_actions(steps[-1], random)))
  for step in steps:
    _check_step(step, env)
  assert steps[0].is_first.all()
  num_gone_on = 0
  for step, after in itertools.pairwise(steps):
    assert step.is_last[after.is_first].all()
    gone_on = step.is_last & ~after.is_first
    assert (step.last_discount[gone_on] == 0).all()
    assert not after.is_last[gone_on].any()
    assert (after.last_reward[gone_on] == 0).all()
    num_gone_on += int(gone_on.sum())
  assert (num_gone_on > 0) == goes_on_after_a_life_lost
  step = env.reset()
  assert step.is_first.all()
  return steps


def _check_step(step: BatchedTimeStep, env: SyncVectorEnvironment) -> None:
  spec, shape = env.spec, (env.num_envs,)
  assert step.frame.shape == (*shape, *spec.frame_shape)
  assert step.frame.dtype == spec.frame_dtype
  assert step.last_reward.shape == shape
  assert step.last_reward.dtype == np.float32
  assert step.last_discount.shape == shape
  assert step.last_discount.dtype == np.float32
  for flag in (step.is_first, step.is_last, step.is_truncated):
    assert flag.shape == shape
    assert flag.dtype == bool
  assert step.to_play.shape == shape
  assert step.to_play.dtype == np.int32
  assert step.legal_actions_mask.shape == (*shape, spec.num_actions)
  assert step.legal_actions_mask.dtype == bool
  terminal = step.is_last & ~step.is_truncated
  np.testing.assert_array_equal(step.last_discount, np.where(terminal, 0.0, 1.0))
  assert not (step.is_truncated & ~step.is_last).any()
  assert not (step.is_first & step.is_last).any()
  assert (step.last_reward[step.is_first] == 0).all()
  np.testing.assert_array_equal(step.legal_actions_mask[:, DUMMY_ACTION], terminal)
  assert not step.legal_actions_mask[terminal, 1:].any()
  assert step.legal_actions_mask[~terminal, 1:].any(axis=1).all()


def kinds(steps: list[TimeStep]) -> list[StepType]:
  """The kinds of steps, in order."""
  return [step.step_type for step in steps]

"""Replayed environments show what was seen, whatever is done."""

import numpy as np
import pytest

from moozi.core.pytree import fields_of, map_fields, replace, stack
from moozi.core.records import BatchedTimeStep, TrajectorySample
from moozi.envs.replayed import ReplayedEnvironment, VectorReplayedEnvironment
from moozi.envs.vector import SyncVectorEnvironment, make_vector
from tests.envs.contract import (
  EnvironmentContract,
  IllegalActionsContract,
  TwoPlayersContract,
  check_vector,
  random_agent_actions,
)
from tests.envs.environments import make_lives, make_nim

SEEN = (
  "frame",
  "last_reward",
  "last_discount",
  "is_first",
  "is_last",
  "is_truncated",
  "to_play",
  "legal_actions_mask",
)


def record_trajectory(env: SyncVectorEnvironment, num_steps: int) -> TrajectorySample:
  """Random play, [T, B, …], as a worker would have stored it."""
  random = np.random.default_rng(0)
  samples, step = [], env.reset()
  for t in range(num_steps):
    actions = random_agent_actions(step, random)
    samples.append(
      TrajectorySample(
        **fields_of(step),
        root_value=np.full(env.num_envs, t, np.float32),
        action_probs=step.legal_actions_mask / step.legal_actions_mask.sum(axis=1, keepdims=True),
        action=np.where(step.is_last, 0, actions).astype(np.int32),
        acted_version=np.zeros(env.num_envs, np.int32),
        searched_version=np.zeros(env.num_envs, np.int32),
      )
    )
    step = env.step(actions)
  return stack(samples)


def lane(trajectory: TrajectorySample, i: int, start: int = 0, stop: int | None = None) -> TrajectorySample:
  """Steps start to stop of one lane."""
  return map_fields(lambda x: x[start:stop, i], trajectory)


CATCH = make_vector("tiny:catch", {}, 3, seed=0)
CATCH_STEPS = record_trajectory(CATCH, 30)
NIM = SyncVectorEnvironment([make_nim(max_episode_steps=3) for _ in range(4)])
NIM_STEPS = record_trajectory(NIM, 60)


LIVES = SyncVectorEnvironment([make_lives() for _ in range(2)])
LIVES_STEPS = record_trajectory(LIVES, 80)


def whole_episodes(trajectory: TrajectorySample, i: int) -> TrajectorySample:
  """One lane, cut after its last end."""
  return lane(trajectory, i, 0, int(np.flatnonzero(trajectory.is_last[:, i])[-1]) + 1)


class TestReplayedCatch(EnvironmentContract):
  def make(self):
    return ReplayedEnvironment(whole_episodes(CATCH_STEPS, 0), CATCH.spec)


class TestReplayedNim(TwoPlayersContract, IllegalActionsContract):
  def make(self):
    return ReplayedEnvironment(whole_episodes(NIM_STEPS, 1), NIM.spec)


class TestReplayedLives(EnvironmentContract):
  has_lives = True

  def make(self):
    return ReplayedEnvironment(whole_episodes(LIVES_STEPS, 0), LIVES.spec)

  def test_vector_contract(self):
    check_vector(SyncVectorEnvironment([self.make() for _ in range(3)]), self.num_steps)


def test_a_life_lost_is_replayed_as_it_was():
  trajectory = whole_episodes(LIVES_STEPS, 0)
  env = ReplayedEnvironment(trajectory, LIVES.spec)
  step, num_gone_on = env.reset(), 0
  for t in range(len(trajectory.action)):
    np.testing.assert_array_equal(step.observation.frame, trajectory.frame[t])
    assert step.first() == (t == 0 or trajectory.is_last[t - 1])
    assert step.observation.is_continued == (step.first() and not trajectory.is_first[t])
    num_gone_on += step.observation.is_continued
    step = env.step(1)
  assert num_gone_on > 4


def test_a_life_lost_is_replayed_side_by_side_too():
  env = VectorReplayedEnvironment(1, LIVES.spec)
  trajectory = whole_episodes(LIVES_STEPS, 0)
  env.refill([trajectory])
  step = env.reset()
  for t in range(len(trajectory.action)):
    assert_row(step, 0, trajectory, t)
    step = env.step(np.ones(1, np.int32))


def assert_row(step: BatchedTimeStep, i: int, trajectory: TrajectorySample, t: int) -> None:
  for name in SEEN:
    if t == 0 and name in ("is_first", "last_reward"):
      assert getattr(step, name)[i] == (name == "is_first")
    else:
      np.testing.assert_array_equal(getattr(step, name)[i], getattr(trajectory, name)[t], err_msg=name)


def test_shows_the_trajectory_whatever_is_done():
  trajectory = whole_episodes(NIM_STEPS, 0)
  env = ReplayedEnvironment(trajectory, NIM.spec)
  step = env.reset()
  for t in range(len(trajectory.action)):
    assert env.index == t
    np.testing.assert_array_equal(step.observation.frame, trajectory.frame[t])
    assert step.observation.to_play == trajectory.to_play[t]
    assert step.first() == trajectory.is_first[t]
    assert step.last() == trajectory.is_last[t]
    if not step.first():
      assert (step.reward, step.discount) == (trajectory.last_reward[t], trajectory.last_discount[t])
    step = env.step(0)  # to take one is always legal
  assert env.index == 0
  assert step.first()


def test_a_trajectory_that_breaks_off_is_used_up():
  trajectory = lane(CATCH_STEPS, 0, 3, 7)
  env = ReplayedEnvironment(trajectory, CATCH.spec)
  step = env.reset()
  assert step.first()
  assert step.reward is None
  for _ in range(3):
    assert env.step(0).mid()
  with pytest.raises(IndexError, match="4 steps is used up"):
    env.step(0)
  assert env.reset().first()


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (lambda t: map_fields(lambda x: x[:0], t), "T at least 1"),
    (lambda t: replace(t, frame=t.frame[:, :4]), "frame: shape"),
    (lambda t: replace(t, frame=t.frame.astype(np.uint8)), "frame: uint8; must be bool"),
    (lambda t: replace(t, legal_actions_mask=t.legal_actions_mask[:, 1:]), "legal_actions_mask: shape"),
    (lambda t: replace(t, last_reward=t.last_reward[1:]), "last_reward: shape"),
  ],
)
def test_what_does_not_fit_the_env_is_refused(change, message):
  trajectory = change(lane(CATCH_STEPS, 0))
  with pytest.raises(ValueError, match=message):
    ReplayedEnvironment(trajectory, CATCH.spec)
  vector = VectorReplayedEnvironment(2, CATCH.spec)
  with pytest.raises(ValueError, match=message):
    vector.refill([lane(CATCH_STEPS, 0), trajectory])
  assert vector.exhausted


def test_beginning_with_an_end_is_refused():
  t = int(np.flatnonzero(CATCH_STEPS.is_last[:, 0])[0])
  with pytest.raises(ValueError, match="begins with the end"):
    ReplayedEnvironment(lane(CATCH_STEPS, 0, t), CATCH.spec)


def test_all_lanes_together_are_what_was_recorded():
  env = VectorReplayedEnvironment(4, NIM.spec)
  trajectories = [lane(NIM_STEPS, i) for i in range(4)]
  env.refill(trajectories)
  step = env.reset()
  for t in range(60):
    for i in range(4):
      assert_row(step, i, trajectories[i], t)
    step = env.step(NIM_STEPS.action[t])
  assert env.exhausted
  assert not env.active.any()


def test_lanes_take_the_next_trajectory_and_idle_where_there_is_none():
  lengths = [5, 3, 9, 2, 4, 3]
  trajectories = [lane(CATCH_STEPS, i % 3, 0, n) for i, n in enumerate(lengths)]
  env = VectorReplayedEnvironment(2, CATCH.spec)
  assert env.exhausted
  env.refill(trajectories)
  assert not env.exhausted
  random = np.random.default_rng(0)
  step, seen, was_exhausted = env.reset(), [], False
  while env.active.any():
    for i in np.flatnonzero(env.active):
      k, t = int(env.trajectory_index[i]), int(env.step_index[i])
      assert_row(step, i, trajectories[k], t)
      seen.append((k, t))
    idle = ~env.active
    assert env.exhausted == idle.any()
    was_exhausted |= env.exhausted
    assert step.legal_actions_mask[idle, 0].all()
    assert not step.legal_actions_mask[idle, 1:].any()
    assert (step.last_discount[idle] == 0).all()
    assert step.is_last[idle].all()
    assert not step.frame[idle].any()
    step = env.step(random_agent_actions(step, random))
  assert sorted(seen) == [(k, t) for k, n in enumerate(lengths) for t in range(n)]
  assert was_exhausted


def test_refill_wakes_idle_lanes():
  env = VectorReplayedEnvironment(2, CATCH.spec)
  env.refill([lane(CATCH_STEPS, 0, 0, 4)])
  step = env.reset()
  assert env.active.tolist() == [True, False]
  assert env.exhausted
  env.refill([lane(CATCH_STEPS, 1, 0, 4)])
  step = env.step(np.array([1, 0]))
  assert env.active.tolist() == [True, True]
  assert not env.exhausted
  assert step.is_first.tolist() == [False, True]
  assert env.trajectory_index.tolist() == [0, 1]
  assert env.step_index.tolist() == [1, 0]


def test_reset_and_close_drop_what_was_shown():
  env = VectorReplayedEnvironment(1, CATCH.spec)
  env.refill([lane(CATCH_STEPS, i, 0, 6) for i in range(3)])
  env.reset()
  env.step(np.array([1]))
  assert env.reset().is_first.all()
  assert env.trajectory_index.tolist() == [1]
  env.close()
  assert env.exhausted
  assert not env.active.any()


@pytest.mark.parametrize("bad", [0, -1, 4])
def test_wrong_actions_are_refused(bad):
  env = VectorReplayedEnvironment(1, CATCH.spec)
  env.refill([lane(CATCH_STEPS, 0)])
  env.reset()
  with pytest.raises(ValueError, match=r"actions\[0\]"):
    env.step(np.array([bad]))
  assert env.step_index.tolist() == [0]


def test_no_lane_is_refused():
  with pytest.raises(ValueError, match="num_envs=0"):
    VectorReplayedEnvironment(0, CATCH.spec)


def test_a_lane_that_begins_at_an_end_has_no_reward_from_before():
  t = int(np.flatnonzero(CATCH_STEPS.is_last[:, 0])[0])
  trajectory = lane(CATCH_STEPS, 0, t)
  assert trajectory.last_reward[0] != 0
  env = VectorReplayedEnvironment(1, CATCH.spec)
  env.refill([trajectory])
  step = env.reset()
  assert step.is_first.item()
  assert step.is_last.item()
  assert step.last_reward.item() == 0


def test_the_action_for_the_last_step_of_a_trajectory_is_not_read():
  env = VectorReplayedEnvironment(1, CATCH.spec)
  env.refill([lane(CATCH_STEPS, 0, 0, 2), lane(CATCH_STEPS, 1, 0, 2)])
  env.reset()
  env.step(np.array([1]))
  assert env.step(np.array([0])).is_first.item()
  assert env.trajectory_index.tolist() == [1]

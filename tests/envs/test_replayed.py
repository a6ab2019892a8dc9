"""Tests of `ReplayedEnvironment`, which shows recorded trajectories and ignores actions."""

import numpy as np
import pytest

from moozi.core.pytree import fields_of, map_fields, replace, stack
from moozi.core.records import BatchedTimeStep, TrajectorySample
from moozi.envs.replayed import ReplayedEnvironment
from moozi.envs.vector import SyncVectorEnvironment, make_vector
from tests.envs.contract import random_agent_actions
from tests.envs.environments import make_lives, make_nim

FIELDS = (
  "frame",
  "last_reward",
  "is_first",
  "is_last",
  "is_truncated",
  "to_play",
  "legal_actions_mask",
)


def record_trajectory(env: SyncVectorEnvironment, num_steps: int) -> TrajectorySample:
  """Plays at random; returns the trajectory [T, B, …] that a worker would store."""
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
  """Returns steps start … stop - 1 of lane i."""
  return map_fields(lambda x: x[start:stop, i], trajectory)


CATCH = make_vector("tiny:catch", {}, 3, seed=0)
CATCH_STEPS = record_trajectory(CATCH, 30)
NIM = SyncVectorEnvironment([make_nim(max_episode_steps=3) for _ in range(4)])
NIM_STEPS = record_trajectory(NIM, 60)
LIVES = SyncVectorEnvironment([make_lives() for _ in range(2)])
LIVES_STEPS = record_trajectory(LIVES, 80)


def assert_row(step: BatchedTimeStep, i: int, trajectory: TrajectorySample, t: int) -> None:
  for name in FIELDS:
    if t == 0 and name in ("is_first", "last_reward"):
      assert getattr(step, name)[i] == (name == "is_first")
    else:
      np.testing.assert_array_equal(getattr(step, name)[i], getattr(trajectory, name)[t], err_msg=name)


@pytest.mark.parametrize(
  ("vector", "recorded"), [(CATCH, CATCH_STEPS), (NIM, NIM_STEPS), (LIVES, LIVES_STEPS)]
)
def test_lanes_show_what_was_recorded(vector, recorded):
  """The recorded environments have terminations, truncations, two players and lives."""
  num_steps, num_envs = recorded.action.shape
  trajectories = [lane(recorded, i) for i in range(num_envs)]
  env = ReplayedEnvironment(trajectories, num_envs, vector.spec)
  step = env.reset()
  for t in range(num_steps):
    assert env.active.all()
    for i in range(num_envs):
      assert_row(step, i, trajectories[i], t)
    step = env.step(recorded.action[t])
  assert not env.active.any()


def test_actions_change_nothing():
  trajectory = lane(NIM_STEPS, 0)
  env = ReplayedEnvironment([trajectory], 1, NIM.spec)
  step = env.reset()
  for t in range(len(trajectory.action)):
    assert_row(step, 0, trajectory, t)
    step = env.step(np.ones(1, np.int32))  # action 1 takes one stick, which is always legal


def test_lanes_take_the_next_trajectory_and_idle_at_the_end():
  lengths = [5, 3, 9, 2, 4, 3]
  trajectories = [lane(CATCH_STEPS, i % 3, 0, n) for i, n in enumerate(lengths)]
  env = ReplayedEnvironment(trajectories, 2, CATCH.spec)
  assert not env.active.any()
  random = np.random.default_rng(0)
  step, shown, num_idle = env.reset(), [], 0
  assert env.trajectory_index.tolist() == [0, 1]
  while env.active.any():
    for i in np.flatnonzero(env.active):
      k, t = int(env.trajectory_index[i]), int(env.step_index[i])
      assert_row(step, i, trajectories[k], t)
      shown.append((k, t))
    idle = ~env.active
    num_idle += idle.sum()
    assert step.legal_actions_mask[idle, 0].all()
    assert not step.legal_actions_mask[idle, 1:].any()
    assert step.is_last[idle].all()
    assert not step.is_truncated[idle].any()
    assert not step.frame[idle].any()
    step = env.step(random_agent_actions(step, random))
  assert sorted(shown) == [(k, t) for k, n in enumerate(lengths) for t in range(n)]
  # Each trajectory starts in the next free lane. One lane has 5 + 2 + 4 + 3 steps, the other 3 + 9.
  assert num_idle == 2


def test_reset_starts_again():
  env = ReplayedEnvironment([lane(CATCH_STEPS, i, 0, 6) for i in range(3)], 1, CATCH.spec)
  env.reset()
  env.step(np.array([1]))
  assert env.reset().is_first.all()
  assert (env.trajectory_index.tolist(), env.step_index.tolist()) == ([0], [0])


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
def test_trajectories_of_another_environment_are_refused(change, message):
  with pytest.raises(ValueError, match=message):
    ReplayedEnvironment([lane(CATCH_STEPS, 0), change(lane(CATCH_STEPS, 0))], 2, CATCH.spec)


@pytest.mark.parametrize("bad", [0, -1, 4])
def test_illegal_actions_are_refused(bad):
  env = ReplayedEnvironment([lane(CATCH_STEPS, 0)], 1, CATCH.spec)
  env.reset()
  with pytest.raises(ValueError, match=r"actions\[0\]"):
    env.step(np.array([bad]))
  assert env.step_index.tolist() == [0]


def test_at_least_one_lane():
  with pytest.raises(ValueError, match="num_envs=0"):
    ReplayedEnvironment([], 0, CATCH.spec)


def test_a_trajectory_that_begins_at_an_end_has_no_reward_there():
  t = int(np.flatnonzero(CATCH_STEPS.is_last[:, 0])[0])
  trajectory = lane(CATCH_STEPS, 0, t)
  assert trajectory.last_reward[0] != 0
  step = ReplayedEnvironment([trajectory], 1, CATCH.spec).reset()
  assert step.is_first.item()
  assert step.is_last.item()
  assert step.last_reward.item() == 0


def test_the_action_for_the_last_step_of_a_trajectory_is_not_read():
  env = ReplayedEnvironment([lane(CATCH_STEPS, 0, 0, 2), lane(CATCH_STEPS, 1, 0, 2)], 1, CATCH.spec)
  env.reset()
  env.step(np.array([1]))
  assert env.step(np.array([0])).is_first.item()
  assert env.trajectory_index.tolist() == [1]

"""Tests of training targets in NumPy and JAX, against hand-computed tables and an oracle."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moozi.core.pytree import fields_of
from moozi.ops.history import history_window
from moozi.ops.targets import make_targets
from tests.ops.oracles import Step, oracle_history, oracle_target, random_lane

K, N = 3, 2
P = [[0.0, 0.5, 0.5], [0.0, 0.25, 0.75], [0.0, 1.0, 0.0], [0.0, 0.75, 0.25]]
DUMMY = [1.0, 0.0, 0.0]


def window(*, to_play=(0,) * 6, last=(), truncated=(), values=(10, 20, 30, 40, 50, 60)):
  """Returns a window of six steps, for K = 3 and n = 2; entering step t ≥ 1 has reward 2^(t-1)."""
  return {
    "last_reward": np.float32([[99, 1, 2, 4, 8, 16]]),
    "root_value": np.float32([values]),
    "to_play": np.asarray([to_play]),
    "is_last": np.asarray([[t in (*last, *truncated) for t in range(6)]]),
    "is_truncated": np.asarray([[t in truncated for t in range(6)]]),
    # Every step has an action; the environment discards those of last frames.
    "action": np.int32([[1 + t % 2 for t in range(6)]]),
    "action_probs": np.float32([P]),
  }


def targets(arrays, unroll_steps=K, n_step=N, discount=0.5):
  made = make_targets(**arrays, unroll_steps=unroll_steps, n_step=n_step, discount=discount)
  return {name: np.asarray(value)[0].tolist() for name, value in fields_of(made).items()}


class TestByHand:
  def test_one_player_midway(self):
    assert targets(window()) == {
      "actions": [1, 2, 1],
      "rewards": [1, 2, 4],
      "action_probs": P,
      "root_values": [10, 20, 30, 40],
      "n_step_returns": [1 + 1 + 7.5, 2 + 2 + 10, 4 + 4 + 12.5, 8 + 8 + 15],
      "unroll_mask": [1, 1, 1, 1],
      "consistency_mask": 1,
    }

  def test_terminal_inside_the_unroll(self):
    # The search value and policy stored with the terminal frame must not be used.
    assert targets(window(last=[2])) == {
      "actions": [1, 2, 0],
      "rewards": [1, 2, 0],
      "action_probs": [P[0], P[1], DUMMY, DUMMY],
      "root_values": [10, 20, 0, 0],
      "n_step_returns": [1 + 1, 2, 0, 0],
      "unroll_mask": [1, 1, 1, 1],
      "consistency_mask": 1,
    }

  def test_truncation_inside_the_unroll(self):
    assert targets(window(truncated=[2])) == {
      "actions": [1, 2, 0],
      "rewards": [1, 2, 0],
      "action_probs": [P[0], P[1], P[2], DUMMY],
      "root_values": [10, 20, 30, 0],
      "n_step_returns": [1 + 1 + 7.5, 2 + 15, 30, 0],
      "unroll_mask": [1, 1, 1, 0],
      "consistency_mask": 1,
    }

  def test_truncation_in_the_bootstrap_after_the_unroll(self):
    made = targets(window(truncated=[4]))
    assert made["n_step_returns"] == [9.5, 14, 4 + 4 + 12.5, 8 + 25]
    assert made["unroll_mask"] == [1, 1, 1, 1]

  def test_start_on_a_terminal_frame(self):
    assert targets(window(last=[0])) == {
      "actions": [0, 0, 0],
      "rewards": [0, 0, 0],
      "action_probs": [DUMMY] * 4,
      "root_values": [0, 0, 0, 0],
      "n_step_returns": [0, 0, 0, 0],
      "unroll_mask": [1, 1, 1, 1],
      "consistency_mask": 0,
    }

  def test_start_on_a_truncated_frame(self):
    made = targets(window(truncated=[0]))
    assert made["root_values"] == [10, 0, 0, 0]
    assert made["n_step_returns"] == [10, 0, 0, 0]
    assert made["action_probs"] == [P[0], DUMMY, DUMMY, DUMMY]
    assert made["unroll_mask"] == [1, 0, 0, 0]
    assert made["consistency_mask"] == 0

  def test_next_episodes_truncation_is_ignored(self):
    made = targets(window(last=[1], truncated=[2]))
    assert made["unroll_mask"] == [1, 1, 1, 1]
    assert made["n_step_returns"] == [1, 0, 0, 0]

  def test_next_episodes_terminal_does_not_unmask(self):
    assert targets(window(truncated=[1], last=[2]))["unroll_mask"] == [1, 1, 0, 0]

  @pytest.mark.parametrize("starter", [0, 1])
  def test_two_players_midway(self, starter):
    to_play = [(starter + t) % 2 for t in range(6)]
    made = targets(window(to_play=to_play))
    # A reward belongs to the player who moved, a search value to the player to move.
    assert made["rewards"] == [1, 2, 4]
    assert made["root_values"] == [10, 20, 30, 40]
    assert made["n_step_returns"] == [1 - 1 + 7.5, 2 - 2 + 10, 4 - 4 + 12.5, 8 - 8 + 15]

  @pytest.mark.parametrize("starter", [0, 1])
  @pytest.mark.parametrize("outcome", [1.0, -1.0])
  def test_two_players_end_at_odd_and_even_starts(self, starter, outcome):
    # The action at step 2 ends the game. Its reward belongs to its player, who also acts at step 0.
    arrays = window(to_play=[(starter + t) % 2 for t in range(6)], last=[3], values=(0,) * 6)
    arrays["last_reward"] = np.float32([[0, 0, 0, outcome, 0, 0]])
    made = targets(arrays)
    assert made["rewards"] == [0, 0, outcome]
    # With n = 2, z_0 does not reach the end; it bootstraps from step 2, whose value is 0.
    assert made["n_step_returns"] == [0, -0.5 * outcome, outcome, 0]
    arrays = {k: np.concatenate([v, np.zeros_like(v[:, :1])], axis=1) for k, v in arrays.items()}
    arrays["action_probs"] = arrays["action_probs"][:, : K + 1]
    assert targets(arrays, n_step=3)["n_step_returns"] == [0.25 * outcome, -0.5 * outcome, outcome, 0]

  def test_reward_k_goes_with_value_and_policy_k_plus_1(self):
    made = targets(window(values=(0, 0, 0, 0, 0, 0)), n_step=N)
    # With n = 2 and values of 0, z_k = u_{k+1} + u_{k+2} / 2, and u_{k+1} is rewards[k].
    rewards = [*made["rewards"], 8, 16]
    assert made["n_step_returns"] == [rewards[k] + rewards[k + 1] / 2 for k in range(K + 1)]


def lane_arrays(lane: list[Step], unroll_steps: int):
  return {
    "last_reward": np.asarray([[s.reward for s in lane]], np.float32),
    "root_value": np.asarray([[s.value for s in lane]], np.float32),
    "to_play": np.asarray([[s.player for s in lane]]),
    "is_last": np.asarray([[s.is_last for s in lane]]),
    "is_truncated": np.asarray([[s.is_truncated for s in lane]]),
    "action": np.asarray([[s.action for s in lane]], np.int32),
    "action_probs": np.asarray([[s.probs for s in lane[: unroll_steps + 1]]], np.float32),
  }


@settings(max_examples=40)
@given(
  seed=st.integers(0, 2**32 - 1),
  num_players=st.sampled_from([1, 2]),
  unroll_steps=st.integers(0, 6),
  n_step=st.integers(1, 6),
  end_probability=st.sampled_from([0.0, 0.1, 0.3, 0.6]),
)
def test_equals_the_oracle(seed, num_players, unroll_steps, n_step, end_probability):
  rng = np.random.default_rng(seed)
  lane = random_lane(rng, unroll_steps + n_step + 1, num_players, 3, end_probability)
  made = targets(lane_arrays(lane, unroll_steps), unroll_steps, n_step, 0.9)
  expected = oracle_target(lane, 0, unroll_steps, n_step, 0.9)
  assert made.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_allclose(made[name], value, rtol=1e-5, atol=1e-5, err_msg=name)


def test_numpy_and_jitted_jax_agree():
  lanes = [random_lane(np.random.default_rng(seed), 8, 2, 3, 0.2) for seed in range(200)]
  rows = [lane_arrays(lane, 4) for lane in lanes]
  arrays = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}

  def make(arrays):
    return fields_of(make_targets(**arrays, unroll_steps=4, n_step=3, discount=0.9))

  ours, theirs = make(arrays), jax.jit(make)(arrays)
  for name, value in ours.items():
    assert isinstance(value, np.ndarray), name
    assert value.dtype == theirs[name].dtype, name
    np.testing.assert_allclose(value, np.asarray(theirs[name]), rtol=1e-6, atol=1e-6, err_msg=name)


def test_rejects_window_of_other_length():
  with pytest.raises(ValueError, match="window of 6 steps"):
    targets(window(), n_step=3)


class TestHistoryWindow:
  def make(self, first, is_last=False):
    # With L = 3 at i = 3, frame o_t contains t (o_1 … o_4), and action a_t is 10 + t (a_0 … a_3).
    frames, actions = history_window(
      frames=np.asarray([[[1], [2], [3], [4]]], np.uint8),
      actions=np.asarray([[10, 11, 12, 13]], np.int32),
      is_first=np.asarray([[t in first for t in (1, 2, 3)]]),
      is_last=np.asarray([[is_last]]),
    )
    assert frames.dtype == np.uint8
    assert actions.dtype == np.int32
    return np.asarray(frames)[0, :, 0].tolist(), np.asarray(actions)[0].tolist()

  def test_midway(self):
    assert self.make(first=[]) == ([1, 2, 3, 4], [10, 11, 12, 13])

  def test_start_at_i(self):
    assert self.make(first=[3]) == ([0, 0, 3, 4], [0, 0, 0, 13])

  def test_start_just_inside(self):
    # The episode starts at o_1, which is kept; the action before it is blank.
    assert self.make(first=[1]) == ([1, 2, 3, 4], [0, 11, 12, 13])

  def test_newest_start_counts(self):
    assert self.make(first=[1, 2]) == ([0, 2, 3, 4], [0, 0, 12, 13])

  def test_blank_after_last_frame(self):
    assert self.make(first=[], is_last=True) == ([1, 2, 3, 0], [10, 11, 12, 13])


@settings(max_examples=30)
@given(
  seed=st.integers(0, 2**32 - 1),
  length=st.integers(1, 5),
  ahead=st.integers(1, 4),
  end_probability=st.sampled_from([0.1, 0.4]),
)
def test_history_equals_the_oracle(seed, length, ahead, end_probability):
  lane = random_lane(np.random.default_rng(seed), length + ahead + 5, 1, 3, end_probability)
  for i in range(length, length + 5):
    around = np.arange(i - length, i + ahead + 1)
    frames, actions = history_window(
      frames=1 + around[None, 1:, None],
      actions=np.asarray([[lane[j].action for j in around[:-1]]], np.int32),
      is_first=np.asarray([[lane[j].is_first for j in around[1 : 1 + length]]]),
      is_last=np.asarray([[lane[j].is_last for j in around[length:-1]]]),
    )
    kept_frames, kept_actions = oracle_history(lane, i, length, ahead)
    assert frames[0, :, 0].tolist() == [0 if j is None else 1 + j for j in kept_frames]
    assert actions[0].tolist() == [0 if j is None else lane[j].action for j in kept_actions]

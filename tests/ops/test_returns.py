"""Tests of n-step returns against hand-computed values and an oracle."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moozi.ops.returns import n_step_return
from tests.ops.oracles import oracle_return, random_lane


def returns(rewards, values, n_step, *, to_play=None, last=(), truncated=()):
  """Returns `n_step_return` with discount 1/2, so that all results are exact in float32."""
  steps = range(len(rewards))
  out = n_step_return(
    np.asarray(rewards, np.float32),
    np.asarray(values, np.float32),
    np.asarray(to_play if to_play is not None else [0 for _ in steps]),
    np.asarray([t in (*last, *truncated) for t in steps]),
    np.asarray([t in truncated for t in steps]),
    n_step,
    0.5,
  )
  assert out.dtype == np.float32
  return np.asarray(out).tolist()


REWARDS = [99, 1, 2, 4, 8]
VALUES = [10, 20, 30, 40, 50]


class TestByHand:
  def test_one_player(self):
    # z_0 = 1 + 2/2 + 30/4, z_1 = 2 + 4/2 + 40/4, z_2 = 4 + 8/2 + 50/4; no return uses the reward 99.
    assert returns(REWARDS, VALUES, 2) == [9.5, 14.0, 20.5]
    assert returns(REWARDS, VALUES, 1) == [11.0, 17.0, 24.0, 33.0]

  def test_terminal_value_is_not_read(self):
    assert returns(REWARDS, VALUES, 2, last=[2]) == [2.0, 2.0, 0.0]
    # A terminal frame exactly n steps away is not bootstrapped from.
    assert returns(REWARDS, VALUES, 1, last=[1])[0] == 1.0

  def test_truncation_keeps_bootstrap(self):
    # z_0 and z_1 bootstrap from the truncated frame 2; z_2 is that frame's own search value.
    assert returns(REWARDS, VALUES, 2, truncated=[2]) == [9.5, 17.0, 30.0]
    assert returns(REWARDS, VALUES, 4, truncated=[2]) == [9.5]

  def test_next_episode_is_not_read(self):
    short = returns([0, 1, 0, 77, 77], [10, 20, 0, 66, 66], 3, last=[1])
    assert short == [1.0, 0.0]

  def test_two_players_bootstrap_sign(self):
    # With n = 1, z_0 = 1 - 20/2; with n = 2, z_0 = 1 - 2/2 + 30/4.
    assert returns(REWARDS, VALUES, 1, to_play=[0, 1, 0, 1, 0])[0] == -9.0
    assert returns(REWARDS, VALUES, 2, to_play=[0, 1, 0, 1, 0])[0] == 7.5
    assert returns(REWARDS, VALUES, 2, to_play=[1, 0, 1, 0, 1])[0] == 7.5

  @pytest.mark.parametrize("starter", [0, 1])
  @pytest.mark.parametrize("outcome", [1, -1])
  def test_two_players_game_of_four_moves(self, starter, outcome):
    # The outcome, 1 or -1, belongs to the last mover; over the earlier moves, z alternates in sign.
    to_play = [(starter + t) % 2 for t in range(5)]
    padding = 4
    z = returns(
      [0, 0, 0, 0, outcome] + [0] * padding,
      [0] * (5 + padding),
      4,
      to_play=to_play + [0] * padding,
      last=[4],
    )
    expected = [-0.125, 0.25, -0.5, 1.0, 0.0]
    assert z == [outcome * x for x in expected]


@settings(max_examples=30)
@given(
  seed=st.integers(0, 2**32 - 1),
  num_players=st.sampled_from([1, 2]),
  n_step=st.integers(1, 9),
  width=st.integers(1, 9),
  end_probability=st.sampled_from([0.0, 0.1, 0.4]),
)
def test_equals_the_oracle(seed, num_players, n_step, width, end_probability):
  lane = random_lane(np.random.default_rng(seed), n_step + width, num_players, 3, end_probability)
  z = n_step_return(
    np.asarray([[s.reward for s in lane]], np.float32),
    np.asarray([[s.value for s in lane]], np.float32),
    np.asarray([[s.player for s in lane]]),
    np.asarray([[s.is_last for s in lane]]),
    np.asarray([[s.is_truncated for s in lane]]),
    n_step,
    0.9,
  )
  expected = [oracle_return(lane, t, n_step, 0.9) for t in range(width)]
  np.testing.assert_allclose(z[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("n_step", "width"), [(0, 3), (3, 3), (4, 3)])
def test_rejects_short_window(n_step, width):
  flags = np.zeros(width, bool)
  with pytest.raises(ValueError, match=f"n_step={n_step}"):
    n_step_return(np.zeros(width), np.zeros(width), np.zeros(width, int), flags, flags, n_step, 0.5)

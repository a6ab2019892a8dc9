"""Tests of expectimax in 2048 against pgx's rules and against values by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.chance.expectimax import ACTIONS, outcomes, play, q_values, slide
from tests.fast_jit import fast_jit

pgx = pytest.importorskip("pgx")
pytestmark = pytest.mark.slow


def test_moves_are_those_of_pgx():
  env = pgx.make("2048")
  step, slide_all = fast_jit(env.step), fast_jit(jax.vmap(slide, (None, 0)))
  state = env.init(jax.random.PRNGKey(0))
  merges = 0
  for i in range(150):
    board = np.asarray(state._board).reshape(4, 4)
    after, rewards, is_legal = (np.asarray(x) for x in slide_all(board, ACTIONS))
    np.testing.assert_array_equal(is_legal, state.legal_action_mask)
    if not is_legal.any():
      break
    action = int(np.flatnonzero(is_legal)[i % is_legal.sum()])
    state = step(state, action, jax.random.PRNGKey(i))
    new = np.asarray(state._board).reshape(4, 4) - after[action]
    assert np.count_nonzero(new) == 1
    assert after[action][new != 0] == 0
    assert rewards[action] == state.rewards[0]
    merges += int(rewards[action] > 0)
  assert merges > 30


def test_outcomes():
  board = np.zeros((4, 4), np.int32)
  board[:3] = 5
  boards, probs = outcomes(board, with_fours=True)
  possible = np.asarray(boards)[np.asarray(probs) > 0] - board
  assert possible.sum(axis=(1, 2)).tolist() == [1, 1, 1, 1, 2, 2, 2, 2]
  assert (possible[:, :3] == 0).all()
  np.testing.assert_allclose(probs[probs > 0], [0.225] * 4 + [0.025] * 4)


BOARD = np.array([[1, 1, 0, 0], [2, 3, 4, 5], [3, 4, 5, 6], [4, 5, 6, 7]], np.int32)


def free_cells(boards, actions):
  return jnp.sum(boards == 0, axis=(1, 2)).astype(jnp.float32)


def test_values_by_hand():
  """Left and right merge two 2s: reward 4, and three free cells, of which the outcome takes one."""
  (q,) = np.asarray(q_values(BOARD[None], 1, free_cells, 0.5))
  np.testing.assert_allclose(q, [4 + 0.5 * 2, 0.5 * 1, 4 + 0.5 * 2, -np.inf])


def test_two_moves_ahead():
  """After left, the new 4 can merge with the one below it; after right it cannot."""
  (q,) = np.asarray(q_values(BOARD[None], 2, lambda boards, actions: jnp.zeros(len(boards)), 0.5))
  assert q[0] == 4 + 0.5 * 8
  assert q[2] == 4


def test_games_end_and_depend_on_the_seed():
  first, again, other = (play(free_cells, 1.0, 1, 4, seed) for seed in (0, 0, 1))
  np.testing.assert_array_equal(first, again)
  assert (first != other).any()
  assert (first > 100).all()

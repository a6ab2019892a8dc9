"""Tests of the signs between two players and of the search's discount."""

import jax.numpy as jnp
import numpy as np
import pytest

from moozi.ops.signs import player_sign, search_discount
from moozi.ops.xp import array_namespace


@pytest.mark.parametrize("xp", [np, jnp])
def test_player_sign(xp):
  sign = player_sign(xp.asarray([0, 0, 1, 1]), xp.asarray([0, 1, 0, 1]))
  assert sign.dtype == np.float32
  np.testing.assert_array_equal(np.asarray(sign), [1, -1, -1, 1])
  assert array_namespace(sign) is xp


def test_player_sign_of_plain_numbers():
  assert player_sign(0, 1) == -1
  assert player_sign(1, 1) == 1


def test_search_discount():
  assert search_discount(0.9, 1) == 0.9
  assert search_discount(0.9, 2) == -0.9


@pytest.mark.parametrize("num_players", [0, 3])
def test_search_discount_rejects_other_numbers_of_players(num_players):
  with pytest.raises(ValueError, match=f"num_players={num_players}"):
    search_discount(0.9, num_players)


def test_search_backup_equals_one_step_return():
  """The search's backup, r + search_discount · v(child), has the sign convention of the n-step return."""
  from moozi.ops.returns import n_step_return

  reward, child = 1.0, 4.0
  for num_players in (1, 2):
    to_play = np.asarray([0, 1 % num_players])
    z = n_step_return(
      np.float32([0, reward]), np.float32([9, child]), to_play, np.zeros(2, bool), np.zeros(2, bool), 1, 0.5
    )
    assert z[0] == reward + search_discount(0.5, num_players) * child


def test_namespace_prefers_the_other_library():
  assert array_namespace(np.zeros(1), 3) is np
  assert array_namespace(np.zeros(1), jnp.zeros(1)) is jnp

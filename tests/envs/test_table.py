"""Tests of whether a table's game has chance."""

import numpy as np
import pytest

from moozi.envs import registry
from moozi.envs.game import GameEnvironment
from moozi.envs.table import EnvironmentTable
from tests.envs.environments import NIM_SPEC, Nim, make_nim


class Dice(Nim):
  """The winner of Nim gets the eyes of a die; nothing else depends on chance."""

  def seed(self, seed: int) -> None:
    self._random = np.random.default_rng(seed)

  def step(self, action: int) -> tuple[float, bool, bool]:
    reward, is_terminal, is_cut = super().step(action)
    return reward * float(self._random.integers(1, 7)), is_terminal, is_cut


def test_chance_of_a_users_game_is_found():
  """Both games show everything to both players."""
  assert EnvironmentTable(make_nim()).is_deterministic
  assert not EnvironmentTable(GameEnvironment(Dice(), NIM_SPEC)).is_deterministic


def test_table_is_usable_after_the_trial_games():
  table = EnvironmentTable(make_nim())
  assert table.is_deterministic
  assert table.is_over
  table.reset(0)
  table.step(2)
  assert (table.to_play, table.returns(), table.is_over) == (1, [0.0, 0.0], False)


@pytest.mark.parametrize(("game", "is_deterministic"), [("tic_tac_toe", True), ("kuhn_poker", False)])
def test_rules_in_jax_say_whether_they_have_chance(game, is_deterministic, monkeypatch):
  pytest.importorskip("pgx")
  monkeypatch.setattr(EnvironmentTable, "reset", lambda *_: pytest.fail("a game was played"))
  assert registry.make_table(f"pgx:{game}").is_deterministic == is_deterministic

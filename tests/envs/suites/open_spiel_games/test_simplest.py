"""Tests of Simplest's rules."""

import pytest

from tests.envs.suites.open_spiel_games.playing import load, names_of, play, views


@pytest.mark.parametrize("first", range(1, 5))
@pytest.mark.parametrize("second", range(1, 5))
def test_second_player_must_match(first, second):
  state = load("simplest").new_initial_state()
  assert state.current_player() == 0
  assert list(names_of(state)) == ["1", "2", "3", "4"]
  play(state, str(first))
  assert state.current_player() == 1
  assert state.returns() == [0, 0]
  play(state, str(second))
  assert state.is_terminal()
  assert state.returns() == ([-1, 1] if first == second else [1, -1])


def test_second_player_sees_the_number():
  seen = [views(play(load("simplest").new_initial_state(), str(n)))[1] for n in range(1, 5)]
  assert len({tensor for tensor, _ in seen}) == len({text for _, text in seen}) == 4

"""Tests of Othello on small boards; on 8 × 8, it must equal open_spiel's own game."""

import numpy as np
import pytest

from moozi.envs import registry
from moozi.envs.bots import make_bot
from tests.envs.suites.open_spiel_games.playing import load, names_of, play, pyspiel


def assert_equal_to_the_package(seed):
  """Plays a random game in both implementations; returns its actions."""
  ours, theirs = (
    load("small_othello(size=8)").new_initial_state(),
    pyspiel.load_game("othello").new_initial_state(),
  )
  random = np.random.default_rng(seed)
  while not theirs.is_terminal():
    assert ours.current_player() == theirs.current_player()
    assert ours.legal_actions() == theirs.legal_actions()
    for player in (0, 1):
      np.testing.assert_array_equal(ours.observation_tensor(player), theirs.observation_tensor(player))
    action = int(random.choice(theirs.legal_actions()))
    ours.apply_action(action)
    theirs.apply_action(action)
  assert ours.is_terminal()
  assert ours.returns() == theirs.returns()
  return theirs.history()


def test_equals_the_package():
  for seed in range(3):
    assert_equal_to_the_package(seed)


@pytest.mark.slow
def test_equals_the_package_in_many_games():
  passes = sum(64 in assert_equal_to_the_package(seed) for seed in range(300))
  assert passes > 20


def test_first_moves():
  state = load("small_othello").new_initial_state()
  assert str(state) == "------\n------\n--ox--\n--xo--\n------\n------\nx to move"
  # Black's four moves: each cell is beside a white disc that is in line with a black one.
  assert sorted(names_of(state)) == ["b3", "c2", "d5", "e4"]
  play(state, "b3")
  assert str(state) == "------\n------\n-xxx--\n--xo--\n------\n------\no to move"
  assert sorted(names_of(state)) == ["b2", "b4", "d2"]


def test_a_pass_and_a_wipe_out():
  """Random games on 4 × 4 include passes, and games in which one player has no discs left."""
  random, passed, wiped = np.random.default_rng(0), 0, 0
  for _ in range(150):
    state = load("small_othello(size=4)").new_initial_state()
    while not state.is_terminal():
      names = list(names_of(state))
      if "pass" in names:
        passed += 1
        assert names == ["pass"]
        before = str(state)
        play(state, "pass")
        assert str(state).splitlines()[:-1] == before.splitlines()[:-1]
        assert list(names_of(state)) != ["pass"]
      else:
        play(state, str(random.choice(names)))
    black, white = str(state).count("x"), str(state).count("o") - 1  # "over" has an o
    assert state.returns() == [np.sign(black - white), np.sign(white - black)]
    wiped += min(black, white) == 0
  assert passed > 0
  assert wiped > 0


def test_mcts_plays_it():
  env = registry.make("open_spiel:small_othello(size=4)", seed=0)
  bots, step, total = [make_bot(env, "mcts", 20, 0), make_bot(env, "random", 1, 0)], env.reset(), 0.0
  for episode in range(6):
    step = env.reset()
    while not step.last():
      player = step.observation.to_play
      step = env.step(bots[(player + episode) % 2].action(*step.observation[:2]))
      total += step.reward if (player + episode) % 2 == 0 else -step.reward
  assert total > 1

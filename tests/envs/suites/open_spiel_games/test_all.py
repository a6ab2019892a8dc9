"""Tests of all added games: random play to the end, open_spiel's own checks, copies and parameters."""

import copy
import pickle

import numpy as np
import pytest

from moozi.envs.suites.open_spiel.rules import sample_chance
from tests.envs.suites.open_spiel_games.playing import load, play_random_games, views

pyspiel = pytest.importorskip("pyspiel")

# For each game, the number of random games in quick tests and in slow ones; the slow ones sum to 10,000.
GAMES = {
  "simplest": (40, 1500),
  "small_othello(size=4)": (15, 1000),
  "small_othello": (5, 1500),
  "small_othello(size=8)": (1, 100),
  "small_othello(size=10)": (1, 100),
  "uno": (3, 2000),
  "uno(players=3)": (2, 1000),
  "uno(players=4,hand=3)": (2, 1000),
  "uno(players=10)": (1, 200),
  "stratego": (5, 1400),
  "stratego(board=barrage)": (1, 120),
  "stratego(board=full)": (1, 80),
}


def test_random_play_of_ten_thousand_games_in_all():
  assert sum(slow for _, slow in GAMES.values()) == 10_000


@pytest.mark.parametrize("name", GAMES)
def test_random_play_to_the_end(name):
  play_random_games(name, GAMES[name][0])


@pytest.mark.slow
@pytest.mark.parametrize("name", GAMES)
def test_random_play_to_the_end_often(name):
  returns, lengths = play_random_games(name, GAMES[name][1])
  wins = (returns > 0).mean(axis=0)
  assert wins.min() > min(0.1, 0.4 / len(wins))  # each seat can win
  assert lengths.min() > 1


@pytest.mark.parametrize("name", ["simplest", "small_othello(size=4)", "uno(max_turns=40)", "stratego"])
def test_the_packages_own_checks(name):
  """Checks legal actions, chance, observations, histories, and serialization of states."""
  pyspiel.random_sim_test(load(name), num_sims=1, serialize=True, verbose=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", GAMES)
def test_the_packages_own_checks_of_all(name):
  pyspiel.random_sim_test(load(name), num_sims=3, serialize=True, verbose=False)


@pytest.mark.parametrize("name", ["simplest", "small_othello", "uno(players=6)", "stratego"])
def test_clones_and_histories(name):
  """A clone is independent. The history gives the same state again, also in a pickled copy of the game."""
  game, random = load(name), np.random.default_rng(1)
  state = game.new_initial_state()
  for _ in range(30):
    sample_chance(state, random)
    if state.is_terminal():
      break
    before, clone = views(state), state.clone()
    clone.apply_action(clone.legal_actions()[0])
    assert views(state) == before
    state.apply_action(int(random.choice(state.legal_actions())))
  replayed = pickle.loads(pickle.dumps(game)).new_initial_state()
  for action in state.history():
    replayed.apply_action(action)
  assert str(replayed) == str(state)
  assert views(replayed) == views(state)
  assert views(copy.deepcopy(state)) == views(state)


@pytest.mark.parametrize(
  ("name", "message"),
  [
    ("uno(players=11)", "11"),
    ("uno(players=8,hand=10)", "80 cards are dealt; must be fewer than 76"),
    ("uno(hand=0)", "hand=0: must be one of 1, 2"),
    ("uno(max_turns=0)", "max_turns=0: must be at least 1"),
    ("stratego(board=huge)", "board=huge: must be one of small, barrage, full"),
    ("stratego(max_moves=-1)", "max_moves=-1: must be at least 1"),
    ("small_othello(size=7)", "size=7: must be one of 4, 6, 8"),
    ("simplest(size=7)", "size"),
  ],
)
def test_wrong_parameters(name, message):
  from moozi.core.errors import UserError
  from moozi.envs import registry

  with pytest.raises(UserError, match=message) as error:
    registry.env_spec(f"open_spiel:{name}", seat=0)
  assert str(error.value).startswith(f"env.name=open_spiel:{name}: ")
  assert "\n" not in str(error.value)

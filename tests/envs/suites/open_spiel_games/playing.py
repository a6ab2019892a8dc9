"""Helpers that play the added OpenSpiel games by action names."""

import functools

import numpy as np
import pytest

from moozi.envs.suites.open_spiel.rules import sample_chance

pyspiel = pytest.importorskip("pyspiel")


@functools.cache
def load(name):
  from moozi.envs.suites.open_spiel.rules import package

  return package().load_game(name)


def names_of(state):
  """Returns {name: legal action}."""
  player = state.current_player()
  return {state.action_to_string(player, action): action for action in state.legal_actions()}


def play(state, names):
  """Plays the actions with these names, separated by spaces; `_` in a name stands for a space."""
  for name in names.split():
    legal = names_of(state)
    assert name.replace("_", " ") in legal, f"{name} is not legal; legal are {', '.join(legal)}"
    state.apply_action(legal[name.replace("_", " ")])
  return state


def views(state):
  """Returns each player's observation as (tensor, text)."""
  players = range(state.num_players())
  return [(tuple(state.observation_tensor(p)), state.observation_string(p)) for p in players]


def play_random_games(name, num_games, check=lambda state: None, max_length=None):
  """Plays random games to the end; returns (returns [num_games, players], lengths [num_games])."""
  random, returns, lengths = np.random.default_rng(0), [], []
  game = load(name)
  for _ in range(num_games):
    state, length = game.new_initial_state(), 0
    sample_chance(state, random)
    while not state.is_terminal():
      check(state)
      legal = state.legal_actions()
      assert legal
      assert legal == sorted(set(legal))
      assert legal[0] >= 0
      assert legal[-1] < game.num_distinct_actions()
      state.apply_action(int(random.choice(legal)))
      sample_chance(state, random)
      length += 1
    assert state.legal_actions() == []
    assert length <= game.max_game_length()
    returns.append(state.returns())
    lengths.append(length)
  returns = np.array(returns)
  np.testing.assert_allclose(returns.sum(axis=1), 0, atol=1e-9)
  assert returns.min() >= game.min_utility()
  assert returns.max() <= game.max_utility()
  return returns, np.array(lengths)

"""Tests that specs report hidden information, and that frames show an information set but nothing hidden."""

import collections

import jax
import numpy as np
import pytest

from moozi.envs import registry
from moozi.envs.game import GameEnvironment
from moozi.envs.jax.adapters import JaxVectorEnvironment
from moozi.envs.suites.open_spiel import environment as open_spiel
from moozi.envs.suites.open_spiel.rules import Rules
from tests.envs.contract import check_vector, random_legal


@pytest.mark.parametrize(
  ("name", "is_perfect"),
  [
    ("open_spiel:2048", True),
    ("open_spiel:blackjack", False),
    ("open_spiel:kuhn_poker", False),
    ("open_spiel:liars_dice", False),
    ("open_spiel:tic_tac_toe", True),
    ("pgx:kuhn_poker", False),
    ("pgx:tic_tac_toe", True),
  ],
)
def test_spec_reports_hidden_information(name, is_perfect):
  pytest.importorskip("pgx" if name.startswith("pgx:") else "pyspiel")
  assert registry.env_spec(name).is_perfect_information == is_perfect


def frames_and_last_actions(env, num_steps):
  """Plays at random; returns {frame: the set of actions that led to it}."""
  random, out = np.random.default_rng(0), collections.defaultdict(set)
  step, last = env.reset(), None
  for _ in range(num_steps):
    if not step.last():
      out[step.observation.frame.tobytes()].add(last)
    action = None if step.last() else random_legal(step, random)
    step, last = env.step(action or 0), action
  return out


@pytest.mark.slow
def test_frames_with_hidden_information_show_the_last_action():
  """Each frame determines the last action, so the action history reveals nothing that the frame hides."""
  pytest.importorskip("pyspiel")
  hidden = []
  for game, summary in open_spiel.list_games().items():
    if summary.endswith("(needs env.kwargs.seat)"):
      continue
    spec = registry.env_spec(f"open_spiel:{game}")
    if spec.num_players == 2 and not spec.is_perfect_information:
      hidden.append(game)
      last_actions = frames_and_last_actions(registry.make(f"open_spiel:{game}", seed=0), 3000)
      assert all(len(actions) == 1 for actions in last_actions.values()), game
  assert {"kuhn_poker", "liars_dice", "uno"} <= set(hidden)


@pytest.mark.slow
def test_games_refused_for_hidden_moves():
  pytest.importorskip("pyspiel")
  for game in sorted(open_spiel._HIDDEN_MOVES):
    rules = Rules(game)
    env = GameEnvironment(open_spiel._OpenSpielGame(rules), rules.spec, 60)
    assert max(len(actions) for actions in frames_and_last_actions(env, 6000).values()) > 1, game


@pytest.fixture(scope="module")
def kuhn_poker():
  pytest.importorskip("pgx")
  return registry.make_jax_env("pgx:kuhn_poker")


def kuhn_frames(env):
  """Returns {(deal, actions so far): frame}; a deal is (player 0's card, player 1's card)."""
  rules, out = env.rules, {}
  step, frame, key = jax.jit(rules.step), jax.jit(rules.frame), jax.random.PRNGKey(0)
  bet, check = 0, 1
  starts = [rules.init(jax.random.PRNGKey(seed)) for seed in range(40)]
  for start in starts:
    first = int(start.current_player)
    deal = int(start._cards[first]), int(start._cards[1 - first])
    for line in ((), (check,), (bet,), (check, bet)):
      state = start
      for action in line:
        state, _, is_terminal, _ = step(state, action, key)
        assert not is_terminal
      shown = frame(state).tobytes()
      # The frame does not depend on which of pgx's players moves first.
      assert out.setdefault((deal, line), shown) == shown
  assert len(out) == 6 * 4
  return out


@pytest.mark.slow
def test_kuhn_poker_has_a_frame_for_each_information_set(kuhn_poker):
  """An information set is a card and the actions so far; each of the twelve has its own frame."""
  spec = kuhn_poker.spec
  assert (spec.frame_shape, spec.frame_dtype) == ((1, 1, 8), "bool")
  assert not spec.is_perfect_information
  known = {}
  for (deal, line), shown in kuhn_frames(kuhn_poker).items():
    assert known.setdefault((deal[len(line) % 2], line), shown) == shown
  assert len(known) == 12
  assert len(set(known.values())) == 12


def test_kuhn_poker_frame_shows_the_player_to_move(kuhn_poker):
  state = kuhn_poker.rules.init(jax.random.PRNGKey(0))
  for num_steps in (0, 1, 2):
    frame = kuhn_poker.rules.frame(state.replace(_step_count=np.int32(num_steps)))
    assert frame[0, 0, -1] == num_steps % 2


@pytest.mark.slow
def test_kuhn_poker_frame_agrees_with_to_play(kuhn_poker):
  steps = check_vector(lambda: JaxVectorEnvironment(kuhn_poker, [0, 1, 2]), 60)
  for step in steps:
    np.testing.assert_array_equal(step.frame[:, 0, 0, -1], step.to_play == 1)

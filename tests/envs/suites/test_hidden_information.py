"""What players hide from one another: told by the spec, shown by no frame. No two situations look alike."""

import collections

import jax
import numpy as np
import pytest

from moozi.envs import registry
from moozi.envs.jax.environment import JaxVectorEnvironment
from moozi.envs.suites.open_spiel import environment as open_spiel
from moozi.envs.suites.open_spiel.environment import Options
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
def test_the_spec_says_whether_something_is_hidden(name, is_perfect):
  pytest.importorskip("pgx" if name.startswith("pgx:") else "pyspiel")
  assert registry.env_spec(name).is_perfect_information == is_perfect


def frames_and_last_actions(env, num_steps):
  """For each frame of random play: the actions that came before it."""
  random, out = np.random.default_rng(0), collections.defaultdict(set)
  step, last = env.reset(), None
  for _ in range(num_steps):
    if not step.last():
      out[step.observation.frame.tobytes()].add(last)
    action = None if step.last() else random_legal(step, random)
    step, last = env.step(action or 0), action
  return out


def test_where_something_is_hidden_the_last_action_is_not():
  """Or the history, which holds it, would show more than the player may see."""
  pytest.importorskip("pyspiel")
  hidden = []
  for game in open_spiel.list_games():
    spec = registry.env_spec(f"open_spiel:{game}")
    if spec.num_players == 2 and not spec.is_perfect_information:
      hidden.append(game)
      last_actions = frames_and_last_actions(registry.make(f"open_spiel:{game}", seed=0), 3000)
      assert all(len(actions) == 1 for actions in last_actions.values()), game
  assert {"kuhn_poker", "liars_dice"} <= set(hidden)


def test_games_that_are_refused_for_hidden_moves_hide_them():
  pytest.importorskip("pyspiel")
  for game in sorted(open_spiel._HIDDEN_MOVES):
    env = open_spiel.make_environment(game, Options(max_episode_steps=60))
    assert max(len(actions) for actions in frames_and_last_actions(env, 6000).values()) > 1, game


@pytest.fixture(scope="module")
def kuhn_poker():
  pytest.importorskip("pgx")
  return registry.make_jax_env("pgx:kuhn_poker")


def kuhn_frames(world):
  """The frame for each deal (player 0's card, player 1's) and each line of play so far."""
  rules, out = world.rules, {}
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
      assert out.setdefault((deal, line), shown) == shown  # whoever of pgx's two begins
  assert len(out) == 6 * 4
  return out


def test_kuhn_pokers_frames_tell_what_the_player_to_move_knows_and_no_more(kuhn_poker):
  """His card and all that was said: the twelve information sets, each with a frame of its own."""
  spec = kuhn_poker.spec
  assert (spec.frame_shape, spec.frame_dtype) == ((1, 1, 8), "bool")
  assert not spec.is_perfect_information
  known = {}
  for (deal, line), shown in kuhn_frames(kuhn_poker).items():
    assert known.setdefault((deal[len(line) % 2], line), shown) == shown, "the frame tells the other's card"
  assert len(known) == 12
  assert len(set(known.values())) == 12, "two lines of play look the same"


def test_the_player_to_move_is_the_one_that_kuhn_pokers_frame_tells(kuhn_poker):
  steps = check_vector(JaxVectorEnvironment(kuhn_poker, [0, 1, 2]), 60)
  for step in steps:
    np.testing.assert_array_equal(step.frame[:, 0, 0, -1], step.to_play == 1)

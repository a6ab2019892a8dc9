"""Tests of the bot `alpha_beta` in games of OpenSpiel."""

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.envs import registry
from moozi.envs.bots import RandomBot, make_bot
from moozi.envs.environment import random_action
from moozi.envs.players import SeparatePlayer, bot_of
from tests.envs.players import check_player

pytest.importorskip("pyspiel")

TIC_TAC_TOE = "open_spiel:tic_tac_toe"
# X has the corner 0 and the center 4; O has 1 and 8. X wins by 3 or 6, which make two threats at once.
WON_IN_TWO = (0, 1, 4, 8)


def choices(moves, depth, seeds, name=TIC_TAC_TOE):
  """Returns the bot's actions after `moves`, one for each seed."""
  table = registry.make_table(name)
  table.reset(0)
  for move in moves:
    table.step(move)
  legal = table.legal_actions_mask()
  return [make_bot(table, "alpha_beta", depth, seed).action(np.empty(0), legal) for seed in seeds]


def test_at_full_depth_it_never_loses_tic_tac_toe():
  table = registry.make_table(TIC_TAC_TOE)
  for seed in range(8):
    table.reset(seed)
    bots = [RandomBot(table.spec, seed)] * 2
    bots[seed % 2] = make_bot(table, "alpha_beta", 9, seed)
    while not table.is_over:
      table.step(bots[table.to_play].action(np.empty(0), table.legal_actions_mask()))
    assert table.returns()[seed % 2] >= 0, seed


def test_it_sees_a_win_in_two_moves_at_depth_3_and_not_at_depth_2():
  assert set(choices(WON_IN_TWO, 3, range(12))) == {3, 6}
  assert set(choices(WON_IN_TWO, 2, range(30))) == {2, 3, 5, 6, 7}


def test_the_seed_breaks_ties_uniformly():
  first = choices((), 1, range(180))
  assert first == choices((), 1, range(180))
  assert np.bincount(first, minlength=9).min() >= 10


def test_it_prefers_the_earlier_win_and_the_later_loss():
  assert set(choices((0, 1, 4, 3), 5, range(12))) == {8}, "8 wins at once; 2 and 6 win later"
  assert set(choices((0, 1, 4), 6, range(12))) == {8}, "after 8, X needs two moves; after another, one"


def test_it_is_a_player_of_games_of_two_players():
  check_player(
    lambda: SeparatePlayer("alpha_beta:2", registry.env_spec(TIC_TAC_TOE)),
    lambda: registry.make_table(TIC_TAC_TOE),
  )


def test_it_plays_a_seat_that_no_agent_plays():
  env, random = registry.make(TIC_TAC_TOE, seed=0, seat=0, others="alpha_beta:9"), np.random.default_rng(0)
  for _ in range(4):
    step = env.reset()
    while not step.last():
      step = env.step(random_action(env.env_spec, step.observation.legal_actions_mask, random))
    assert step.reward <= 0


def test_it_plays_games_whose_rules_are_in_python():
  for number in range(4):
    assert choices((number,), 2, [0], "open_spiel:simplest") == [number], "the second player matches"


@pytest.mark.parametrize(
  ("name", "message"),
  [
    ("open_spiel:kuhn_poker", "^alpha_beta: would see what is hidden in open_spiel:kuhn_poker"),
    ("open_spiel:pig", "^alpha_beta: open_spiel:pig must have two players, no chance"),
    ("open_spiel:chinese_checkers(players=3)", "^alpha_beta: .* must have two players"),
  ],
)
def test_games_that_it_refuses(name, message):
  with pytest.raises(UserError, match=message):
    make_bot(registry.make_table(name), "alpha_beta", 2, 0)


@pytest.mark.parametrize(
  ("name", "bot"),
  [
    ("random", ("random", 1)),
    ("mcts", ("mcts", 100)),
    ("mcts:7", ("mcts", 7)),
    ("alpha_beta", ("alpha_beta", 4)),
    ("alpha_beta:99", ("alpha_beta", 99)),
    ("alpha_beta:100", None),
    ("alpha_beta:0", None),
    ("mcts:", None),
    ("self", None),
    ("run:mcts", None),
  ],
)
def test_names_of_bots(name, bot):
  assert bot_of(name) == bot

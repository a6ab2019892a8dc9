"""Tests that OpenSpiel games equal the package's, and of the errors for unsupported games."""

import collections

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.envs import registry
from moozi.envs.bots import make_bot
from moozi.envs.suites.open_spiel import environment as open_spiel
from moozi.envs.suites.open_spiel import rules as open_spiel_rules
from moozi.envs.suites.open_spiel.environment import OpenSpielOptions, rules_of
from moozi.envs.suites.open_spiel.rules import Rules, sample_chance
from moozi.envs.wrappers import RandomStarts, StepCap
from tests.envs.contract import (
  play,
  random_legal,
)

pyspiel = pytest.importorskip("pyspiel")


@pytest.mark.parametrize(
  ("game", "frame_shape", "frame_dtype", "actions", "players"),
  [
    ("tic_tac_toe", (3, 3, 4), "bool", 9, 2),
    ("connect_four", (6, 7, 4), "bool", 7, 2),
    ("go(board_size=9)", (9, 9, 5), "bool", 82, 2),
    ("kuhn_poker", (1, 1, 12), "bool", 2, 2),
    ("2048", (1, 1, 16), "float32", 4, 1),
    ("catch", (1, 1, 50), "bool", 3, 1),
    ("chess", (8, 8, 21), "float32", 4674, 2),
  ],
)
def test_specs(game, frame_shape, frame_dtype, actions, players):
  spec = registry.env_spec(f"open_spiel:{game}")
  assert (spec.frame_shape, spec.frame_dtype) == (frame_shape, frame_dtype)
  assert (spec.num_env_actions, spec.num_players) == (actions, players)
  assert spec.name == f"open_spiel:{game}"


def test_action_names():
  def names(game):
    return registry.env_spec(f"open_spiel:{game}").action_names

  assert names("tic_tac_toe")[:4] == ("(0,0)", "(0,1)", "(0,2)", "(1,0)")
  assert names("connect_four") == tuple("0123456")
  assert names("kuhn_poker") == ("Pass", "Bet")
  assert names("go(board_size=5)")[-2:] == ("e5", "PASS")
  # The name of a chess move depends on the position, so actions have numbers.
  assert names("chess")[:2] == ("action 0", "action 1")


# --- equality with the package ------------------------------------------------------------------------


@pytest.mark.parametrize(
  "game",
  [
    *("tic_tac_toe", "kuhn_poker", "blackjack", "2048"),
    *(pytest.param(g, marks=pytest.mark.slow) for g in ("connect_four", "othello", "oware", "liars_dice")),
  ],
)
def test_equals_the_package(game):
  """Compares frames, masks, players and rewards; chance events are drawn from equal random generators."""
  env = registry.make(f"open_spiel:{game}", seed=5)
  kind = pyspiel.load_game(game).get_type()
  is_imperfect = kind.information != pyspiel.GameType.Information.PERFECT_INFORMATION
  hidden = is_imperfect and kind.provides_information_state_tensor
  chance, random = np.random.default_rng(5), np.random.default_rng(1)
  num_ends = 0
  for _ in range(60 if game in ("kuhn_poker", "blackjack", "tic_tac_toe", "liars_dice") else 4):
    state = pyspiel.load_game(game).new_initial_state()
    sample_chance(state, chance)
    step, total = env.reset(), np.zeros(state.num_players())
    for _ in range(70):
      player = step.observation.to_play
      assert player == state.current_player()
      tensor = state.information_state_tensor(player) if hidden else state.observation_tensor(player)
      frame = step.observation.frame
      if state.num_players() == 2:
        assert (frame[..., -1] == player).all()
        frame = frame[..., :-1]
      np.testing.assert_array_equal(np.moveaxis(frame, -1, 0).ravel(), np.float32(tensor))
      np.testing.assert_array_equal(step.observation.legal_actions_mask, state.legal_actions_mask())
      action = random_legal(step, random)
      step = env.step(action)
      state.apply_action(action)
      sample_chance(state, chance)
      total[player] += step.reward
      if state.num_players() == 2:
        total[1 - player] -= step.reward
      np.testing.assert_allclose(total, state.returns())
      assert step.last() == state.is_terminal()
      if step.last():
        assert step.discount == 0.0
        num_ends += 1
        break
  assert num_ends > 0 or game in ("2048", "oware")


def test_terminal_frame_is_of_the_next_player():
  env = registry.make("open_spiel:tic_tac_toe", seed=0)
  env.reset()
  for action in (0, 3, 1, 4):
    env.step(action)
  step = env.step(2)
  assert (step.reward, step.discount) == (1.0, 0.0)
  assert step.observation.to_play == 1
  assert step.observation.frame[..., -1].all()
  assert step.observation.frame[0, :, :3].sum() == 3


def test_losing_move_costs_its_mover():
  """In misère Nim the player who takes the last stick loses."""
  env = registry.make("open_spiel:nim(pile_sizes=1;1)", seed=0)
  step = env.reset()
  for reward in (0.0, -1.0):
    (action,) = np.flatnonzero(step.observation.legal_actions_mask)[:1]
    step = env.step(action)
    assert step.reward == reward
  assert step.discount == 0.0


# --- chance and hidden cards --------------------------------------------------------------------------


def test_deals_are_uniform_and_follow_from_the_seed():
  env = registry.make("open_spiel:kuhn_poker", seed=0)
  deals = collections.Counter()
  for seed in range(1200):
    env.seed(seed)
    env.reset()
    deals[tuple(env._game._state.history())] += 1
    env.seed(seed)
    env.reset()
    deals[tuple(env._game._state.history())] += 1
  assert len(deals) == 6
  # With 1200 seeds, played twice each, 400 of each deal are expected, with a standard deviation of 26.
  assert all(count % 2 == 0 and 300 < count < 500 for count in deals.values())


def test_chance_outcomes_have_their_probabilities():
  class State:
    def __init__(self):
      self.drawn = None

    def current_player(self):
      return -1 if self.drawn is None else 0

    def chance_outcomes(self):
      return [(7, 0.0), (8, 0.1), (9, 0.9)]

    def apply_action(self, outcome):
      self.drawn = outcome

  random, counts = np.random.default_rng(0), collections.Counter()
  for _ in range(2000):
    state = State()
    sample_chance(state, random)
    counts[state.drawn] += 1
  assert counts[7] == 0
  assert 150 < counts[8] < 250


def test_hidden_hand_is_not_shown():
  env = registry.make("open_spiel:kuhn_poker", seed=0)
  frames = {0: collections.defaultdict(set), 1: collections.defaultdict(set)}
  for seed in range(60):
    env.seed(seed)
    step = env.reset()
    cards = env._game._state.history()
    for player in (0, 1):
      assert step.observation.to_play == player
      frames[player][cards[player]].add(step.observation.frame.tobytes())
      step = env.step(0)
  for by_card in frames.values():
    assert len(by_card) == 3
    assert all(len(seen) == 1 for seen in by_card.values())


# --- frames -------------------------------------------------------------------------------------------


def test_bool_frame_with_other_values_raises():
  env = registry.make("open_spiel:2048", seed=0, frame_dtype="bool")
  assert env.env_spec.frame_dtype == "bool"
  with pytest.raises(UserError, match=r"env.name=open_spiel:2048: .*frame_dtype=float32"):
    play(env, 30)


def test_frame_dtype_option():
  env = registry.make("open_spiel:tic_tac_toe", seed=0, frame_dtype="float32")
  plain = registry.make("open_spiel:tic_tac_toe", seed=0)
  for a, b in zip(play(env, 30), play(plain, 30), strict=True):
    assert a.observation.frame.dtype == np.float32
    np.testing.assert_array_equal(a.observation.frame, b.observation.frame)


@pytest.mark.parametrize("value", [0.5, 2.0, -1.0])
def test_is_binary(value):
  rules = Rules("tic_tac_toe")
  rules._use_observer(None)
  rules._tensor[:] = 0
  assert rules._is_binary()
  rules._tensor[3] = 1
  assert rules._is_binary()
  rules._tensor[5:9] = value
  assert not rules._is_binary()


# --- legality -----------------------------------------------------------------------------------------


def test_illegal_move_that_the_package_plays():
  state = pyspiel.load_game("chess").new_initial_state()
  assert 0 not in state.legal_actions()
  state.apply_action(0)  # chess plays an illegal move; some games raise an error
  assert state.history() == [0]
  env = registry.make("open_spiel:chess", seed=0)
  env.reset()
  with pytest.raises(ValueError, match="action=0: illegal"):
    env.step(0)
  assert env._game._state.history() == []


def test_masks_are_read_only():
  env = registry.make("open_spiel:tic_tac_toe", seed=0)
  with pytest.raises(ValueError, match="read-only"):
    env.reset().observation.legal_actions_mask[0] = False


# --- the list of games, and unsupported ones -----------------------------------------------------------


@pytest.mark.slow
def test_every_listed_game_can_be_played():
  games = open_spiel.list_games()
  assert {"tic_tac_toe", "connect_four", "go", "chess", "kuhn_poker", "2048", "othello", "hex"} <= set(games)
  assert games["go"] == "Go"
  for game, summary in games.items():
    needs_seat = summary.endswith("(needs env.kwargs.seat)")
    # By default, bridge solves each deal, which takes a second.
    name = "bridge(use_double_dummy_result=False)" if game == "bridge" else game
    env = registry.make(f"open_spiel:{name}", seed=0, **({"seat": "random"} if needs_seat else {}))
    assert env.env_spec.num_players in (1, 2)
    play(env, 12)


@pytest.mark.slow
def test_games_left_out_for_moving_twice():
  for game in sorted(open_spiel._NOT_ALTERNATING):
    with pytest.raises(UserError, match="moves twice in a row"):
      Rules(game)


@pytest.mark.parametrize(
  ("game", "part"),
  [
    ("goofspiel", "players move at the same time"),
    ("matrix_rps", "players move at the same time"),
    ("bridge", "4 players or more"),
    ("kuhn_poker(players=3)", "3 players; self-play is for two players"),
    ("leduc_poker", "two players who alternate strictly"),
    ("dark_chess", "hides a player's move from the other"),
    ("bargaining", "not the other's loss"),
    ("hanabi", "not the other's loss"),
    ("misere(game=tic_tac_toe())", "made from another game"),
    ("coin_game", "shows no tensor"),
    ("crossword", "shows no tensor"),
    ("negotiation", "do not follow from a seed"),
    ("go(bord=9)", "Unknown parameter 'bord'. Available parameters are: board_size"),
    ("go(board_size=100)", "board size up to 19"),
    ("go(board_size=nine)", "Wrong type for parameter board_size"),
    ("go(board_size=9", "must be GAME or GAME(parameter=value"),
    ("connect_four(rows=0)", "which is empty"),
    ("tic_tac_to", "the nearest is open_spiel:tic_tac_toe"),
    ("", "unknown game ''"),
  ],
)
def test_unsupported_games(game, part, capfd):
  for call in (
    lambda: registry.make(f"open_spiel:{game}", seed=0),
    lambda: registry.env_spec(f"open_spiel:{game}"),
  ):
    with pytest.raises(UserError) as error:
      call()
    message = str(error.value)
    assert message.startswith(f"env.name=open_spiel:{game}: ")
    assert part in message
    assert "\n" not in message
  assert capfd.readouterr() == ("", "")


def test_player_who_moves_twice_after_the_probe():
  rules = Rules("tic_tac_toe")
  state = rules.game.new_initial_state()
  assert rules.next_player(state, 1) == 0
  with pytest.raises(UserError, match=r"env.name=open_spiel:tic_tac_toe: player 0 moves twice in a row"):
    rules.next_player(state, 0)


# --- opponents ----------------------------------------------------------------------------------------


def play_bots(env, bots):
  step, total = env.reset(), 0.0
  while not step.last():
    player = step.observation.to_play
    step = env.step(bots[player].action(*step.observation[:2]))
    total += step.reward if player == 0 else -step.reward
  return total


@pytest.mark.parametrize("wrap", [lambda e: e, lambda e: StepCap(e, 50), lambda e: RandomStarts(e, 0)])
def test_mcts_beats_random_play(wrap):
  env = wrap(registry.make("open_spiel:tic_tac_toe", seed=0))
  for seat, sign in ((0, 1), (1, -1)):
    total = 0.0
    for seed in range(20):
      bots = [make_bot(env, "random", 1, seed), make_bot(env, "random", 1, seed)]
      bots[seat] = make_bot(env, "mcts", 100, seed)
      total += sign * play_bots(env, bots)
    assert total >= 12


@pytest.mark.parametrize(
  ("name", "is_in_python"), [("connect_four", False), ("othello", False), ("simplest", True)]
)
def test_the_mcts_bot_in_cpp_plays_the_rules_in_cpp(name, is_in_python):
  assert Rules(name).is_in_python == is_in_python


def test_mcts_follows_from_its_seed():
  env = registry.make("open_spiel:connect_four", seed=0)

  def line(seed):
    env.reset()
    bot, actions = make_bot(env, "mcts", 20, seed), []
    for _ in range(12):
      actions.append(bot.action(env._game.frame(), env._game.legal_actions_mask()))
      if env.step(actions[-1]).last():
        break
    return actions

  assert line(3) == line(3)
  assert len({tuple(line(seed)) for seed in range(6)}) > 1


@pytest.mark.parametrize(
  ("name", "kind", "part"),
  [
    ("open_spiel:kuhn_poker", "mcts", "would see what is hidden"),
    ("open_spiel:tic_tac_toe", "alphabeta", "has no such player"),
    ("tiny:catch", "mcts", "has no such player; all environments have random, self"),
  ],
)
def test_unknown_opponents(name, kind, part):
  with pytest.raises(UserError) as error:
    make_bot(registry.make(name, seed=0), kind, 10, 0)
  assert str(error.value).startswith(f"{kind}: ")
  assert part in str(error.value)


def test_opponents_of_any_seed():
  env = registry.make("open_spiel:tic_tac_toe", seed=0)
  env.reset()
  for kind in ("random", "mcts"):
    assert make_bot(env, kind, 5, 2**63).action(np.zeros(0), np.ones(9, bool)) in range(9)


def test_rules_are_cached():
  assert rules_of("tic_tac_toe", OpenSpielOptions()) is rules_of(
    "tic_tac_toe", OpenSpielOptions(max_episode_steps=3)
  )


@pytest.mark.parametrize(
  ("name", "message"),
  [
    ("hex(board_size=20000)", "board_size=20000 is too large; must be at most 200"),
    ("liars_dice(numdice=100000)", "numdice=100000 is too large"),
    ("mnk(m=10000,n=3,k=3)", "m=10000 is too large"),
    ("breakthrough(rows=8,columns=201)", "columns=201 is too large"),
    ("go(board_size=" + "9" * 5000 + ")", "board_size=999999999999 is too large"),
  ],
)
def test_a_game_that_is_too_large_is_refused_before_it_is_loaded(name, message, monkeypatch):
  monkeypatch.setattr(open_spiel_rules, "package", lambda: pytest.fail("loaded"))
  with pytest.raises(UserError, match=message):
    open_spiel_rules._load_game(name)


def test_a_game_with_too_many_actions_is_refused(monkeypatch):
  monkeypatch.setattr(open_spiel_rules, "_MAX_ACTIONS", 80)
  with pytest.raises(UserError, match="81 actions; must be at most 80"):
    open_spiel_rules._load_game("hex(board_size=9)")

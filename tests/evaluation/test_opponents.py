"""Tests of evaluation against opponents."""

import numpy as np
import pytest

from moozi.core import plugins
from moozi.core.errors import EnvError, UserError
from moozi.envs import registry
from moozi.envs.vector import live_steps
from moozi.evaluation.evaluator import EvaluationResult
from moozi.evaluation.opponents import score_figures
from moozi.evaluation.random_play import random_returns
from moozi.evaluation.ratings import rating_against
from moozi.io.config import load_config
from moozi.run import build
from moozi.training.checks import check_opponent, check_players, check_symmetries
from tests.evaluation.test_evaluator import BASE, BOARD, evaluate, prepare
from tests.tiny_run import TINY, shaken

pytest.importorskip("pyspiel")
GAME = np.zeros(1, int)


@pytest.fixture(scope="module")
def against_random():
  return evaluate(BOARD, num_episodes=20)


def test_seats_alternate_and_returns_follow(against_random):
  assert against_random.seats.tolist() == [0, 1] * 10
  assert set(against_random.returns) <= {-1.0, 0.0, 1.0}
  # In a decided game the last mover has won: player 0 after an odd number of moves.
  won_by = np.where(against_random.lengths % 2 == 1, 0, 1)
  decided = against_random.returns != 0
  np.testing.assert_array_equal(
    against_random.returns[decided] > 0, (won_by == against_random.seats)[decided]
  )
  assert decided.any()
  assert (against_random.lengths[~decided] == 9).all()


@pytest.mark.slow
def test_episodes_do_not_depend_on_num_envs(against_random):
  wide = evaluate([*BOARD, "evaluation.num_envs=8"], num_episodes=20)
  np.testing.assert_array_equal(wide.returns, against_random.returns)
  np.testing.assert_array_equal(wide.lengths, against_random.lengths)
  assert wide.num_distinct == against_random.num_distinct > 10


def test_games_against_the_pool_give_a_rating(against_random):
  """The same episodes are played against a player of the pool as against `evaluation.opponent`."""
  pool = "evaluation.pool=[{player: random, rating: 100}, {player: random, rating: 400}]"
  options = (*BOARD, "evaluation.opponent=self", "evaluation.pool_episodes=8", pool)
  found = evaluate(options, num_episodes=2, rates=True)
  scores = 0.5 + 0.5 * np.sign(against_random.returns[:8])
  expected = rating_against(np.stack([scores, scores], axis=1), np.array([100.0, 400.0]))
  assert found.rating == expected
  assert found.summary()["rating"] == expected.value
  assert evaluate(options, num_episodes=2).rating is None


@pytest.mark.slow
def test_rivals_play_as_two_agents_would(monkeypatch):
  """The second set of variables plays as a player of its own would."""

  class Rival:
    def __init__(self, spec, seed):
      self._spec, self._player = spec, evaluator.player(rival)

    def action(self, observation, legal):
      return int(self._player.choose(GAME, live_steps(self._spec, [observation], [legal]))[0]) - 1

    def observe(self, observation, legal, action):
      step = live_steps(self._spec, [observation], [legal])
      self._player.observe(GAME, step, np.array([1 + action], np.int32))

  monkeypatch.setitem(plugins.PLAYERS.registered, "rival", Rival)
  options = ("evaluation.max_random_starts=2", "evaluation.gate_episodes=12", "evaluation.opponent=rival")
  evaluator, variables = prepare((*BOARD, *options))
  rival = shaken(variables, seed=1)
  result = evaluator.run(variables, num_episodes=12, rivals=(variables, rival))
  assert result.gate_score == score_figures(result.returns, result.seats)["score"] != 0.5
  assert result.gate_distinct == result.num_distinct


@pytest.mark.slow
def test_an_environment_that_fails_in_the_games_of_rivals_leaves_the_other_episodes():
  evaluator, variables = prepare((*BOARD, "evaluation.gate_episodes=2"))
  expected, make_env, made = evaluator.run(variables, num_episodes=4), evaluator._make_env, []

  def step(*_):
    raise ValueError("broken")

  def make(index):
    made.append(make_env(index))
    if len(made) > num_envs:
      made[-1].step = step
    return made[-1]

  num_envs, evaluator._make_env = evaluator._config.evaluation.num_envs, make
  result = evaluator.run(variables, num_episodes=4, rivals=(variables, variables))
  np.testing.assert_array_equal(result.returns, expected.returns)
  assert len(made) > num_envs
  assert "broken" in result.gate_fault
  assert result.gate_score is None
  assert result.summary() == expected.summary()


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ((), "evaluation.pool: must be empty with env.name=tiny:catch, which has one player"),
    (("env.name=open_spiel:kuhn_poker",), "mcts"),
  ],
)
def test_players_of_the_pool_are_checked(options, message):
  pool = "evaluation.pool=[{player: random, rating: 0}, {player: mcts, rating: 9}]"
  config = load_config(None, [*TINY, *options, pool])
  with pytest.raises(UserError, match=message):
    check_opponent(config, build.env_spec(config))


@pytest.mark.slow
def test_self_play():
  result = evaluate([*BOARD, "evaluation.opponent=self"], num_episodes=6)
  # Without noise, all episodes are the same game, counted from alternate seats.
  assert result.num_distinct == 1
  assert result.returns[0] == -result.returns[1]
  assert len(set(result.returns[::2])) == len(set(result.returns[1::2])) == 1


def test_strong_opponent_wins_from_both_seats():
  result = evaluate(
    [*BOARD, "evaluation.opponent=mcts", "evaluation.opponent_simulations=200"], num_episodes=20
  )
  summary = result.summary()
  assert summary["score_seat_0"] < 0.35
  assert summary["score_seat_1"] < 0.35
  assert summary["losses"] > 12


def test_opponents_moves_are_in_the_history():
  """The actions in the agent's history are the moves that its boards imply."""
  evaluator, variables = prepare(BOARD)
  act, seen = evaluator._act, []

  def spied(variables, history, timestep, *rest):
    seen.append((np.array(history.actions), timestep.frame, timestep.is_first))
    return act(variables, history, timestep, *rest)

  evaluator._act = spied
  result = evaluator.run(variables, num_episodes=3)
  checked = 0
  for lane in range(3):
    played: list[int] = []
    for actions, frame, is_first in seen[: result.lengths[lane] + 1]:
      assert is_first[lane] == (not played and not frame[lane, ..., 1:3].any())
      occupied = np.flatnonzero(frame[lane, ..., 1:3].any(axis=-1).ravel())
      played += [cell for cell in occupied.tolist() if cell not in played]
      if played:
        expected = [cell + 1 for cell in played][-4:]
        assert actions[lane, -len(expected) :].tolist() == expected
        checked += 1
  # In each of up to three episodes that end last, the policy does not see the last frame.
  assert checked >= result.lengths.sum() - 3


@pytest.mark.slow
def test_kuhn_poker_scores():
  result = evaluate(["env.name=open_spiel:kuhn_poker", "evaluation.max_random_starts=0"], num_episodes=60)
  assert set(np.abs(result.returns)) <= {1.0, 2.0}
  figures = result.summary()
  assert figures["wins"] + figures["losses"] == 60
  assert figures["return_margin_seat_0"] > 0


@pytest.mark.slow
def test_random_play_plays_the_opponent():
  config = load_config(None, [*TINY, *BOARD])
  # With random play the first player wins 58.5% of games and loses 28.8%, a mean return of 0.297. The
  # standard error over 1000 games is 0.03.
  returns = random_returns(config, num_episodes=2000)
  assert returns[::2].mean() == pytest.approx(0.297, abs=0.1)
  assert returns[1::2].mean() == pytest.approx(-0.297, abs=0.1)
  strong = load_config(
    None, [*TINY, *BOARD, "evaluation.opponent=mcts", "evaluation.opponent_simulations=100"]
  )
  returns = random_returns(strong, num_episodes=40)
  assert returns[::2].mean() < -0.5
  assert returns[1::2].mean() < -0.7


def test_score_figures():
  figures = score_figures(np.array([1.0, -1.0, 0.0, 2.0]), np.array([0, 1, 0, 1]))
  assert figures["score"] == 0.625
  assert (figures["wins"], figures["draws"], figures["losses"]) == (2, 1, 1)
  assert (figures["score_seat_0"], figures["score_seat_1"]) == (0.75, 0.5)
  assert (figures["return_mean_seat_0"], figures["return_mean_seat_1"]) == (0.5, 0.5)
  assert figures["return_margin_seat_1"] == pytest.approx(1.96 * 1.5 / 2**0.5)
  assert figures["return_margin"] == pytest.approx(1.96 * np.std([1, -1, 0, 2]) / 2)
  one = score_figures(np.array([1.0]), np.array([0]))
  assert "score_seat_1" not in one
  assert not [name for name in one if "margin" in name], "one episode has no interval"


def test_one_player_has_no_score(tiny_config):
  one = EvaluationResult(np.ones(3), np.ones(3, np.int64), 1, version=0, env_steps=0, episode=None)
  assert "score" not in one.summary()
  check_opponent(load_config(None, [*TINY, "evaluation.opponent=mcts"]), build.env_spec(tiny_config))


@pytest.mark.parametrize("name", ["open_spiel:kuhn_poker", "pgx:kuhn_poker"])
def test_history_with_hidden_frames_is_refused(name):
  if name.startswith("pgx:"):
    pytest.importorskip("pgx")
  for length in (1, 2, 4):
    config = load_config(None, [*TINY, f"env.name={name}", f"targets.history_length={length}"])
    if length == 1:
      check_players(config, build.env_spec(config))
    else:
      with pytest.raises(
        UserError, match=rf"^targets\.history_length={length}: must be 1 with env\.name={name}"
      ):
        check_players(config, build.env_spec(config))


@pytest.mark.parametrize("name", ["open_spiel:tic_tac_toe", "open_spiel:blackjack", "tiny:catch"])
def test_history_is_allowed_without_hidden_information(name):
  config = load_config(None, [*TINY, f"env.name={name}", "targets.history_length=4"])
  check_players(config, build.env_spec(config))


def test_check_players_checks_the_opponent():
  config = load_config(None, [*TINY, "env.name=open_spiel:kuhn_poker", "evaluation.opponent=mcts"])
  with pytest.raises(UserError, match=r"evaluation\.opponent=mcts:100: would see what is hidden"):
    check_players(config, build.env_spec(config))


def test_training_returns_are_of_player_0():
  workers = ("workers.segment_length=60", "workers.num_envs=3", "workers.max_random_starts=3")
  config = load_config(None, [*BASE, *BOARD, *workers])
  collector = build.build_collector(config, build.env_spec(config), 0)
  # The evaluator's agent is used because it is already compiled.
  evaluator, variables = prepare(BOARD)
  no_move = np.full(3, -1, np.int32)
  collector._compiled = lambda *args: evaluator._act(*args[:5], no_move, None)
  collector.set_parameters(variables, 0)
  segment, result = collector.run(0)
  after, _ = collector.run(0)

  def joined(name):
    return np.concatenate([getattr(segment, name)[1:], getattr(after, name)[:1]])

  # After the last move, to_play is the other player.
  rewards = np.where(joined("to_play") == 1, 1.0, -1.0) * joined("last_reward")
  np.testing.assert_array_equal(result.episode_returns, rewards[joined("is_last")])
  assert {-1.0, 1.0} <= set(result.episode_returns)


class Fixed:
  """Plays the legal action at index `action`, or returns `action` itself if it is not 0 or -1."""

  def __init__(self, action):
    self._action = action

  def action(self, observation, legal):
    observation[:], legal_actions = 0, np.flatnonzero(legal)
    legal[:] = False
    return legal_actions[self._action] if self._action in (0, -1) else self._action


@pytest.fixture
def opponent(folder):
  """Returns a function that registers a player with a fixed action and returns its overrides and seeds."""

  def register(action):
    seeds = []
    plugins.register_player("own")(lambda spec, seed: seeds.append(seed) or Fixed(action))
    return [*BOARD, "evaluation.opponent=own"], seeds

  return register


def test_a_users_player_plays_the_other_seat(opponent):
  overrides, seeds = opponent(0)
  result = evaluate(overrides, num_episodes=6)
  assert len(set(seeds)) >= 6  # each episode has a player with its own seed
  other, _ = opponent(-1)
  assert (
    evaluate(other, num_episodes=6).lengths.tolist() != result.lengths.tolist() or result.num_distinct > 1
  )
  config = load_config(None, [*TINY, *overrides])
  check_opponent(config, build.env_spec(config))


@pytest.mark.parametrize("action", [99, 0.5, None, "x"])
def test_a_player_with_an_illegal_action(opponent, action):
  overrides, _ = opponent(action)
  config = load_config(None, [*TINY, *overrides])
  with pytest.raises(EnvError, match=r"evaluation.opponent=own: plays .*; must be one of \[0, 1, 2, 3"):
    check_opponent(config, build.env_spec(config))


@pytest.mark.parametrize("key", ["others", "test_others"])
@pytest.mark.parametrize(
  ("name", "message"), [("mcts", "would see what is hidden"), ("run:nowhere", "nowhere")]
)
def test_players_of_other_seats_are_checked(key, name, message):
  config = load_config(
    None, [*TINY, "env.name=open_spiel:kuhn_poker", "env.kwargs.seat=0", f"env.kwargs.{key}=[random,{name}]"]
  )
  with pytest.raises(UserError, match=message):
    check_players(config, build.env_spec(config))


def test_a_player_that_is_none(folder):
  plugins.register_player("own")(lambda spec, seed: 3)
  config = load_config(None, [*TINY, *BOARD, "evaluation.opponent=own"])
  with pytest.raises(
    UserError, match=r"evaluation.opponent=own: returns 3; must return an object with action"
  ):
    check_opponent(config, build.env_spec(config))


SYMMETRIC = ("random", "mcts:20", "[random, 'mcts:5']")
NOT_SYMMETRIC = ("zoo:tic_tac_toe", "[random, 'run:runs/old']", "tests.evaluation.test_opponents:Player")


@pytest.mark.parametrize("others", [*SYMMETRIC, *NOT_SYMMETRIC])
@pytest.mark.parametrize("key", ["learner.symmetries", "planners.train.average_symmetries"])
def test_symmetries_need_symmetric_players_in_the_other_seats(key, others):
  kwargs = ["env.kwargs.seat=random", f"env.kwargs.others={others}", "env.kwargs.test_others=zoo:tic_tac_toe"]
  config = load_config(None, ["env.name=open_spiel:tic_tac_toe", *kwargs, f"{key}=true"])
  spec = registry.env_spec("open_spiel:tic_tac_toe", seat="random")
  if others in SYMMETRIC:
    check_symmetries(config, spec)
    return
  with pytest.raises(UserError, match=rf"{key}=true: must be false with env\.kwargs\.others\[\d\]=") as error:
    check_symmetries(config, spec)
  assert "random, mcts:N and alpha_beta:N do" in str(error.value)
  without = load_config(None, ["env.name=open_spiel:tic_tac_toe", *kwargs])
  check_symmetries(without, spec)

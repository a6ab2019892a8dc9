import numpy as np
import pytest

from moozi.evaluation.ratings import ELO, bradley_terry, openskill_ratings, rating_against, standings, tally
from moozi.evaluation.tournament import GameRecord, Pairing


def game(players, opening, returns):
  return GameRecord(Pairing(tuple(players), opening), 0, (), tuple(returns))


def test_ratings_of_two_players_follow_from_their_score():
  wins = np.zeros((1, 2, 2))
  wins[0, 0, 1], wins[0, 1, 0] = 75, 25
  # The virtual draw makes the score 75.5 of 101.
  np.testing.assert_allclose(bradley_terry(wins, 1)[0], [ELO * np.log(75.5 / 25.5), 0.0], atol=0.01)
  np.testing.assert_allclose(bradley_terry(wins, 0)[0], [0.0, -ELO * np.log(75.5 / 25.5)], atol=0.01)


def test_ratings_recover_the_strengths_that_made_the_games():
  strengths = np.array([0.0, 120.0, 300.0, -150.0])
  expected = 1 / (1 + 10 ** ((strengths[None] - strengths[:, None]) / 400))
  wins = 1e5 * expected * (1 - np.eye(4))
  np.testing.assert_allclose(bradley_terry(wins[None], 0)[0], strengths, atol=0.5)


def test_a_player_that_wins_everything_has_a_finite_rating():
  wins = np.zeros((3, 3, 3))
  wins[:, 0, 1] = wins[:, 1, 2] = 50  # players 0 and 2 do not meet
  ratings = bradley_terry(wins, 2)
  assert (ratings[:, 2] == 0).all()
  assert 700 < ratings[0, 1] < 900
  assert 1400 < ratings[0, 0] < 1800


def test_a_rating_against_one_player_follows_from_the_score():
  scores = np.repeat([[1.0], [0.0]], [75, 25], axis=0)
  # As in bradley_terry, the virtual draw makes the score 75.5 of 101.
  found = rating_against(scores, np.array([200.0]))
  assert found.value == pytest.approx(200 + ELO * np.log(75.5 / 25.5), abs=0.01)
  assert found.low < found.value < found.high


def test_a_rating_against_a_pool_recovers_the_strength():
  ratings = np.array([-300.0, 0.0, 450.0])
  expected = 1 / (1 + 10 ** ((ratings - 130) / 400))
  games = np.arange(4000)[:, None] < 4000 * expected
  found = rating_against(games.astype(float), ratings)
  assert found.value == pytest.approx(130, abs=0.5)
  for score in (0.0, 1.0):  # finite, because of the virtual draws
    rating = rating_against(np.full((9, 3), score), ratings).value
    assert 10 * (1 / (1 + 10 ** ((ratings - rating) / 400))).sum() == pytest.approx(3 * (9 * score + 0.5))


def test_the_interval_of_a_rating_is_over_openings():
  """Games of one opening are resampled together: opposite results in each opening cancel in every draw."""
  ratings = np.zeros(2)
  opposite = np.array([[1.0, 0.0], [0.0, 1.0]] * 10)
  equal = np.array([[1.0, 1.0], [0.0, 0.0]] * 10)
  found = [rating_against(scores, ratings) for scores in (opposite, equal)]
  assert [x.value for x in found] == pytest.approx([0, 0], abs=1e-6)
  assert found[0].high - found[0].low == pytest.approx(0, abs=1e-6)
  assert found[1].high - found[1].low > 100
  assert np.isnan(rating_against(equal[:1], ratings).low)


def test_scores_of_many_seats_compare_returns():
  counts = tally([game("abcb", 0, [1.0, -1.0, -1.0, 1.0])], ["a", "b", "c"], False)
  # a has a higher return than one b and the same as the other.
  assert counts.wins[0].tolist() == [[0, 0.75, 1.0], [0.25, 0, 0.75], [0, 0.25, 0]]
  assert counts.gains[0, 1].tolist() == [0, 0, 0]
  assert counts.games[0, 0].tolist() == [0, 1, 1]


def test_the_interval_is_over_openings():
  # a wins all ten games of half of the openings, and b all others. Each opening is one observation.
  games = [game("ab", k, (1, -1) if k % 2 else (-1, 1)) for k in range(40) for _ in range(10)]
  found = standings(games, ["a", "b"], "a", False)
  assert found.num_openings == 40
  score = found.scores[0][1]
  assert score.value == 0.5
  assert 0.13 < score.value - score.low < 0.18  # 1.96 · 0.5 / √40 = 0.155
  assert found.scores[0][0] is None
  assert found.ratings[0].low == found.ratings[0].high == 0
  assert found.ratings[1].low < 0 < found.ratings[1].high


@pytest.mark.parametrize(("num_starts", "expected"), [(9, 40), (12, 12)])
def test_games_with_the_same_first_moves_are_one_observation(num_starts, expected):
  games = [GameRecord(Pairing(("a", "b"), k), 1, (k % num_starts, 0), (1.0, -1.0)) for k in range(40)]
  assert standings(games, ["a", "b"], "a", True).num_openings == expected
  assert standings(games, ["a", "b"], "a", False).num_openings == 40


def test_one_opening_has_no_interval():
  found = standings([game("ab", 0, (1, -1)), game("ba", 0, (1, -1))], ["a", "b"], "a", False)
  assert found.scores[0][1].value == 0.5
  assert np.isnan([found.scores[0][1].low, found.overall[0].high, found.ratings[1].low]).all()


def test_openskill_ranks_the_winner_first():
  games = [game("abc", k, (1, 0, -1)) for k in range(20)]
  (first, sigma), (second, _), (third, _) = openskill_ratings(games, "abc")
  assert first > second > third
  assert sigma < 25 / 3


@pytest.mark.parametrize("seed", [0, 1])
def test_the_bootstrap_follows_from_its_seed(seed):
  games = [game("ab", k, (1, -1) if k % 3 else (-1, 1)) for k in range(9)]
  assert standings(games, "ab", "a", False, seed) == standings(games, "ab", "a", False, seed)

"""Tests of the published scores of Atari games."""

import pytest

from moozi.envs import registry
from moozi.envs.suites.atari.rom import list_games
from moozi.envs.suites.atari.scores import _rows, reference_scores

pytest.importorskip("ale_py")


def test_every_row_is_a_game_of_ale():
  rows = _rows()
  assert len(rows) == 57
  assert rows.keys() <= list_games().keys()
  assert sum(row["atari_100k"] for row in rows.values()) == 26
  for game in rows:
    scores = reference_scores(game)
    assert scores.human > scores.random, game
    assert scores.normalize(scores.random) == 0.0
    assert scores.normalize(scores.human) == 1.0


@pytest.mark.parametrize(
  ("game", "random", "human"),
  [
    ("Pong", -20.7, 14.6),
    ("Breakout", 1.7, 30.5),
    ("Freeway", 0.0, 29.6),
    ("Boxing", 0.1, 12.1),
    ("SpaceInvaders", 148.0, 1668.7),
    ("Skiing", -17098.1, -4336.9),
  ],
)
def test_scores_are_those_of_the_paper(game, random, human):
  scores = registry.reference_scores(f"atari:{game}")
  assert (scores.random, scores.human) == (random, human)


def test_published_agents_have_their_published_normalized_scores():
  """DQN in Wang et al. 2016: Breakout 385.5 and Pong 18.9 with no-op starts."""
  assert reference_scores("Breakout").normalize(385.5) == pytest.approx(13.33, abs=0.01)
  assert reference_scores("Pong").normalize(18.9) == pytest.approx(1.122, abs=0.001)


def test_other_games_have_none():
  for name in ("atari:AirRaid", "minatar:breakout", "my_module:make"):
    assert registry.reference_scores(name) is None

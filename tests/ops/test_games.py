"""Tests of finding the games in stored steps."""

import numpy as np
import pytest

from moozi.core.pytree import map_fields
from moozi.ops.games import GameCounter, StoredGame
from tests.replay.replay_lanes import make_spec, random_lanes, segment_of


def slow_count(steps) -> list[StoredGame]:
  """Returns the games, found by counting step by step."""
  games, start, length, total = [], 0, 0, 0.0
  for t in range(len(steps.action)):
    if t > 0 and steps.is_first[t]:
      end = "truncated" if steps.is_truncated[t - 1] else "terminal"
      games.append(StoredGame(start=start, length=length, total_reward=total, end=end))
      start, length, total = t, 0, 0.0
    elif t > 0:
      sign = 1 if steps.to_play[t - 1] == 0 else -1
      total += sign * float(steps.last_reward[t])
    length += not steps.is_last[t]
  end = "unfinished"
  if steps.is_last[-1]:
    end = "truncated" if steps.is_truncated[-1] else "terminal"
  return [*games, StoredGame(start=start, length=length, total_reward=total, end=end)]


@pytest.mark.parametrize("num_players", [1, 2])
@pytest.mark.parametrize("cuts", [[60], [1, 2, 3, 60], [7, 30, 31, 60]])
def test_equals_slow_count(num_players, cuts):
  spec = make_spec(num_players=num_players)
  lanes = random_lanes(3, 4, 60, spec, end_probability=0.15)
  ends = set()
  for i in range(4):
    steps = map_fields(lambda x, i=i: x[:, i], segment_of(lanes, 0, 60, spec))
    counter, found = GameCounter(), []
    for first, stop in zip([0, *cuts[:-1]], cuts, strict=True):
      found += counter.add(first, map_fields(lambda x, a=first, b=stop: x[a:b], steps))
    found.append(counter.rest())
    expected = slow_count(steps)
    assert len(found) == len(expected) > 3
    for a, b in zip(found, expected, strict=True):
      assert (a.start, a.length, a.end) == (b.start, b.length, b.end)
      assert a.total_reward == pytest.approx(b.total_reward, abs=1e-5)
    ends |= {game.end for game in found}
  assert ends >= {"terminal", "truncated"}


def test_lost_life_does_not_end_a_game():
  spec = make_spec()
  steps = map_fields(lambda x: x[:, 0], segment_of(random_lanes(0, 1, 6, spec, 0.0), 0, 6, spec))
  is_last = np.array([0, 0, 1, 0, 0, 1], bool)
  steps = type(steps)(**{**vars(steps), "is_last": is_last, "is_first": np.arange(6) == 0})
  counter = GameCounter()
  assert counter.add(0, steps) == []
  game = counter.rest()
  assert (game.start, game.length, game.end) == (0, 4, "terminal")
  assert game.total_reward == pytest.approx(float(steps.last_reward[1:].sum()), abs=1e-6)


def test_no_steps_no_game():
  assert GameCounter().rest() is None

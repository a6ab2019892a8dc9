"""One environment without a guard: each call returns what a run accepts, or raises one line."""

import logging

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.envs.bots import make_bot
from moozi.envs.checked import CheckedEnvironment
from moozi.envs.game import GameEnvironment
from moozi.envs.table import EnvironmentTable
from moozi.envs.true_rules import HostRules
from tests.envs import hostile

VALUES = (*hostile.SCALARS, *map(hostile.Raises, hostile.ERRORS))
PLACES = (
  *((hostile.OddGame.make, place) for place in hostile.OddGame.places),
  *((hostile.OddEnvironment, place) for place in hostile.OddEnvironment.places),
)


def play(env):
  """Plays three episodes of at most 20 steps, and returns the rewards and frames."""
  rewards, frames = [], []
  for seed in range(3):
    env.seed(seed)
    step = env.reset()
    for _ in range(20):
      if step.last():
        break
      step = env.step(int(np.flatnonzero(step.observation.legal_actions_mask)[0]))
      rewards.append(float(step.reward))
      frames.append(step.observation.frame)
  env.close()
  return rewards, frames


def check(make, place, value, since):
  odd = hostile._Odd(place, value, since)
  kind = hostile.OddEnvironment if make is hostile.OddEnvironment else hostile.OddGame
  text = ""
  try:
    rewards, frames = play(CheckedEnvironment(make(odd)))
  except UserError as error:
    text = str(error)
  if text:
    assert text.startswith("env.name=own: ")
    assert "\n" not in text
    return
  assert np.isfinite(rewards).all()
  assert {(x.shape, x.dtype.name) for x in frames} == {((1, 1, 2), "float32")}
  unread = ("close", "will_continue", "is_continued")
  # Of a terminal step, only the type is read.
  is_at_end = place == "to_play" and since == 3 and hostile.is_integer(value, -(2**31), 2**31 - 1)
  assert not odd.given or place in unread or is_at_end or kind.is_right(place, value)


@pytest.fixture(autouse=True)
def silent():
  logging.disable()
  yield
  logging.disable(logging.NOTSET)


def test_a_sample_of_values():
  for i, (make, place) in enumerate(PLACES):
    for value in VALUES[i % 7 :: 7]:
      check(make, place, value, since=2)


@pytest.mark.slow
@pytest.mark.parametrize("since", [0, 1, 3, 4])
def test_all_values(since):
  for make, place in PLACES:
    for value in VALUES:
      check(make, place, value, since)


class Chain(hostile._OddGame):
  """A game that a search can copy."""

  max_moves = 3

  def clone(self):
    return self._odd("clone", super().clone())


@pytest.mark.parametrize("place", ["step", "frame", "clone"])
@pytest.mark.parametrize("value", [None, hostile.Raises(SystemExit(0)), hostile.Raises(ValueError("a\nb"))])
def test_true_rules_and_bots_report_the_environment(place, value):
  """A search steps copies of the environment."""
  pytest.importorskip("pyspiel")
  odd = hostile._Odd(place, value, 6)
  env = GameEnvironment(Chain(odd), hostile.GAME_SPEC)
  rules = HostRules(env)
  position, action, is_over = np.full((1, 3), -1, np.int32), np.ones(1, np.int32), np.zeros(1, bool)
  table = EnvironmentTable(GameEnvironment(Chain(odd), hostile.GAME_SPEC))
  with pytest.raises(UserError, match=r"^(env\.name=own|mcts): ") as caught:  # noqa: PT012 - any of the calls
    for move in range(8):
      position = np.full((1, 3), -1, np.int32)
      rules._known.clear()
      rules._play(position, action, is_over)
      table.reset(move)
      make_bot(table, "mcts", 4, 0).action(table.frame(), table.legal_actions_mask())
  assert "\n" not in str(caught.value)

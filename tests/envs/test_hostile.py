"""Whatever a user's environment returns is right and read as it is, or ends in an error of one line."""

import logging
import os
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moozi.core.errors import UserError
from moozi.core.user_code import Plugin
from moozi.envs.environment import Environment
from moozi.envs.guard import EnvGuard
from moozi.envs.suites import user
from moozi.envs.trial import spec_after_trial
from moozi.envs.vector import SyncVectorEnvironment
from tests.envs import hostile
from tests.envs.contract import random_agent_actions

pytest.importorskip("gymnasium")
# `MOOZI_FUZZ_CASES=20000 pytest -m slow tests/envs/test_hostile.py` draws other and more cases.
CASES = int(os.environ.get("MOOZI_FUZZ_CASES", "4000"))
SPACES = ("box", "bytes", "discrete", "multi_discrete", "multi_binary", "dict")
KINDS = (
  *((hostile.OddGymnasium, space) for space in SPACES),
  *((kind, None) for kind in (hostile.OddDmEnv, hostile.OddGame, hostile.OddEnvironment)),
)


@pytest.fixture(autouse=True)
def no_logs():
  """The logs have texts that pytest-xdist cannot send: tracebacks with half of a surrogate pair."""
  logging.disable(logging.CRITICAL)
  yield
  logging.disable(logging.NOTSET)


def case(kind: Any, place: str, value: Any, since: int, space: str | None) -> tuple[Any, Any]:
  """Returns the odd value, and a function of the user that makes the environment."""
  odd = hostile._Odd(place, value, since)
  options = () if space is None else (space,)
  return odd, lambda: getattr(kind, "make", kind)(odd, *options)


def check_message(error: UserError) -> None:
  text = str(error)
  assert text.startswith(("env.name=", "env.wrappers"))
  assert "\n" not in text
  assert len(text) < 700


def check_trial(kind: Any, place: str, value: Any, since: int, space: str | None) -> None:
  """The trial returns the spec, or raises a UserError of one line."""
  odd, make = case(kind, place, value, since, space)
  plugin = Plugin("env.name=own", make)
  try:
    with plugin.errors("making the environment failed"):
      made, _ = user._as_env("own", make())
    spec_after_trial(made, plugin)
  except UserError as error:
    check_message(error)
  else:
    is_right = kind.is_right(place, value, *(() if space is None else (space,)))
    # The fourth observation ends the trial. No player is to move there, but it must be a number.
    is_at_end = place == "to_play" and since == 3 and hostile.is_integer(value, -(2**31), 2**31 - 1)
    assert not odd.given or is_right or is_at_end or place == "close" or is_unread(kind, place)


def is_unread(kind: Any, place: str) -> bool:
  """Returns whether a trial need not read the place: an episode that cannot continue after a lost life."""
  return place == "will_continue" or (place == "is_continued" and kind is hostile.OddGame)


def check_steps(kind: Any, place: str, value: Any, since: int, space: str | None) -> None:
  """In the middle of a run: the value is right and read, or the guard replaces the environment or ends."""
  odd, make = case(kind, place, value, since, space)

  def environment(seed: int = 0) -> Environment:
    made, _ = user._as_env("own", make())
    made.seed(seed)
    return made

  if place == "seed" and since == 0:
    return  # the run does not start
  envs = [environment()]
  guard = EnvGuard("own", [0], environment, max_faults=3, timeout_s=None)
  vector = SyncVectorEnvironment(envs, lane_seeds=[0], guard=guard)
  random, rows = np.random.default_rng(0), []
  try:
    step = vector.reset()
    for _ in range(12):
      rows.append(step)
      step = vector.step(random_agent_actions(step, random))
    vector.close()
  except UserError as error:
    check_message(error)
    return
  if not odd.given or vector.num_faults or place == "close":
    return
  assert kind.is_right(place, value, *(() if space is None else (space,))), "misread"
  live = [row for row in rows if not row.is_first[0]]
  if place == "reward":
    read = live[-1].last_reward[0]
    np.testing.assert_equal(read, np.float32(hostile.number(value)))
  if place in ("mask", "reset_mask") and value is not None and not rows[-1].is_last[0]:
    assert rows[-1].legal_actions_mask[0, 1:].tolist() == np.asarray(value).astype(bool).tolist()
  if place in ("observation", "frame") and space in (None, "box") and kind is not hostile.OddEnvironment:
    np.testing.assert_array_equal(live[-1].frame.ravel(), np.asarray(value, np.float32).ravel())


def check(kind: Any, place: str, value: Any, since: int, space: str | None) -> None:
  # In the program, warnings go to the log.
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    check_trial(kind, place, value, since, space)
    check_steps(kind, place, value, since, space)


def all_cases(kinds: Any = KINDS) -> list[Any]:
  values = (*hostile.SCALARS, *map(hostile.Raises, hostile.ERRORS))
  return [
    (kind, place, value, since, space)
    for kind, space in kinds
    for place in kind.places
    for value in values
    for since in (0, 5)
  ]


def test_a_sample_of_cases():
  """Every place meets some of the odd values."""
  for one in all_cases()[::283]:
    check(*one)


@pytest.mark.slow
@settings(
  max_examples=CASES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
@given(st.data())
def test_drawn_values(data):
  kind, space = data.draw(st.sampled_from(KINDS))
  place = data.draw(st.sampled_from(kind.places))
  check(kind, place, data.draw(hostile.odd_values()), data.draw(st.integers(0, 8)), space)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[0].__name__}-{kind[1]}")
def test_all_cases(kind):
  for one in all_cases([kind]):
    check(*one)

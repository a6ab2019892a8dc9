"""Tests that the trial episode checks the pictures of a user's environment."""

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.core.user_code import Plugin
from moozi.envs.trial import spec_after_trial
from tests.envs.environments import make_lives


def draws(pictures):
  """Returns an environment that draws these pictures in turn; an exception is raised instead."""
  env, left = make_lives(), list(pictures)

  def render():
    drawn = left.pop(0) if len(left) > 1 else left[0]
    if isinstance(drawn, BaseException):
      raise drawn
    return drawn

  env.render = render
  return env


PLUGIN = Plugin("env.name=own:make", make_lives)
GOOD = np.zeros((4, 6, 3), np.uint8)


@pytest.mark.parametrize("pictures", [[None], [GOOD], [GOOD[..., 0] / 255], [GOOD, GOOD[:2]], [GOOD, None]])
def test_pictures_that_can_be_drawn(pictures):
  assert spec_after_trial(draws(pictures), PLUGIN) == make_lives().env_spec


@pytest.mark.parametrize(
  ("pictures", "message"),
  [
    (
      ["ansi"],
      r"its picture \(render\) is a str that is not an array of numbers; must be uint8\[h, w, 3\], or",
    ),
    (
      [GOOD, GOOD, GOOD - 1.0],
      r"its picture \(render\) is float64\[4, 6, 3\] with values from -1 to -1; floats must",
    ),
    ([GOOD, ZeroDivisionError("no\nGPU")], r"its picture cannot be drawn: .*ZeroDivisionError: no GPU$"),
    ([SystemExit(0)], r"its picture cannot be drawn: .*SystemExit: 0$"),
  ],
)
def test_other_pictures_are_refused(pictures, message):
  with pytest.raises(UserError, match=rf"^env\.name=own:make: {message}"):
    spec_after_trial(draws(pictures), PLUGIN)

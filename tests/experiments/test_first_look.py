"""Tests how the experiment on `make train` finds the last state in which a ball can be saved."""

import json

import numpy as np
import pytest

import moozi
from experiments.first_look import last_moves, table
from experiments.first_look.last_moves import can_save

BALL = 1
"""The channel of the ball."""
# The ball begins in column 0 or 9, six rows above the paddle, and comes to column 6 or 3. A paddle in this
# column, or in the one before it, saves the ball. The paddle begins in column 4.
SAVABLE = {
  (0, "left", 3): False,
  (0, "right", 3): True,
  (0, "right", 4): True,
  (9, "left", 3): True,
  (9, "right", 3): True,
  (9, "right", 4): False,
}


@pytest.mark.parametrize("seed", range(4))
def test_a_paddle_that_moves_away_too_long_cannot_save_the_ball(seed):
  for (column, name, moves), savable in SAVABLE.items():
    env = moozi.make_env("minatar:breakout", seed=seed, sticky_action_prob=0.0)
    step = env.reset()
    if not step.observation.frame[:, column, BALL].any():
      continue
    for _ in range(moves):
      env.step(env.env_spec.action_names.index(name))
    assert can_save(env, 6 - moves) == savable, (column, name, moves)
    assert not env.step(0).last()  # `can_save` moves in copies only


class _Still:
  """Never moves."""

  def make_env(self, seed):
    return moozi.make_env("minatar:breakout", seed=seed, sticky_action_prob=0.0)

  def act(self, step):
    return 0

  def search(self, step):
    return type("Found", (), {"prior_value": 0.5, "prior": np.array([1.0, 0.0, 0.0])})


def test_the_last_state_in_which_the_ball_could_be_saved():
  played = [last_moves.play(_Still(), seed) for seed in range(6)]
  lost = [episode for episode in played if episode is not None]
  assert lost
  assert len(lost) < 6  # the random moves of some episodes lose the ball
  for episode in lost:
    assert set(episode) == {"return", "moves", "value", "policy"}
    assert episode["moves"] is None or (1 <= episode["moves"] <= 8 and episode["value"] == 0.5)
  assert any(episode["moves"] is not None for episode in lost)


def test_the_table_has_every_seed():
  rows = table.last_moves().splitlines()[2:]
  assert [row.split("|")[1].strip() for row in rows] == ["0", "1", "2", "3", "4"]
  path = table.HERE / "results" / "breakout_short_seed1" / "last_moves.json"
  late = [episode["moves"] for episode in json.loads(path.read_text()) if episode["moves"] is not None]
  assert f"{min(late)} to {max(late)}, {np.median(late):g}" in rows[1]

"""Tests of the measurement of mispredicted rewards."""

import json

import numpy as np
import pytest

import moozi
from experiments.per_minute import rewards


def frame_of(aliens: list[tuple[int, int]]) -> np.ndarray:
  frame = np.zeros((10, 10, 6), bool)
  for row, column in aliens:
    frame[row, column, rewards.ALIENS] = True
  return frame


def test_a_shot_alien_is_no_move():
  before = frame_of([(2, 3), (2, 4), (3, 3)])
  assert not rewards.aliens_move(before, before)
  assert not rewards.aliens_move(before, frame_of([(2, 3), (2, 4)]))
  assert rewards.aliens_move(before, frame_of([(2, 4), (2, 5), (3, 4)]))
  assert rewards.aliens_move(before, frame_of([(3, 3), (3, 4), (4, 3)]))


def test_the_aliens_of_a_new_game_move_after_twelve_frames():
  env = moozi.make_env("minatar:space_invaders", seed=0, sticky_action_prob=0.0)
  frames = [np.asarray(env.reset().observation.frame)]
  frames += [np.asarray(env.step(0).observation.frame) for _ in range(16)]
  assert [i for i in range(16) if rewards.aliens_move(frames[i], frames[i + 1])] == [12]


def test_the_share_of_wrong_rewards():
  # Four states with 2, 2, 5 and 5 aliens; in the second and the fourth the aliens move.
  found = {
    "predicted": np.array([[0.9, 0.1], [0.2, 0.1], [0.1, 0.8], [0.4, 0.0]]),
    "rewards": np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]),
    "aliens": np.array([2, 2, 5, 5]),
    "moves": np.array([False, True, False, True]),
  }
  few, more, many, _ = rewards.rows_of(found)
  assert (many["states"], many["reward"], many["wrong_moving"]) == (0, None, None)
  assert few == {
    "aliens": [1, 3],
    "states": 2,
    "reward": 1.0,
    "moves": 0.5,
    "wrong": [0.5, 0.0],
    "wrong_still": 0.0,
    "wrong_moving": 1.0,
  }
  assert more["wrong"] == [0.5, 0.5]


@pytest.mark.slow
def test_an_agent_of_the_zoo_is_measured(tmp_path):
  out = tmp_path / "rewards.json"
  assert rewards.main(["--episodes", "1", "--steps", "120", "--out", str(out)]) == 0
  rows = json.loads(out.read_text())["rows"]
  assert sum(row["states"] for row in rows) == 120 - 4 - rewards.NUM_STEPS
  assert all(len(row["wrong"]) == rewards.NUM_STEPS for row in rows)

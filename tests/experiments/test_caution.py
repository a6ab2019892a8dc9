"""Tests how the experiment on caution measures distances in frames of Space Invaders."""

import json

import numpy as np
import pytest

from experiments.caution import measure, table


def frame_of(cannon: int, bullets: list[tuple[int, int]]) -> np.ndarray:
  frame = np.zeros((10, 10, 6), np.float32)
  frame[9, cannon, measure.CANNON] = 1
  for row, column in bullets:
    frame[row, column, measure.BULLET] = 1
  return frame


@pytest.mark.parametrize(
  ("bullets", "distance"),
  [
    ([], None),
    ([(2, 4)], None),
    ([(8, 3)], 1),
    ([(0, 3)], 9),
    ([(2, 3), (6, 3), (8, 4)], 3),
    ([(9, 3)], None),
  ],
)
def test_the_nearest_bullet_in_the_column_counts(bullets, distance):
  assert measure.distance_of_bullet(frame_of(3, bullets)) == distance


class _Scripted:
  """Waits until the bullet is at a distance, then moves to the left, away from it."""

  def __init__(self, at: int) -> None:
    self.at = at

  def act(self, step):
    frame = step.observation.frame
    if measure.distance_of_bullet(frame) != self.at:
      return 0
    names = ("n", "l", "r", "f")
    return names.index("l")


@pytest.mark.parametrize("at", [2, 5])
def test_moves_of_a_scripted_player_have_its_distance(at):
  played = measure.play(_Scripted(at), 0.0, seed=0)
  assert set(played["dodges"]) == {at}
  assert max(played["threats"]) > at


def test_the_table_has_a_row_for_each_agent(tmp_path, monkeypatch):
  monkeypatch.setattr(table, "HERE", tmp_path)
  folder = tmp_path / "results" / "sticky_seed2"
  folder.mkdir(parents=True)
  quiet, sticky = ({"return": value, "dodges": [1, 4, 7], "threats": [1, 4, 7]} for value in (3.0, 5.0))
  (folder / "dodges.json").write_text(json.dumps({"0.0": [quiet, quiet], "0.1": [sticky]}))
  assert table.table().splitlines()[-1] == ("| with sticky actions | 2 | 6 | 4.00 | 33% | 67% | 3.0 | 5.0 |")

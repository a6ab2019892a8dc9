"""Pictures that are drawn when they are asked for."""

import numpy as np
import pytest

from moozi.vis.lazy_images import Drawn


def make_drawn(num_pictures=5):
  drawn = []

  def draw(i):
    drawn.append(i)
    return np.full((2, 2, 3), i, np.uint8)

  return Drawn(num_pictures, draw), drawn


def test_nothing_is_drawn_before_it_is_read():
  pictures, drawn = make_drawn()
  assert len(pictures) == 5
  assert not drawn
  assert pictures[3][0, 0, 0] == 3
  assert pictures[-1][0, 0, 0] == 4
  assert drawn == [3, 4]


def test_it_is_read_as_any_sequence():
  pictures, _ = make_drawn()
  assert [int(p[0, 0, 0]) for p in pictures] == [0, 1, 2, 3, 4]
  assert [int(p[0, 0, 0]) for p in pictures[::2]] == [0, 2, 4]
  assert [int(p[0, 0, 0]) for p in pictures[1:4][::-1]] == [3, 2, 1]
  assert not make_drawn(0)[0]


@pytest.mark.parametrize("index", [5, -6])
def test_an_index_beyond_its_end_is_refused(index):
  with pytest.raises(IndexError):
    make_drawn()[0][index]

"""Pictures that are drawn when they are asked for."""

from collections.abc import Callable, Sequence
from typing import overload

import numpy as np


class Drawn(Sequence[np.ndarray]):
  """A sequence of pictures of which none is kept: each is drawn anew whenever it is read.

  An episode of several hundred pictures takes hundreds of MiB where all of them are held at once.

  Args:
    num_pictures: its length.
    draw: makes the picture of an index from 0 to num_pictures - 1.
  """

  def __init__(self, num_pictures: int, draw: Callable[[int], np.ndarray]) -> None:
    self._num_pictures, self._draw = num_pictures, draw

  def __len__(self) -> int:
    return self._num_pictures

  @overload
  def __getitem__(self, index: int) -> np.ndarray: ...
  @overload
  def __getitem__(self, index: slice) -> "Drawn": ...
  def __getitem__(self, index: int | slice) -> "np.ndarray | Drawn":
    chosen = range(self._num_pictures)[index]
    if isinstance(chosen, range):
      return Drawn(len(chosen), lambda i: self._draw(chosen[i]))
    return self._draw(chosen)

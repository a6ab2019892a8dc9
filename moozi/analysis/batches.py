"""Calls a compiled function on any number of rows, in batches of one size."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def in_batches(function: Callable[..., Sequence[Any]], size: int, *rows: Any) -> list[np.ndarray]:
  """Returns the function's outputs for N rows, computed in batches of one size, so that it compiles once.

  The last batch is padded with copies of its last row; the results of the copies are dropped.

  Args:
    function: maps arrays [size, ...] to a sequence of arrays [size, ...], row by row.
    rows: the arguments: arrays [N, ...] or sequences of N arrays, N at least 1.
  """
  parts = []
  for start in range(0, len(rows[0]), size):
    batch = [np.asarray(x[start : start + size]) for x in rows]
    count = len(batch[0])
    padded = [np.concatenate([x, np.repeat(x[-1:], size - count, axis=0)]) for x in batch]
    parts.append([np.asarray(x)[:count] for x in function(*padded)])
  return [np.concatenate(columns) for columns in zip(*parts, strict=True)]

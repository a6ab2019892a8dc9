"""What is done to an Atari screen once it is shown: the reduction to a small square."""

import numpy as np


class AreaResize:
  """Reduces images to `size` by `size` pixels, each the mean of the area it covers, as OpenCV does it.

  Pixel for pixel what `cv2.resize(…, interpolation=cv2.INTER_AREA)` gives, without OpenCV: the weights are
  float32, rows are reduced before columns are summed, and halves are rounded to the even number.

  Args:
    height, width: of the images; at least `size`.
    size: of the result.

  Raises: ValueError: where an image would be enlarged.
  """

  def __init__(self, height: int, width: int, size: int) -> None:
    if min(height, width) < size:
      raise ValueError(f"size={size}: an image of {height} by {width} can only be reduced")
    self._rows, row_weights = _taps(height, size)
    self._columns, column_weights = _taps(width, size)
    # Broadcast against [H, size, C] and [size, size, C].
    self._row_weights = row_weights[:, :, None, None]
    self._column_weights = column_weights[:, None, :, None]

  def __call__(self, image: np.ndarray) -> np.ndarray:
    """[height, width, C] uint8 to a fresh [size, size, C] uint8."""
    x = _weighted_sum(image.astype(np.float32), self._columns, self._column_weights, axis=1)
    x = _weighted_sum(x, self._rows, self._row_weights, axis=0)
    return np.rint(x).astype(np.uint8)


def _weighted_sum(x: np.ndarray, index: np.ndarray, weights: np.ndarray, axis: int) -> np.ndarray:
  # One addend after another, in this order: float32 sums round, and each must round as OpenCV's does.
  out = x.take(index[0], axis=axis)
  out *= weights[0]
  for i, weight in zip(index[1:], weights[1:], strict=True):
    part = x.take(i, axis=axis)
    part *= weight
    out += part
  return out


def _taps(length: int, size: int) -> tuple[np.ndarray, np.ndarray]:
  """Which pixels each pixel of the result covers and with what weight: two arrays [num_taps, size].

  Result pixel j covers [j · s, (j + 1) · s) with s = length / size; its ends may cover parts of pixels.
  """
  scale = length / size
  taps: list[list[tuple[int, float]]] = []
  for j in range(size):
    start, stop = j * scale, min((j + 1) * scale, float(length))
    cell = stop - start
    first, last = int(np.ceil(start - _SLIVER)), int(np.floor(stop + _SLIVER))
    covered = [(i, 1.0) for i in range(first, last)]
    if first - start > _SLIVER:
      covered.insert(0, (first - 1, first - start))
    if stop - last > _SLIVER:
      covered.append((last, stop - last))
    taps.append([(i, share / cell) for i, share in covered])
  num_taps = max(map(len, taps))
  index, weight = np.zeros((num_taps, size), np.intp), np.zeros((num_taps, size), np.float32)
  for j, covered in enumerate(taps):
    for k, (i, share) in enumerate(covered):
      index[k, j], weight[k, j] = i, share
  return index, weight


# A part of a pixel that is smaller counts as none, as with OpenCV.
_SLIVER = 1e-3

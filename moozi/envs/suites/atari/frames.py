"""Reduces an Atari screen to a small square."""

import numpy as np
from jaxtyping import Float32, UInt8

# A part of a pixel smaller than this counts as zero, as in OpenCV.
_SLIVER = 1e-3


class AreaResize:
  """Reduces images to `size` by `size` pixels, each the mean of the area it covers.

  Unless `size` divides both sides, the result equals `cv2.resize(…, interpolation=cv2.INTER_AREA)` pixel for
  pixel: weights are float32, columns are reduced before rows, and halves are rounded to even. If `size`
  divides both sides, a pixel may differ by 1.

  Args:
    height, width: size of the images in pixels; at least `size`.

  Raises: ValueError: an image would be enlarged.
  """

  def __init__(self, height: int, width: int, size: int) -> None:
    if min(height, width) < size:
      raise ValueError(f"size={size}: an image of {height} by {width} can only be reduced")
    self._rows, row_weights = _taps(height, size)
    self._columns, column_weights = _taps(width, size)
    # The weights broadcast against [H, size, C] and [size, size, C].
    self._row_weights = row_weights[:, :, None, None]
    self._column_weights = column_weights[:, None, :, None]

  def __call__(self, image: UInt8[np.ndarray, "H W C"]) -> UInt8[np.ndarray, "S S C"]:
    x = _weighted_sum(image.astype(np.float32), self._columns, self._column_weights, axis=1)
    x = _weighted_sum(x, self._rows, self._row_weights, axis=0)
    return np.rint(x).astype(np.uint8)


def _weighted_sum(
  x: Float32[np.ndarray, "h w C"], index: np.ndarray, weights: np.ndarray, axis: int
) -> Float32[np.ndarray, "i j C"]:
  # The additions are in OpenCV's order, so that float32 rounds in the same way.
  out = x.take(index[0], axis=axis)
  out *= weights[0]
  for i, weight in zip(index[1:], weights[1:], strict=True):
    part = x.take(i, axis=axis)
    part *= weight
    out += part
  return out


def _taps(length: int, size: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns the pixels that each pixel of the result covers, and their weights, each [num_taps, size].

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

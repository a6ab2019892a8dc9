"""The parts of a frame that is one vector: the arrays of a Dict or Tuple observation."""

import dataclasses
import math
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class FramePart:
  """One array of an observation whose frame [1, 1, D] has the numbers of all its arrays, row by row.

  Attributes:
    name: its keys in the observation, joined by spaces, such as `robot camera`.
    shape: the array's shape; three axes are an image.
    start: index of its first number in the vector.
    has_channels_first: whether an image has the shape (C, H, W); otherwise it is (H, W, C).
    is_bytes: whether the array is uint8 with values up to 255. A float32 frame has these values divided by
      255, and replay stores them as bytes.
  """

  name: str
  shape: tuple[int, ...]
  start: int
  has_channels_first: bool = False
  is_bytes: bool = False

  @property
  def is_image(self) -> bool:
    return len(self.shape) == 3

  @property
  def stop(self) -> int:
    """Index after its last number in the vector."""
    return self.start + math.prod(self.shape)


def make_parts(arrays: Sequence[tuple[str, tuple[int, ...], bool, bool]]) -> tuple[FramePart, ...]:
  """Returns the parts of a vector of `arrays`: (name, shape, has_channels_first, is_bytes) of each.

  Arrays without numbers are left out. If no array is an image, there are no parts.
  """
  parts: list[FramePart] = []
  for name, shape, has_channels_first, is_bytes in arrays:
    if math.prod(shape):
      parts.append(FramePart(name, shape, parts[-1].stop if parts else 0, has_channels_first, is_bytes))
  return tuple(parts) if any(part.is_image for part in parts) else ()


def check_parts(parts: tuple[FramePart, ...], frame_shape: tuple[int, int, int]) -> None:
  """Raises ValueError unless the parts are all numbers of a frame [1, 1, D], in order."""
  starts = [0, *(part.stop for part in parts)]
  if frame_shape != (1, 1, starts[-1]) or starts[:-1] != [part.start for part in parts]:
    raise ValueError(
      f"frame_parts: must be all numbers of a frame [1, 1, D], in order; they start at "
      f"{[part.start for part in parts]} and end at {starts[-1]}; frame_shape={frame_shape}"
    )

"""Cuts frames that are vectors into the arrays of the observation. Runs on NumPy and JAX arrays."""

import math

from jaxtyping import Shaped

from moozi.core.frame_parts import FramePart
from moozi.core.types import AnyArray
from moozi.ops.xp import array_namespace


def split_frames(
  vectors: Shaped[AnyArray, "*batch D"], parts: tuple[FramePart, ...]
) -> tuple[Shaped[AnyArray, "..."], ...]:
  """Returns the parts of vectors: arrays [*batch, *shape], images with channels last."""
  xp, lead, out = array_namespace(vectors), vectors.shape[:-1], []
  for part in parts:
    array = xp.reshape(vectors[..., part.start : part.stop], (*lead, *part.shape))
    out.append(xp.moveaxis(array, -3, -1) if part.has_channels_first else array)
  return tuple(out)


def stack_parts(
  vectors: Shaped[AnyArray, "B L D"], parts: tuple[FramePart, ...]
) -> tuple[list[Shaped[AnyArray, "B H W LC"]], Shaped[AnyArray, "B N"]]:
  """Returns the stacked images of L frames, and all their other numbers.

  An image's planes are ordered by frame, the oldest first. The other numbers are ordered by part, then by
  frame.
  """
  xp, images, others = array_namespace(vectors), [], []
  for part, array in zip(parts, split_frames(vectors, parts), strict=True):
    if part.is_image:
      planes = xp.moveaxis(array, 1, -2)
      images.append(xp.reshape(planes, (*planes.shape[:3], math.prod(planes.shape[3:]))))
    else:
      others.append(xp.reshape(array, (array.shape[0], math.prod(array.shape[1:]))))
  return images, xp.concatenate([vectors[:, 0, :0], *others], axis=-1)

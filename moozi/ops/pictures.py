"""Converts what `render` of an environment returns to pictures, and makes pictures of one size."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import UInt8

MAX_SIDE = 320
"""Maximum height and width of a picture that is kept, in pixels. Reports and GIFs may scale it down."""

# Rounding may move a value this far out of 0 … 1.
_SLACK = 1e-3


def to_picture(drawn: Any) -> UInt8[np.ndarray, "h w 3"] | None:
  """Converts the result of an environment's `render` to a picture.

  Args:
    drawn: None (no picture); an array [h, w, 3] (RGB), [h, w, 4] (RGBA, drawn on white), or [h, w] or
      [h, w, 1] (grey); or an image of Pillow. An array's values are integers from 0 to 255, floats from 0 to
      1, or booleans. A list of arrays, as Gymnasium's `rgb_array_list` returns, stands for its last array.

  Returns: a fresh array, scaled down if a side is longer than MAX_SIDE; None if `drawn` is None.
  Raises: ValueError: `drawn` is anything else. The message says what it is and what is allowed.
  """
  if isinstance(drawn, list | tuple) and drawn and isinstance(drawn[-1], np.ndarray) and drawn[-1].ndim == 3:
    drawn = drawn[-1]
  if drawn is None:
    return None
  if type(drawn).__module__.startswith("PIL."):
    drawn = drawn.convert("RGBA")  # an image may hold indices of a palette
  from PIL import Image

  try:
    array = np.asarray(drawn)
  except Exception:  # a class of the user's code converts itself
    raise ValueError(f"a {type(drawn).__name__} that is not an array; must be uint8[h, w, 3]") from None
  kind = f"{array.dtype}{list(array.shape)}"
  if array.dtype.kind not in "biuf":
    raise ValueError(f"a {type(drawn).__name__} that is not an array of numbers; must be uint8[h, w, 3]")
  if array.ndim == 2:
    array = array[..., None]
  if array.ndim != 3 or array.shape[2] not in (1, 3, 4) or 0 in array.shape:
    raise ValueError(f"{kind}; must be uint8[h, w, 3], [h, w, 4], or [h, w] in grey")
  array = _to_bytes(array, kind)
  if array.shape[2] == 4:
    image = Image.fromarray(array)
    array = np.asarray(Image.alpha_composite(Image.new("RGBA", image.size, "white"), image))[..., :3]
  return np.array(shrink(np.broadcast_to(array, (*array.shape[:2], 3)), MAX_SIDE))


def _to_bytes(array: np.ndarray, kind: str) -> np.ndarray:
  """Returns the values as uint8. Raises ValueError, with the array's `kind`, if they are out of range."""
  if array.dtype == np.uint8:
    return array
  if array.dtype.kind == "b":
    return np.where(array, 255, 0).astype(np.uint8)
  low, high = float(array.min()), float(array.max())
  if array.dtype.kind in "iu":
    if low < 0 or high > 255:
      raise ValueError(f"{kind} with values from {low:g} to {high:g}; integers must be from 0 to 255")
    return array.astype(np.uint8)
  if not (low >= -_SLACK and high <= 1 + _SLACK):  # false for nan
    raise ValueError(
      f"{kind} with values from {low:g} to {high:g}; floats must be from 0 to 1 (or return uint8)"
    )
  return np.rint(255 * np.clip(array, 0, 1)).astype(np.uint8)


def shrink(picture: UInt8[np.ndarray, "h w 3"], side: int) -> UInt8[np.ndarray, "new_h new_w 3"]:
  """Scales a picture down so that its longer side is `side`; returns a picture that fits unchanged."""
  from PIL import Image

  height, width = picture.shape[:2]
  longest = max(height, width)
  if longest <= side:
    return picture
  shape = (max(1, width * side // longest), max(1, height * side // longest))
  return np.asarray(Image.fromarray(picture).resize(shape, Image.Resampling.BOX))


def stack_pictures(
  pictures: Sequence[UInt8[np.ndarray, "_ _ 3"] | None],
) -> UInt8[np.ndarray, "T h w 3"] | None:
  """Stacks the pictures of an episode; fits those of other sizes into the first one's size, on white.

  Returns: the pictures; None if there are none or one is missing, since an episode is drawn with its pictures
    or with its frames.
  """
  own = [picture for picture in pictures if picture is not None]
  return np.stack([_fit(picture, own[0].shape) for picture in own]) if len(own) == len(pictures) > 0 else None


def _fit(picture: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
  if picture.shape == shape:
    return picture
  from PIL import Image, ImageOps

  size = (shape[1], shape[0])
  return np.asarray(ImageOps.pad(Image.fromarray(picture), size, Image.Resampling.BOX, "white"))

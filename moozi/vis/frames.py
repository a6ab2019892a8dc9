"""An environment's frame as a picture: planes in fixed colours, images as they are, vectors as bars."""

import numpy as np

from moozi.core.spec import EnvSpec

BACKGROUND = (0, 0, 0)
# One colour a plane, fixed, so that pictures of different runs can be laid side by side. After Okabe and Ito
# (2008), with white, grey and brown added: told apart under the common colour blindnesses, and on black.
PALETTE = (
  (255, 255, 255),  # white: the player, where an environment lists him first
  (230, 159, 0),  # orange
  (84, 84, 84),  # grey
  (86, 180, 233),  # sky blue
  (213, 94, 0),  # vermilion
  (0, 145, 103),  # bluish green
  (240, 228, 66),  # yellow
  (0, 90, 190),  # blue
  (204, 121, 167),  # purple
  (100, 50, 20),  # brown
)
_GRID_FROM_SCALE = 6
_VECTOR_HEIGHT = 10


def render_frame(frame: np.ndarray, spec: EnvSpec, scale: int = 1) -> np.ndarray:
  """A picture of one frame.

  Planes (bool; float32 with other than 1 or 3 channels): where several are set in a cell, the one with the
  lowest index is seen. Images (uint8; float32 with 1 or 3 channels, from their least to their greatest
  value): grey or colour; of other numbers of channels the last one, the newest of a stack. Vectors (height
  and width 1): a bar each, up for positive, down for negative values, v squashed to v / (1 + |v|).

  Args:
    frame: [H, W, C] of the spec's dtype.
    spec: the facts of the environment.
    scale: pixels to a cell's side.

  Returns: [H * scale, W * scale, 3] uint8; a vector of D gives [10 * scale, D * scale, 3].
  Raises: ValueError: where the frame is not the spec's, or scale is below 1.
  """
  frame = np.asarray(frame)
  if frame.shape != spec.frame_shape or frame.dtype != np.dtype(spec.frame_dtype):
    raise ValueError(
      f"frame: {frame.dtype}{list(frame.shape)}; {spec.name} has {spec.frame_dtype}{spec.frame_shape}"
    )
  if scale < 1:
    raise ValueError(f"scale={scale}: must be at least 1")
  height, width, channels = frame.shape
  if height == width == 1 and channels > 1:
    return _bars(frame[0, 0].astype(np.float64), scale)
  if spec.frame_dtype == "uint8":
    return enlarge(_image(frame), scale)
  if spec.frame_dtype == "float32" and channels in (1, 3):
    return enlarge(_image(_stretch(frame)), scale)
  picture = enlarge(_planes(frame > 0.5 if spec.frame_dtype == "float32" else frame), scale)
  if scale >= _GRID_FROM_SCALE:
    picture[scale - 1 :: scale] //= 2
    picture[:, scale - 1 :: scale] //= 2
  return picture


def plane_colours(num_planes: int) -> np.ndarray:
  """[num_planes, 3] uint8: the palette; from the eleventh plane on it comes again, darker each time."""
  rounds, index = np.divmod(np.arange(num_planes), len(PALETTE))
  colours = np.asarray(PALETTE, np.float64)[index] * 0.6 ** rounds[:, None]
  return colours.astype(np.uint8)


def _planes(frame: np.ndarray) -> np.ndarray:
  colours = np.concatenate([plane_colours(frame.shape[-1]), np.array([BACKGROUND], np.uint8)])
  first = np.where(frame.any(axis=-1), frame.argmax(axis=-1), frame.shape[-1])
  picture: np.ndarray = colours[first]
  return picture


def _image(frame: np.ndarray) -> np.ndarray:
  return frame if frame.shape[-1] == 3 else np.repeat(frame[..., -1:], 3, axis=-1)


def _stretch(frame: np.ndarray) -> np.ndarray:
  frame = np.nan_to_num(frame.astype(np.float64))
  low, high = frame.min(), frame.max()
  return ((frame - low) / (high - low if high > low else 1.0) * 255).astype(np.uint8)


def _bars(vector: np.ndarray, scale: int) -> np.ndarray:
  height, middle = _VECTOR_HEIGHT * scale, _VECTOR_HEIGHT * scale // 2
  picture = np.zeros((height, len(vector) * scale, 3), np.uint8)
  vector = np.clip(np.nan_to_num(vector), -1e9, 1e9)
  lengths = np.rint(vector / (1 + np.abs(vector)) * middle).astype(int)
  gap = 1 if scale > 2 else 0
  for i, length in enumerate(lengths):
    columns = slice(i * scale, (i + 1) * scale - gap)
    if length > 0:
      picture[middle - length : middle, columns] = PALETTE[3]
    else:
      picture[middle : middle - length, columns] = PALETTE[1]
  picture[middle] = np.maximum(picture[middle], 60)
  return picture


def enlarge(picture: np.ndarray, scale: int) -> np.ndarray:
  """A picture [h, w, 3] with each pixel drawn as `scale` by `scale` of them."""
  return picture.repeat(scale, axis=0).repeat(scale, axis=1)

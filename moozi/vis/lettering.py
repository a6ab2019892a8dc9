"""Writes text on pictures, and formats numbers. Caches rendered text, because frames repeat it."""

import functools
import math

import numpy as np
from jaxtyping import Shaped, UInt8
from PIL import Image, ImageDraw, ImageFont

Color = tuple[int, int, int]
Picture = UInt8[np.ndarray, "_ _ 3"]
Frame = Shaped[np.ndarray, "_ _ _"]  # height, width, channels

INK: Color = (235, 235, 235)
FAINT: Color = (150, 150, 150)
PAPER: Color = (28, 28, 34)
FONT_SIZE = 14


def write(picture: Picture, text: str, left: int, top: int, color: Color = INK, size: int = FONT_SIZE) -> int:
  """Writes a line of text on a picture, in place; returns the width of the text in pixels.

  The text is clipped at the right and bottom edges. `left` and `top` must not be negative.
  """
  ink, clear = _stroke(text, size, color)
  below = picture[top : top + len(ink), left : left + ink.shape[1]]
  height, width = below.shape[:2]
  below[...] = (ink[:height, :width] + below * clear[:height, :width]) >> 8
  return ink.shape[1]


def paper(height: int, width: int) -> Picture:
  """Returns an empty picture in the background color."""
  return np.full((height, width, 3), PAPER, np.uint8)


@functools.lru_cache(maxsize=8192)
def fit(text: str, width: int, size: int = FONT_SIZE) -> str:
  """Returns the text, shortened with an ellipsis if it is wider than `width` pixels."""
  if text_width(text, size) <= width:
    return text
  while text and text_width(f"{text}…", size) > width:
    text = text[:-1]
  return f"{text}…"


def text_width(text: str, size: int = FONT_SIZE) -> int:
  """Returns the width of a line of text in pixels."""
  return int(np.ceil(font(size).getlength(text)))


@functools.lru_cache(maxsize=4096)
def _stroke(text: str, size: int, color: Color) -> tuple[np.ndarray, np.ndarray]:
  """Renders a line of text for alpha blending.

  Returns: the weighted color [h, w, 3] and the weight of the picture below [h, w, 1], uint16, in 1/256.
  """
  image = Image.new("L", (max(1, text_width(text, size)), size + size // 2))
  ImageDraw.Draw(image).text((0, 0), text, fill=255, font=font(size))
  alpha = np.asarray(image)[..., None].astype(np.uint16)
  alpha += alpha > 127
  return alpha * np.array(color, np.uint16), 256 - alpha


@functools.cache
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
  """Returns Pillow's default font."""
  return ImageFont.load_default(size)


def rounded(x: float) -> float:
  """Rounds a number to six decimals, which hides errors of float32 sums: `-7e-9` becomes 0."""
  return round(x, 6) + 0.0


def short_figure(x: float) -> str:
  """Formats a number with its sign: `+0.125`, `-12.3`, `-2e-5`.

  The text has at most six characters if a decimal exponent of two digits suffices, as for every float32.
  """
  size = abs(x)
  if 0 < size < 0.001 or 99_999.5 <= size < math.inf:
    digit, _, exponent = f"{x:+.0e}".partition("e")
    return f"{digit}e{int(exponent)}"
  return f"{x:+.0f}" if size >= 999.5 else f"{round(x, 3) + 0.0:+.3g}"


def value_text(value: float) -> str:
  """Formats a position's value; NaN means that the position was not searched."""
  return "value not searched" if math.isnan(value) else f"value {value:.3f}"

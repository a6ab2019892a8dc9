"""Text on pictures. What was drawn once is kept: in an episode the same words come again at every step."""

import functools

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int]

INK: Colour = (235, 235, 235)
FAINT: Colour = (150, 150, 150)
PAPER: Colour = (28, 28, 34)
FONT_SIZE = 14


def write(
  picture: np.ndarray, text: str, left: int, top: int, colour: Colour = INK, size: int = FONT_SIZE
) -> int:
  """Writes a line on a picture, in place; what would lie outside is left out.

  Args:
    picture: [h, w, 3] uint8.
    text: one line.
    left, top: where it begins, in pixels; not negative.
    colour: of the letters.
    size: of the font, in pixels.

  Returns: the text's width in pixels.
  """
  ink, clear = _stroke(text, size, colour)
  below = picture[top : top + len(ink), left : left + ink.shape[1]]
  height, width = below.shape[:2]
  below[...] = (ink[:height, :width] + below * clear[:height, :width]) >> 8
  return ink.shape[1]


def paper(height: int, width: int) -> np.ndarray:
  """An empty sheet, [height, width, 3] uint8."""
  return _paper(height, width).copy()


@functools.lru_cache(maxsize=16)
def _paper(height: int, width: int) -> np.ndarray:
  return np.full((height, width, 3), PAPER, np.uint8)


@functools.lru_cache(maxsize=8192)
def fit(text: str, width: int, size: int = FONT_SIZE) -> str:
  """The text, cut with an ellipsis where it is wider than so many pixels."""
  if text_width(text, size) <= width:
    return text
  while text and text_width(f"{text}…", size) > width:
    text = text[:-1]
  return f"{text}…"


def text_width(text: str, size: int = FONT_SIZE) -> int:
  """Pixels that a line takes."""
  return int(np.ceil(_font(size).getlength(text)))


@functools.lru_cache(maxsize=4096)
def _stroke(text: str, size: int, colour: Colour) -> tuple[np.ndarray, np.ndarray]:
  """What is added to a picture, and what share of 256 is left of it before: [h, w, 3], [h, w, 1] uint16."""
  image = Image.new("L", (max(1, text_width(text, size)), size + size // 2))
  ImageDraw.Draw(image).text((0, 0), text, fill=255, font=_font(size))
  alpha = np.asarray(image)[..., None].astype(np.uint16)
  alpha += alpha > 127
  return alpha * np.array(colour, np.uint16), 256 - alpha


@functools.cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
  return ImageFont.load_default(size)

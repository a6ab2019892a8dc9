"""Files for TensorBoard's embedding projector, which has PCA, t-SNE and UMAP to look at states with.

A folder with tensors.tsv, metadata.tsv, sprite.png and projector_config.pbtxt; `tensorboard --logdir FOLDER`
shows it.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from moozi.vis.whole_file import whole_file

# What the projector's page can load as one texture.
_LARGEST_SPRITE = 8192


def write_projector(
  folder: Path,
  vectors: np.ndarray,
  metadata: Mapping[str, Sequence[object]],
  pictures: Sequence[np.ndarray],
) -> Path:
  """Writes the files, each whole or not at all; those that are there are replaced, and links not followed.

  Args:
    folder: made where it is missing.
    vectors: [N, D] floats, finite.
    metadata: columns of N values each; at least two columns.
    pictures: N of [h, w, 3] uint8, all of one size; reduced where a sheet of them would be too large.

  Returns: the folder.
  Raises: ValueError: parts of different lengths, fewer than two columns, or a vector that is not finite.
  """
  _check(vectors, metadata, pictures)
  rows = ("\t".join(f"{x:.7g}" for x in vector) for vector in vectors)
  lines = ["\t".join(_cell(name) for name in metadata)]
  lines += ["\t".join(_cell(value) for value in row) for row in zip(*metadata.values(), strict=True)]
  sheet, (height, width) = _sprite(pictures)
  texts = {
    "tensors.tsv": "\n".join(rows) + "\n",
    "metadata.tsv": "\n".join(lines) + "\n",
    "projector_config.pbtxt": _config(width, height),
  }
  for name, text in texts.items():
    with whole_file(folder / name) as partial:
      partial.write_text(text, "utf-8")
  with whole_file(folder / "sprite.png") as partial:
    Image.fromarray(sheet).save(partial, format="PNG")
  return folder


def _check(
  vectors: np.ndarray, metadata: Mapping[str, Sequence[object]], pictures: Sequence[np.ndarray]
) -> None:
  if vectors.ndim != 2 or not len(vectors) or not np.isfinite(vectors).all():
    raise ValueError(f"vectors: shape {vectors.shape}; must be [N, D], N at least 1, and finite")
  if len(metadata) < 2:
    raise ValueError("metadata: a single column has no header line in this format; give two or more")
  for name, column in metadata.items():
    if len(column) != len(vectors):
      raise ValueError(f"metadata: {name} has {len(column)} values; must have {len(vectors)}")
  if len(pictures) != len(vectors) or len({p.shape for p in pictures}) != 1:
    raise ValueError(f"pictures: {len(pictures)}; must be {len(vectors)} of one size")


def _sprite(pictures: Sequence[np.ndarray]) -> tuple[np.ndarray, tuple[int, int]]:
  """A square sheet of them all, row by row, and the size (h, w) of one."""
  side = math.ceil(math.sqrt(len(pictures)))
  height, width = pictures[0].shape[:2]
  most = _LARGEST_SPRITE // side
  if max(height, width) > most:
    share = most / max(height, width)
    height, width = max(1, int(height * share)), max(1, int(width * share))
    pictures = [
      np.asarray(Image.fromarray(p).resize((width, height), Image.Resampling.BOX)) for p in pictures
    ]
  sheet = np.zeros((side * height, side * width, 3), np.uint8)
  for i, picture in enumerate(pictures):
    top, left = i // side * height, i % side * width
    sheet[top : top + height, left : left + width] = picture
  return sheet, (height, width)


def _cell(value: object) -> str:
  """Tabs and line ends separate; they are not part of a value."""
  return " ".join(str(value).split())


def _config(width: int, height: int) -> str:
  # Paths are relative to the folder, so that it can be moved.
  return f"""embeddings {{
  tensor_name: "hidden states"
  tensor_path: "tensors.tsv"
  metadata_path: "metadata.tsv"
  sprite {{
    image_path: "sprite.png"
    single_image_dim: {width}
    single_image_dim: {height}
  }}
}}
"""

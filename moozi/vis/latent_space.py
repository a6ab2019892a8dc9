"""Draws an episode's latent states: a PCA figure with the model's unrolls, and TensorBoard's projector."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image

from moozi.core.text import printable
from moozi.io.atomic_write import atomic_path
from moozi.vis.comparison import write_figure

_MAX_FITTED = 1000
# Side in pixels of the largest image that the projector's page loads.
_MAX_SPRITE_PIXELS = 8192
_CONFIG = """embeddings {{
  tensor_name: "hidden states"
  tensor_path: "tensors.tsv"
  metadata_path: "metadata.tsv"
  sprite {{
    image_path: "sprite.png"
    single_image_dim: {width}
    single_image_dim: {height}
  }}
}}
"""  # paths are relative to the folder, so that it can be moved


@dataclasses.dataclass(frozen=True)
class Projection:
  """Principal components: orthonormal or zero rows, and the share of the variance that each row explains."""

  mean: Float[np.ndarray, " D"]
  components: Float[np.ndarray, "C D"]
  shares: Float[np.ndarray, " C"]

  def __call__(self, states: Float[np.ndarray, "... D"]) -> Float[np.ndarray, "... C"]:
    """Returns the projected states; NaN stays NaN."""
    return (states - self.mean) @ self.components.T


def principal_components(states: Float[np.ndarray, "T D"], count: int = 2) -> Projection:
  """Returns the first `count` principal components; those beyond min(T, D) are zeros."""
  states = np.asarray(states, np.float64)
  mean = states.mean(axis=0)
  _, sizes, axes = np.linalg.svd(states - mean, full_matrices=False)
  components = np.zeros((count, states.shape[1]))
  components[: len(axes[:count])] = axes[:count]
  # The sign of a component is arbitrary. A positive largest entry makes figures reproducible.
  for row in components:
    row *= np.sign(row[np.abs(row).argmax()]) or 1.0
  shares = np.zeros(count)
  shares[: len(sizes[:count])] = sizes[:count] ** 2 / max((sizes**2).sum(), 1e-30)
  return Projection(mean, components, shares)


def reduced_states(states: Float[np.ndarray, "N D"], max_size: int) -> tuple[Float[np.ndarray, "N C"], float]:
  """Projects states of more than `max_size` numbers onto at most `max_size` principal components.

  Other states are returned as they are. States must be finite. If there are more than 1,000 states, the
  components are fitted to 1,000 evenly spaced ones.

  Returns: the projected states, and the share of the fitted states' variance that the components explain.
  """
  if states.shape[1] <= max_size:
    return states, 1.0
  fitted = np.unique(np.linspace(0, len(states) - 1, _MAX_FITTED).round().astype(np.int64))
  project = principal_components(states[fitted], min(max_size, len(fitted)))
  return project(states), float(project.shares.sum())


def write_latent_picture(
  path: Path,
  encoded: Float[np.ndarray, "T D"],
  starts: Int[np.ndarray, " S"],
  unrolled: Float[np.ndarray, "S K D"],
  drift: Float[np.ndarray, "S K"],
  still_drift: Float[np.ndarray, "S K"],
  title: str,
  trained_steps: int,
) -> None:
  """Writes a PNG with two panels.

  The left panel shows the encoded states of an episode on their first two principal components, colored by
  time, with the model's unrolls as thin lines. The right panel shows the distance between unrolled and
  encoded states by unroll step, as median and quartiles. For comparison, it shows the same distance for a
  model that never changes its first state.

  The arrays are those of `analysis.latent_paths.LatentPaths`. `trained_steps`, the number of unroll steps in
  training, is marked in the right panel if the axis reaches it.
  """
  from matplotlib.figure import Figure

  figure = Figure((13, 6), dpi=100, layout="constrained")
  left, right = figure.subplots(1, 2, width_ratios=(3, 2))
  figure.suptitle(printable(title[:160]), x=0.01, ha="left", parse_math=False)
  points = _draw_paths(left, principal_components(encoded), encoded, starts, unrolled)
  figure.colorbar(points, ax=left, label="step", shrink=0.6)
  _draw_drift(right, drift, still_drift, trained_steps)
  write_figure(path, figure)


def _draw_paths(axes: Any, project: Projection, encoded: np.ndarray, starts: Any, unrolled: Any) -> Any:
  path, own = project(encoded), project(unrolled.astype(np.float64))
  last = max(1, len(path) - 1)
  axes.plot(*path.T, color="0.75", linewidth=2.5, zorder=1, label="encoded states")
  points = axes.scatter(*path.T, c=np.arange(len(path)), s=28, vmin=0, vmax=last, zorder=3)
  for i, (start, line) in enumerate(zip(starts, own, strict=True)):
    axes.plot(*line.T, color="tab:red", linewidth=0.8, zorder=2, label="model's unrolls" if i == 0 else None)
    times = start + np.arange(1, len(line))
    axes.scatter(*line[1:].T, c=times, s=22, marker="x", linewidths=1, vmin=0, vmax=last, zorder=3)
  axes.plot(*path[0], "o", ms=13, mfc="none", mec="black", label="first step")
  axes.plot(*path[-1], "s", ms=13, mfc="none", mec="black", label="last step")
  axes.set_xlabel(f"PC 1 ({project.shares[0]:.0%} of the variance)")
  axes.set_ylabel(f"PC 2 ({project.shares[1]:.0%} of the variance)")
  axes.set_aspect("equal", adjustable="datalim")
  axes.legend(loc="best", fontsize="small")
  return points


def _draw_drift(axes: Any, drift: np.ndarray, still_drift: np.ndarray, trained_steps: int) -> None:
  for name, values, color in (
    ("model's unroll", drift, "tab:red"),
    ("first state, kept", still_drift, "0.5"),
  ):
    # In a short episode, the later unroll steps may have no values.
    k = np.flatnonzero((~np.isnan(values)).any(axis=0))
    low, middle, high = np.nanpercentile(values[:, k], (25, 50, 75), axis=0)
    axes.fill_between(k, low, high, color=color, alpha=0.2, linewidth=0)
    axes.plot(k, middle, "o-", color=color, markersize=4, label=name)
  if trained_steps < drift.shape[1]:
    axes.axvline(trained_steps, color="0.3", linestyle=":", label=f"trained to k = {trained_steps}")
  axes.set(xlabel="unroll step k", ylabel="distance from the encoded state / RMS distance from the mean")
  axes.xaxis.get_major_locator().set_params(integer=True)
  axes.set_ylim(bottom=0)
  axes.grid(alpha=0.3)
  axes.legend(loc="best", fontsize="small")


def write_projector(
  folder: Path,
  vectors: Float[np.ndarray, "N D"],
  metadata: Mapping[str, Sequence[object]],
  pictures: Sequence[UInt8[np.ndarray, "h w 3"]],
) -> None:
  """Writes the files of TensorBoard's embedding projector; `tensorboard --logdir FOLDER` shows them.

  Creates the folder if it is missing. Replaces each of the files tensors.tsv, metadata.tsv, sprite.png and
  projector_config.pbtxt atomically. The pictures are scaled down if sprite.png would be too large.

  Raises: ValueError: lengths or the sizes of pictures differ, there are no vectors or fewer than two columns,
    or a vector is not finite.
  """
  if vectors.ndim != 2 or not len(vectors) or not np.isfinite(vectors).all():
    raise ValueError(f"vectors: shape {vectors.shape}; must be finite [N, D] with N at least 1")
  if len(metadata) < 2:
    raise ValueError("metadata: one column; must have two or more, or the format has no header line")
  for name, column in metadata.items():
    if len(column) != len(vectors):
      raise ValueError(f"metadata: {name} has {len(column)} values; must have {len(vectors)}")
  if len(pictures) != len(vectors) or len({p.shape for p in pictures}) != 1:
    raise ValueError(f"pictures: {len(pictures)}; must be {len(vectors)} of one size")
  rows = ["\t".join(f"{x:.7g}" for x in vector) for vector in vectors]
  table = [metadata.keys(), *zip(*metadata.values(), strict=True)]
  side = math.ceil(math.sqrt(len(pictures)))
  height, width = pictures[0].shape[:2]
  if side * max(height, width) > _MAX_SPRITE_PIXELS:
    share = _MAX_SPRITE_PIXELS // side / max(height, width)
    height, width = max(1, int(height * share)), max(1, int(width * share))
  sheet = Image.new("RGB", (side * width, side * height))
  for i, picture in enumerate(pictures):
    image = Image.fromarray(picture).resize((width, height), Image.Resampling.BOX)
    sheet.paste(image, (i % side * width, i // side * height))
  texts = {
    "tensors.tsv": "\n".join(rows) + "\n",
    # Replaces tabs and line ends in the values, because they are separators in this format.
    "metadata.tsv": "".join("\t".join(" ".join(str(x).split()) for x in row) + "\n" for row in table),
    "projector_config.pbtxt": _CONFIG.format(width=width, height=height),
  }
  for name, text in texts.items():
    with atomic_path(folder / name) as partial:
      partial.write_text(text, "utf-8")
  with atomic_path(folder / "sprite.png") as partial:
    sheet.save(partial, format="PNG")

"""What an evaluation looked like, as two GIFs: one episode with its thoughts, and several at once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moozi.core.spec import EnvSpec
from moozi.vis.gif import episode_images, write_gif
from moozi.vis.tiles import tile_images

_FPS = 12


def tiles_path(path: Path) -> Path:
  """Where the GIF of many episodes lies beside that of one."""
  return path.with_name(f"{path.stem}_tiles{path.suffix}")


def write_episode_gif(path: Path, episode: Any, spec: EnvSpec) -> tuple[int, int]:
  """Writes one episode: picture, step, action, reward, value and search policy.

  Args:
    path: the file.
    episode: `EvaluationResult.episode`.
    spec: the facts of the environment.

  Returns: height and width.
  """
  images = episode_images(
    frames=episode.frames,
    actions=episode.actions,
    rewards=episode.rewards,
    root_values=episode.root_values,
    action_probs=episode.action_probs,
    spec=spec,
    pictures=episode.pictures,
    to_play=episode.to_play,
    seat=episode.seat,
    length=episode.length,
  )
  write_gif(path, images, _FPS)
  height, width, _ = images[0].shape
  return height, width


def write_tiles_gif(path: Path, tiles: Sequence[Any], spec: EnvSpec) -> tuple[int, int]:
  """Writes several episodes at once.

  Args:
    path: the file.
    tiles: `EvaluationResult.tiles`, one or more.
    spec: the facts of the environment.

  Returns: height and width.
  """
  images = tile_images(
    frames=[tile.frames for tile in tiles],
    returns=[tile.returns for tile in tiles],
    spec=spec,
    to_play=[tile.to_play for tile in tiles],
    pictures=[tile.pictures for tile in tiles],
  )
  write_gif(path, images, _FPS)
  height, width, _ = images[0].shape
  return height, width

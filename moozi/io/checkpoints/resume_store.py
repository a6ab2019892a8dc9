"""Saves and loads the resume states of a run.

A run is resumed exactly from a checkpoint, which has the training state, and the resume state of the same
name, which has the rest.

resume/step_000012345/   counters, priorities, environments and random state, in the format of a checkpoint
resume/blocks/           blocks of replay's steps, which several resume states share

A block's file is named by its number and a digest of its content. The manifest of a resume state lists its
blocks with their SHA-256. A save writes only the blocks that have changed, and is atomic.
"""

import dataclasses
import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from moozi.core.errors import UserError, reason_of
from moozi.core.flat_state import State
from moozi.io.atomic_write import write_bytes
from moozi.io.bounded_read import read_arrays
from moozi.io.checkpoints.format import decode_arrays, load_flat, save_checkpoint
from moozi.io.checkpoints.listing import list_checkpoints

_BLOCKS = "blocks"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedState:
  """A loaded resume state.

  Attributes:
    state: the flat state.
    generations: [N] int64, the generation of each of replay's blocks; None if there are no blocks.
    blocks: the written blocks by number.
  """

  state: State
  generations: np.ndarray | None
  blocks: dict[int, State]


class ResumeStore:
  """Saves and loads the resume states of a run in one folder, which the first save creates."""

  def __init__(self, directory: Path) -> None:
    self._directory = directory
    self._files: dict[int, dict[str, Any]] = {}
    # [N] int64: generations of the blocks on disk, which `save` need not write; None if there are none.
    self.known: np.ndarray | None = None

  def move_to(self, directory: Path) -> None:
    """Reads and writes by another path of the same folder from now on."""
    self._directory = directory

  def save(
    self,
    name: str,
    state: State,
    meta: Mapping[str, Any],
    generations: np.ndarray | None = None,
    blocks: Mapping[int, State] | None = None,
  ) -> Path:
    """Writes the resume state `directory/name` atomically.

    Args:
      name, meta: those of the checkpoint to which the resume state belongs.
      state: the flat state.
      generations: [N] int64, the generation of each of replay's blocks; 0 if it was never written to.
      blocks: the blocks whose generation differs from `known`, by number.
    Raises: ValueError: a block is neither in `blocks` nor on disk. OSError: the disk is full. In both cases,
      `known` is unchanged, and the files written by this call are removed.
    """
    written: list[Path] = []
    try:
      files = self._write_blocks(generations, blocks or {}, written)
      listing = {str(number): entry for number, entry in files.items()}
      count = 0 if generations is None else len(generations)
      path = save_checkpoint(self._directory, name, state, {**meta, "blocks": listing, "num_blocks": count})
    except Exception:
      # Removes the blocks that this call has written, to free disk space for the next save.
      for block_path in written:
        block_path.unlink(missing_ok=True)
      raise
    self._files, self.known = files, None if generations is None else np.array(generations)
    return path

  def load(self, name: str, with_replay: bool = True) -> SavedState:
    """Returns a resume state, without replay if `with_replay` is false. Later saves reuse its blocks on disk.

    Raises: UserError: the state is missing, damaged, or not a resume state.
    """
    state, meta = load_flat(self._directory / name)
    n, files = meta.get("num_blocks"), _entries(meta)
    if not isinstance(n, int) or not 0 <= n <= 1 << 16 or files is None or max(files, default=-1) >= n:
      raise UserError(f"{self._directory / name}: not a resume state")
    if not with_replay:
      return SavedState(state=state, generations=None, blocks={})
    generations = np.zeros(n, np.int64)
    for number, entry in files.items():
      generations[number] = entry["generation"]
    blocks = {number: self._read_block(entry) for number, entry in files.items()}
    self._files, self.known = files, generations if n else None
    return SavedState(state=state, generations=self.known, blocks=blocks)

  def names(self) -> set[str]:
    """Returns the names of the resume states with a valid manifest."""
    return {info.name for info in list_checkpoints(self._directory)}

  def keep(self, names: set[str]) -> None:
    """Removes all resume states except `names`, and the blocks that are no longer used."""
    used = set()
    for info in list_checkpoints(self._directory):
      if info.name in names:
        used |= {entry["file"] for entry in (_entries(info.meta) or {}).values()}
      else:
        shutil.rmtree(info.path, ignore_errors=True)
    folder = self._directory / _BLOCKS
    for path in folder.iterdir() if folder.is_dir() else ():
      if path.name not in used:
        path.unlink(missing_ok=True)

  def _write_blocks(
    self, generations: np.ndarray | None, blocks: Mapping[int, State], written: list[Path]
  ) -> dict[int, dict[str, Any]]:
    """Writes blocks, and returns the manifest's entries of all blocks by number.

    Appends the paths of the created files to `written`.
    """
    if generations is None:
      return {}
    files, folder = dict(self._files), self._directory / _BLOCKS
    for number, block in blocks.items():
      # safetensors writes the raw bytes, which must be in C order.
      data = safetensors.numpy.save({name: np.ascontiguousarray(x) for name, x in block.items()})
      digest = hashlib.sha256(data).hexdigest()
      folder.mkdir(parents=True, exist_ok=True)
      path = folder / f"{number:04d}_{digest[:16]}.safetensors"
      # A run resumed from an earlier state makes blocks again, whose old files may be damaged.
      if not path.exists():
        written.append(path)
        write_bytes(path, data)
      elif path.stat().st_size != len(data) or path.read_bytes() != data:
        write_bytes(path, data)
      files[number] = {"file": path.name, "sha256": digest, "generation": int(generations[number])}
    used = [int(number) for number in np.flatnonzero(generations)]
    for number in used:
      if number not in files or files[number]["generation"] != generations[number]:
        raise ValueError(f"replay: block {number} is neither given nor on disk")
    return {number: files[number] for number in used}

  def _read_block(self, entry: Mapping[str, Any]) -> State:
    name = str(entry.get("file"))
    path = self._directory / _BLOCKS / name
    if Path(name).name != name:
      raise UserError(f"{path}: not a file name; blocks must be in {_BLOCKS}/")
    try:
      # A pipe or a device is damage too.
      data = read_arrays(path) if path.is_file() or not path.exists() else b""
    except (OSError, ValueError) as e:
      raise UserError(f"{path}: cannot be read: {reason_of(e)}") from None
    return decode_arrays(path, data, entry.get("sha256"))


def _entries(meta: Mapping[str, Any]) -> dict[int, dict[str, Any]] | None:
  """Returns the entries of blocks in a manifest's `meta`, by number; None if they are malformed."""
  listing = meta.get("blocks")
  if not isinstance(listing, dict):
    return None
  for key, entry in listing.items():
    if not (key.isascii() and key.isdigit() and len(key) < 6 and isinstance(entry, dict)):
      return None
    generation = entry.get("generation")
    if not (isinstance(generation, int) and 0 <= generation < 1 << 63 and isinstance(entry.get("file"), str)):
      return None
  return {int(key): entry for key, entry in listing.items()}

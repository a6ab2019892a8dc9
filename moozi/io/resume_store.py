"""What a run needs beside its training state to go on: `resume/`, a folder for each of the last checkpoints.

resume/step_000012345/   counters, priorities, environments and random state (the format of a checkpoint)
resume/blocks/           replay's steps, in files that several of those folders share

A block is written once and named by its content; a folder's manifest lists those that belong to it, with
their SHA-256. So a save costs what has changed, and is there whole or not at all.
"""

import dataclasses
import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from moozi.core.errors import UserError
from moozi.core.flat_state import State
from moozi.io.atomic_write import write_bytes
from moozi.io.checkpoints import list_checkpoints, load_flat, save_checkpoint

_BLOCKS = "blocks"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedState:
  """What `ResumeStore.load` reads back.

  Attributes:
    state: flat, as it was saved.
    generations: [N] int64 of replay's blocks; None where none were saved.
    blocks: by number.
  """

  state: State
  generations: np.ndarray | None
  blocks: dict[int, State]


class ResumeStore:
  """Saves and loads a run's resume states.

  Args:
    directory: the run's folder for them; made at the first save.
  """

  def __init__(self, directory: Path) -> None:
    self._directory = directory
    self._files: dict[int, dict[str, Any]] = {}
    self._known: np.ndarray | None = None

  @property
  def known(self) -> np.ndarray | None:
    """[N] int64: generations of the blocks that are on disk and need not be given again; None: none are."""
    return self._known

  def save(
    self,
    name: str,
    state: State,
    meta: Mapping[str, Any],
    generations: np.ndarray | None = None,
    blocks: Mapping[int, State] | None = None,
  ) -> Path:
    """Writes `directory/name`, whole or not at all.

    Args:
      name: of the checkpoint that this belongs to.
      state: flat.
      meta: as `save_checkpoint` takes it.
      generations: [N] int64 of replay's blocks; 0: never written to.
      blocks: those whose generation is not the one in `known`.
    Raises: ValueError: a block is neither given nor on disk. OSError: no room, for one. `known` has not
      changed then, and nothing that was written stays.
    """
    new: list[Path] = []
    try:
      files = self._write_blocks(generations, blocks or {}, new)
      listing = {str(number): entry for number, entry in files.items()}
      count = 0 if generations is None else len(generations)
      path = save_checkpoint(self._directory, name, state, {**meta, "blocks": listing, "num_blocks": count})
    except Exception:
      # Where a disk is full they would take the room that the next save needs.
      for written in new:
        written.unlink(missing_ok=True)
      raise
    self._files, self._known = files, None if generations is None else np.array(generations)
    return path

  def load(self, name: str) -> SavedState:
    """Reads a resume state, and goes on saving from it.

    Raises: UserError: it is not there, or altered or cut.
    """
    state, meta = load_flat(self._directory / name)
    refused = UserError(f"{self._directory / name}: not a resume state")
    count = meta.get("num_blocks")
    if not isinstance(count, int) or not 0 <= count <= 1 << 16:
      raise refused
    generations = np.zeros(count, np.int64)
    files = _entries(meta)
    if files is None or any(number >= count for number in files):
      raise refused
    for number, entry in files.items():
      generations[number] = entry["generation"]
    blocks = {number: self._read_block(entry) for number, entry in files.items()}
    self._files, self._known = files, generations if count else None
    return SavedState(state=state, generations=self._known, blocks=blocks)

  def names(self) -> set[str]:
    """The resume states there are, whole by their manifests."""
    return {info.name for info in list_checkpoints(self._directory)}

  def keep(self, names: set[str]) -> None:
    """Removes all others, and the blocks that none of these lists."""
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
    self, generations: np.ndarray | None, blocks: Mapping[int, State], new: list[Path]
  ) -> dict[int, dict[str, Any]]:
    """The entries of all blocks of a state, once they are on disk; files that it makes are added to `new`."""
    if generations is None:
      return {}
    files = dict(self._files)
    for number, block in blocks.items():
      files[number] = self._write_block(number, block, new) | {"generation": int(generations[number])}
    written = [int(number) for number in np.flatnonzero(generations)]
    for number in written:
      if number not in files or files[number]["generation"] != generations[number]:
        raise ValueError(f"replay: block {number} is neither given nor on disk")
    return {number: files[number] for number in written}

  def _write_block(self, number: int, block: State, new: list[Path]) -> dict[str, Any]:
    # Row-major, or safetensors writes something else than it reads.
    data = safetensors.numpy.save({name: np.ascontiguousarray(x) for name, x in block.items()})
    digest = hashlib.sha256(data).hexdigest()
    folder = self._directory / _BLOCKS
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:04d}_{digest[:16]}.safetensors"
    if not path.exists():
      new.append(path)
      write_bytes(path, data)
    return {"file": path.name, "sha256": digest}

  def _read_block(self, entry: Mapping[str, Any]) -> State:
    name = str(entry.get("file"))
    path = self._directory / _BLOCKS / name
    if Path(name).name != name:
      raise UserError(f"{path}: a block lies beside its manifest's folder and nowhere else")
    try:
      # A pipe or a device in its place would be read for ever.
      data = path.read_bytes() if path.is_file() or not path.exists() else b""
    except OSError as e:
      raise UserError(f"{path}: cannot be read: {e.strerror}") from None
    damaged = UserError(f"{path}: altered or cut since it was written; use another checkpoint")
    if hashlib.sha256(data).hexdigest() != entry.get("sha256"):
      raise damaged
    try:
      return dict(safetensors.numpy.load(data))
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError):
      raise damaged from None


def _entries(meta: Mapping[str, Any]) -> dict[int, dict[str, Any]] | None:
  """What a manifest lists of blocks, by number; None where it is no such list."""
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

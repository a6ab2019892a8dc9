"""Saves and loads the resume states of a run.

A run is resumed from a checkpoint, which has the training state, and the resume state of the same
name, which has the rest.

resume/step_000012345.safetensors   counters, priorities, environments and random state
resume/blocks/                      blocks of replay's steps, which several resume states share

All are state files. The name of a block's file has its number and the start of its digest, and a resume state
lists the digests of its blocks by number. A save writes no block that is unchanged, and is atomic.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from moozi.core.errors import UserError
from moozi.core.flat_state import Snapshot
from moozi.io.atomic_write import write_bytes
from moozi.io.checkpoints.format import path_of, read_checkpoint_info
from moozi.io.checkpoints.listing import list_checkpoints
from moozi.io.state_file import SUFFIX, encode_state, read_state, write_state

_BLOCKS, _GENERATIONS = "blocks", "generations"
_MAX_BLOCKS = 1 << 16


class ResumeStore:
  """Saves and loads the resume states of a run in one folder, which the first save creates."""

  def __init__(self, directory: Path) -> None:
    self._directory = directory
    self._digests: dict[int, str] = {}
    # [N] int64: generations of the blocks on disk, which `save` need not write; None if there are none.
    self.known: Int[np.ndarray, N] | None = None

  def move_to(self, directory: Path) -> None:
    """Reads and writes by another path of the same folder from now on."""
    self._directory = directory

  def save(self, name: str, state: Snapshot, meta: Mapping[str, Any]) -> None:
    """Writes a resume state atomically.

    Args:
      name, meta: those of the checkpoint to which the resume state belongs.
      state: needs only the blocks whose generation differs from `known`.
    Raises: ValueError: a block is neither in `state` nor on disk. OSError: a file cannot be written. In
      both cases, `known` is unchanged, and the new files of this call are removed.
    """
    written: list[Path] = []
    try:
      digests = self._write_blocks(state, written)
      blocks = {str(number): digest for number, digest in digests.items()}
      about = {**meta, _BLOCKS: blocks, _GENERATIONS: state.generations}
      self._directory.mkdir(parents=True, exist_ok=True)
      write_state(path_of(self._directory, name), state.head, about)
    except Exception:
      # Removes the blocks that this call has written, to free disk space for the next save.
      for path in written:
        path.unlink(missing_ok=True)
      raise
    self._digests, self.known = digests, np.array(state.generations) if len(state.generations) else None

  def load(self, name: str, with_replay: bool = True) -> Snapshot:
    """Returns a resume state. Later saves reuse its blocks on disk.

    If `with_replay` is false, the result has no blocks, and later saves do not reuse them.

    Raises: UserError: the state is missing, damaged, or not a resume state.
    """
    info = read_checkpoint_info(path_of(self._directory, name))
    found = _blocks_of(info.meta)
    if found is None:
      raise UserError(f"{info.path}: not a resume state")
    (digests, generations), head = found, read_state(info.path, info.digest)
    if not with_replay:
      return Snapshot(head=head)
    blocks = {number: read_state(self._block_path(number, x), x) for number, x in digests.items()}
    self._digests, self.known = digests, generations if len(generations) else None
    return Snapshot(head=head, generations=generations, blocks=blocks)

  def names(self) -> set[str]:
    """Returns the names of the resume states with a valid header."""
    return {info.name for info in list_checkpoints(self._directory)}

  def keep(self, names: set[str]) -> None:
    """Removes all resume states except `names`, and the blocks that are no longer used."""
    used = set()
    for info in list_checkpoints(self._directory):
      found = _blocks_of(info.meta)
      if info.name not in names:
        info.path.unlink(missing_ok=True)
      elif found is not None:
        used |= {self._block_path(*block) for block in found[0].items()}
    folder = self._directory / _BLOCKS
    for path in folder.iterdir() if folder.is_dir() else ():
      if path not in used:
        path.unlink(missing_ok=True)

  def _block_path(self, number: int, digest: str) -> Path:
    return self._directory / _BLOCKS / f"{number:04d}_{digest[:16]}{SUFFIX}"

  def _write_blocks(self, state: Snapshot, written: list[Path]) -> dict[int, str]:
    """Writes blocks, and returns the digests of all blocks by number.

    Appends the paths of the created files to `written`.
    """
    digests, known = {}, self.known
    for number in np.flatnonzero(state.generations).tolist():
      if number not in state.blocks:
        if known is None or len(known) <= number or known[number] != state.generations[number]:
          raise ValueError(f"replay: block {number} is neither given nor on disk")
        digests[number] = self._digests[number]
        continue
      digests[number], parts = encode_state(state.blocks[number])
      path = self._block_path(number, digests[number])
      # A run resumed from an earlier state makes blocks again, whose old files may be damaged.
      size = sum(map(len, parts))
      is_new = not path.exists()
      if is_new or path.stat().st_size != size or path.read_bytes() != b"".join(parts):
        path.parent.mkdir(parents=True, exist_ok=True)
        written += [path] if is_new else []
        write_bytes(path, *parts)
    return digests


def _blocks_of(meta: Mapping[str, Any]) -> tuple[dict[int, str], Int[np.ndarray, "N"]] | None:
  """Returns the digests of the blocks by number, and the generations; None if they are malformed."""
  listing, generations = meta.get(_BLOCKS), meta.get(_GENERATIONS)
  if not (isinstance(listing, dict) and isinstance(generations, list) and len(generations) <= _MAX_BLOCKS):
    return None
  if not all(type(x) is int and 0 <= x < 1 << 63 for x in generations):
    return None
  wanted = {str(number) for number, generation in enumerate(generations) if generation}
  if listing.keys() != wanted or not all(map(_is_digest, listing.values())):
    return None
  return {int(number): digest for number, digest in listing.items()}, np.array(generations, np.int64)


def _is_digest(text: Any) -> bool:
  """Returns whether `text` is a SHA-256 in hexadecimal figures, and so no path to another folder."""
  return isinstance(text, str) and len(text) == 64 and text.isascii() and text.isalnum()

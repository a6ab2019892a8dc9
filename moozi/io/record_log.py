"""A file of JSON lines: a header, then appended records. A kill or a full disk loses no earlier record."""

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from moozi.core.errors import RunError, UserError, reason_of
from moozi.io.bounded_read import MAX_LOG_BYTES
from moozi.io.plain_data import first_difference


class RecordLog:
  """Reads the records of a file and appends new ones.

  Args:
    path: the file. It is created with its header if it does not exist; its folder must exist.
    header: the conditions of the records. A file with other conditions is refused.

  Attributes:
    records: the records so far. The constructor removes an incomplete last line from the file.

  Raises: UserError: the file cannot be opened, has a line that is not a JSON object, or has another header.
    RunError: the header cannot be written.
  """

  def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
    self.path = path
    try:
      # Without O_NOFOLLOW, a link in an untrusted folder could redirect writes to another file.
      flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
      self._file = os.fdopen(os.open(path, flags, 0o644), "r+b", buffering=0)
    except OSError as error:
      raise UserError(f"{path}: cannot be opened: {reason_of(error)}; choose another folder") from None
    self.records: list[dict[str, Any]] = []
    try:
      self.records = self._read(dict(header))
    except BaseException:
      self.close()
      raise

  def append(self, records: Iterable[Mapping[str, Any]]) -> None:
    """Appends records and syncs the file to disk.

    Raises: RunError: the file cannot be written, for example because the disk is full. None of the records is
      then kept.
    """
    new = [dict(record) for record in records]
    data = b"".join(map(_line, new))
    end = self._file.seek(0, os.SEEK_END)
    try:
      while data:
        data = data[self._file.write(data) :]
      os.fsync(self._file.fileno())
    except OSError as error:
      with contextlib.suppress(OSError):
        self._file.truncate(end)
      raise RunError(
        f"{self.path}: cannot be written: {reason_of(error)}; it keeps {len(self.records)} records, and the "
        "same command continues from them"
      ) from None
    self.records += new

  def close(self) -> None:
    """Closes the file."""
    self._file.close()

  def __enter__(self) -> "RecordLog":
    return self

  def __exit__(self, *_: object) -> None:
    self.close()

  def _read(self, header: dict[str, Any]) -> list[dict[str, Any]]:
    size = os.fstat(self._file.fileno()).st_size
    if size > MAX_LOG_BYTES:
      raise UserError(f"{self.path}: {size:,} bytes; at most {MAX_LOG_BYTES:,} are read; move the file away")
    data = self._file.read()
    whole = data[: data.rfind(b"\n") + 1]
    if not whole:
      if not _line(header).startswith(data):  # another program's file is not overwritten
        raise UserError(f"{self.path}: has no records; choose another folder, or move this one away")
      self._file.truncate(0)
      self.append([header])
      return []  # the header is not a record
    try:
      found, *records = (json.loads(line) for line in whole.splitlines())
      if not all(isinstance(record, dict) for record in (found, *records)):
        raise ValueError("not an object")
    except (ValueError, RecursionError):
      raise UserError(f"{self.path}: has a line that is not a JSON object; move the file away") from None
    difference = first_difference(found, json.loads(json.dumps(header)), "")
    if difference is not None:
      key, value, wanted = difference
      raise UserError(
        f"{self.path}: has records with {key.lstrip('.')}={value}, not {wanted}; choose another folder, or "
        "move this one away"
      )
    self._file.truncate(len(whole))
    return records


def _line(record: Mapping[str, Any]) -> bytes:
  return json.dumps(record, allow_nan=False).encode() + b"\n"

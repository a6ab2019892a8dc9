"""Valid files with any content, as a forger would make them, and how often arrays were hashed."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy

ZEROS = "0" * 64


def parse(content: bytes) -> tuple[dict, dict[str, Any]]:
  """Returns a state file's arrays, and its metadata without the digests."""
  length = int.from_bytes(content[:8], "little")
  about = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["moozi"])
  return safetensors.numpy.load(content), {k: x for k, x in about.items() if not k.endswith("sha256")}


def forge(arrays: dict, about: Any) -> bytes:
  """Returns a state file with valid digests. `about` may be any JSON, not only a mapping."""
  digests = {"data_sha256": ZEROS, "sha256": ZEROS}
  text = json.dumps(digests | about if isinstance(about, dict) else about)
  return seal(safetensors.numpy.save(arrays, {"moozi": text}))


def seal(content: bytes) -> bytes:
  """Returns the content with valid digests in place of zeros."""
  stop = 8 + int.from_bytes(content[:8], "little")
  header = content[:stop].replace(ZEROS.encode(), hashlib.sha256(content[stop:]).hexdigest().encode(), 1)
  digest = hashlib.sha256(header).hexdigest()
  return header.replace(ZEROS.encode(), digest.encode(), 1) + content[stop:]


def with_meta(content: bytes, change: Callable[[dict], Any]) -> bytes:
  """Returns a valid file with altered `meta`."""
  arrays, about = parse(content)
  return forge(arrays, about | {"meta": change(about["meta"])})


def with_arrays(content: bytes, change: Callable[[dict], dict]) -> bytes:
  """Returns a valid file with other arrays."""
  arrays, about = parse(content)
  return forge(change(arrays), about)


def count_hashing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], int]:
  """Returns a function that returns how often the arrays of a file were hashed since this call."""
  digests, sha256 = [], hashlib.sha256

  def count(data=b"", **kwargs):
    out = sha256(data, **kwargs)
    digests.append(out.digest())
    return out

  def times(path: Path) -> int:
    content = path.read_bytes()
    return digests.count(sha256(content[8 + int.from_bytes(content[:8], "little") :]).digest())

  monkeypatch.setattr(hashlib, "sha256", count)
  return times

"""Tests of state files: round trips; damaged, forged and foreign files."""

import errno
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from moozi.core.errors import UserError
from moozi.io import atomic_write
from moozi.io.state_file import FORMAT, encode_state, read_header, read_state, write_state
from tests.io.state_files import count_hashing, forge, parse, with_arrays, with_meta

META = {"env_steps": 10, "spec": {"shape": (10, 5)}, "bound": float("-inf")}
STATE = {
  "params/mlp/~/linear_0/w": np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32),
  "on a device": jnp.full((2, 3), -0.0),
  "bits": np.packbits(np.ones((3, 16), int), axis=1),
  "mask": np.array([True, False]),
  "none left": np.zeros((0, 4), np.int32),
  "strided": np.arange(12.0).reshape(3, 4).T[::2],
  "big endian": np.arange(3, dtype=">i4"),
  "scalar": np.float32(0.1),
  "step": 2**62,
  "rate": 0.1,
  "not a number": float("nan"),
  "bound": float("-inf"),
  "is_done": True,
}


@pytest.fixture
def path(tmp_path) -> Path:
  write_state(tmp_path / "x.safetensors", STATE, META)
  return tmp_path / "x.safetensors"


def read(path: Path) -> dict:
  return read_state(path, read_header(path).digest)


def refusal(path: Path) -> str:
  with pytest.raises(UserError) as caught:
    read(path)
  message = str(caught.value)
  assert message.startswith(str(path))
  assert "\n" not in message
  return message


def test_roundtrip_is_exact(path):
  found = read(path)
  assert found.keys() == STATE.keys()
  for name, value in STATE.items():
    if isinstance(value, bool | int | float):
      assert type(found[name]) is type(value)
      assert found[name] == value or value != value
    else:
      wanted = np.asarray(value, dtype=value.dtype.newbyteorder("="))
      np.testing.assert_array_equal(found[name], wanted, strict=True)
      np.testing.assert_array_equal(np.signbit(found[name]), np.signbit(wanted))
      assert found[name].flags.writeable
  header = read_header(path)
  assert header.meta == {"env_steps": 10, "spec": {"shape": [10, 5]}, "bound": None}
  assert header.num_bytes == path.stat().st_size
  assert [p.name for p in path.parent.iterdir()] == [path.name]
  assert safetensors.numpy.load_file(path).keys() == STATE.keys()


def test_digest_identifies_the_content(path):
  assert encode_state(STATE, META)[0] == read_header(path).digest
  other = [
    encode_state(STATE | {"step": 3}, META)[0],
    encode_state({f"{name} ": x for name, x in STATE.items()}, META)[0],
    encode_state(STATE | {"mask": np.array([1, 0], np.uint8)}, META)[0],
    encode_state(STATE, META | {"env_steps": 11})[0],
  ]
  assert len({read_header(path).digest, *other}) == 5


def test_the_header_needs_no_arrays(path, monkeypatch):
  whole = path.read_bytes()
  path.write_bytes(whole[:-1] + b"x")
  assert read_header(path).meta["env_steps"] == 10
  assert "altered or cut" in refusal(path)


def test_arrays_are_hashed_once(path, monkeypatch):
  times = count_hashing(monkeypatch)
  header = read_header(path)
  assert times(path) == 0
  read_state(path, header.digest)
  assert times(path) == 1


def parse_header(path: Path) -> bytes:
  content = path.read_bytes()
  return content[: 8 + int.from_bytes(content[:8], "little")]


def test_unsupported_values_are_refused(tmp_path):
  for value in (object(), np.array(["x"]), np.array([object()]), 1j, "text", 2**70, jax.random.key(3)):
    with pytest.raises((ValueError, TypeError)):
      write_state(tmp_path / "x", {"a": value}, {})
  assert list(tmp_path.iterdir()) == []


def test_failed_write_keeps_the_older_file(path, monkeypatch):
  def fail(*_):
    raise OSError(errno.EIO, "Input/output error")

  for name in ("fsync", "replace"):
    with monkeypatch.context() as patch:
      patch.setattr(atomic_write.os, name, fail)
      with pytest.raises(OSError, match="Input/output error"):
        write_state(path, {"x": 1}, {})
    assert read(path).keys() == STATE.keys()
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_any_altered_byte_is_refused(path):
  whole = path.read_bytes()
  for place in range(0, len(whole), 3):
    altered = bytearray(whole)
    altered[place] ^= 0x04
    path.write_bytes(bytes(altered))
    assert "altered or cut" in refusal(path)


def test_cut_and_longer_files_are_refused_by_their_header(path):
  whole = path.read_bytes()
  header = len(parse_header(path))
  for content in (b"", whole[:7], whole[:8], whole[:header], whole[:-1], whole + b" "):
    path.write_bytes(content)
    with pytest.raises(UserError, match="altered or cut"):
      read_header(path)
  path.unlink()
  assert "cannot be read: No such file" in refusal(path)
  path.mkdir()
  assert "cannot be read: Is a directory" in refusal(path)


def foreign() -> list[bytes]:
  """Returns files that MooZi did not write; `test_untrusted_runs.py` has those that would run code."""
  header = b'{"a":{"dtype":"F32","shape":[1000000],"data_offsets":[0,4000000]}}'
  return [
    b"\0" * 8,
    b"\xff" * 64,
    (1 << 62).to_bytes(8, "little") + b"{}",
    len(header).to_bytes(8, "little") + header + b"\0" * 4,
    (2).to_bytes(8, "little") + b"{}",
    (200_000).to_bytes(8, "little") + b"[" * 200_000,
    safetensors.numpy.save({"x": np.zeros(3)}),
    safetensors.numpy.save({"x": np.zeros(3)}, {"moozi": "[" * 100_000}),
  ]


def test_foreign_files_are_refused(path):
  for content in foreign():
    path.write_bytes(content)
    assert "altered or cut" in refusal(path)


@pytest.mark.parametrize(
  "about",
  [
    [1],
    None,
    {},
    {"moozi": "0", "format": FORMAT, "meta": []},
    {"moozi": 0, "format": FORMAT, "meta": {}},
    {"moozi": "\x1b[2J", "format": FORMAT, "meta": {}},
    {"moozi": "0", "meta": {}},
  ],
)
def test_malformed_metadata_with_valid_digests_is_refused(path, about):
  path.write_bytes(forge({"x": np.zeros(3)}, about))
  assert "altered or cut" in refusal(path)


def test_other_format_is_refused(path):
  arrays, about = parse(path.read_bytes())
  path.write_bytes(forge(arrays, about | {"format": 9}))
  assert f"a file of format 9; this version of MooZi reads format {FORMAT}" in refusal(path)


def test_a_file_that_changed_since_its_header_was_read_is_refused(path):
  digest = read_header(path).digest
  path.write_bytes(with_meta(path.read_bytes(), lambda meta: meta | {"env_steps": 11}))
  with pytest.raises(UserError, match="altered or cut"):
    read_state(path, digest)
  path.write_bytes(with_arrays(path.read_bytes(), lambda arrays: arrays | {"x": np.zeros(1)}))
  assert "x" in read(path)


def test_a_pipe_or_a_device_is_refused_without_a_wait(path):
  path.unlink()
  os.mkfifo(path)
  assert "not a file" in refusal(path)
  path.unlink()
  path.symlink_to("/dev/zero")
  assert "not a file" in refusal(path)

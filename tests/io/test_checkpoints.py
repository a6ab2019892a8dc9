"""Tests of checkpoints: round trips; damaged, forged and mismatched files."""

import errno
import hashlib
import json
import os
import pickle
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.core.config import CheckpointConfig
from moozi.core.errors import UserError
from moozi.envs.registry import env_spec
from moozi.io.checkpoints import (
  ARRAYS,
  MANIFEST,
  CheckpointStore,
  code_commit,
  expected_of,
  find_checkpoint,
  list_checkpoints,
  load_checkpoint,
  load_flat,
  mend_checkpoints,
  read_checkpoint_info,
  save_checkpoint,
)
from moozi.io.config import load_config
from moozi.io.metrics import read_metrics
from moozi.io.plain_data import read_yaml
from moozi.io.run_directory import RunDirectory

META = {
  "env_steps": 10,
  "learner_steps": 3,
  "spec": {"name": "tiny:catch", "frame_shape": (10, 5, 1)},
  "network": {"kind": "mlp", "latent_size": 16},
}


class Slots(NamedTuple):
  count: Any
  mu: Any


class Empty(NamedTuple):
  pass


def make_state(scale: float = 1.0, width: int = 3) -> dict:
  rng = np.random.default_rng(0)
  return {
    "params": {
      "mlp/~/linear_0": {"w": scale * rng.normal(size=(2, width)).astype(np.float32), "b": jnp.zeros(width)}
    },
    "opt": (Slots(jnp.int32(7), {"w": jnp.full((2, width), -0.0)}), Empty(), (), None, [np.int64(2**62)]),
    "key": jax.random.key(3),
    "keys": jax.random.split(jax.random.key(1, impl="rbg"), 4),
    "old_key": jax.random.PRNGKey(5),
    "bits": np.packbits(rng.integers(0, 2, (3, 16)), axis=1),
    "mask": np.array([True, False]),
    "none_left": np.zeros((0, 4), np.int32),
    "strided": np.arange(12.0).reshape(3, 4).T[::2],
    "big_endian": np.arange(3, dtype=">i4"),
    "scalar": np.float64(0.1),
    "step": 12,
    "wide": 2**127 + 1,
    "rate": 0.1,
    "not_a_number": float("nan"),
    "is_done": True,
    "generator": "PCG64",
  }


def assert_same(a: Any, b: Any) -> None:
  leaves_a, structure_a = jax.tree_util.tree_flatten(a)
  leaves_b, structure_b = jax.tree_util.tree_flatten(b)
  assert structure_a == structure_b
  for x, y in zip(leaves_a, leaves_b, strict=True):
    assert isinstance(x, np.generic) == isinstance(y, np.generic)
    if type(x) in (bool, int, float, str):
      assert type(x) is type(y)
      assert x == y or (x != x and y != y)
      continue
    assert isinstance(x, jax.Array) == isinstance(y, jax.Array)
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
      assert x.dtype == y.dtype
      x, y = jax.random.key_data(x), jax.random.key_data(y)
    x, y = np.asarray(x), np.asarray(y)
    assert (x.dtype.newbyteorder("="), x.shape) == (y.dtype, y.shape)
    assert x.astype(y.dtype).tobytes() == y.tobytes()


@pytest.fixture
def saved(tmp_path) -> Path:
  return save_checkpoint(tmp_path / "checkpoints", "step_10", make_state(), META)


def refusal(path: Path, template: Any = None, **expected: Any) -> str:
  with pytest.raises(UserError) as caught:
    load_checkpoint(path, make_state(0.0) if template is None else template, expected)
  return str(caught.value)


def forge(path: Path, data: bytes) -> None:
  """Replaces the file of arrays and updates the manifest's checksums."""
  manifest = json.loads((path / MANIFEST).read_text())
  manifest.pop("sha256")
  manifest["files"][ARRAYS] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
  encode = lambda m: (json.dumps(m, sort_keys=True, indent=1) + "\n").encode()  # noqa: E731
  manifest["sha256"] = hashlib.sha256(encode(manifest)).hexdigest()
  (path / ARRAYS).write_bytes(data)
  (path / MANIFEST).write_bytes(encode(manifest))


def test_roundtrip_is_exact(saved):
  assert_same(make_state(), load_checkpoint(saved, make_state(scale=0.0), {"spec": META["spec"]}))


def test_template_can_be_abstract(saved, tmp_path):
  make = lambda: {"w": jnp.ones((2, 3)), "key": jax.random.key(9)}  # noqa: E731
  path = save_checkpoint(tmp_path, "a", make(), META)
  assert_same(make(), load_checkpoint(path, jax.eval_shape(make)))


def test_save_leaves_only_two_files(saved):
  assert sorted(p.name for p in saved.iterdir()) == [ARRAYS, MANIFEST]
  assert [p.name for p in saved.parent.iterdir()] == ["step_10"]


def test_save_replaces_the_same_name(saved):
  save_checkpoint(saved.parent, "step_10", make_state(scale=2.0), META)
  assert_same(make_state(scale=2.0), load_checkpoint(saved, make_state()))
  assert [p.name for p in saved.parent.iterdir()] == ["step_10"]


def test_failed_save_keeps_the_older_checkpoint(saved, monkeypatch):
  from moozi.io.checkpoints import format as module

  def fail(path, data):
    path.write_bytes(data[: len(data) // 2])
    raise OSError("disk full")

  monkeypatch.setattr(module, "write_synced", fail)
  with pytest.raises(OSError, match="disk full"):
    save_checkpoint(saved.parent, "step_10", make_state(scale=2.0), META)
  assert_same(make_state(), load_checkpoint(saved, make_state()))
  assert [c.name for c in list_checkpoints(saved.parent)] == ["step_10"]


def test_info_needs_no_arrays(saved):
  (saved / ARRAYS).unlink()
  info = read_checkpoint_info(saved)
  assert (info.name, info.env_steps, info.learner_steps) == ("step_10", 10, 3)
  assert info.meta["spec"]["frame_shape"] == [10, 5, 1]


def test_unsupported_leaves_are_refused(tmp_path):
  for leaf in (object(), np.array(["x"]), np.array([object()]), 1j):
    with pytest.raises(ValueError, match=r"\['a'\].*cannot be stored"):
      save_checkpoint(tmp_path, "x", {"a": leaf}, META)
  with pytest.raises(ValueError, match="learner_steps"):
    save_checkpoint(tmp_path, "x", {}, {"env_steps": 1})
  with pytest.raises(UserError, match="checkpoint="):
    save_checkpoint(tmp_path, "../x", {}, META)
  assert list(tmp_path.iterdir()) == []


# --- damage -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [ARRAYS, MANIFEST])
def test_any_altered_byte_is_refused(saved, file):
  whole = (saved / file).read_bytes()
  places = range(len(whole)) if file == MANIFEST else range(0, len(whole), 7)
  template = make_state()
  for place in list(places)[:: max(1, len(places) // 150)]:
    altered = bytearray(whole)
    altered[place] ^= 0x04
    (saved / file).write_bytes(bytes(altered))
    with pytest.raises(UserError, match="altered or cut"):
      load_checkpoint(saved, template)


@pytest.mark.parametrize("file", [ARRAYS, MANIFEST])
def test_truncated_file_is_refused(saved, file):
  whole = (saved / file).read_bytes()
  for length in (0, 1, 7, len(whole) // 2, len(whole) - 1):
    (saved / file).write_bytes(whole[:length])
    assert "altered or cut" in refusal(saved)
  (saved / file).write_bytes(whole + b" ")
  assert "altered or cut" in refusal(saved)


def test_missing_file_is_refused(saved):
  (saved / ARRAYS).unlink()
  assert "cannot be read" in refusal(saved)
  (saved / MANIFEST).unlink()
  assert "not a checkpoint" in refusal(saved)
  shutil.rmtree(saved)
  assert "not a checkpoint" in refusal(saved)


class _Bomb:
  def __init__(self, marker: Path) -> None:
    self._marker = marker

  def __reduce__(self) -> tuple:
    return Path.touch, (self._marker,)


def malformed(marker: Path) -> list[bytes]:
  header = b'{"a":{"dtype":"F32","shape":[1000000],"data_offsets":[0,4000000]}}'
  return [
    pickle.dumps(_Bomb(marker)),
    b"",
    b"\0" * 8,
    b"\xff" * 64,
    (1 << 62).to_bytes(8, "little") + b"{}",
    len(header).to_bytes(8, "little") + header + b"\0" * 4,
    (2).to_bytes(8, "little") + b"{}",
    b"PK\x03\x04" + b"\0" * 60,
    b"\x93NUMPY\x01\x00v\x00" + b"\0" * 100,
    b"[" * 200_000,
    b"!!python/object/apply:os.system ['true']",
  ]


def test_every_reader_refuses_malformed_files(saved, tmp_path):
  marker = tmp_path / "marker"
  run = tmp_path / "run"
  (run / "checkpoints").mkdir(parents=True)
  template = make_state()
  whole = (saved / MANIFEST).read_bytes()
  for data in malformed(marker):
    forge(saved, data)
    with pytest.raises(UserError):
      load_checkpoint(saved, template)
    (saved / MANIFEST).write_bytes(data)
    with pytest.raises(UserError):
      read_checkpoint_info(saved)
    assert list_checkpoints(saved.parent) == []
    (saved / MANIFEST).write_bytes(whole)
    file = tmp_path / "file"
    file.write_bytes(data)
    shutil.copy(file, run / "config.yaml")
    shutil.copy(file, run / "summary.json")
    with pytest.raises(UserError):
      RunDirectory.open(run).load_config()
    if data:
      with pytest.raises(UserError):
        RunDirectory.open(run).read_summary()
      file.write_bytes(data + b"\n")
      with pytest.raises(UserError):
        read_metrics(file)
    if data not in (b"",):
      with pytest.raises(UserError):
        read_yaml(file)
  assert not marker.exists()


def test_manifest_must_match_arrays(saved):
  import safetensors.numpy

  arrays = safetensors.numpy.load((saved / ARRAYS).read_bytes())
  key = "['bits']"
  forge(saved, safetensors.numpy.save({k: v for k, v in arrays.items() if k != key}))
  assert f"{key} is not stored as its manifest says" in refusal(saved)
  forge(saved, safetensors.numpy.save(arrays | {key: arrays[key].astype(np.int16)}))
  assert f"{key} is not stored as its manifest says" in refusal(saved)
  forge(saved, safetensors.numpy.save(arrays | {"['keys']": np.zeros((4, 3), np.uint32)}))
  assert "['keys'] is not stored as its manifest says" in refusal(saved)


def test_other_format_is_refused(saved, monkeypatch):
  from moozi.io.checkpoints import format as module

  monkeypatch.setattr(module, "FORMAT", 2)
  assert "format 1; this version reads format 2" in refusal(saved)


# --- another network or environment -------------------------------------------------------------------------


def test_first_different_key_is_named(saved):
  network = {"kind": "mlp", "latent_size": 32}
  message = refusal(saved, network=network)
  assert "another network: network.latent_size is 16, expected 32" in message
  message = refusal(saved, spec={"name": "minatar:breakout", "frame_shape": (10, 10, 4)})
  assert "another environment: spec.name is tiny:catch, expected minatar:breakout" in message
  assert "network.norm is missing, expected layer" in refusal(
    saved, network=META["network"] | {"norm": "layer"}
  )
  with pytest.raises(UserError, match=r"network\.latent_size"):
    read_checkpoint_info(saved, {"network": network})
  load_checkpoint(saved, make_state(), {"network": META["network"], "spec": META["spec"]})


@pytest.mark.parametrize(
  "overrides",
  [
    [],
    ["algorithm=ppo"],
    ["algorithm=ppo", "ppo.value_loss=categorical", "ppo.clip_value=false"],
    ["algorithm=q_learning"],
    ["network.kind=mlp", "chance.codes=3"],
  ],
)
def test_every_fact_of_a_manifest_is_expected(tmp_path, overrides):
  """No key has a value that a manifest may leave out."""
  config = load_config(None, ["env.name=tiny:catch", *overrides])
  expected = expected_of(config, env_spec("tiny:catch"))
  path = save_checkpoint(tmp_path, "step_10", {"x": np.zeros(2)}, META | expected)
  assert read_checkpoint_info(path, expected).env_steps == 10
  assert {"is_perfect_information", "num_seats"} <= expected["spec"].keys()
  for kind, facts in (("environment", "spec"), ("network", "network")):
    for name in expected[facts]:
      cut = expected | {facts: {key: x for key, x in expected[facts].items() if key != name}}
      path = save_checkpoint(tmp_path, "cut", {"x": np.zeros(2)}, META | cut)
      with pytest.raises(UserError, match=rf"a checkpoint of another {kind}: {facts}\.{name} is missing"):
        read_checkpoint_info(path, expected)


def test_different_leaf_is_named(saved):
  message = refusal(saved, make_state() | {"mask": np.array([True])})
  assert "['mask'].shape is [2], expected [1]" in message
  assert "['mask'].dtype is bool, expected uint8" in refusal(
    saved, make_state() | {"mask": np.zeros(2, np.uint8)}
  )
  assert "['step'].kind is int, expected float" in refusal(saved, make_state() | {"step": 1.0})
  assert "['key'].impl is threefry2x32, expected rbg" in refusal(
    saved, make_state() | {"key": jax.random.key(0, impl="rbg")}
  )
  assert "['extra'] is missing" in refusal(saved, make_state() | {"extra": np.zeros(1)})
  smaller = make_state()
  del smaller["wide"]
  assert "['wide'] is not expected" in refusal(saved, smaller)


# --- pruning and finding ------------------------------------------------------------------------------


def names(directory: Path) -> list[int]:
  return [c.env_steps for c in list_checkpoints(directory)]


def test_last_few_and_milestones_are_kept(tmp_path):
  config = CheckpointConfig(keep_last=2, milestones_env_steps=100)
  store = CheckpointStore(tmp_path, config)
  for step in (30, 60, 90, 120, 150, 180, 310, 320, 330):
    if step == 180:
      store = CheckpointStore(tmp_path, config)  # as in a resumed run, which keeps its milestones
    store.save({"x": np.zeros(1)}, META | {"env_steps": step}, wall_s=1.0)
  assert names(tmp_path) == [120, 310, 320, 330]
  assert [c.meta["is_milestone"] for c in list_checkpoints(tmp_path)] == [True, True, False, False]


def test_replaced_milestone_stays_a_milestone(tmp_path):
  store = CheckpointStore(tmp_path, CheckpointConfig(keep_last=1, milestones_env_steps=100))
  for step in (100, 100, 110, 120):
    store.save({"x": np.zeros(1)}, META | {"env_steps": step}, wall_s=1.0)
  assert names(tmp_path) == [100, 120]


def test_no_milestones_keeps_only_the_last(tmp_path):
  store = CheckpointStore(tmp_path, CheckpointConfig(keep_last=1, milestones_env_steps=None))
  for step in (100, 200):
    store.save({"x": np.zeros(1)}, META | {"env_steps": step}, wall_s=1.0)
  assert names(tmp_path) == [200]


def test_find_checkpoint(tmp_path):
  with pytest.raises(UserError, match="holds no checkpoint"):
    find_checkpoint(tmp_path / "nothing")
  for step in (1_000, 20, 300):
    save_checkpoint(tmp_path, f"step_{step}", {"x": np.zeros(1)}, META | {"env_steps": step})
  (tmp_path / ".step_9.1.tmp").mkdir()
  (tmp_path / "notes.txt").write_text("")
  found = {
    w: find_checkpoint(tmp_path, w).env_steps
    for w in (None, "last", "step_20", "170", str(tmp_path / "step_300"))
  }
  assert found == {None: 1000, "last": 1000, "step_20": 20, "170": 300, str(tmp_path / "step_300"): 300}
  for which in ("step_21", "../x", "", "a\0b", "²"):
    with pytest.raises(UserError, match="no such checkpoint"):
      find_checkpoint(tmp_path, which)
  with pytest.raises(UserError, match="not a checkpoint"):
    find_checkpoint(tmp_path, str(tmp_path))


def test_failed_replacement_keeps_the_only_copy(tmp_path, monkeypatch):
  def fail(old, new):
    if new == tmp_path / "step_000000010":
      raise OSError(errno.EIO, "Input/output error")
    os_rename(old, new)

  os_rename = os.rename
  save_checkpoint(tmp_path, "step_000000010", {"x": np.ones(2)}, {"env_steps": 1, "learner_steps": 1})
  monkeypatch.setattr(os, "rename", fail)
  with pytest.raises(OSError, match="Input/output error"):
    save_checkpoint(tmp_path, "step_000000010", {"x": np.zeros(2)}, {"env_steps": 1, "learner_steps": 1})
  monkeypatch.undo()
  mend_checkpoints(tmp_path)
  (info,) = list_checkpoints(tmp_path)
  np.testing.assert_array_equal(load_flat(info.path)[0]["x"], np.ones(2))


def test_mend_removes_partial_and_restores_replaced(tmp_path):
  for name in ("step_000000010", "step_000000020"):
    save_checkpoint(tmp_path, name, {"x": np.zeros(2)}, {"env_steps": 1, "learner_steps": 1})
  for name in (".step_000000020.77.tmp", ".step_000000010.77.old"):
    (tmp_path / name).mkdir()
    (tmp_path / name / "arrays.safetensors").write_bytes(b"")
  (tmp_path / "step_000000020").rename(tmp_path / ".step_000000020.78.old")
  (tmp_path / ".best.json.77.tmp").write_text("{")
  mend_checkpoints(tmp_path)
  assert sorted(path.name for path in tmp_path.iterdir()) == ["step_000000010", "step_000000020"]
  assert len(list_checkpoints(tmp_path)) == 2
  mend_checkpoints(tmp_path / "nothing")


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_code_commit(tmp_path):
  def git(*arguments) -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    done = subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
    return done.stdout.strip()

  assert code_commit(tmp_path) is None
  git("init", "-q")
  (tmp_path / "file").write_text("1")
  git("add", "file")
  git("commit", "-qm", "first")
  git("tag", "-a", "v1", "-m", "a less specific name")
  head = git("rev-parse", "HEAD")
  assert code_commit(tmp_path) == head[:12]
  (tmp_path / "file").write_text("2")
  assert code_commit(tmp_path) == f"{head[:12]}-dirty"
  (tmp_path / "inside").mkdir()
  assert code_commit(tmp_path / "inside") is None

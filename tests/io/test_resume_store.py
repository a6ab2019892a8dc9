"""Tests of stored resume states."""

import errno

import numpy as np
import pytest

from moozi.core.config import CheckpointConfig
from moozi.core.errors import UserError
from moozi.core.flat_state import Snapshot
from moozi.io import atomic_write
from moozi.io.checkpoints import (
  CheckpointStore,
  ResumeStore,
  drop_later,
  find_checkpoint,
  list_checkpoints,
  list_milestones,
  path_of,
  read_best,
  resume_store,
)
from moozi.io.checkpoints import store as store_module
from moozi.io.state_file import encode_state

META = {"env_steps": 10, "learner_steps": 1}


def block(value):
  return {"frame": np.full((2, 3), value, np.uint8), "is_first": np.array([[True, False]])}


def state(value):
  return {"a/b": np.arange(value, dtype=np.uint64), "count": 2**60, "mean": 0.1, "flag": True}


def save(store, name, generations, blocks, value=3):
  blocks = {n: block(x) for n, x in blocks.items()}
  store.save(name, Snapshot(head=state(value), generations=np.array(generations), blocks=blocks), META)


def files(tmp_path):
  return sorted(path.name[:4] for path in (tmp_path / "blocks").iterdir())


def test_resume_roundtrip(tmp_path):
  save(ResumeStore(tmp_path), "one", [1, 0, 4], {0: 7, 2: 9})
  saved = ResumeStore(tmp_path).load("one")
  assert saved.generations.tolist() == [1, 0, 4]
  assert set(saved.blocks) == {0, 2}
  np.testing.assert_array_equal(saved.blocks[2]["frame"], block(9)["frame"])
  assert saved.blocks[2]["is_first"].dtype == bool
  want = state(3)
  np.testing.assert_array_equal(saved.head.pop("a/b"), want.pop("a/b"))
  assert saved.head == want
  assert {k: type(v) for k, v in saved.head.items()} == {k: type(v) for k, v in want.items()}


def test_replay_is_left_out(tmp_path):
  save(ResumeStore(tmp_path), "one", [1, 0, 4], {0: 7, 2: 9})
  for path in (tmp_path / "blocks").iterdir():
    path.unlink()  # it is not even read
  saved = ResumeStore(tmp_path).load("one", with_replay=False)
  assert (len(saved.generations), saved.blocks, set(saved.head)) == (0, {}, set(state(3)))


def test_damaged_block_is_written_again(tmp_path):
  """A run that is resumed from an earlier state makes the same blocks again."""
  save(ResumeStore(tmp_path), "one", [1], {0: 7})
  (path,) = (tmp_path / "blocks").iterdir()
  path.write_bytes(b"cut")
  save(ResumeStore(tmp_path), "two", [1], {0: 7})
  assert ResumeStore(tmp_path).load("two").blocks[0]["frame"][0, 0] == 7


def test_unchanged_blocks_are_not_rewritten(tmp_path):
  store = ResumeStore(tmp_path)
  assert store.known is None
  save(store, "one", [1, 1], {0: 7, 1: 8})
  assert store.known.tolist() == [1, 1]
  before = {path: path.stat().st_mtime_ns for path in (tmp_path / "blocks").iterdir()}
  save(store, "two", [1, 2], {1: 9})
  assert files(tmp_path) == ["0000", "0001", "0001"]
  assert all(path.stat().st_mtime_ns == at for path, at in before.items())
  for name, value in (("one", 8), ("two", 9)):
    assert ResumeStore(tmp_path).load(name).blocks[1]["frame"][0, 0] == value
  store.keep({"two"})
  assert files(tmp_path) == ["0000", "0001"]
  assert store.names() == {"two"}
  # A new store has the same behavior after `load`.
  again = ResumeStore(tmp_path)
  again.load("two")
  save(again, "three", [1, 3], {1: 5})
  assert ResumeStore(tmp_path).load("three").blocks[0]["frame"][0, 0] == 7


def test_missing_block_is_an_error(tmp_path):
  store = ResumeStore(tmp_path)
  save(store, "one", [1, 1], {0: 7, 1: 8})
  with pytest.raises(ValueError, match="block 0 is neither given nor on disk"):
    save(store, "two", [2, 2], {1: 9})
  assert store.names() == {"one"}
  assert store.known.tolist() == [1, 1]


@pytest.mark.parametrize("fails_at", ["the third block", "the head"])
def test_failed_save_leaves_nothing(tmp_path, monkeypatch, fails_at):
  store = ResumeStore(tmp_path)
  save(store, "one", [1, 1, 1], {0: 7, 1: 8, 2: 9})
  before = files(tmp_path)
  written = []

  def full(*args):
    written.append(args)
    if fails_at == "the head" or len(written) == 3:
      raise OSError(errno.ENOSPC, "No space left on device")
    atomic_write.write_bytes(*args)

  # The first new block has the same content as an existing file, which must not be removed.
  blocks = {0: 7, 1: 28, 2: 29, 3: 30}
  with monkeypatch.context() as patch:
    patch.setattr(resume_store, "write_state" if fails_at == "the head" else "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
      save(store, "two", [2, 2, 2, 2], blocks)
  assert written
  assert files(tmp_path) == before
  assert store.known.tolist() == [1, 1, 1]
  assert ResumeStore(tmp_path).load("one").blocks[0]["frame"][0, 0] == 7
  save(store, "two", [2, 2, 2, 2], blocks)
  assert ResumeStore(tmp_path).load("two").blocks[3]["frame"][0, 0] == 30


def test_state_without_replay(tmp_path):
  ResumeStore(tmp_path).save("one", Snapshot(head=state(2)), META)
  saved = ResumeStore(tmp_path).load("one")
  assert len(saved.generations) == 0
  assert saved.blocks == {}


@pytest.mark.parametrize("harm", ["flip", "remove", "swap", "replace"])
def test_altered_block_is_refused(tmp_path, harm):
  save(ResumeStore(tmp_path), "one", [1, 1], {0: 7, 1: 8})
  first, second = sorted((tmp_path / "blocks").iterdir())
  content = first.read_bytes()
  first.unlink()
  if harm == "flip":
    first.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
  elif harm == "swap":
    first.write_bytes(second.read_bytes())
  elif harm == "replace":  # by another block, with valid checksums: the name has only a part of the digest
    first.write_bytes(b"".join(encode_state(block(9))[1]))
  with pytest.raises(UserError, match=first.name):
    ResumeStore(tmp_path).load("one")


def test_last_few_are_resumable_and_best_stays(tmp_path):
  store = CheckpointStore(tmp_path / "checkpoints", CheckpointConfig(keep_last=2, milestones_env_steps=None))
  for step in range(1, 7):
    meta = {"env_steps": step, "learner_steps": step}
    if step == 2:
      store.save({"w": np.ones(1)}, meta, 1.0, best_bound=0.5)
    else:
      store.save({"w": np.ones(1)}, meta, 1.0, with_block(step))
  names = [c.name for c in list_checkpoints(tmp_path / "checkpoints")]
  assert names == ["step_000000002_best", "step_000000005", "step_000000006"]
  assert ResumeStore(tmp_path / "resume").names() == {"step_000000005", "step_000000006"}
  assert len(files(tmp_path / "resume")) == 2
  assert find_checkpoint(tmp_path / "checkpoints", "best").env_steps == 2
  assert read_best(tmp_path / "checkpoints").bound == 0.5
  assert find_checkpoint(tmp_path / "checkpoints").env_steps == 6


def test_drop_later_drops_damaged_too(tmp_path):
  config = CheckpointConfig(keep_last=4, milestones_env_steps=2)
  folders = tmp_path / "checkpoints", tmp_path / "resume"
  store = CheckpointStore(folders[0], config)
  for step in range(1, 6):
    save_step(store, step)
  path_of(folders[0], "step_000000004").write_bytes(b"cut")
  path_of(folders[1], "step_000000005").unlink()
  path_of(folders[1], "step_000000005").mkdir()
  drop_later(folders, 3)
  for folder in folders:
    assert [c.env_steps for c in list_checkpoints(folder)] == [2, 3]
    assert {p.stem for p in folder.glob("step_*") if p.is_file()} == {"step_000000002", "step_000000003"}
  resume = ResumeStore(folders[1])
  resume.load("step_000000003")
  store = CheckpointStore(folders[0], config, resume)
  save_step(store, 4)
  assert list_checkpoints(folders[0])[-1].meta["is_milestone"]
  assert ResumeStore(folders[1]).load("step_000000004").blocks[0]["frame"][0, 0] == 4


def test_name_says_that_a_checkpoint_cannot_be_resumed(tmp_path):
  folder = tmp_path / "checkpoints"
  store = CheckpointStore(folder, CheckpointConfig(keep_last=1, milestones_env_steps=1))
  save_step(store, 1)
  meta = {"env_steps": 1, "learner_steps": 1}
  store.save({"w": np.ones(1)}, meta, 1.0, best_bound=0.5)
  assert read_best(folder).name == "step_000000001"
  save_step(store, 2)
  assert [c.name for c in list_checkpoints(folder)] == ["step_000000001_params", "step_000000002"]
  assert find_checkpoint(folder, "best").name == "step_000000001_params"
  assert find_checkpoint(folder, "step_000000001").name == "step_000000001_params"
  assert ResumeStore(tmp_path / "resume").names() == {"step_000000002"}


def save_step(store, step):
  meta = {"env_steps": step, "learner_steps": step}
  store.save({"w": np.ones(1)}, meta, 1.0, with_block(step))


def with_block(step):
  return Snapshot(head=state(step), generations=np.array([step]), blocks={0: block(step)})


def test_best_does_not_replace_a_resumable_checkpoint(tmp_path):
  """The best checkpoint is from the start of its evaluation; a later one has the same environment step."""
  resume = ResumeStore(tmp_path / "resume")
  store = CheckpointStore(tmp_path / "checkpoints", CheckpointConfig(keep_last=1), resume)
  store.save({"x": np.ones(1)}, {"env_steps": 10, "learner_steps": 9}, 1.0, Snapshot(head=state(3)))
  store.save({"x": np.zeros(1)}, {"env_steps": 10, "learner_steps": 7}, 1.0, best_bound=0.5)
  found = {c.name: c.learner_steps for c in list_checkpoints(tmp_path / "checkpoints")}
  assert found == {"step_000000010": 9, "step_000000010_best": 7}
  assert find_checkpoint(tmp_path / "checkpoints", "best").learner_steps == 7
  assert find_checkpoint(tmp_path / "checkpoints", "10").learner_steps == 9
  store.save({"x": np.ones(1)}, {"env_steps": 20, "learner_steps": 19}, 2.0, Snapshot(head=state(3)))
  assert store.save({"x": np.ones(1)}, {"env_steps": 20, "learner_steps": 19}, 2.0, best_bound=0.5)
  assert [c.name for c in list_checkpoints(tmp_path / "checkpoints")] == ["step_000000020"]
  drop_later([tmp_path / "checkpoints"], 10)
  assert not list_checkpoints(tmp_path / "checkpoints")


def test_later_parameters_do_not_replace_the_best(tmp_path):
  """The best checkpoint is the state of a milestone; the last state has the same environment step."""
  directory = tmp_path / "checkpoints"
  store = CheckpointStore(
    directory, CheckpointConfig(keep_last=1, milestones_env_steps=10), ResumeStore(tmp_path / "resume")
  )
  store.save({"x": np.zeros(1)}, {"env_steps": 10, "learner_steps": 7}, 1.0, Snapshot(head=state(3)))
  store.save({"x": np.zeros(1)}, {"env_steps": 10, "learner_steps": 7}, 1.0, best_bound=0.5)
  store.save({"x": np.ones(1)}, {"env_steps": 10, "learner_steps": 9}, 1.0, Snapshot(head=state(3)))
  found = {c.name: c.learner_steps for c in list_checkpoints(directory)}
  assert found == {"step_000000010": 9, "step_000000010_best": 7}
  assert find_checkpoint(directory, "best").learner_steps == 7
  assert read_best(directory).bound == 0.5
  assert [c.learner_steps for c in list_milestones(directory)] == [7]
  # With a second best at this step the first one, a milestone, is in the way.
  store.save({"x": np.ones(1)}, {"env_steps": 10, "learner_steps": 9}, 1.0, best_bound=0.6)
  store.save({"x": np.ones(1)}, {"env_steps": 10, "learner_steps": 11}, 1.0, Snapshot(head=state(3)))
  assert [c.learner_steps for c in list_milestones(directory)] == [7]
  assert read_best(directory) is None


def test_failed_copy_of_the_best_is_repeated(tmp_path, monkeypatch):
  store = CheckpointStore(
    tmp_path / "checkpoints", CheckpointConfig(keep_last=1), ResumeStore(tmp_path / "resume")
  )
  meta = {"env_steps": 10, "learner_steps": 7}
  store.save({"x": np.zeros(1)}, meta, 1.0, Snapshot(head=state(3)))
  store.save({"x": np.zeros(1)}, meta, 1.0, best_bound=0.5)

  def fails(*_):
    raise OSError("full")

  with monkeypatch.context() as patch:
    patch.setattr(store_module, "write_bytes", fails)
    with pytest.raises(OSError, match="full"):
      store.save({"x": np.ones(1)}, meta | {"learner_steps": 9}, 1.0, Snapshot(head=state(3)))
  store.save({"x": np.ones(1)}, meta | {"learner_steps": 9}, 1.0, Snapshot(head=state(3)))
  assert find_checkpoint(tmp_path / "checkpoints", "best").learner_steps == 7


def test_best_must_be_a_name(tmp_path):
  CheckpointStore(tmp_path / "checkpoints", CheckpointConfig()).save({"w": np.ones(1)}, META, 1.0)
  (tmp_path / "checkpoints" / "best.json").write_text('{"name": "../elsewhere"}')
  (tmp_path / "elsewhere").mkdir()
  with pytest.raises(UserError, match="has no best checkpoint"):
    find_checkpoint(tmp_path / "checkpoints", "best")
  assert read_best(tmp_path / "checkpoints") is None

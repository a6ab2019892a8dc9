"""Tests of stored trajectories: round trips; damaged and mismatched files."""

import os
import zlib
from types import SimpleNamespace

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.core.pytree import fields_of, map_fields
from moozi.core.records import TrajectorySample
from moozi.core.spec import EnvSpec
from moozi.envs.vector import make_vector
from moozi.io import trajectory_file, trajectory_folder
from moozi.io.state_file import encode_state
from moozi.io.trajectory_folder import TrajectoryWriter, open_trajectories
from tests.envs.contract import random_agent_actions
from tests.io.state_files import with_arrays, with_meta
from tests.replay.replay_lanes import make_spec, random_lanes, segment_of


def make_segment(spec: EnvSpec, first: int, stop: int, lanes: int = 3, seed: int = 0) -> TrajectorySample:
  return segment_of(random_lanes(seed, lanes, stop, spec), first, stop, spec)


def write(folder, spec, cuts=(4, 9, 12), lanes=3) -> TrajectorySample:
  """Writes a set of trajectories, with one file up to each cut; returns all steps."""
  whole = make_segment(spec, 0, cuts[-1], lanes)
  writer = TrajectoryWriter(folder, spec)
  for first, stop in zip((0, *cuts[:-1]), cuts, strict=True):
    writer.append(map_fields(lambda x, a=first, b=stop: x[a:b], whole), 0)
    writer.flush()
  writer.close()
  return whole


def read(path, **kwargs) -> dict[int, TrajectorySample]:
  """Returns the stored steps of each lane, joined."""
  parts: dict[int, list] = {}
  for stored in open_trajectories(path, **kwargs).read():
    assert stored.span.start == sum(len(s.action) for s in parts.get(stored.span.lane, []))
    parts.setdefault(stored.span.lane, []).append(stored.steps)
  return {lane: map_fields(lambda *xs: np.concatenate(xs), *steps) for lane, steps in parts.items()}


def assert_same(lane: TrajectorySample, whole: TrajectorySample, i: int) -> None:
  for name, value in fields_of(whole).items():
    got = getattr(lane, name)
    np.testing.assert_array_equal(got, value[:, i], err_msg=name, strict=True)
    assert got.flags.writeable


@pytest.mark.parametrize("frame_dtype", ["bool", "uint8", "float32"])
@pytest.mark.parametrize("num_players", [1, 2])
def test_roundtrip_is_exact(tmp_path, frame_dtype, num_players):
  spec = make_spec(frame_dtype, num_players)
  whole = write(tmp_path / "t", spec)
  lanes = read(tmp_path / "t", spec=spec)
  assert sorted(lanes) == [0, 1, 2]
  for i, lane in lanes.items():
    assert_same(lane, whole, i)
  store = open_trajectories(tmp_path / "t")
  assert (store.spec, store.num_steps, store.lane_steps) == (spec, 36, {0: 12, 1: 12, 2: 12})


def test_segments_of_several_workers_share_a_file(tmp_path):
  spec = make_spec()
  writer = TrajectoryWriter(tmp_path, spec)
  segments = {first: make_segment(spec, 0, 10, lanes=2, seed=first) for first in (0, 2, 4)}
  for part in (slice(0, 5), slice(5, 10)):
    for first, segment in reversed(segments.items()):
      writer.append(map_fields(lambda x, p=part: x[p], segment), first)
  writer.close()
  writer.close()
  assert [p.name for p in tmp_path.iterdir()] == ["000000000000-000000000060.traj"]
  lanes = read(tmp_path)
  for first, segment in segments.items():
    for i in range(2):
      assert_same(lanes[first + i], segment, i)


def test_writer_copies_segments(tmp_path):
  spec = make_spec()
  whole = make_segment(spec, 0, 6)
  mine = map_fields(np.array, whole)
  writer = TrajectoryWriter(tmp_path, spec)
  writer.append(mine, 0)
  for value in fields_of(mine).values():
    value[...] = 0
  writer.close()
  assert_same(read(tmp_path)[1], whole, 1)


def test_reader_sees_complete_files_only(tmp_path, monkeypatch):
  spec = make_spec()
  seen = []
  rename = os.replace

  def look_first(source, target):
    seen.append(sum(len(lane.action) for lane in read(tmp_path).values()) if seen else 0)
    rename(source, target)

  monkeypatch.setattr(os, "replace", look_first)
  write(tmp_path, spec, cuts=(2, 5, 9), lanes=1)
  assert seen == [0, 2, 5]
  assert sorted(p.name for p in tmp_path.iterdir())[-1] == "000000000005-000000000009.traj"


def test_limits_of_steps_bytes_and_age_start_a_file(tmp_path, monkeypatch):
  spec = make_spec("float32")
  for name, value in (("_FILE_STEPS", 12), ("_FILE_BYTES", 600), ("_FILE_AGE_S", 0.0)):
    with monkeypatch.context() as patch:
      patch.setattr(trajectory_folder, name, value)
      writer = TrajectoryWriter(tmp_path / name, spec)
      for first in (0, 2, 4):
        writer.append(make_segment(spec, first, first + 2), 0)
      writer.close()
      count = {"_FILE_STEPS": 2, "_FILE_BYTES": 2, "_FILE_AGE_S": 3}[name]
      assert len(list((tmp_path / name).iterdir())) == count, name


def test_writer_continues_an_earlier_one(tmp_path):
  spec = make_spec()
  whole = write(tmp_path, spec, cuts=(4, 9, 12))
  leftover = tmp_path / ".000000000036-000000000048.traj.77.tmp"
  leftover.write_bytes(b"half")
  read(tmp_path)
  writer = TrajectoryWriter(tmp_path, spec, env_steps=27)
  assert not leftover.exists()
  writer.append(map_fields(lambda x: x[9:], whole), 0)
  writer.close()
  names = sorted(p.name for p in tmp_path.iterdir())
  assert names[-1] == "000000000027-000000000036.traj"
  assert len(names) == 3
  for i, lane in read(tmp_path).items():
    assert_same(lane, whole, i)


def test_a_refused_writer_removes_no_file(tmp_path):
  write(tmp_path, make_spec(), cuts=(4, 9, 12))
  names = sorted(p.name for p in tmp_path.iterdir())
  first = tmp_path / names[0]
  first.write_bytes(first.read_bytes()[:-1])
  with pytest.raises(UserError, match=names[0]):
    TrajectoryWriter(tmp_path, make_spec(), env_steps=27)
  assert sorted(p.name for p in tmp_path.iterdir()) == names


def test_writer_resumed_at_step_0_removes_all_files(tmp_path):
  spec = make_spec()
  write(tmp_path, spec, cuts=(4,))
  writer = TrajectoryWriter(tmp_path, spec, env_steps=0)
  writer.append(make_segment(spec, 0, 2), 0)
  writer.close()
  assert [p.name for p in tmp_path.iterdir()] == ["000000000000-000000000006.traj"]


def full_disk(*args):
  raise OSError(28, "No space left on device")


def test_full_disk_keeps_steps_for_the_next_file(tmp_path, monkeypatch):
  spec = make_spec()
  whole = make_segment(spec, 0, 12)
  writer = TrajectoryWriter(tmp_path, spec)
  for first, stop in ((0, 4), (4, 9), (9, 12)):
    writer.append(map_fields(lambda x, a=first, b=stop: x[a:b], whole), 0)
    if stop == 9:
      with monkeypatch.context() as patch:
        patch.setattr(trajectory_folder, "write_bytes", full_disk)
        for _ in range(2):
          with pytest.raises(OSError, match="No space"):
            writer.flush()
    else:
      writer.flush()
  writer.close()
  assert sorted(p.name for p in tmp_path.iterdir())[-1] == "000000000012-000000000036.traj"
  for i, lane in read(tmp_path).items():
    assert_same(lane, whole, i)


def test_full_buffer_is_dropped_and_restarts_histories(tmp_path, monkeypatch):
  spec = make_spec()
  whole = segment_of(random_lanes(0, 2, 12, spec, 0.0), 0, 12, spec)
  writer = TrajectoryWriter(tmp_path, spec)
  parts = [map_fields(lambda x, a=first: x[a : a + 4], whole) for first in (0, 4, 8)]
  writer.append(parts[0], 0, 8)
  writer.flush()
  writer.append(parts[1], 0, 16)
  with monkeypatch.context() as patch:
    patch.setattr(trajectory_folder, "write_bytes", full_disk)
    patch.setattr(trajectory_folder, "_MAX_BUFFER_BYTES", 10)
    with pytest.raises(OSError, match="No space"):
      writer.flush()
  # The state records the gap for a resumed run.
  assert writer.get_state()["with_gap"].tolist() == [0, 1]
  writer.append(parts[2], 0, 24)
  writer.close()
  assert [p.name for p in sorted(tmp_path.iterdir())] == [
    "000000000000-000000000008.traj",
    "000000000008-000000000024.traj",
  ]
  lane = read(tmp_path)[0]
  assert lane.is_first.tolist() == [True, *[False] * 3, True, *[False] * 3]
  np.testing.assert_array_equal(lane.action, np.concatenate([whole.action[:4, 0], whole.action[8:, 0]]))


def test_steps_lost_at_a_checkpoint_are_a_gap_after_resume(tmp_path, monkeypatch):
  spec = make_spec()
  whole = segment_of(random_lanes(0, 2, 12, spec, 0.0), 0, 12, spec)
  parts = [map_fields(lambda x, a=first: x[a : a + 4], whole) for first in (0, 4, 8)]
  writer = TrajectoryWriter(tmp_path, spec)
  writer.append(parts[0], 0)
  writer.flush()
  sound = writer.get_state()
  writer.append(parts[1], 0)
  with monkeypatch.context() as patch:
    patch.setattr(trajectory_folder, "write_bytes", full_disk)
    with pytest.raises(OSError, match="No space"):
      writer.flush()
  state = writer.get_state()
  assert (sound["stop"], state["stop"]) == (8, 16)
  again = TrajectoryWriter(tmp_path, spec, env_steps=16, state=state)
  again.append(parts[2], 0)
  again.close()
  assert np.flatnonzero(read(tmp_path)[0].is_first).tolist() == [0, 4]
  # Resumed from a state without a gap, the episode continues.
  again = TrajectoryWriter(tmp_path, spec, env_steps=8, state=sound)
  again.append(parts[1], 0)
  again.close()
  assert_same(read(tmp_path)[1], map_fields(lambda x: x[:8], whole), 1)


def test_gap_in_segments_restarts_histories(tmp_path):
  spec = make_spec()
  whole = segment_of(random_lanes(0, 2, 12, spec, 0.0), 0, 12, spec)
  writer = TrajectoryWriter(tmp_path, spec)
  for first, follows in ((0, True), (4, True), (8, False)):
    writer.append(map_fields(lambda x, a=first: x[a : a + 4], whole), 0, first * 3 + 12, follows)
  writer.close()
  assert [p.name for p in tmp_path.iterdir()] == ["000000000000-000000000036.traj"]
  assert np.flatnonzero(read(tmp_path)[1].is_first).tolist() == [0, 8]


def test_max_env_steps_skips_later_files(tmp_path):
  spec = make_spec()
  whole = write(tmp_path, spec, cuts=(4, 9, 12))
  assert len(read(tmp_path, max_env_steps=35)[0].action) == 9
  assert len(read(tmp_path, max_env_steps=36)[0].action) == len(whole.action)
  with pytest.raises(UserError, match="no file ends at or before env step 11; the first one ends at 12"):
    open_trajectories(tmp_path, max_env_steps=11)


def test_opens_a_single_file_and_a_run(tmp_path):
  spec = make_spec()
  whole = write(tmp_path / "run" / "trajectories", spec, cuts=(4, 9))
  (tmp_path / "run" / "config.yaml").write_text("seed: 0\n")
  assert_same(read(tmp_path / "run")[0], whole, 0)
  second = tmp_path / "run" / "trajectories" / "000000000012-000000000027.traj"
  assert open_trajectories(second).num_steps == 15


def without(mapping: dict, *keys: str) -> dict:
  return {key: value for key, value in mapping.items() if key not in keys}


DAMAGE = {
  "cut": (lambda d: d[:-5], "altered or cut"),
  "a column altered": (lambda d: d[:-50] + bytes([d[-50] ^ 1]) + d[-49:], "altered or cut"),
  "another state file": (lambda d: b"".join(encode_state({"x": 1}, {})[1]), "not a file of this kind"),
  "no spec": (lambda d: with_meta(d, lambda m: m | {"spec": {"name": "x"}}), "not a file of this kind"),
  "no lanes": (lambda d: with_meta(d, lambda m: m | {"lanes": []}), "not a file of this kind"),
  "negative steps": (
    lambda d: with_meta(d, lambda m: m | {"lanes": [[0, 0, -12]]}),
    "not a file of this kind",
  ),
  "more steps": (
    lambda d: with_meta(d, lambda m: m | {"lanes": [[0, 0, 13]], "env_steps": [0, 13]}),
    "do not match its header",
  ),
  "unbounded steps": (
    lambda d: with_meta(d, lambda m: m | {"lanes": [[0, 0, 1 << 40]], "env_steps": [0, 1 << 40]}),
    "would take more than 1024 MiB",
  ),
  "a column missing": (lambda d: with_arrays(d, lambda c: without(c, "action")), "do not match its header"),
  "a column too many": (
    lambda d: with_arrays(d, lambda c: c | {"x": c["action"]}),
    "do not match its header",
  ),
  "a column not compressed": (
    lambda d: with_arrays(d, lambda c: c | {"action": np.zeros(48, np.uint8)}),
    "do not match its header",
  ),
  "a number instead of a column": (
    lambda d: with_arrays(d, lambda c: c | {"action": np.array(3)}),
    "do not match its header",
  ),
  "escape sequence in a name": (
    lambda d: with_meta(d, lambda m: m | {"spec": m["spec"] | {"name": "\x1b]0;owned\x07"}}),
    "not a file of this kind",
  ),
  "escape sequence in an action": (
    lambda d: with_meta(d, lambda m: m | {"spec": m["spec"] | {"action_names": ["left", "\x1b[2J"]}}),
    "not a file of this kind",
  ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_and_foreign_files_are_refused(tmp_path, kind):
  change, message = DAMAGE[kind]
  write(tmp_path, make_spec(), cuts=(12,), lanes=1)
  (path,) = tmp_path.iterdir()
  path.write_bytes(change(path.read_bytes()))
  with pytest.raises(UserError, match=message) as caught:
    read(tmp_path)
  assert str(path) in str(caught.value)
  assert "\n" not in str(caught.value)


def test_long_column_is_not_inflated(tmp_path, monkeypatch):
  pack = trajectory_file._pack
  monkeypatch.setattr(trajectory_file, "_pack", lambda *a: pack(*a) + b"\0" * 10_000_000)
  write(tmp_path, make_spec(), cuts=(4,))
  sizes = []

  class Inflate:
    def __init__(self):
      self._inflate = zlib.decompressobj()

    def __getattr__(self, name):
      return getattr(self._inflate, name)

    def decompress(self, data, limit):
      out = self._inflate.decompress(data, limit)
      sizes.append(len(out))
      return out

  monkeypatch.setattr(trajectory_file, "zlib", SimpleNamespace(decompressobj=Inflate, error=zlib.error))
  with pytest.raises(UserError, match="do not match its header"):
    read(tmp_path)
  assert max(sizes) < 1000


def test_memory_limit_covers_all_columns(tmp_path, monkeypatch):
  """The limit applies to all 54 bytes of a step, not only to the 12 of its frame."""
  write(tmp_path, make_spec(), cuts=(12,), lanes=1)
  monkeypatch.setattr(trajectory_file, "_MAX_STEPS_BYTES", 12 * 54)
  assert len(read(tmp_path)[0].action) == 12
  monkeypatch.setattr(trajectory_file, "_MAX_STEPS_BYTES", 12 * 54 - 1)
  with pytest.raises(UserError, match="its steps would take more than"):
    open_trajectories(tmp_path)


def test_folder_without_trajectories_is_refused(tmp_path):
  (tmp_path / "empty").mkdir()
  (tmp_path / "run").mkdir()
  (tmp_path / "run" / "config.yaml").write_text("seed: 0\n")
  (tmp_path / "photos").mkdir()
  (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
  for name, message in (
    ("missing", "no such folder"),
    ("empty", "holds no trajectories"),
    ("run", "trajectories.save=true"),
    ("photos", "cat.jpg: not a trajectory file"),
  ):
    with pytest.raises(UserError, match=message):
      open_trajectories(tmp_path / name)


def test_missing_file_is_detected(tmp_path):
  write(tmp_path, make_spec(), cuts=(4, 9, 12))
  (tmp_path / "000000000012-000000000027.traj").unlink()
  with pytest.raises(UserError, match="the file that starts at 12 is missing"):
    open_trajectories(tmp_path)


def test_saving_can_start_within_a_run(tmp_path):
  spec = make_spec()
  writer = TrajectoryWriter(tmp_path, spec, env_steps=500)
  for first in (0, 4):
    writer.append(make_segment(spec, first, first + 4), 0)
    writer.flush()
  writer.close()
  names = sorted(p.name for p in tmp_path.iterdir())
  assert names[0] == "000000000500-000000000512.traj"
  assert len(read(tmp_path)[0].action) == 8
  write(tmp_path / "other", spec, cuts=(2,))
  (tmp_path / "other" / "000000000000-000000000006.traj").rename(tmp_path / "000000000000-000000000006.traj")
  (tmp_path / "other").rmdir()
  with pytest.raises(UserError, match="the file that starts at 6 is missing"):
    open_trajectories(tmp_path)


def test_missing_first_file_is_detected(tmp_path):
  write(tmp_path, make_spec(), cuts=(4, 9, 12))
  (tmp_path / "000000000000-000000000012.traj").unlink()
  with pytest.raises(UserError, match="the steps of lane 0 do not continue"):
    open_trajectories(tmp_path)


def test_files_of_two_runs_are_refused(tmp_path):
  write(tmp_path / "a", make_spec(), cuts=(4, 8))
  write(tmp_path / "b", make_spec(), cuts=(6, 8), lanes=2)
  (tmp_path / "b" / "000000000012-000000000016.traj").rename(tmp_path / "c")
  data = (tmp_path / "c").read_bytes()
  (tmp_path / "a" / "000000000012-000000000024.traj").write_bytes(data)
  with pytest.raises(UserError, match="the steps of lane 0 do not continue"):
    open_trajectories(tmp_path / "a")


def test_other_env_is_refused(tmp_path):
  write(tmp_path, make_spec("uint8"))
  with pytest.raises(UserError, match=r"another environment: spec.frame_dtype is uint8, the run's is bool"):
    open_trajectories(tmp_path, make_spec("bool"))


def test_a_million_minatar_steps_take_less_than_40_mib(tmp_path):
  """The policies and values are random, so they do not compress."""
  env = make_vector("minatar:breakout", {}, 16, seed=0)
  random = np.random.default_rng(0)
  writer, step, num_steps = TrajectoryWriter(tmp_path, env.spec), env.reset(), 0
  for t in range(250):
    probs = random.random((16, env.spec.num_actions), np.float32)
    actions = random_agent_actions(step, random)
    sample = TrajectorySample(
      **fields_of(step),
      root_value=random.random(16, np.float32),
      action_probs=probs / probs.sum(-1, keepdims=True),
      action=np.where(step.is_last, 0, actions).astype(np.int32),
      acted_version=np.full(16, t // 8, np.int32),
      searched_version=np.full(16, t // 8, np.int32),
    )
    writer.append(map_fields(lambda x: x[None], sample), 0)
    step, num_steps = env.step(actions), num_steps + 16
  writer.close()
  mib = sum(p.stat().st_size for p in tmp_path.iterdir()) / num_steps * 1e6 / 2**20
  assert 1 < mib < 40

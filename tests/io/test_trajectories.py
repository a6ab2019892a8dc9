"""Trajectories on disk: to the bit, in order, and nothing that is not ours."""

import hashlib
import json
import os
import pickle

import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.core.pytree import fields_of, map_fields
from moozi.core.records import TrajectorySample
from moozi.core.spec import EnvSpec
from moozi.envs.vector import make_vector
from moozi.io import trajectories, trajectory_file
from moozi.io.trajectories import TrajectoryWriter, open_trajectories
from tests.envs.contract import random_agent_actions
from tests.replay.replay_lanes import make_spec, random_lanes, segment_of


def make_segment(spec: EnvSpec, first: int, stop: int, lanes: int = 3, seed: int = 0) -> TrajectorySample:
  return segment_of(random_lanes(seed, lanes, stop, spec), first, stop, spec)


def write(folder, spec, cuts=(4, 9, 12), lanes=3) -> TrajectorySample:
  """One file for each cut; returns all steps."""
  whole = make_segment(spec, 0, cuts[-1], lanes)
  writer = TrajectoryWriter(folder, spec)
  for first, stop in zip((0, *cuts[:-1]), cuts, strict=True):
    writer.append(map_fields(lambda x, a=first, b=stop: x[a:b], whole), 0)
    writer.flush()
  writer.close()
  return whole


def read(path, **kwargs) -> dict[int, TrajectorySample]:
  """Each lane's steps, joined."""
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
def test_every_step_comes_back_to_the_bit(tmp_path, frame_dtype, num_players):
  spec = make_spec(frame_dtype, num_players)
  whole = write(tmp_path / "t", spec)
  lanes = read(tmp_path / "t", spec=spec)
  assert sorted(lanes) == [0, 1, 2]
  for i, lane in lanes.items():
    assert_same(lane, whole, i)
  store = open_trajectories(tmp_path / "t")
  assert (store.spec, store.num_steps, store.lane_steps) == (spec, 36, {0: 12, 1: 12, 2: 12})


def test_segments_of_several_workers_lie_in_one_file(tmp_path):
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


def test_what_is_kept_is_a_copy(tmp_path):
  spec = make_spec()
  whole = make_segment(spec, 0, 6)
  mine = map_fields(np.array, whole)
  writer = TrajectoryWriter(tmp_path, spec)
  writer.append(mine, 0)
  for value in fields_of(mine).values():
    value[...] = 0
  writer.close()
  assert_same(read(tmp_path)[1], whole, 1)


def test_files_are_there_whole_while_others_are_written(tmp_path, monkeypatch):
  """At every moment of writing a reader finds exactly the files that are done."""
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


def test_a_file_begins_by_steps_bytes_and_age(tmp_path, monkeypatch):
  spec = make_spec("float32")
  for name, value in (("_FILE_STEPS", 12), ("_FILE_BYTES", 600), ("_FILE_AGE_S", 0.0)):
    with monkeypatch.context() as patch:
      patch.setattr(trajectories, name, value)
      writer = TrajectoryWriter(tmp_path / name, spec)
      for first in (0, 2, 4):
        writer.append(make_segment(spec, first, first + 2), 0)
      writer.close()
      count = {"_FILE_STEPS": 2, "_FILE_BYTES": 2, "_FILE_AGE_S": 3}[name]
      assert len(list((tmp_path / name).iterdir())) == count, name


def test_a_writer_goes_on_where_the_last_one_ended(tmp_path):
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


def test_a_writer_that_may_keep_nothing_begins_anew(tmp_path):
  spec = make_spec()
  write(tmp_path, spec, cuts=(4,))
  writer = TrajectoryWriter(tmp_path, spec, env_steps=0)
  writer.append(make_segment(spec, 0, 2), 0)
  writer.close()
  assert [p.name for p in tmp_path.iterdir()] == ["000000000000-000000000006.traj"]


def full_disk(*args):
  raise OSError(28, "No space left on device")


def test_steps_that_a_full_disk_refuses_wait_for_the_next_file(tmp_path, monkeypatch):
  spec = make_spec()
  whole = make_segment(spec, 0, 12)
  writer = TrajectoryWriter(tmp_path, spec)
  for first, stop in ((0, 4), (4, 9), (9, 12)):
    writer.append(map_fields(lambda x, a=first, b=stop: x[a:b], whole), 0)
    if stop == 9:
      with monkeypatch.context() as patch:
        patch.setattr(trajectories, "write_bytes", full_disk)
        for _ in range(2):
          with pytest.raises(OSError, match="No space"):
            writer.flush()
    else:
      writer.flush()
  writer.close()
  assert sorted(p.name for p in tmp_path.iterdir())[-1] == "000000000012-000000000036.traj"
  for i, lane in read(tmp_path).items():
    assert_same(lane, whole, i)


def test_where_too_many_steps_wait_they_are_left_out_and_histories_begin_anew(tmp_path, monkeypatch):
  spec = make_spec()
  whole = segment_of(random_lanes(0, 2, 12, spec, 0.0), 0, 12, spec)
  writer = TrajectoryWriter(tmp_path, spec)
  parts = [map_fields(lambda x, a=first: x[a : a + 4], whole) for first in (0, 4, 8)]
  writer.append(parts[0], 0, 8)
  writer.flush()
  writer.append(parts[1], 0, 16)
  with monkeypatch.context() as patch:
    patch.setattr(trajectories, "write_bytes", full_disk)
    patch.setattr(trajectories, "_MOST_WAITING_BYTES", 10)
    with pytest.raises(OSError, match="No space"):
      writer.flush()
  # Who goes on from here knows of it too.
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


def test_what_a_full_disk_held_back_at_a_checkpoint_is_a_gap_for_who_goes_on(tmp_path, monkeypatch):
  spec = make_spec()
  whole = segment_of(random_lanes(0, 2, 12, spec, 0.0), 0, 12, spec)
  parts = [map_fields(lambda x, a=first: x[a : a + 4], whole) for first in (0, 4, 8)]
  writer = TrajectoryWriter(tmp_path, spec)
  writer.append(parts[0], 0)
  writer.flush()
  sound = writer.get_state()
  writer.append(parts[1], 0)
  with monkeypatch.context() as patch:
    patch.setattr(trajectories, "write_bytes", full_disk)
    with pytest.raises(OSError, match="No space"):
      writer.flush()
  state = writer.get_state()
  assert (sound["stop"], state["stop"]) == (8, 16)
  again = TrajectoryWriter(tmp_path, spec, env_steps=16, state=state)
  again.append(parts[2], 0)
  again.close()
  assert np.flatnonzero(read(tmp_path)[0].is_first).tolist() == [0, 4]
  # Where nothing is missing games go on.
  again = TrajectoryWriter(tmp_path, spec, env_steps=8, state=sound)
  again.append(parts[1], 0)
  again.close()
  assert_same(read(tmp_path)[1], map_fields(lambda x: x[:8], whole), 1)


def test_a_segment_that_does_not_follow_begins_histories_anew(tmp_path):
  spec = make_spec()
  whole = segment_of(random_lanes(0, 2, 12, spec, 0.0), 0, 12, spec)
  writer = TrajectoryWriter(tmp_path, spec)
  for first, follows in ((0, True), (4, True), (8, False)):
    writer.append(map_fields(lambda x, a=first: x[a : a + 4], whole), 0, first * 3 + 12, follows)
  writer.close()
  assert [p.name for p in tmp_path.iterdir()] == ["000000000000-000000000036.traj"]
  assert np.flatnonzero(read(tmp_path)[1].is_first).tolist() == [0, 8]


def test_the_first_steps_only(tmp_path):
  spec = make_spec()
  whole = write(tmp_path, spec, cuts=(4, 9, 12))
  assert len(read(tmp_path, max_env_steps=35)[0].action) == 9
  assert len(read(tmp_path, max_env_steps=36)[0].action) == len(whole.action)
  with pytest.raises(UserError, match="no file ends at or before env step 11; the first one ends at 12"):
    open_trajectories(tmp_path, max_env_steps=11)


def test_a_single_file_and_a_run(tmp_path):
  spec = make_spec()
  whole = write(tmp_path / "run" / "trajectories", spec, cuts=(4, 9))
  (tmp_path / "run" / "config.yaml").write_text("seed: 0\n")
  assert_same(read(tmp_path / "run")[0], whole, 0)
  second = tmp_path / "run" / "trajectories" / "000000000012-000000000027.traj"
  assert open_trajectories(second).num_steps == 15


def _sealed(body: bytes) -> bytes:
  return body + hashlib.sha256(body).digest()


def _with_header(data: bytes, change) -> bytes:
  """The file with another header, its checksum made anew."""
  length = int.from_bytes(data[8:12], "little")
  header = json.loads(data[12 : 12 + length])
  text = json.dumps(change(header)).encode()
  return _sealed(data[:8] + len(text).to_bytes(4, "little") + text + data[12 + length : -32])


DAMAGE = {
  "cut": (lambda d: d[:-5], "cut or altered"),
  "cut to its magic": (lambda d: d[:8], "cut or altered"),
  "a byte altered": (lambda d: d[:-50] + bytes([d[-50] ^ 1]) + d[-49:], "cut or altered"),
  "longer": (lambda d: d + b"x", "cut or altered"),
  "empty": (lambda d: b"", "not a trajectory file"),
  "a stranger's": (lambda d: pickle.dumps(os.getcwd), "not a trajectory file"),
  "of the future": (lambda d: _with_header(d, lambda h: h | {"format": 9}), "of format 9"),
  "no header": (lambda d: _sealed(d[:8] + b"\xff\xff\xff\xff" + d[12:-32]), "cut or altered"),
  "no mapping": (lambda d: _with_header(d, lambda h: [1]), "cut or altered"),
  "no spec": (lambda d: _with_header(d, lambda h: h | {"spec": {"name": "x"}}), "cut or altered"),
  "steps below zero": (lambda d: _with_header(d, lambda h: h | {"lanes": [[0, 0, -12]]}), "cut or altered"),
  "more steps": (
    lambda d: _with_header(d, lambda h: h | {"lanes": [[0, 0, 13]], "env_steps": [0, 13]}),
    "not what its header says",
  ),
  "steps without end": (
    lambda d: _with_header(d, lambda h: h | {"lanes": [[0, 0, 1 << 40]], "env_steps": [0, 1 << 40]}),
    "would take more than 1024 MiB",
  ),
  "a name that is a command to the terminal": (
    lambda d: _with_header(d, lambda h: h | {"spec": h["spec"] | {"name": "\x1b]0;owned\x07"}}),
    "cut or altered",
  ),
  "an action's name": (
    lambda d: _with_header(d, lambda h: h | {"spec": h["spec"] | {"action_names": ["left", "\x1b[2J"]}}),
    "cut or altered",
  ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_not_whole_or_not_ours_is_refused(tmp_path, kind):
  change, message = DAMAGE[kind]
  write(tmp_path, make_spec(), cuts=(12,), lanes=1)
  (path,) = tmp_path.iterdir()
  path.write_bytes(change(path.read_bytes()))
  with pytest.raises(UserError, match=message) as caught:
    read(tmp_path)
  assert str(path) in str(caught.value)
  assert "\n" not in str(caught.value)


def test_a_column_that_inflates_without_end_is_not_made(tmp_path, monkeypatch):
  pack = trajectory_file._pack
  monkeypatch.setattr(trajectory_file, "_pack", lambda *a: pack(*a) + b"\0" * (a[0] == "action") * 10_000_000)
  write(tmp_path, make_spec(), cuts=(4,))
  with pytest.raises(UserError, match="not what its header says"):
    read(tmp_path)


def test_the_limit_is_one_for_all_columns_together(tmp_path, monkeypatch):
  """51 bytes a step, of which the frame has 12."""
  write(tmp_path, make_spec(), cuts=(12,), lanes=1)
  monkeypatch.setattr(trajectory_file, "_MAX_STEPS_BYTES", 12 * 51)
  assert len(read(tmp_path)[0].action) == 12
  monkeypatch.setattr(trajectory_file, "_MAX_STEPS_BYTES", 12 * 51 - 1)
  with pytest.raises(UserError, match="its steps would take more than"):
    open_trajectories(tmp_path)


def test_a_file_without_end_is_not_read(tmp_path, monkeypatch):
  write(tmp_path, make_spec(), cuts=(4,))
  (path,) = tmp_path.iterdir()
  os.truncate(path, 2 << 30)  # holes, which take no room
  monkeypatch.setattr(hashlib, "sha256", None)
  with pytest.raises(UserError, match="larger than any trajectory file"):
    open_trajectories(tmp_path)


def test_folders_that_hold_no_trajectories_are_refused(tmp_path):
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


def test_a_missing_file_shows(tmp_path):
  write(tmp_path, make_spec(), cuts=(4, 9, 12))
  (tmp_path / "000000000012-000000000027.traj").unlink()
  with pytest.raises(UserError, match="the file that begins at 12 is missing"):
    open_trajectories(tmp_path)


def test_steps_that_are_kept_from_the_middle_of_a_run_on(tmp_path):
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
  # What lies between shows by its steps, and a first file that is gone by its lanes.
  with pytest.raises(UserError, match="the file that begins at 6 is missing"):
    open_trajectories(tmp_path)


def test_a_first_file_that_is_gone_shows(tmp_path):
  write(tmp_path, make_spec(), cuts=(4, 9, 12))
  (tmp_path / "000000000000-000000000012.traj").unlink()
  with pytest.raises(UserError, match="the steps of lane 0 do not join"):
    open_trajectories(tmp_path)


def test_files_of_two_runs_do_not_join(tmp_path):
  write(tmp_path / "a", make_spec(), cuts=(4, 8))
  write(tmp_path / "b", make_spec(), cuts=(6, 8), lanes=2)
  (tmp_path / "b" / "000000000012-000000000016.traj").rename(tmp_path / "c")
  data = (tmp_path / "c").read_bytes()
  (tmp_path / "a" / "000000000012-000000000024.traj").write_bytes(data)
  with pytest.raises(UserError, match="the steps of lane 0 do not join"):
    open_trajectories(tmp_path / "a")


def test_another_env_is_refused(tmp_path):
  write(tmp_path, make_spec("uint8"))
  with pytest.raises(
    UserError, match=r"another environment: spec.frame_dtype is uint8 there, and the run's is bool"
  ):
    open_trajectories(tmp_path, make_spec("bool"))


def test_a_million_steps_of_minatar_are_far_below_150_mib(tmp_path):
  """With policies and values that no compression makes smaller."""
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

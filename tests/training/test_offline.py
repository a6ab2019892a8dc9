"""Tests of learning from stored trajectories and of `moozi reanalyze`."""

import json
import os

import jax
import numpy as np
import pytest

from moozi.core.errors import UserError
from moozi.core.pytree import map_fields, replace
from moozi.io import trajectory_folder
from moozi.io.checkpoints import expected_of, save_checkpoint
from moozi.io.config import load_config
from moozi.io.run_directory import RunDirectory
from moozi.io.trajectory_folder import TrajectoryWriter, open_trajectories
from moozi.run import build, local
from moozi.run.events import Acted, Finished, Reanalyzed, StateReady, Updated
from moozi.run.session import RunInputs
from moozi.training import offline
from moozi.training.offline import load_stored
from tests.io.state_files import count_hashing
from tests.replay.replay_lanes import assert_valid, make_spec, random_lanes, segment_of
from tests.run_events import assert_equal_trees, final_state, first_checkpoint
from tests.tiny_run import TINY, shaken

SEARCH = [
  f"planners.{who}.{text}"
  for who in ("train", "reanalyze")
  for text in ("gumbel_scale=0", "num_simulations=4")
]
HISTORY = ["targets.history_length=2"]
NUM_STEPS = 10 * 8 * 4


@pytest.fixture(scope="module")
def old(tmp_path_factory):
  """Returns a run with a checkpoint and two trajectory files, acted with the checkpoint's parameters."""
  folder = tmp_path_factory.mktemp("runs")
  config = load_config(None, [*TINY, *SEARCH, *HISTORY, f"run.dir={folder}", "run.name=old"])
  spec = build.env_spec(config)
  run = RunDirectory.create(config)
  learner = build.build_learner(config, spec)
  state = learner.get_state()
  learner.set_state(replace(state, params=shaken(state.params)))
  collector = build.build_collector(config, spec, 0)
  collector.set_parameters(*learner.parameters())
  writer = TrajectoryWriter(run.trajectories_path, spec)
  for i in range(10):
    writer.append(collector.run(0)[0], 0)
    if i == 4:
      writer.flush()
  writer.close()
  meta = {"env_steps": 7, "learner_steps": 60} | expected_of(config, spec)
  save_checkpoint(run.checkpoints_path, "step_7", learner.get_state(), meta)
  return run.path


def train(old, *overrides):
  """Trains from the old run's trajectories; returns the events."""
  config = load_config(None, [*TINY, *HISTORY, f"offline.trajectories={old}", *overrides])
  spec = build.env_spec(config)
  return list(local.run(RunInputs(config, spec, stored=load_stored(config, spec))))


@pytest.mark.slow
def test_learning_without_an_environment(old, monkeypatch):
  def refuse(*args, **kwargs):
    raise AssertionError("a collector was built")

  monkeypatch.setattr(build, "build_collector", refuse)
  events = train(old, "reanalyze.ratio=0.5", "learner.target_update_period=20", "evaluation.final_episodes=1")
  assert not any(isinstance(e, Acted) for e in events)
  last = events[-1]
  assert isinstance(last, Finished)
  assert (last.reason, last.env_steps) == ("max_env_steps", 320)
  # As in a run that acts, updates use four samples per step; one call has 32.
  assert last.learner_steps * 16 == pytest.approx(4 * 320, abs=32)
  searches = [e for e in events if isinstance(e, Reanalyzed)]
  assert searches[-1].num_positions == 256
  updated = [e for e in events if isinstance(e, Updated)]
  assert updated[0].metrics["offline/steps"] == NUM_STEPS
  assert updated[-1].metrics["replay/steps"] == 0
  assert updated[-1].metrics["offline/rewritten"] == 256 * len(searches)
  states = [e.state for e in events if isinstance(e, StateReady) and e.is_final]
  assert states[0].progress["pacer/env_steps"] == 320


@pytest.mark.slow
def test_mixture_of_stored_and_acted_steps(old):
  events = train(old, "offline.fraction=0.25", "max_env_steps=160", "evaluation.final_episodes=1")
  assert len([e for e in events if isinstance(e, Acted)]) == 5
  last = [e for e in events if isinstance(e, Updated)][-1].metrics
  assert (last["offline/steps"], last["replay/steps"]) == (NUM_STEPS, 160)
  assert last["offline/drawn"] * 3 == last["replay/drawn"] > 0


@pytest.mark.slow
def test_resume_to_the_bit(old):
  """Resuming restores the sampling state, and the values and policies from reanalyze."""
  overrides = ("reanalyze.ratio=0.5", "reanalyze.batch_size=8", "learner.target_update_period=20")
  periods = (
    "checkpoint.milestones_env_steps=160",
    "checkpoint.period_s=1e9",
    "checkpoint.first_s=null",
    "evaluation.final_episodes=1",
  )
  config = load_config(None, [*TINY, *HISTORY, *overrides, *periods, f"offline.trajectories={old}"])
  spec = build.env_spec(config)
  whole = list(local.run(RunInputs(config, spec, stored=load_stored(config, spec))))
  at = first_checkpoint(whole)
  state = whole[at].state
  assert 0 < int(state.training.learner_step) < whole[-1].learner_steps
  again = list(local.run(RunInputs(config, spec, state=state, stored=load_stored(config, spec))))
  read = [
    [(e.metrics["loss/total"], e.metrics["offline/rewritten"]) for e in events if isinstance(e, Updated)]
    for events in (whole[at:], again)
  ]
  assert read[0] == read[1]
  assert read[0][-1][1] > read[0][0][1] > 0
  assert_equal_trees(final_state(whole).training, final_state(again).training)


@pytest.mark.slow
def test_max_env_steps_takes_the_first_steps(old):
  events = train(old, "offline.max_env_steps=200", "max_env_steps=64", "evaluation.final_episodes=1")
  assert next(e for e in events if isinstance(e, Updated)).metrics["offline/steps"] == 160


def steps_of(path):
  """Returns all steps of stored trajectories, [T, B, …]; the lanes must have equal lengths."""
  lanes = {}
  for stored in open_trajectories(path).read():
    lanes.setdefault(stored.span.lane, []).append(stored.steps)
  joined = [map_fields(lambda *xs: np.concatenate(xs), *parts) for _, parts in sorted(lanes.items())]
  return map_fields(lambda *xs: np.stack(xs, axis=1), *joined)


@pytest.mark.slow
def test_learning_from_a_set_with_a_gap(old, tmp_path):
  """Stored trajectories have a gap where a worker was restarted or a segment was refused."""
  whole = steps_of(old)
  alive = np.flatnonzero(~whole.is_last.any(axis=1))
  stop, begin = int(alive[alive > 30][0]) + 1, int(alive[alive > 50][0])
  writer = TrajectoryWriter(tmp_path / "gap", open_trajectories(old).spec)
  writer.append(map_fields(lambda x: x[:stop], whole), 0)
  writer.append(map_fields(lambda x: x[begin:], whole), 0, follows=False)
  writer.close()
  stored = next(open_trajectories(tmp_path / "gap").read()).steps
  assert stored.is_first[stop]
  assert not stored.is_last[stop - 1]
  config = load_config(None, [*TINY, *HISTORY, f"offline.trajectories={tmp_path / 'gap'}"])
  spec = build.env_spec(config)
  replay = build.build_replay(config, spec, load_stored(config, spec))
  for buffer in (replay._acted, replay._stored._buffer):
    assert_valid(buffer)
  lane = replay._stored._buffer.storage.trajectory(0, 0, stop + 80 - begin)
  # The episode before the gap is truncated; all steps after the gap are kept.
  assert lane.is_truncated[stop - 1]
  assert lane.action[stop - 1] == 0
  np.testing.assert_array_equal(lane.action[stop:], whole.action[begin:, 0])
  events = train(tmp_path / "gap", "max_env_steps=64", "evaluation.final_episodes=1")
  last = [e for e in events if isinstance(e, Updated)][-1]
  assert last.metrics["offline/steps"] == 4 * len(lane.action)
  assert np.isfinite(last.metrics["loss/total"])


def test_too_few_steps_are_refused(old):
  config = load_config(None, [*TINY, f"offline.trajectories={old}", "targets.n_step=200"])
  with pytest.raises(UserError, match="no lane has more than 203 steps"):
    load_stored(config, build.env_spec(config))


def test_lanes_of_too_different_lengths_are_refused(old, tmp_path, monkeypatch):
  """Replay allocates the longest lane's length for every lane, so unequal lanes would waste memory."""
  whole = steps_of(old)
  writer = TrajectoryWriter(tmp_path / "few", open_trajectories(old).spec)
  writer.append(map_fields(lambda x: x[:, :1], whole), 0)
  for first in range(4, 20, 4):
    writer.append(map_fields(lambda x: x[:2], whole), first)
  writer.close()
  config = load_config(None, [*TINY, *HISTORY, f"offline.trajectories={tmp_path / 'few'}"])
  spec = build.env_spec(config)
  assert load_stored(config, spec) is not None
  monkeypatch.setattr(offline, "_FREE_SLOTS", 17 * 80 - 1)
  with pytest.raises(UserError, match="17 lanes hold 112 steps, the longest 80;"):
    load_stored(config, spec)
  whole_set = load_config(None, [*TINY, *HISTORY, f"offline.trajectories={old}"])
  monkeypatch.setattr(offline, "_FREE_SLOTS", 0)
  assert load_stored(whole_set, spec) is not None


def test_stored_steps_are_hashed_once(old, monkeypatch):
  """The checks before a run open the trajectories too."""
  config = load_config(None, [*TINY, *HISTORY, f"offline.trajectories={old}"])
  spec, times = build.env_spec(config), count_hashing(monkeypatch)
  load_stored(config, spec)
  build.build_replay(config, spec, load_stored(config, spec))
  assert [times(file.path) for file in open_trajectories(old).files] == [1, 1]


def unusable(tmp_path):
  """Makes folders that a run cannot learn from; returns the error of each."""
  spec = make_spec()
  for name in ("other_env", "cut"):
    writer = TrajectoryWriter(tmp_path / name, spec)
    writer.append(segment_of(random_lanes(0, 2, 9, spec), 0, 9, spec), 0)
    writer.close()
  (path,) = (tmp_path / "cut").iterdir()
  path.write_bytes(path.read_bytes()[:-9])
  (tmp_path / "empty").mkdir()
  (tmp_path / "photos").mkdir()
  (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
  return {
    "other_env": "another environment: spec.name is test:lanes",
    "cut": "altered or cut",
    "empty": "holds no trajectories",
    "photos": "not a trajectory file",
    "missing": "no such folder",
  }


def test_unusable_folders_are_refused(cli, tmp_path, old):
  config = tmp_path / "catch.yaml"
  config.write_text(f"env: {{name: 'tiny:catch'}}\nrun: {{dir: {tmp_path / 'runs'}, name: x}}\n")
  for name, message in unusable(tmp_path).items():
    before = sorted(p.name for p in tmp_path.iterdir())
    for arguments in (
      ("train", config, f"offline.trajectories={tmp_path / name}"),
      ("reanalyze", old, "--trajectories", tmp_path / name, "--out", tmp_path / "new"),
    ):
      status, out, err = cli(*arguments)
      assert (status, out) == (2, ""), err
      assert message in err
      assert err.startswith("moozi: error: ")
      assert err.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == before


BROKEN = {
  "root_value": (np.nan, "root_value is not finite"),
  "last_reward": (np.inf, "last_reward is not finite"),
  "action": (9, "action outside 0 … 3"),
  "action_probs": (0.5, "action_probs do not sum to 1"),
  "legal_actions_mask": (False, "legal_actions_mask allows no action"),
}


@pytest.mark.parametrize(
  "name", [n if n in ("root_value", "action") else pytest.param(n, marks=pytest.mark.slow) for n in BROKEN]
)
def test_invalid_content_is_refused(cli, tmp_path, old, name):
  """Values are validated even in files with a valid checksum, also in the part after a gap."""
  value, message = BROKEN[name]
  whole = map_fields(np.array, steps_of(old))
  at = int(np.flatnonzero(~whole.is_last[:, 2])[-1])
  getattr(whole, name)[at, 2] = value
  writer = TrajectoryWriter(tmp_path / "bad", open_trajectories(old).spec)
  for first, stop in ((0, 41), (41, 80)):
    writer.append(map_fields(lambda x, a=first, b=stop: x[a:b], whole), 0, follows=first == 0)
  writer.close()
  config = tmp_path / "catch.yaml"
  config.write_text(f"run: {{dir: {tmp_path / 'runs'}, name: x}}\n")
  for arguments in (
    ("train", config, *TINY, *HISTORY, "runtime=local", f"offline.trajectories={tmp_path / 'bad'}"),
    ("reanalyze", old, "--trajectories", tmp_path / "bad", "--out", tmp_path / "new"),
  ):
    status, out, err = cli(*arguments)
    assert (status, out) == (2, ""), err
    assert str(tmp_path / "bad") in err
    error = err.splitlines()[-1]
    assert error.startswith("moozi: error: ")
    assert f"lane 2: {message}" in error
  assert not (tmp_path / "runs" / "x").exists()
  assert sorted(p.name for p in tmp_path.iterdir()) == ["bad", "catch.yaml", "runs"]


def test_contradictory_settings_are_refused(cli, tmp_path):
  config = tmp_path / "catch.yaml"
  config.write_text("env: {name: 'tiny:catch'}\n")
  for overrides, message in (
    (["offline.trajectories=x", "trajectories.save=true"], "no worker acts with offline.fraction=1"),
    (["offline.trajectories=x", "algorithm=ppo"], "needs algorithm=muzero"),
    (["reanalyze.ratio=0.5", "algorithm=ppo"], "needs algorithm=muzero"),
    (["reanalyze.ratio=1"], "less than or equal to 0.99"),
    (["offline.fraction=0"], "greater than 0"),
    (["offline.trajectories=x", "offline.fraction=0.5", "learner.batch_size=1"], "at least 2"),
  ):
    status, _, err = cli("train", config, *overrides)
    assert status == 2
    assert message in err


@pytest.mark.slow
def test_reanalyze_with_the_same_search_changes_nothing(cli, tmp_path, old):
  """With the parameters and the search of acting, reanalyze changes nothing, also across two files."""
  out = tmp_path / "new"
  status, text, err = cli("reanalyze", old, "--checkpoint", "last", "--out", out, "--json")
  assert status == 0, err
  figures = json.loads(text)
  assert figures["steps"] == NUM_STEPS
  assert 0 < figures["positions"] < NUM_STEPS
  assert figures["value_change_abs"] < 1e-4
  assert figures["policy_divergence"] < 1e-5
  before, after = open_trajectories(old), open_trajectories(out)
  assert [f.path.name for f in before.files] == [f.path.name for f in after.files]
  for a, b in zip(before.read(), after.read(), strict=True):
    assert a.span == b.span
    for name in ("frame", "action", "last_reward", "is_first", "is_last", "acted_version"):
      np.testing.assert_array_equal(getattr(a.steps, name), getattr(b.steps, name), err_msg=name)
    terminal = a.steps.is_last & ~a.steps.is_truncated
    assert (b.steps.searched_version == np.where(terminal, 0, 60)).all()
  status, _, err = cli("reanalyze", old, "--out", out)
  assert status == 2
  assert "exists and is not overwritten" in err


@pytest.mark.slow
def test_reanalyze_with_other_parameters_changes_targets(cli, tmp_path, old):
  from moozi.io.run_directory import RunDirectory as Runs

  config = Runs.open(old).load_config()
  # The command searches also with `reanalyze.search=false`.
  own = (*HISTORY, f"run.dir={tmp_path}", "run.name=other", "seed=9", "reanalyze.search=false")
  other = load_config(None, [*TINY, *own])
  assert other.network == config.network
  run = Runs.create(other)
  spec = build.env_spec(other)
  meta = {"env_steps": 7, "learner_steps": 60} | expected_of(other, spec)
  save_checkpoint(run.checkpoints_path, "step_7", build.build_learner(other, spec).get_state(), meta)
  status, text, err = cli("reanalyze", run.path, "--trajectories", old, "--out", tmp_path / "new")
  assert status == 0, err
  lines = dict(line.split("  ", 1) for line in text.splitlines())
  assert float(lines["mean absolute change"].strip()) > 1e-3
  divergence, unit, *_ = lines["policy divergence, old to new"].split()
  assert float(divergence) > 1e-3
  assert unit == "nats"
  assert "positions/s" in lines
  assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


@pytest.mark.slow
def test_disk_errors_are_reported(refused, tmp_path, old, monkeypatch):
  def full(*args):
    raise OSError(28, "No space left on device")

  assert "cannot be written: File name too long" in refused("reanalyze", old, "--out", tmp_path / ("n" * 300))
  for name in ("write_steps", None):
    monkeypatch.setattr(*((trajectory_folder, name) if name else (os, "rename")), full)
    error_text = refused("reanalyze", old, "--out", tmp_path / "new")
    assert f"--out={tmp_path / 'new'}: cannot be written: No space left on device" in error_text
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()


@pytest.mark.slow
def test_non_finite_search_is_refused(refused, tmp_path, old):
  config = load_config(None, [*TINY, *HISTORY, f"run.dir={tmp_path / 'runs'}", "run.name=broken"])
  spec, run = build.env_spec(config), RunDirectory.create(config)
  state = build.build_learner(config, spec).get_state()
  broken = jax.tree_util.tree_map(lambda x: np.full_like(x, np.nan), state.params)
  meta = {"env_steps": 7, "learner_steps": 60} | expected_of(config, spec)
  save_checkpoint(run.checkpoints_path, "step_7", replace(state, params=broken), meta)
  error_text = refused("reanalyze", run.path, "--trajectories", old, "--out", tmp_path / "new")
  assert "not finite" in error_text
  assert [p.name for p in tmp_path.iterdir()] == ["runs"]


def test_failed_search_leaves_no_files(cli, tmp_path, old, monkeypatch):
  from moozi.acting.reanalyzer import Reanalyzer

  def fail(*args):
    raise UserError("no more")

  monkeypatch.setattr(Reanalyzer, "run", fail)
  assert cli("reanalyze", old, "--out", tmp_path / "new")[0] == 2
  assert not list(tmp_path.iterdir())

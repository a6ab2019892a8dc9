"""Tests of `moozi train --resume`."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest
import safetensors.numpy

import moozi
from moozi import cli
from moozi.core.errors import RunError, UserError
from moozi.envs.registry import env_spec
from moozi.evaluation.evaluator import evaluation_terms
from moozi.io.checkpoints import (
  ResumeStore,
  expected_of,
  list_checkpoints,
  load_checkpoint,
  path_of,
  read_best,
  steps_of,
)
from moozi.io.config import load_config
from moozi.io.metrics import read_metrics
from moozi.io.run_directory import RunDirectory
from moozi.run.evaluation_schedule import BEST_BOUND
from moozi.training.algorithms import algorithm_of
from moozi.training.recorder import Recorder
from moozi.training.resume import load_resumed, newest_state
from tests.tiny_run import RESUMABLE, TINY


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
  """Returns a finished run of 160 steps."""
  folder = tmp_path_factory.mktemp("resume")
  config = folder / "config.yaml"
  config.write_text("seed: 0\n")
  with pytest.raises(SystemExit) as ended:
    cli.main(["train", str(config), *RESUMABLE, "max_env_steps=160", f"run.dir={folder}", "run.name=first"])
  assert ended.value.code == 0
  return folder / "first"


@pytest.fixture
def run(finished, tmp_path):
  """Returns a copy of the finished run, which the test may resume."""
  path = tmp_path / "first"
  shutil.copytree(finished, path)
  return path


def load(path):
  """Returns the state that `--resume` would continue from."""
  directory = RunDirectory.open(path)
  config = directory.load_config().model_copy(update={"max_env_steps": 192})
  with directory.claim():
    return load_resumed(config, env_spec(config.env.name), directory)


@pytest.mark.slow
def test_resume_continues_in_the_same_directory(cli, run):
  before = read_metrics(run / "metrics.jsonl")
  status, out, err = cli("train", "--resume", run, "max_env_steps=320")
  assert status == 0, err
  assert "step_000000160" in err
  after = read_metrics(run / "metrics.jsonl")
  kept = [tick for tick in before if tick["env_steps"] < 160]
  assert after[: len(kept)] == kept
  # The final evaluation of the first part is kept too.
  evaluations = [tick for tick in before if "test/return_mean" in tick]
  assert [tick["env_steps"] for tick in evaluations] == [96, 160]
  assert [tick for tick in after if "test/return_mean" in tick][:2] == evaluations
  for key in ("env_steps", "learner_steps", "wall_s"):
    values = [tick[key] for tick in after]
    assert values == sorted(values), key
  assert after[-1]["env_steps"] == 320
  assert json.loads((run / "summary.json").read_text())["env_steps"] == 320
  assert "320 environment steps" in out
  assert (run / "config_until_000000160.yaml").is_file()
  assert RunDirectory.open(run).load_config().max_env_steps == 320


@pytest.mark.slow
def test_a_run_that_is_continued_has_not_ended(run):
  with moozi.resume_events(run, max_env_steps=320) as training:
    next(training)
    next(training)
    with pytest.raises(UserError, match="has not ended"):
      _ = moozi.Run(run).summary
  assert moozi.Run(run).summary["reason"] == "stopped"


@pytest.mark.slow
@pytest.mark.parametrize("value", ["null", '"x"', "[1]"])
def test_malformed_counters_do_not_stop_a_resume(cli, run, value):
  with (run / "metrics.jsonl").open("a") as file:
    file.write(f'{{"env_steps": {value}}}\n')
  status, _, err = cli("train", "--resume", run, "max_env_steps=192")
  assert status == 0, err


@pytest.mark.slow
def test_curves_equal_those_of_an_unbroken_run(cli, run, finished, tmp_path):
  """The curves of a resumed run have the same steps as those of a run that was never stopped."""
  assert cli("train", "--resume", run, "max_env_steps=320")[0] == 0
  whole = finished.parent / "whole"
  config = finished.parent / "config.yaml"
  assert cli("train", config, *RESUMABLE, f"run.dir={whole.parent}", "run.name=whole")[0] == 0

  def curve(path, name):
    ticks = read_metrics(path / "metrics.jsonl")
    return [(t["env_steps"], t["learner_steps"], t[name]) for t in ticks if name in t]

  for name in ("loss/total", "replay/added", "train/return_mean"):
    ours, theirs = curve(run, name), curve(whole, name)
    assert sorted(set(ours)) == sorted(set(theirs)), name
  # The resumed run has one evaluation more, because its first part ended with a final evaluation.
  ours, theirs = ({t[0] for t in curve(path, "test/return_mean")} for path in (run, whole))
  assert ours == theirs | {160}


def test_damaged_trajectories_are_refused_before_a_change(run):
  (run / "trajectories").mkdir()
  (run / "trajectories" / "000000000000-000000000064.traj").write_bytes(b"no trajectory")
  (run / "trajectories" / "000000000064-000000000999.traj").write_bytes(b"later than the checkpoint")
  config = run / "config.yaml"
  load(run)
  config.write_text(config.read_text().replace("trajectories:\n  save: false", "trajectories:\n  save: true"))
  with pytest.raises(UserError, match=r"000000000000-000000000064\.traj"):
    load(run)


@pytest.mark.parametrize(
  ("best", "bound"),
  [
    ({"name": "step_000000160", "bound": 77.0}, 77.0),
    ({"name": "step_000000160", "bound": -np.inf}, -np.inf),
    ({"name": "step_000000160"}, -np.inf),
    ({"name": "step_000000160", "bound": "77"}, -np.inf),
    ({"name": "step_000000160", "bound": 77.0, "evaluation": None}, -np.inf),
    ({"name": "step_000000192", "bound": 77.0}, -np.inf),
  ],
)
def test_best_is_that_of_the_best_checkpoint(run, best, bound):
  """An evaluation with Ray may be recorded after a state that was saved later in environment steps."""
  resumed, directory = load(run), RunDirectory.open(run)
  best = {"evaluation": evaluation_terms(directory.load_config())} | best
  (run / "checkpoints" / "best.json").write_text(json.dumps(best))
  (run / "checkpoints" / "step_000000192.safetensors").touch()
  resumed.state.progress[BEST_BOUND] = 33.0
  resumed.restore_best(directory.load_config(), directory)
  assert resumed.state.progress[BEST_BOUND] == bound


@pytest.mark.parametrize(
  ("override", "is_kept"),
  [
    ("evaluation.episodes=3", True),
    ("evaluation.max_episode_steps=7", False),
    ("planners.test.num_simulations=3", False),
    ("env.kwargs.rows=9", False),
  ],
)
def test_best_bound_of_another_evaluation_is_reset(run, override, is_kept):
  """Its evaluations are not comparable, so the first with the new settings is the best."""
  directory = RunDirectory.open(run)
  best = read_best(run / "checkpoints")
  assert best.evaluation == evaluation_terms(directory.load_config())
  resumed = load(run)
  resumed.state.progress[BEST_BOUND] = 33.0
  resumed.restore_best(load_config(run / "config.yaml", [override]), directory)
  assert resumed.state.progress[BEST_BOUND] == (best.bound if is_kept else -np.inf)


def alter(path):
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 1
  path.write_bytes(data)


def cut(path):
  os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("harm", [alter, pytest.param(cut, marks=pytest.mark.slow)])
@pytest.mark.parametrize("half", ["checkpoints", "resume"])
def test_damaged_checkpoint_is_skipped(run, half, harm):
  newest = list_checkpoints(run / "checkpoints")[-1]
  harm(path_of(run / half, newest.name))
  resumed = load(run)
  assert resumed.name == "step_000000128"
  assert resumed.skipped[0].startswith(newest.name)


@pytest.mark.slow
def test_damaged_checkpoint_is_removed(cli, run):
  newest = list_checkpoints(run / "checkpoints")[-1]
  alter(path_of(run / "resume", newest.name))
  status, _, err = cli("train", "--resume", run, "max_env_steps=192")
  assert status == 0, err
  assert newest.name in err
  # The kept checkpoints are the milestones and the last three. Which evaluation is the best depends on the
  # processor, because other instructions round differently.
  assert steps_of(read_best(run / "checkpoints").name) in (96, 192)
  assert_complete(run, [64, 96, 128, 192])


def assert_complete(run, steps):
  """Asserts that the run has exactly the checkpoints of these steps and that all of them load."""
  config = RunDirectory.open(run).load_config()
  spec = env_spec(config.env.name)
  template = algorithm_of(config).training_state_template(config, spec)
  found, resumable = list_checkpoints(run / "checkpoints"), list_checkpoints(run / "resume")
  assert [info.env_steps for info in found] == steps
  assert sorted(p.stem for p in (run / "checkpoints").glob("step_*")) == [info.name for info in found]
  for info in found:
    load_checkpoint(info.path, template, expected_of(config, spec))
  assert {info.name for info in resumable} < {info.name for info in found}
  for info in resumable:
    ResumeStore(run / "resume").load(info.name)


def test_repeated_steps_are_equal_to_the_bit_and_replace_their_checkpoints(cli, run):
  """Without the newest two resume states, the run repeats their steps, as after a kill."""
  from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

  removed = list_checkpoints(run / "resume")[-2:]
  resumed_at = list_checkpoints(run / "resume")[-3].env_steps
  assert [info.env_steps for info in removed] == [128, 160]
  for info in removed:
    info.path.unlink()
  (run / "checkpoints" / "best.json").write_text(
    json.dumps({"name": "step_000000160", "bound": 77.0, "evaluation": {}})
  )
  last = path_of(run / "checkpoints", "step_000000160")
  before = safetensors.numpy.load_file(last)
  times = {p.stem: p.stat().st_mtime_ns for p in (run / "checkpoints").glob("step_*")}
  status, _, err = cli("train", "--resume", run, "max_env_steps=160")
  assert status == 0, err
  assert f"step_{resumed_at:09d}" in err
  again = {p.stem for p in (run / "checkpoints").glob("step_*") if p.stat().st_mtime_ns != times.get(p.stem)}
  assert {"step_000000128", "step_000000160"} <= again
  jax.tree_util.tree_map(np.testing.assert_array_equal, safetensors.numpy.load_file(last), before)
  assert all(steps_of(name) > resumed_at for name in again)
  assert read_best(run / "checkpoints").name in again
  # Of the repeated steps, TensorBoard shows only the new values.
  shown = EventAccumulator(str(run), size_guidance={"scalars": 0}, purge_orphaned_data=True)
  shown.Reload()
  steps = [event.step for event in shown.Scalars("replay/added")]
  ticks = [t["env_steps"] for t in read_metrics(run / "metrics.jsonl") if "replay/added" in t]
  assert [step for step in steps if step > resumed_at] == [step for step in ticks if step > resumed_at]
  assert max(steps) == 160


def test_summary_that_cannot_be_removed_closes_the_recorder(cli, run, monkeypatch):
  closed, close = [], Recorder.close
  monkeypatch.setattr(Recorder, "close", lambda recorder: closed.append(close(recorder)))
  (run / "summary.json").unlink()
  (run / "summary.json").mkdir()
  status, _, err = cli("train", "--resume", run, "max_env_steps=320")
  assert status == 2
  assert re.search(r"cannot be written: .*directory", err)
  assert len(closed) == 1


@pytest.mark.slow
@pytest.mark.parametrize("left", ["killed", "stopped", "older"])
def test_final_evaluation_is_made_on_resume(cli, run, left):
  """A run that has made all its steps but lacks its final evaluation can be resumed."""
  path = run / "summary.json"
  before = json.loads(path.read_text())
  if left == "killed":
    path.unlink()
  else:
    changed = {"reason": "stopped"} if left == "stopped" else {"learner_steps": before["learner_steps"] - 2}
    path.write_text(json.dumps(before | changed))
  status, out, err = cli("train", "--resume", run)
  assert status == 0, err
  assert "step_000000160" in err
  assert "random play:" in out
  after = json.loads(path.read_text())
  same = ("env_steps", "learner_steps", "reason", "test_return_mean", "test_episodes", "test_at_env_steps")
  assert [after[key] for key in same] == [before[key] for key in same]
  assert [info.env_steps for info in list_checkpoints(run / "resume")][-1] == 160
  status, _, err = cli("train", "--resume", run)
  assert status == 2
  assert "has made 160 environment steps" in err


def test_checkpoint_with_a_damaged_replay_block_is_skipped(run):
  newest = list_checkpoints(run / "resume")[-1]
  older, blocks = (info.meta["blocks"].items() for info in list_checkpoints(run / "resume")[-2:])
  assert blocks & older
  number, digest = next(iter(blocks - older))
  (path,) = (run / "resume" / "blocks").glob(f"{int(number):04d}_{digest[:8]}*")
  path.write_bytes(b"cut")
  (skipped,) = load(run).skipped
  assert skipped.startswith(newest.name)


def save_altered(run, alter_state):
  """Saves the newest resume state again, altered and with valid checksums; returns its name."""
  newest, store = list_checkpoints(run / "resume")[-1], ResumeStore(run / "resume")
  saved = store.load(newest.name)
  alter_state(saved.head)
  store.save(newest.name, dataclasses.replace(saved, blocks={}), newest.meta)
  return newest.name


def test_altered_state_with_valid_checksums_is_skipped(run):
  name = save_altered(run, lambda state: state.pop("replay/storage/newest"))
  found = load(run)
  assert found.name < name
  assert found.skipped == (f"{name}: replay/storage/newest is missing",)


@pytest.mark.slow
def test_altered_environments_refuse_a_resume_that_changes_nothing(cli, run):
  def files():
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.suffix != ".log"}

  def cut(state):
    name = next(
      name for name in state if name.startswith("collector/0/lanes/carry/") and state[name].ndim > 1
    )
    state[name] = state[name][:, :0]

  save_altered(run, cut)
  before = files()
  status, _, err = cli("train", "--resume", run, "max_env_steps=192")
  assert status == 2
  assert "moozi: error: the environments' part of the resume state" in err
  assert "Traceback" not in err
  assert files() == before


@pytest.mark.slow
def test_a_restart_does_not_begin_from_nothing_if_checkpoints_are_damaged(run):
  directory = RunDirectory.open(run)
  arguments = directory.load_config(), env_spec("tiny:catch"), directory
  newest = list_checkpoints(run / "checkpoints")[-1]
  assert newest_state(*arguments).training.learner_step == newest.learner_steps
  for info in list_checkpoints(run / "checkpoints"):
    alter(info.path)
  with pytest.raises(RunError, match="no checkpoint can be loaded: "):
    newest_state(*arguments)
  shutil.rmtree(run / "checkpoints")
  assert newest_state(*arguments) is None


def test_time_limit_counts_the_final_evaluation(run):
  """The clock of a resumed run counts it, and `training_s` does not."""
  directory, wall_s = RunDirectory.open(run), load(run).state.wall_s
  summary = json.loads((run / "summary.json").read_text())
  (run / "summary.json").write_text(json.dumps(summary | {"training_s": wall_s / 4}))
  with directory.claim():
    limits = {"max_env_steps": 192, "max_wall_s": wall_s / 2}
    between = directory.load_config().model_copy(update=limits)
    with pytest.raises(UserError, match=r"has taken .* give a larger one to resume"):
      load_resumed(between, env_spec("tiny:catch"), directory)


@pytest.mark.slow
def test_a_run_that_reached_its_stop_value_ends_and_continues_with_a_larger_one(cli, tmp_path):
  """Each return in Catch is at least -1. The first evaluation is at 96 of 160 steps."""
  options = (*RESUMABLE, "evaluation.stop_value=-1", f"run.dir={tmp_path}", "run.name=first")
  assert cli("train", "tiny/catch", *options)[0] == 0
  summary = json.loads((tmp_path / "first" / "summary.json").read_text())
  # In one process a step follows each evaluation.
  assert (summary["reason"], summary["env_steps"], summary["test_episodes"]) == ("stop_value", 128, 5)
  status, _, err = cli("train", "--resume", tmp_path / "first")
  assert status == 2
  assert "evaluation.stop_value=-1; give a larger one, or null, to resume" in err
  assert cli("train", "--resume", tmp_path / "first", "evaluation.stop_value=2", "max_env_steps=160")[0] == 0
  assert json.loads((tmp_path / "first" / "summary.json").read_text())["reason"] == "max_env_steps"


def test_damaged_metrics_refuse_a_resume_that_changes_nothing(cli, run):
  lines = (run / "metrics.jsonl").read_text().splitlines()
  (run / "metrics.jsonl").write_text("\n".join([lines[0], "{damaged", *lines[1:]]) + "\n")
  unlike = ("driver.log", "lock")
  before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name not in unlike}
  status, _, err = cli("train", "--resume", run, "max_env_steps=320")
  assert status == 2
  assert "line 2" in err
  assert len(err.splitlines()) == 1
  assert {path: path.read_bytes() for path in before} == before


def test_updates_that_a_time_limit_left_can_be_made(run):
  """With Ray, acting is ahead of learning, so the time may end between the last step and the last update."""
  summary = json.loads((run / "summary.json").read_text())
  directory, more = RunDirectory.open(run), {"max_wall_s": 1e6}
  with directory.claim():
    config = directory.load_config().model_copy(update=more)
    with pytest.raises(UserError, match="give a larger one"):
      load_resumed(config, env_spec("tiny:catch"), directory)
    (run / "summary.json").write_text(json.dumps(summary | {"reason": "max_wall_s"}))
    assert load_resumed(config, env_spec("tiny:catch"), directory).recorder is not None


@pytest.mark.parametrize(
  ("overrides", "error_text"),
  [
    (["network.latent_size=32"], "network.latent_size=32: a run cannot change it"),
    (["env.name=tiny:corridor"], "env.name=tiny:corridor: a run cannot change it"),
    (["seed=5"], "seed=5: a run cannot change it"),
    (["max_env_steps=160"], "max_env_steps=160; give a larger one"),
    (["config/minatar/breakout.yaml"], "must be KEY=VALUE"),
    (["learner.batch_sise=3"], "learner.batch_sise"),
    (["opponents.past_share=0.5"], "opponents.past_share=0.5: "),
  ],
)
def test_invalid_resume_is_refused(cli, run, overrides, error_text):
  before = sorted(p.name for p in run.rglob("*"))
  status, out, err = cli("train", "--resume", run, *overrides)
  assert (status, out) == (2, "")
  assert error_text in err
  assert len(err.splitlines()) == 1
  assert sorted(p.name for p in run.rglob("*")) == before


@pytest.mark.slow
def test_settings_that_may_change(cli, run):
  status, _, err = cli(
    "train",
    "--resume",
    run,
    "max_env_steps=240",
    "workers.num_workers=2",
    "learner.learning_rate.peak=1e-4",
    "learner.batch_size=8",
    "logging.tensorboard=false",
  )
  assert status == 0, err
  assert json.loads((run / "summary.json").read_text())["env_steps"] >= 240
  before, after = ([], [])
  for tick in read_metrics(run / "metrics.jsonl"):
    if "update/learning_rate" in tick:
      (before if tick["env_steps"] <= 160 else after).append(tick)
  assert min(tick["update/learning_rate"] for tick in before) > 1e-4
  assert [tick["update/learning_rate"] for tick in after] == pytest.approx([1e-4] * len(after))
  # Each update now has eight samples instead of sixteen, at four samples per step as before.
  made = after[-1]["learner_steps"] - before[-1]["learner_steps"]
  acted = after[-1]["env_steps"] - before[-1]["env_steps"]
  assert made * 8 == pytest.approx(acted * 4.0, rel=0.3)
  # Acting proceeds in rounds of 64 steps: a segment of 32 from each of two workers.
  assert after[-1]["env_steps"] == 160 + 2 * 64


@pytest.mark.slow
def test_run_refused_by_ray_is_unchanged(run):
  """The error comes late, when the run connects to the cluster; no file may have changed."""
  # Without the newest resume state, some checkpoints are later than the resumed one.
  list_checkpoints(run / "resume")[-1].path.unlink()

  def files():
    written = [path for path in run.rglob("*") if path.is_file() and path.name not in ("driver.log", "lock")]
    return {path: path.read_bytes() for path in written}

  before = files()
  command = [sys.executable, "-m", "moozi.cli", "train", "--resume", str(run)]
  overrides = ["runtime=ray", "ray.num_cpus=1", "max_env_steps=320"]
  done = subprocess.run([*command, *overrides], capture_output=True, text=True, timeout=300, check=False)
  assert done.returncode == 2
  assert "the Ray cluster has 1" in done.stderr
  assert files() == before


def test_claimed_run_is_not_read(cli, run):
  newest = list_checkpoints(run / "checkpoints")[-1]
  newest.path.write_bytes(b"half of it")
  with RunDirectory.open(run).claim():
    status, _, err = cli("train", "--resume", run, "max_env_steps=192")
  assert status == 2
  assert "is writing into this run" in err
  assert newest.name not in err


def test_resume_without_a_state_is_refused(cli, run):
  shutil.rmtree(run / "resume")
  status, _, err = cli("train", "--resume", run, "max_env_steps=320")
  assert status == 2
  assert "checkpoint.start_from" in err


def test_missing_run_or_configuration(cli, tmp_path):
  assert cli("train")[0] == 2
  status, _, err = cli("train", "--resume", tmp_path / "nothing")
  assert status == 2
  assert "no such folder" in err


@pytest.mark.slow
def test_resume_with_averages_of_norms_is_exact_between_two_copies_of_the_target_network(tmp_path):
  options = ["network.norm=batch", "network.batch_norm_decay=0.5", "learner.target_update_period=47"]
  options += ["runtime=local", "reanalyze.ratio=0.5", "reanalyze.batch_size=16"]

  def trained(name, max_env_steps):
    places = [f"run.dir={tmp_path}", f"run.name={name}", f"max_env_steps={max_env_steps}"]
    return moozi.train(load_config(None, [*TINY, *options, *places]))

  whole, resumed = trained("whole", 512), moozi.resume(trained("resumed", 288).path, max_env_steps=512)
  states = [moozi.load(run.path).state for run in (whole, resumed)]
  leaves = [jax.tree_util.tree_leaves((state.params, state.net_state)) for state in states]
  assert all(np.array_equal(*pair) for pair in zip(*leaves, strict=True))

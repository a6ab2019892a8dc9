"""Tests of `moozi surgery` and of checkpoint.surgery on runs."""

import json
import shutil

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import moozi
from moozi import cli as program
from moozi.core.config import EnvConfig
from moozi.core.errors import UserError
from moozi.core.records import TrajectorySample
from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.io.checkpoints import list_checkpoints, list_milestones, path_of
from moozi.io.lineage import Joint, read_lineage, write_lineage
from moozi.io.metrics import read_metrics
from moozi.io.run_directory import RunDirectory
from moozi.io.trajectory_folder import open_trajectories
from moozi.surgery.pairing import correspond
from moozi.surgery.stored_steps import StepConverter
from moozi.training.resume import load_saved
from moozi.training.surgery_run import changed_options
from tests.tiny_run import RESUMABLE

CHANGES = ("network.latent_size=32", "targets.history_length=2", "scalar_transform.support_max=40")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
  """Returns a finished run of 128 steps with trajectories."""
  folder = tmp_path_factory.mktemp("surgery")
  options = (*RESUMABLE, "trajectories.save=true", "max_env_steps=128", "checkpoint.keep_last=1")
  with pytest.raises(SystemExit) as ended:
    program.main(["train", "tiny/catch", *options, f"run.dir={folder}", "run.name=first"])
  assert ended.value.code == 0
  return folder / "first"


@pytest.fixture
def run(finished, tmp_path):
  path = tmp_path / "first"
  shutil.copytree(finished, path)
  return path


def saved(path):
  directory = RunDirectory.open(path)
  config = directory.load_config()
  return load_saved(config, registry.env_spec(config.env.name), directory)


@pytest.fixture(scope="module")
def operated(finished):
  with pytest.raises(SystemExit) as ended:
    program.main(["surgery", str(finished), *CHANGES, "--out", "second"])
  assert ended.value.code == 0
  return finished.parent / "second"


def test_the_rest_of_the_run_comes_along(finished, operated):
  old, new = saved(finished), saved(operated)
  assert (new.state.env_steps, new.state.learner_steps) == (128, old.state.learner_steps)
  for name, value in new.state.progress.items():
    np.testing.assert_array_equal(value, old.state.progress[name], err_msg=name)
  assert set(old.state.progress) - set(new.state.progress) <= {"envs_began_at"}
  assert not new.state.collectors
  assert new.recorder.keys() == old.recorder.keys()
  # The steps of replay are the same, and priorities are computed again when it is restored.
  np.testing.assert_array_equal(new.state.replay.generations, old.state.replay.generations)
  for number, block in old.state.replay.blocks.items():
    for name, x in block.items():
      np.testing.assert_array_equal(new.state.replay.blocks[number][name], x)
  assert read_metrics(operated / "metrics.jsonl") == read_metrics(finished / "metrics.jsonl")
  steps = [open_trajectories(path).num_steps for path in (finished, operated)]
  assert steps == [128, 128]
  assert (operated / "config_until_000000128.yaml").read_text() == (finished / "config.yaml").read_text()


def test_checkpoints_are_converted(finished, operated):
  names = [info.name for info in list_checkpoints(finished / "checkpoints")]
  assert [info.name for info in list_checkpoints(operated / "checkpoints")] == names
  milestones = [info.name for info in list_milestones(finished / "checkpoints")]
  assert milestones
  assert [info.name for info in list_milestones(operated / "checkpoints")] == milestones
  agents = [moozi.load(path, milestones[0]) for path in (finished, operated)]
  sizes = [agent.state.params["dynamics/head/hidden"]["w"].shape[0] for agent in agents]
  assert sizes == [16, 32]
  best = [json.loads((path / "checkpoints" / "best.json").read_text()) for path in (finished, operated)]
  assert best[0] == best[1]


def test_lineage(finished, operated):
  (joint,) = read_lineage(operated / "lineage.json")
  last = list_checkpoints(finished / "checkpoints")[-1]
  assert (joint.kind, joint.run, joint.checkpoint) == ("surgery", str(finished), last.name)
  assert (joint.digest, joint.env_steps, joint.at_env_steps) == (last.digest, 128, 128)
  assert joint.changes[0] == "network.latent_size: 16 → 32"
  assert not joint.lost
  events = EventAccumulator(str(operated))
  events.Reload()
  (shown,) = events.Tensors("lineage/text_summary")
  assert shown.step == 128
  assert "network.latent_size: 16 → 32" in shown.tensor_proto.string_val[0].decode()


@pytest.mark.slow
def test_a_run_is_continued_after_surgery(cli, operated, tmp_path):
  path = tmp_path / "second"
  shutil.copytree(operated, path)
  status, _, err = cli("train", "--resume", path, "max_env_steps=256")
  assert status == 0, err
  ticks = read_metrics(path / "metrics.jsonl")
  steps = [tick["env_steps"] for tick in ticks]
  assert steps == sorted(steps)
  assert steps[-1] == 256
  assert any(tick["env_steps"] <= 128 for tick in ticks)
  assert moozi.Run(path).summary["learner_steps"] > saved(operated).state.learner_steps
  page = moozi.Run(path).report(tmp_path / "report.html", max_steps=2).read_text()
  assert '"joints":[{"x":128,"text":"surgery of ' in page
  # A second surgery appends to the lineage.
  status, _, err = cli("surgery", path, "network.num_prediction_blocks=1", "--out", "third")
  assert status == 0, err
  assert [joint.at_env_steps for joint in read_lineage(tmp_path / "third" / "lineage.json")] == [128, 256]


def test_dry_run_writes_nothing(cli, run):
  before = sorted(path.name for path in run.parent.rglob("*"))
  status, out, err = cli("surgery", run, *CHANGES, "--dry-run")
  assert status == 0, err
  assert sorted(path.name for path in run.parent.rglob("*")) == before
  lines = out.splitlines()
  (array,) = [line for line in lines if line.startswith("representation/dense/w ")]
  assert array.split()[1:4] == ["300×16", "→", "600×32"]
  assert "300 new inputs: 0" in array
  assert "changes: network.latent_size: 16 → 32" in lines
  assert any(line.startswith("left behind: environments: ") for line in lines)


def test_a_dry_run_needs_no_free_name(cli, refused, run):
  (run.parent / "first-surgery").mkdir()
  status, _, err = cli("surgery", run, "--dry-run")
  assert status == 0, err
  assert "default name=first-surgery: " in refused("surgery", run)


def test_what_is_lost_needs_lossy(cli, run):
  before = sorted(run.parent.iterdir())
  status, out, err = cli("surgery", run, "network.latent_size=24")
  assert (status, out) == (2, "")
  assert err.count("moozi: not preserved: ") >= 2
  assert err.splitlines()[-1].startswith("moozi: error: surgery does not preserve the network: ")
  assert sorted(run.parent.iterdir()) == before
  status, _, err = cli("surgery", run, "network.latent_size=24", "--lossy")
  assert status == 0, err
  (joint,) = read_lineage(run.parent / "first-surgery" / "lineage.json")
  assert joint.lost
  assert not (run.parent / "first-surgery" / "checkpoints" / "best.json").exists()


def test_options_that_change():
  old = EnvConfig(name="tiny:corridor", kwargs={"length": 8})
  assert changed_options(old, EnvConfig(name="tiny:corridor")) == []  # 8 is the default
  new = EnvConfig(name="tiny:corridor", kwargs={"slip_prob": 0.1}, wrappers=("my_module:wrap",))
  assert changed_options(old, new) == [
    "env.kwargs.slip_prob: 0.0 → 0.1",
    "env.wrappers: [] → ['my_module:wrap']",
  ]
  own = EnvConfig(name="my_module:make", kwargs={"wind": 1})
  assert changed_options(EnvConfig(name="my_module:make"), own) == ["env.kwargs.wind: unset → 1"]
  null = EnvConfig(name="my_module:make", kwargs={"wind": None})
  assert changed_options(EnvConfig(name="my_module:make"), null) == ["env.kwargs.wind: unset → None"]
  # The games of two functions may have one EnvSpec.name, and other rules.
  misere = EnvConfig(name="my_module:make_misere", kwargs={"wind": 1})
  assert changed_options(own, misere) == ["env.name: my_module:make → my_module:make_misere"]


@pytest.mark.slow
def test_steps_of_other_options_are_kept_by_request(cli, run):
  options = (run, "env.kwargs.max_episode_steps=7")
  status, _, err = cli("surgery", *options, "run.name=changed")
  assert status == 0, err
  option = "env.kwargs.max_episode_steps: None → 7"
  assert f"left behind: replay and trajectories: {option}: the rules may differ; --keep-replay" in err
  changed = run.parent / "changed"
  assert not saved(changed).state.replay.generations.any()
  assert not (changed / "trajectories").exists()
  # Replay begins again, and the steps that fill it are not owed: updates follow from those after them.
  config, before = RunDirectory.open(changed).load_config(), saved(run).state
  status, _, err = cli("train", "--resume", changed, "max_env_steps=256")
  assert status == 0, err
  num_steps = 256 - 128 - config.replay.min_steps_to_learn
  num_updates = num_steps * config.learner.samples_per_step / config.learner.batch_size
  assert saved(changed).state.learner_steps == before.learner_steps + num_updates
  (joint,) = read_lineage(changed / "lineage.json")
  assert any(text.startswith("replay and trajectories: ") for text in joint.left)
  status, _, err = cli("surgery", *options, "--keep-replay", "--out", "kept")
  assert status == 0, err
  assert f"kept: replay and trajectories of the environment before {option}" in err
  kept = saved(run.parent / "kept").state.replay
  np.testing.assert_array_equal(kept.generations, saved(run).state.replay.generations)
  assert open_trajectories(run.parent / "kept").num_steps == 128
  (joint,) = read_lineage(run.parent / "kept" / "lineage.json")
  assert joint.changes[-1].startswith("kept: replay and trajectories of")


REFUSED = [
  (("network.latent_size=8",), "surgery cannot make a layer narrower"),
  (("run.name=a", "--out", "b"), "run.name=a: --out=b names the new run; give one of them"),
  (("run.name=first",), "run.name=first: "),
  (("run={name: first}",), "run.name=first: "),
  (("run={name: usr, dir: /}",), "run.name=usr: /usr exists"),
  (("run.name=a/b",), "must be a folder name"),
  (("network.kind=conv_latent",), "network.kind=conv_latent: the state has mlp"),
  (("network.latent=8",), "network.latent: unknown key"),
  (("latent",), "latent: must be KEY=VALUE; --to names a configuration"),
  (("--to", "no/such"), "no/such"),
  (("--map", "none.yaml"), "none.yaml"),
  (("env.name=open_spiel:tic_tac_toe", "network.kind=mlp"), "surgery needs environments of one kind"),
  (("--out", "a/b"), "must be a folder name"),
  (("--out", "first"), "exists; a run is never overwritten"),
  (("algorithm=ppo",), "algorithm=ppo: the state is of muzero"),
]


@pytest.mark.parametrize(("options", "text"), REFUSED)
def test_refused_on_one_line(refused, run, options, text):
  before = sorted(run.parent.iterdir())
  assert text in refused("surgery", run, *options)
  assert sorted(run.parent.iterdir()) == before


@pytest.mark.parametrize("where", ["checkpoints", "resume"])
def test_a_damaged_state_is_refused(refused, run, where):
  for info in list_checkpoints(run / where):
    data = bytearray(info.path.read_bytes())
    data[-5] ^= 1
    info.path.write_bytes(bytes(data))
  assert "no checkpoint can be resumed: " in refused("surgery", run, *CHANGES)


def test_a_run_without_a_state_is_refused(refused, run):
  shutil.rmtree(run / "resume")
  assert "has no state to resume; checkpoint.start_from=" in refused("surgery", run, *CHANGES)
  assert "a zoo agent has no run to continue" in refused("surgery", "zoo:tiny/catch", *CHANGES)


START = (*RESUMABLE, "max_env_steps=96", "run.name=other")


@pytest.mark.slow
def test_start_from_with_surgery(cli, operated, tmp_path):
  options = (*START, *CHANGES, "network.num_prediction_blocks=1", f"run.dir={tmp_path}")
  start = f"checkpoint.start_from={operated}"
  status, _, err = cli("train", "tiny/catch", *options, start)
  assert status == 2
  assert "checkpoint.surgery=true converts it" in err
  status, _, err = cli("train", "tiny/catch", *options, start, "checkpoint.surgery=true")
  assert status == 0, err
  kinds = [(joint.kind, joint.at_env_steps) for joint in read_lineage(tmp_path / "other" / "lineage.json")]
  assert kinds == [("surgery", -1), ("start", 0)]
  assert moozi.Run(tmp_path / "other").summary["learner_steps"] > saved(operated).state.learner_steps


def test_a_start_that_loses_something_is_refused(refused, finished, tmp_path):
  options = (*START, "network.latent_size=24", f"run.dir={tmp_path}", f"checkpoint.start_from={finished}")
  error = refused("train", "tiny/catch", *options, "checkpoint.surgery=true")
  assert "surgery does not preserve the network: " in error
  assert "checkpoint.surgery=lossy accepts that" in error
  assert not (tmp_path / "other").exists()
  assert "needs surgery=true" in refused("train", "tiny/catch", *options, "checkpoint.mapping=a.yaml")
  assert "needs start_from" in refused("train", "tiny/catch", *START, "checkpoint.surgery=true")
  path = path_of(finished / "checkpoints", "step_000000128")
  short = tmp_path / "short.safetensors"
  short.write_bytes(path.read_bytes()[:-40])
  options = (*START, f"run.dir={tmp_path}", f"checkpoint.start_from={short}", "checkpoint.surgery=true")
  assert "short.safetensors" in refused("train", "tiny/catch", *options)


DISCOUNTS = "targets.discount_schedule=[{env_steps: 9, discount: 0.9}]"


@pytest.mark.parametrize(
  ("setting", "key"),
  [(DISCOUNTS, "targets.discount_schedule"), ("learner.max_grad_rms=5", "learner.max_grad_rms")],
)
def test_a_start_names_the_setting_of_one_run_only(refused, finished, tmp_path, setting, key):
  options = (*START, f"run.dir={tmp_path}", f"checkpoint.start_from={finished}")
  error = refused("train", "tiny/catch", *options, setting)
  assert f"was saved without {key}, which must be set in both runs or in neither" in error
  assert "checkpoint.surgery=true converts it" in error
  assert not (tmp_path / "other").exists()


def test_a_start_names_surgery_only_where_it_converts(refused, finished, tmp_path):
  options = (*START, f"run.dir={tmp_path}", f"checkpoint.start_from={finished}")
  for setting in ("network.kind=conv_latent", "network.latent_size=8"):
    assert "checkpoint.surgery" not in refused("train", "tiny/catch", *options, setting)
  error = refused("train", "tiny/catch", *options, "network.latent_size=24")
  assert "checkpoint.surgery=lossy converts it, with losses" in error


def test_steps_are_converted():
  old = EnvSpec(name="a:b", frame_shape=(2, 2, 2), frame_dtype="bool", num_env_actions=2)
  new = EnvSpec(name="a:b", frame_shape=(2, 2, 3), frame_dtype="bool", num_env_actions=3)
  rng = np.random.default_rng(0)
  probs = rng.random((5, 3)).astype(np.float32)
  zeros, flags = np.zeros(5, np.float32), np.zeros(5, bool)
  steps = TrajectorySample(
    frame=rng.random((5, 2, 2, 2)) < 0.5,
    last_reward=zeros,
    is_first=flags,
    is_last=flags,
    is_truncated=flags,
    to_play=np.zeros(5, np.int32),
    legal_actions_mask=probs > 0.5,
    root_value=zeros,
    action_probs=probs,
    action=np.array([1, 2, 0, 1, 2], np.int32),
    acted_version=np.zeros(5, np.int32),
    searched_version=np.zeros(5, np.int32),
  )
  made = StepConverter(old, new, correspond(old, new)).sample(steps)
  np.testing.assert_array_equal(made.frame[..., :2], steps.frame)
  assert not made.frame[..., 2].any()
  np.testing.assert_array_equal(made.action_probs, np.pad(probs, ((0, 0), (0, 1))))
  assert not made.legal_actions_mask[:, 3].any()
  np.testing.assert_array_equal(made.action, steps.action)
  with pytest.raises(UserError, match="plane 2 of a:b is missing"):
    StepConverter(new, old, correspond(new, old))


def test_lineage_file(tmp_path):
  path = tmp_path / "lineage.json"
  assert read_lineage(path) == []
  numbers = {"env_steps": 5, "learner_steps": 2, "at_env_steps": 5}
  joint = Joint(kind="start", run="a", checkpoint="b", digest="c", **numbers)
  write_lineage(path, [joint, joint])
  assert read_lineage(path) == [joint, joint]
  path.write_text(path.read_text().replace('"start"', '"stop"'))
  with pytest.raises(UserError, match="not the lineage of a run"):
    read_lineage(path)

"""`moozi inspect` and `moozi report`, from the command line to the files; what they refuse is one line."""

import json
import re
import shutil
import sys
import xml.etree.ElementTree as ET

import jax
import numpy as np
import pytest
from PIL import Image

from moozi.agent.update import init_training_state
from moozi.core.config import Config, EnvConfig, RunConfig
from moozi.io.checkpoints import expected_of, save_checkpoint
from moozi.io.config import load_config
from moozi.io.run_directory import RunDirectory
from moozi.run.build import build_model, env_spec
from tests.tiny_run import TINY
from tests.vis.test_report import data_of


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  """A run of Catch whose network was shaken, not trained."""
  folder = tmp_path_factory.mktemp("runs")
  config = load_config(None, [*TINY, f"run.dir={folder}", "run.name=first"])
  spec = env_spec(config)
  run = RunDirectory.create(config)
  state = init_training_state(build_model(config, spec), config, spec, jax.random.PRNGKey(0))
  random = np.random.default_rng(0)
  params = jax.tree_util.tree_map(
    lambda x: x + 0.3 * random.standard_normal(x.shape, np.float32), state.params
  )
  state = state.__class__(**{**vars(state), "params": params})
  meta = {"env_steps": 64, "learner_steps": 3} | expected_of(config, spec)
  save_checkpoint(run.checkpoints_path, "step_64", state, meta)
  ticks = [
    {"env_steps": 32, "learner_steps": 1, "wall_s": 1.0, "loss/total": 2.0},
    {
      "env_steps": 64,
      "learner_steps": 3,
      "wall_s": 2.0,
      "loss/total": 1.0,
      "test/return_mean": 0.25,
      "test/return_std": 0.5,
      "test/episodes": 4.0,
      "test/at_env_steps": 48.0,
    },
  ]
  run.metrics_path.write_text("".join(json.dumps(tick) + "\n" for tick in ticks))
  return run


def test_inspect_draws_one_decision_and_says_what_it_was(door, trained):
  status, out, err = door("inspect", trained.path, "--episode", "1", "--step", "2", "--nodes", "3")
  assert status == 0, err
  lines = out.splitlines()
  assert lines[0].startswith("the search chose ")
  assert "after 4 simulations" in lines[0]
  assert lines[1].split()[:4] == ["action", "prior", "policy", "visits"]
  assert len(lines) == 2 + 3 + 2, "three actions and two pictures"
  assert sum(int(line.split()[3]) for line in lines[2:5]) == 4
  svg, png = (trained.path / "inspect" / f"step_64_episode_1_step_2.{kind}" for kind in ("svg", "png"))
  assert lines[-2:] == [str(svg), str(png)]
  said = [e.text for e in ET.parse(svg).getroot().iter("{http://www.w3.org/2000/svg}text")]
  assert said[0] == "tiny:catch, step_64, episode 1, step 2"
  assert any("3 most visited of 5 nodes" in text for text in said)
  with Image.open(png) as image:
    assert image.width > 300


def test_players_have_their_names(door, runs, tmp_path):
  status, out, err = door("inspect", runs["board"], "--out", tmp_path)
  assert status == 0, err
  assert re.search(r"^the (search chose|opponent played) \(\d,\d\) for [XO]; value ", out)


def test_inspect_knows_the_episodes_length(refused, trained, tmp_path):
  said = refused("inspect", trained.path, "--step", "40", "--out", tmp_path / "x")
  assert "--step=40: episode 0 has the decisions 0 to" in said
  assert not (tmp_path / "x").exists()


def test_report_is_one_page_with_curves_settings_and_the_episode(door, trained):
  status, out, err = door("report", trained.path)
  assert status == 0, err
  assert out == f"{trained.path / 'report.html'}\n"
  data = data_of((trained.path / "report.html").read_text("utf-8"))
  assert data["run"]["name"] == "first"
  assert data["run"]["checkpoint"] == "step_64"
  assert "return 0.25 ± 0.5 over 4 episodes, at 48 steps" in data["run"]["figures"]
  assert data["curves"]["loss/total"] == {"x": [32, 64], "y": [2, 1]}
  assert "name: tiny:catch" in data["config"]
  assert data["episode"]["end"] == "terminal"
  assert 7 <= data["episode"]["num_frames"] - 1 <= 9


def test_report_leaves_a_long_episode(door, trained, tmp_path):
  page = tmp_path / "deep" / "page.html"
  status, _, err = door("report", trained.path, "--max-steps", "3", "--simulations", "2", "--out", page)
  assert status == 0, err
  episode = data_of(page.read_text("utf-8"))["episode"]
  assert (episode["end"], episode["num_frames"], episode["num_simulations"]) == ("cut", 4, 2)


COMMANDS = ["inspect", "report"]


def make_run(tmp_path, **changes):
  config = Config(run=RunConfig(dir=str(tmp_path), name="bare"), env=EnvConfig(name="tiny:catch"), **changes)
  run = RunDirectory.create(config)
  run.metrics_path.touch()
  return run


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_without_a_checkpoint_is_told_what_makes_one(refused, tmp_path, command):
  said = refused(command, make_run(tmp_path).path)
  assert "holds no checkpoint; `moozi train` leaves one" in said
  assert not (tmp_path / "bare" / "inspect").exists()


def test_a_run_without_metrics_is_told_what_writes_them(refused, tmp_path, trained):
  run = make_run(tmp_path)
  run.metrics_path.unlink()
  # Without a checkpoint there is nothing to report of, metrics or not: that is the first thing to know.
  assert "holds no checkpoint; `moozi train` leaves one" in refused("report", run.path)
  shutil.copytree(trained.checkpoints_path, run.checkpoints_path, dirs_exist_ok=True)
  shutil.copy(trained.config_path, run.config_path)
  said = refused("report", run.path)
  assert "metrics.jsonl: no such file; `moozi train` writes it" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_the_best_checkpoint_is_there_once_something_was_evaluated(refused, tmp_path, trained, command):
  said = refused(command, trained.path, "--checkpoint", "best")
  assert "no evaluation has left a best checkpoint; `moozi train` keeps one from its first evaluation" in said
  assert "holds no checkpoint" in refused(command, make_run(tmp_path).path, "--checkpoint", "best")


def test_figures_that_are_no_figures_are_left_out(door, trained, tmp_path):
  """JSON knows whole numbers without end, and a run may come from anywhere."""
  run = RunDirectory(tmp_path / "copy")
  shutil.copytree(trained.path, run.path)
  huge = {"env_steps": 96, "learner_steps": 4, "wall_s": 3.0, "loss/total": 10**400}
  huge |= {"test/return_mean": 10**400, "test/return_std": 1, "test/episodes": 4, "test/at_env_steps": 9}
  with run.metrics_path.open("a") as file:
    file.write(json.dumps(huge) + "\n")
  status, _, err = door("report", run.path, "--max-steps", "2")
  assert status == 0, err
  data = data_of((run.path / "report.html").read_text("utf-8"))
  assert data["curves"]["loss/total"] == {"x": [32, 64], "y": [2, 1]}
  assert "return 0.25 ± 0.5 over 4 episodes, at 48 steps" in data["run"]["figures"]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_agent_that_does_not_search_is_refused(refused, tmp_path, command):
  run = make_run(tmp_path, algorithm="ppo")
  said = refused(command, run.path)
  assert "algorithm=ppo does not search" in said
  assert f"`moozi {command}` needs a run made with algorithm=muzero" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_a_runs_own_code_is_not_run(refused, tmp_path, monkeypatch, command):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "evil_envs.py").write_text("raise SystemExit('ran')\n")
  run = make_run(tmp_path)
  run.config_path.write_text("env: {name: 'evil_envs:make_env'}\n")
  assert "--allow-code" in refused(command, run.path)
  assert "evil_envs" not in sys.modules


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
  ("option", "value", "said"),
  [
    ("--episode", "-1", "--episode=-1: must be a whole number from 0 on"),
    ("--episode", "x", "--episode=x"),
    ("--simulations", "0", "--simulations=0: must be a whole number of at least 1"),
    ("--checkpoint", "none_such", "no checkpoint"),
  ],
)
def test_bad_options_are_refused(refused, tmp_path, command, option, value, said):
  assert said in refused(command, make_run(tmp_path).path, option, value)


def test_options_of_one_command_are_refused_too(refused, tmp_path):
  run = make_run(tmp_path)
  assert "--step=1.5" in refused("inspect", run.path, "--step", "1.5")
  assert "--nodes=0" in refused("inspect", run.path, "--nodes", "0")
  assert "--max-steps=0" in refused("report", run.path, "--max-steps", "0")
  assert f"--out={tmp_path}: is a folder" in refused("report", run.path, "--out", tmp_path)


@pytest.mark.parametrize(("command", "name"), [("inspect", "inspect"), ("report", "report.html")])
def test_links_in_a_run_are_not_followed_for_writing(refused, tmp_path, command, name):
  run = make_run(tmp_path)
  (run.path / name).symlink_to(tmp_path / "elsewhere")
  assert "is a link" in refused(command, run.path)
  assert not (tmp_path / "elsewhere").exists()


def test_a_place_that_cannot_be_written_to_is_one_line(refused, trained, tmp_path):
  (tmp_path / "file").touch()
  assert "cannot be written to" in refused("inspect", trained.path, "--out", tmp_path / "file")
  assert "cannot be written" in refused("report", trained.path, "--out", tmp_path / "file" / "page.html")

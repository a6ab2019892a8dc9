import json
import shutil
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from moozi.commands.inspect import _summary
from moozi.core.config import Config, EnvConfig, RunConfig
from moozi.envs.registry import env_spec
from moozi.io.checkpoints import expected_of, save_checkpoint
from moozi.io.run_directory import RunDirectory
from tests.vis.test_report import data_of
from tests.vis.trees import make_episode

TICKS = [
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
CHECKPOINT = "step_000000064"
# With equal settings, all tests of this module share one compiled search.
SEARCH = ("--simulations", "3")


@pytest.fixture(scope="module")
def trained(runs, tmp_path_factory):
  """Returns a copy of the run of Catch, with metrics."""
  run = RunDirectory(tmp_path_factory.mktemp("runs") / "first")
  shutil.copytree(runs["catch"], run.path)
  run.metrics_path.write_text("".join(json.dumps(tick) + "\n" for tick in TICKS))
  return run


def test_inspect(cli, trained):
  status, out, err = cli("inspect", trained.path, "--episode", "1", "--step", "2", "--nodes", "3", *SEARCH)
  assert status == 0, err
  lines = out.splitlines()
  assert lines[0].startswith("the search chose ")
  assert "after 3 simulations" in lines[0]
  assert lines[1].split()[:4] == ["action", "prior", "policy", "visits"]
  assert len(lines) == 2 + 3 + 1
  assert sum(int(line.split()[3]) for line in lines[2:5]) == 3
  svg = trained.path / "inspect" / f"{CHECKPOINT}_episode_1_step_2.svg"
  assert lines[-1] == str(svg)
  assert list(svg.parent.iterdir()) == [svg]
  message = [e.text for e in ET.parse(svg).getroot().iter("{http://www.w3.org/2000/svg}text")]
  assert message[0] == f"tiny:catch, {CHECKPOINT}, episode 1, step 2"
  assert any("3 most visited of 4 nodes" in text for text in message)


def test_inspect_player_names():
  spec = env_spec("open_spiel:tic_tac_toe")
  episode = make_episode(spec, 3, is_agents=np.array([True, False, False]))
  assert _summary(spec, episode, 0).startswith("the search chose (")
  assert " for X; search value " in _summary(spec, episode, 0)
  assert _summary(spec, episode, 1).startswith("the opponent played (")
  assert " for O; search value " in _summary(spec, episode, 1)


@pytest.mark.slow
def test_inspect_step_after_end(refused, trained, tmp_path):
  message = refused("inspect", trained.path, "--step", "40", "--out", tmp_path / "x", *SEARCH)
  assert "--step=40: must be from 0 to " in message
  assert not (tmp_path / "x").exists()


def test_report(cli, trained):
  status, out, err = cli("report", trained.path, *SEARCH)
  assert status == 0, err
  assert out == f"{trained.path / 'report.html'}\n"
  data = data_of((trained.path / "report.html").read_text("utf-8"))
  assert data["run"]["name"] == "first"
  assert data["run"]["checkpoint"] == CHECKPOINT
  assert "return 0.25 ± 0.5 over 4 episodes at 48 steps" in data["run"]["figures"]
  assert data["curves"]["loss/total"] == {"x": [32, 64], "y": [2, 1]}
  assert "name: tiny:catch" in data["config"]
  assert data["episode"]["end"] == "terminal"
  assert 7 <= data["episode"]["num_frames"] - 1 <= 9


@pytest.mark.slow
def test_report_max_steps(cli, trained, tmp_path):
  page = tmp_path / "deep" / "page.html"
  status, _, err = cli("report", trained.path, "--max-steps", "3", *SEARCH, "--out", page)
  assert status == 0, err
  episode = data_of(page.read_text("utf-8"))["episode"]
  assert (episode["end"], episode["num_frames"], episode["num_simulations"]) == ("cut", 4, 3)


COMMANDS = ["inspect", "report"]


def make_run(tmp_path, **changes):
  config = Config(run=RunConfig(dir=str(tmp_path), name="bare"), env=EnvConfig(name="tiny:catch"), **changes)
  run = RunDirectory.create(config)
  run.metrics_path.touch()
  return run


@pytest.mark.parametrize("command", COMMANDS)
def test_run_without_checkpoint(refused, tmp_path, command):
  message = refused(command, make_run(tmp_path).path)
  assert "holds no checkpoint; `moozi train` saves one" in message
  assert not (tmp_path / "bare" / "inspect").exists()


def test_run_without_metrics(refused, tmp_path, trained):
  run = make_run(tmp_path)
  run.metrics_path.unlink()
  # If metrics and checkpoint are both missing, the error is about the checkpoint.
  assert "holds no checkpoint; `moozi train` saves one" in refused("report", run.path)
  shutil.copytree(trained.checkpoints_path, run.checkpoints_path, dirs_exist_ok=True)
  shutil.copy(trained.config_path, run.config_path)
  error_text = refused("report", run.path)
  assert "metrics.jsonl: no such file; `moozi train` writes it" in error_text


@pytest.mark.parametrize("command", COMMANDS)
def test_no_best_checkpoint(refused, tmp_path, trained, command):
  message = refused(command, trained.path, "--checkpoint", "best")
  assert "has no best checkpoint" in message
  assert "holds no checkpoint" in refused(command, make_run(tmp_path).path, "--checkpoint", "best")


@pytest.mark.slow
def test_report_skips_huge_figures(cli, trained, tmp_path):
  """A JSON integer can exceed the range of a float, and metrics may come from an untrusted run."""
  run = RunDirectory(tmp_path / "copy")
  shutil.copytree(trained.path, run.path)
  huge = {"env_steps": 96, "learner_steps": 4, "wall_s": 3.0, "loss/total": 10**400}
  huge |= {"test/return_mean": 10**400, "test/return_std": 1, "test/episodes": 4, "test/at_env_steps": 9}
  with run.metrics_path.open("a") as file:
    file.write(json.dumps(huge) + "\n")
  status, _, err = cli("report", run.path, "--max-steps", "2", *SEARCH)
  assert status == 0, err
  data = data_of((run.path / "report.html").read_text("utf-8"))
  assert data["curves"]["loss/total"] == {"x": [32, 64], "y": [2, 1]}
  assert "return 0.25 ± 0.5 over 4 episodes at 48 steps" in data["run"]["figures"]


def test_inspect_without_search(refused, tmp_path):
  message = refused("inspect", make_run(tmp_path, algorithm="ppo").path)
  assert "algorithm=ppo" in message
  assert "`moozi inspect` needs an algorithm with one" in message


def test_report_without_search(cli, tmp_path):
  run = make_run(tmp_path, algorithm="ppo")
  meta = {"env_steps": 64, "learner_steps": 3} | expected_of(run.load_config(), env_spec("tiny:catch"))
  save_checkpoint(run.checkpoints_path, CHECKPOINT, {"x": np.zeros(2)}, meta)
  run.metrics_path.write_text("".join(json.dumps(tick) + "\n" for tick in TICKS))
  status, out, err = cli("report", run.path)
  assert (status, out) == (0, f"{run.path / 'report.html'}\n"), err
  data = data_of((run.path / "report.html").read_text("utf-8"))
  assert data["episode"] is None
  assert data["curves"]["loss/total"] == {"x": [32, 64], "y": [2, 1]}
  assert "algorithm ppo has no search" in data["run"]["figures"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
  ("option", "value", "message"),
  [
    ("--episode", "-1", "'--episode': -1: must be an integer from 0"),
    ("--episode", "x", "'--episode': x: must be an integer"),
    ("--simulations", "0", "'--simulations': 0: must be an integer from 1"),
    ("--checkpoint", "none_such", "no checkpoint"),
  ],
)
def test_bad_options(refused, tmp_path, command, option, value, message):
  assert message in refused(command, make_run(tmp_path).path, option, value)


def test_bad_options_of_one_command(refused, tmp_path):
  run = make_run(tmp_path)
  assert "'--step': 1.5: must be an integer" in refused("inspect", run.path, "--step", "1.5")
  assert "'--nodes': 0: must be an integer from" in refused("inspect", run.path, "--nodes", "0")
  assert "'--max-steps': 0: must be an integer from" in refused("report", run.path, "--max-steps", "0")
  assert f"--out={tmp_path}: is a folder" in refused("report", run.path, "--out", tmp_path)


@pytest.mark.parametrize(("command", "name"), [("inspect", "inspect"), ("report", "report.html")])
def test_links_are_not_followed(refused, tmp_path, command, name):
  run = make_run(tmp_path)
  (run.path / name).symlink_to(tmp_path / "elsewhere")
  assert "is a link" in refused(command, run.path)
  assert not (tmp_path / "elsewhere").exists()


@pytest.mark.slow
def test_unwritable_output(refused, trained, tmp_path):
  (tmp_path / "file").touch()
  assert "cannot be written" in refused("inspect", trained.path, "--out", tmp_path / "file", *SEARCH)
  path = tmp_path / "file" / "page.html"
  assert "cannot be written" in refused("report", trained.path, "--max-steps", "1", "--out", path, *SEARCH)


@pytest.mark.parametrize(("command", "name"), [("report", "page.html"), ("card", ""), ("reanalyze", "out")])
def test_output_below_a_name_that_is_too_long(refused, trained, tmp_path, command, name):
  path = tmp_path / ("x" * 300) / name
  assert f"--out={path}: cannot be written: File name too long" in refused(
    command, trained.path, "--out", path
  )


def test_a_card_elsewhere_is_written_beside_a_link(cli, trained, tmp_path):
  run = RunDirectory(tmp_path / "copy")
  shutil.copytree(trained.path, run.path)
  (run.path / "card.md").symlink_to(tmp_path / "elsewhere")
  status, _, err = cli("card", run.path, "--out", tmp_path / "card")
  assert status == 0, err
  assert (tmp_path / "card" / "card.md").is_file()
  assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
  ("option", "value"), [("--episode", "0"), ("--max-steps", "9"), ("--simulations", "3")]
)
def test_options_of_an_episode_need_a_search(refused, tmp_path, option, value):
  run = make_run(tmp_path, algorithm="ppo")
  message = refused("report", run.path, option, value)
  assert f"algorithm=ppo has no search; {option} needs an algorithm with one" in message

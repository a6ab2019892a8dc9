"""Tests of `moozi train --seeds`; `FakeBudget` stands in for training."""

import shutil
from pathlib import Path

import pytest

from moozi.commands import seeds as seeds_module
from moozi.commands.seeds import group_name, parse_seeds
from moozi.commands.train import train
from moozi.core.errors import UserError
from moozi.experiments import time_budget
from moozi.io.run_directory import RunDirectory
from tests.experiments.fake_budget import FakeBudget


@pytest.mark.parametrize(("text", "seeds"), [("1", (1,)), ("3", (1, 2, 3)), ("7,2", (7, 2)), ("0,", None)])
def test_seeds_are_a_count_or_a_list(text, seeds):
  if seeds is None:
    with pytest.raises(UserError, match="--seeds=0,: must be a number of seeds"):
      parse_seeds(text)
  else:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "0", "-1", "1,1", "1,-2", "x", "1.5", "10000", "1,2147483648"])
def test_other_seeds_are_refused(text):
  with pytest.raises(UserError, match=r"--seeds=.*: must be a number of seeds from 1 to 1000, or"):
    parse_seeds(text)


@pytest.mark.parametrize(
  ("config", "name"),
  [
    ("config/ppo/minatar/breakout.yaml", "ppo-minatar-breakout"),
    ("/somewhere/config/tiny/catch.yaml", "tiny-catch"),
    ("/tmp/my.yaml", "my"),
    ("minatar/breakout", "minatar-breakout"),
  ],
)
def test_group_is_named_after_its_configuration(config, name):
  assert group_name(config) == name


@pytest.fixture
def group(tmp_path, monkeypatch):
  """Returns a function that runs `moozi train --seeds` without training, and the budgets of its calls."""
  config = tmp_path / "small.yaml"
  config.write_text("env: {name: 'tiny:catch'}\nmax_env_steps: 100\n")
  made: list[FakeBudget] = []

  def run(*arguments: str, seeds: str = "2", pause: bool = False, **options) -> int:
    def budget(seconds: float) -> FakeBudget:
      made.append(FakeBudget(pause=pause, seconds=seconds))
      return made[-1]

    monkeypatch.setattr(time_budget, "TimeBudget", budget)
    return train([str(config), f"run.dir={tmp_path / 'runs'}", *arguments], seeds=seeds, **options)

  return run, made


def test_group_is_trained_stopped_resumed_and_skipped(group, tmp_path, capsys):
  run, made = group
  assert run(pause=True) == 0
  out = capsys.readouterr().out
  assert "small-seed1: started\nsmall-seed1: stopped at 50 steps\nnot done: small-seed1, small-seed2" in out
  assert run() == 0
  out = capsys.readouterr().out
  assert "small-seed1: resumed at 50 steps\nsmall-seed1: done\nsmall-seed2: started" in out
  assert [RunDirectory.open(tmp_path / "runs" / f"small-seed{n}").load_config().seed for n in (1, 2)] == [
    1,
    2,
  ]
  table = next(line.split() for line in out.splitlines() if line.startswith("small  "))
  assert table[:4] == ["small", "2", "2", "100"]
  assert run(seeds="1,2,3") == 0
  assert [command[0] for command in made[-1].commands] == ["train"]
  assert "small-seed3: done\nall jobs are done" in capsys.readouterr().out


def test_parallel_runs_share_the_cores(group, capsys):
  run, made = group
  assert run("run.name=x", parallel=2) == 0
  assert all(set(env) >= {"NPROC", "OMP_NUM_THREADS"} for env in made[-1].envs)
  assert all("logging.progress=plain" in command for command in made[-1].commands)
  assert run("run.name=y") == 0
  assert made[-1].envs == [{}, {}]
  assert "x-seed1: done" in capsys.readouterr().out


def test_players_may_import_code_only_if_allowed(group):
  """Also when a run is resumed: its own code is that of the configuration, but a player may have changed."""
  run, made = group
  for name, allow_code in (("x", False), ("y", True)):
    run(f"run.name={name}", allow_code=allow_code, pause=True)
    run(f"run.name={name}", allow_code=allow_code)
    commands = [command for budget in made[-2:] for command in budget.commands]
    assert ["--allow-code" in command for command in commands] == [allow_code] * 3
    assert ["--resume" in command for command in commands] == [False, True, False]
    assert ["--allow-own-code" in command for command in commands] == [False, True, False]


def test_changed_settings_are_refused(group, capsys):
  run, _ = group
  run(pause=True)
  assert run("learner.batch_size=32") == 1
  assert "small-seed1: the run differs from job small-seed1 in learner.batch_size" in capsys.readouterr().out


def test_folder_that_is_not_a_run_is_kept(group, tmp_path, capsys):
  run, _ = group
  (tmp_path / "runs" / "small-seed1").mkdir(parents=True)
  (tmp_path / "runs" / "small-seed1" / "mine").touch()
  assert run() == 1
  assert "small-seed1: not a run directory, and not empty; move it away" in capsys.readouterr().out
  assert (tmp_path / "runs" / "small-seed1" / "mine").exists()


def test_finished_run_without_resume_state_is_kept(group, tmp_path, capsys):
  run, made = group
  assert run(seeds="1") == 0
  path = tmp_path / "runs" / "small-seed1"
  shutil.rmtree(path / "resume")
  assert run(seeds="1") == 0
  assert made[-1].commands == []
  assert "all jobs are done" in capsys.readouterr().out
  assert run("max_env_steps=200", seeds="1") == 1
  assert "the run has checkpoints, but cannot be resumed; move it away" in capsys.readouterr().out
  assert (path / "checkpoints" / "step_000000100.safetensors").exists()
  assert made[-1].commands == []


@pytest.mark.parametrize(
  ("arguments", "options", "message"),
  [
    (["seed=3"], {}, "seed=3: --seeds sets the seeds"),
    ([], {"seeds": None, "parallel": 2}, "--parallel=2: needs --seeds"),
    ([], {"resume": Path("runs/first")}, "--seeds resumes its runs itself"),
    (["run.name=a/b"], {}, "run.name='a/b-seed1'"),
    (["learner.batch=1"], {}, "learner.batch: unknown key"),
  ],
)
def test_contradictions_are_refused(group, tmp_path, arguments, options, message):
  run, made = group
  with pytest.raises(UserError, match=message):
    run(*arguments, **options)
  assert not made
  assert not (tmp_path / "runs").exists()


def test_table_without_evaluations_is_one_line(tmp_path, capsys):
  seeds_module.print_group([tmp_path / "none"], "none")
  assert (
    capsys.readouterr().out
    == "no runs: no evaluations; a run has one every evaluation.period_env_steps steps\n"
  )

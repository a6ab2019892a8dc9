"""Tests of `moozi sweep`; `FakeBudget` stands in for training."""

import contextlib
import shutil
from pathlib import Path

import pytest

from moozi.commands.sweep import sweep
from moozi.core.errors import UserError
from moozi.experiments import time_budget
from moozi.experiments.sweep_file import load_sweep
from moozi.io.run_directory import RunDirectory
from tests.experiments.fake_budget import FakeBudget

FILE = """
config: base.yaml
seeds: 2
overrides: {{max_env_steps: 100, run: {{dir: {folder}/runs}}}}
variants:
  default:
  n_step: {{targets.n_step: 5, learner: {{batch_size: 64}}, replay.sampling: rank}}
"""


@pytest.fixture
def file(tmp_path) -> Path:
  (tmp_path / "base.yaml").write_text("env: {name: 'tiny:catch'}\n")
  path = tmp_path / "small.yaml"
  path.write_text(FILE.format(folder=tmp_path))
  return path


@pytest.fixture
def budgets(monkeypatch):
  """Returns the time budgets of the calls, and the options of the next one, such as `pause`."""
  made: list[FakeBudget] = []
  made_with: dict = {}

  def make(seconds: float) -> FakeBudget:
    made.append(FakeBudget(seconds=seconds, **made_with))
    return made[-1]

  monkeypatch.setattr(time_budget, "TimeBudget", make)
  return made, made_with


def test_jobs_are_variants_for_each_seed(file, tmp_path):
  plan = load_sweep(file)
  assert plan.folder == tmp_path / "runs" / "small"
  assert [job.name for job in plan.jobs] == [
    "default-seed1",
    "n_step-seed1",
    "default-seed2",
    "n_step-seed2",
  ]
  config = plan.jobs[1].load_config(plan.folder)
  assert (config.targets.n_step, config.learner.batch_size, config.replay.sampling) == (5, 64, "rank")
  assert (config.seed, config.max_env_steps, config.run.name) == (1, 100, "n_step-seed1")


def test_sweep_is_trained_and_resumed(file, budgets, tmp_path, capsys):
  made, options = budgets
  options["pause"] = True
  assert sweep(file) == 0
  out = capsys.readouterr().out
  assert "default-seed1: stopped at 50 steps" in out
  rows = [line.split() for line in out.splitlines() if line.startswith("default-seed1  ")]
  assert rows == [["default-seed1", "stopped", "50", "50.0", "1.50"]]
  options["pause"] = False
  assert sweep(file, minutes=30) == 0
  assert 1700 < made[-1].remaining_s <= 1800
  out = capsys.readouterr().out
  assert "all jobs are done" in out
  assert out.count("  done  ") == 4
  assert [line.split()[:4] for line in out.splitlines() if line.startswith(("default ", "n_step "))] == [
    ["default", "2", "2", "100"],
    ["n_step", "2", "2", "100"],
  ]
  assert RunDirectory.open(tmp_path / "runs" / "small" / "n_step-seed2").load_config().seed == 2
  assert sweep(file) == 0
  assert made[-1].commands == []


def test_a_log_that_cannot_be_written_fails_one_job(file, budgets, tmp_path, capsys):
  log = tmp_path / "runs" / "small" / "default-seed1.log"
  log.mkdir(parents=True)
  assert sweep(file) == 1
  out = capsys.readouterr().out
  assert f"default-seed1: {log}: cannot be written: Is a directory" in out
  assert out.count("  done  ") == 3


def test_status_of_a_run_in_progress(file, budgets, tmp_path, capsys):
  budgets[1]["pause"] = True
  sweep(file)
  path = tmp_path / "runs" / "small" / "default-seed1"
  for state in ("running", "stopped"):
    with RunDirectory.open(path).claim() if state == "running" else contextlib.nullcontext():
      capsys.readouterr()
      assert sweep(file, status=True) == 0
    rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert ["default-seed1", state] in rows


def test_players_may_import_code_only_if_allowed(file, budgets, capsys):
  assert sweep(file, dry_run=True) == 0
  assert "--allow-code" not in capsys.readouterr().out
  assert sweep(file, dry_run=True, allow_code=True) == 0
  assert capsys.readouterr().out.count(" --allow-code") == 4


def test_dry_run_and_status_start_nothing(file, budgets, tmp_path, capsys):
  made, options = budgets
  assert sweep(file, dry_run=True, only=["n_step"]) == 0
  first, second = capsys.readouterr().out.splitlines()
  assert first.startswith(f"moozi train {tmp_path}/base.yaml max_env_steps=100 ")
  assert "targets.n_step=5 learner.batch_size=64" in first
  assert f"run.dir={tmp_path}/runs/small run.name=n_step-seed1 " in first
  assert "seed=2" in second
  assert sweep(file, status=True) == 0
  assert capsys.readouterr().out.count("not started") == 4
  assert not (tmp_path / "runs").exists()
  assert all(budget.commands == [] for budget in made)
  options["pause"] = True
  sweep(file, only=["n_step"])
  capsys.readouterr()
  sweep(file, dry_run=True, only=["n_step"])
  assert capsys.readouterr().out.startswith(f"moozi train --resume {tmp_path}/runs/small/n_step-seed1 ")


@pytest.mark.parametrize(
  ("old", "new", "message"),
  [
    ("seeds: 2", "seed: 2", "small.yaml: seed: unknown key; must be one of config, seeds"),
    ("seeds: 2", "seeds: 0", "small.yaml: seeds=0: must be greater than or equal to 1"),
    ("seeds: 2", "seeds: [1, 1]", r"small.yaml: seeds=\[1, 1\]: must be different seeds"),
    ("seeds: 2", "seeds: [1, 2147483648]", r"seeds=\[1, 2147483648\]: must be different seeds from 0 to 2"),
    ("seeds: 2", "minutes: 1", "small.yaml: minutes=1: must be greater than 2"),
    ("config: base.yaml", "", "small.yaml: config: missing; a value is required"),
    ("config: base.yaml", "config: none.yaml", "variants.default: none.yaml: no such file"),
    ("config: base.yaml", f"config: {'x' * 300}", "variants.default: x+: "),
    ("targets.n_step: 5", "run: {dir: x}", 'variants.n_step: run.dir="x": set it in overrides'),
    ("n_step: {", "n/step: {", "variants='n/step': must be a folder name"),
    ("targets.n_step", "targets.nstep", "variants.n_step: .*did you mean targets.n_step"),
    ("targets.n_step: 5", "seed: 5", "variants.n_step: seed=5: the sweep sets seed and run.name"),
  ],
)
def test_invalid_files_are_refused(file, old, new, message):
  file.write_text(file.read_text().replace(old, new))
  with pytest.raises(UserError, match=message):
    load_sweep(file)


GROUPS = """
overrides: {{max_env_steps: 100, run: {{dir: {folder}/runs}}}}
evaluations: [{{checkpoint: [50, last], simulations: [1, 2], episodes: 3}}]
seeds: [7]
results: results
groups:
  - config: "{{variant}}.yaml"
    name: "first_{{variant}}_seed{{seed}}"
    overrides: {{targets.n_step: 3}}
    variants: {{base: {{}}}}
  - config: base.yaml
    seeds: [7, 8]
    variants: {{base: {{max_env_steps: 60}}}}
  - config: base.yaml
    name: "more_{{seed}}"
    run: "base-seed{{seed}}"
    variants: {{base: {{max_env_steps: 60}}}}
    evaluations: [{{checkpoint: -1, opponent: ["mcts:1", random]}}]
"""


@pytest.fixture
def groups(file) -> Path:
  file.write_text(GROUPS.format(folder=file.parent))
  return file


def test_groups_inherit_the_keys_of_the_file(groups, tmp_path):
  plan = load_sweep(groups, ["targets.unroll_steps=4"])
  assert [job.name for job in plan.jobs] == ["first_base_seed7", "base-seed7", "base-seed8", "more_7"]
  assert [job.run_name for job in plan.jobs][2:] == ["base-seed8", "base-seed7"]
  configs = [job.load_config(plan.folder) for job in plan.jobs]
  assert [(c.targets.n_step, c.max_env_steps) for c in configs[:2]] == [(3, 100), (10, 60)]
  assert {config.targets.unroll_steps for config in configs} == {4}
  first, last = plan.jobs[0].evaluations, plan.jobs[-1].evaluations
  assert [(e.checkpoint, e.simulations, e.episodes) for e in first] == [
    ("50", 1, 3),
    ("50", 2, 3),
    ("last", 1, 3),
    ("last", 2, 3),
  ]
  assert [(e.checkpoint, e.opponent) for e in last] == [("-1", "mcts:1"), ("-1", "random")]
  assert (plan.folder, plan.results) == (tmp_path / "runs" / "small", tmp_path / "results")


def test_results_of_one_run_in_a_folder_of_their_own(groups, budgets, tmp_path, capsys):
  out = tmp_path / "out"
  assert sweep(groups, ["runtime=local"], only=["base-seed8"], out=out, cores=1) == 0
  assert {path.name for path in out.iterdir()} == {"runs", "base-seed8"}
  assert RunDirectory.open(out / "runs" / "base-seed8").load_config().runtime == "local"
  assert not (tmp_path / "results").exists()
  assert {env["NPROC"] for env in budgets[0][-1].envs} == {"1"}
  assert "base-seed8: step_000000060 with 2 simulations: mean return" in capsys.readouterr().out
  shutil.rmtree(out / "runs")  # the result has what the table shows
  assert sweep(groups, ["runtime=local"], only=["base-seed8"], out=out, status=True) == 0
  rows = [line.split() for line in capsys.readouterr().out.splitlines()]
  assert ["base-seed8", "done", "60", "60.0", "1.50"] in rows


@pytest.mark.parametrize(
  ("old", "new", "message"),
  [
    ("seeds: [7, 8]", "seed: [7, 8]", "groups.1.seed: unknown key; must be one of config, seeds, name"),
    ("seeds: [7, 8]", "seeds: 0", "groups.1.seeds=0: must be greater"),
    ("episodes: 3", "episodes: 0", "evaluations.0.episodes=0: must be greater"),
    ("episodes: 3", "games: 3", "evaluations.0.games: unknown key; must be one of checkpoint, episodes"),
    ("  - config: base.yaml\n    seeds", "  - seeds", "groups.1.config: missing; a value is required"),
    ('name: "more_{seed}"\n    run: "base-seed{seed}"', "seeds: [7]", "base-seed7: two runs have this name"),
    ('run: "base-seed{seed}"', "run: none", "run=none: no variant has this name"),
  ],
)
def test_invalid_groups_are_refused(groups, old, new, message):
  assert old in groups.read_text()
  groups.write_text(groups.read_text().replace(old, new))
  with pytest.raises(UserError, match=message):
    load_sweep(groups)


def test_invalid_options_are_refused(file, budgets):
  with pytest.raises(UserError, match="--only=x: unknown variant; choose from default, n_step"):
    sweep(file, only=["x"])
  with pytest.raises(UserError, match="--minutes=1: must be more than 2"):
    sweep(file, minutes=1)
  (file.parent / "list.yaml").write_text("[1]")
  with pytest.raises(UserError, match=r"list.yaml: not a sweep"):
    sweep(file.parent / "list.yaml")

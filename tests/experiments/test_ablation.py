"""Tests of ablations: the settings of their runs, and the table of results."""

import importlib
import json
import os

import numpy as np
import pytest

from experiments.lib import ablation as ablation_module
from experiments.lib.ablation import Ablation, main, run_side_by_side
from experiments.lib.sweep import Sweep
from experiments.reanalyze_sample_efficiency import sweep as reanalyze
from moozi.core.errors import RunError, UserError
from moozi.experiments.jobs import differences
from moozi.io.config import load_config
from moozi.io.run_lock import RunLock
from tests.experiments.fake_budget import FakeBudget

GAMES = {"minatar_two_cores": "breakout", "asterix_ablation": "asterix", "value_lag": "space_invaders"}
CHANGES = {
  ("minatar_two_cores", "default"): {},
  ("minatar_two_cores", "prioritized"): {"replay.sampling": "rank"},
  ("minatar_two_cores", "consistency"): {"learner.consistency_coef": 2.0},
  ("minatar_two_cores", "unroll_5"): {"targets.unroll_steps": 5},
  ("asterix_ablation", "default"): {},
  ("asterix_ablation", "no_q_range_floor"): {
    "planners.train.q_range_floor": 1e-8,
    "planners.test.q_range_floor": 1e-8,
  },
  ("asterix_ablation", "q_range_floor_0.1"): {
    "planners.train.q_range_floor": 0.1,
    "planners.test.q_range_floor": 0.1,
  },
  ("asterix_ablation", "puct"): {
    "planners.train.algorithm": "puct",
    "planners.train.dirichlet_fraction": 0.25,
    "planners.test.algorithm": "puct",
  },
  ("asterix_ablation", "n_step_5"): {"targets.n_step": 5},
  ("asterix_ablation", "n_step_20"): {"targets.n_step": 20},
  ("asterix_ablation", "samples_per_step_8"): {
    "learner.samples_per_step": 8.0,
    "learner.learning_rate.decay_steps": 93750,
  },
  ("asterix_ablation", "rank_sampling"): {"replay.sampling": "rank"},
  ("asterix_ablation", "no_consistency"): {"learner.consistency_coef": 0.0},
  ("value_lag", "default"): {},
  ("value_lag", "capacity_65536"): {"replay.capacity": 65536},
  ("value_lag", "n_step_20"): {"targets.n_step": 20},
  ("value_lag", "both"): {"replay.capacity": 65536, "targets.n_step": 20},
  ("asterix_ablation", "resnet"): {"network.kind": "resnet", "network.num_representation_blocks": 1},
}


def ablation_of(experiment: str) -> Ablation:
  return importlib.import_module(f"experiments.{experiment}.ablation").ABLATION


@pytest.mark.parametrize(
  ("experiment", "variant"),
  [pytest.param(*key, marks=[] if key == ("value_lag", "both") else pytest.mark.slow) for key in CHANGES],
)
def test_variant_changes_only_its_settings(tmp_path, experiment, variant):
  ablation = ablation_of(experiment)
  config = ablation.job(variant, 1, 1000).load_config(tmp_path)
  assert (config.env.name, config.seed, config.max_env_steps) == (f"minatar:{GAMES[experiment]}", 1, 1000)
  assert config.runtime == "local"
  plain = [*ablation_module.SHORT_RUN, "seed=1", "max_env_steps=1000", *ablation.common]
  expected = CHANGES[experiment, variant]
  assert differences(load_config(ablation.config, plain), config) == sorted(expected)
  for key, value in expected.items():
    found = config
    for name in key.split("."):
      found = getattr(found, name)
    assert found == value


def test_all_variants_are_listed():
  for experiment in GAMES:
    variants = ablation_of(experiment).variants
    assert {(experiment, name) for name in variants} == {key for key in CHANGES if key[0] == experiment}


def test_asterix_has_no_time_limit(tmp_path):
  assert ablation_of("asterix_ablation").job("default", 0, 1000).load_config(tmp_path).max_wall_s is None


@pytest.fixture
def fake(tmp_path, monkeypatch):
  """Replaces the ablations by one of Catch without training; returns its time budgets."""
  budgets: list[FakeBudget] = []

  def budget(seconds: float) -> FakeBudget:
    budgets.append(FakeBudget(seconds=seconds))
    return budgets[-1]

  def sweep(*args) -> Sweep:
    return Sweep(*args, moozi=())

  monkeypatch.setattr(ablation_module, "TimeBudget", budget)
  monkeypatch.setattr(ablation_module, "Sweep", sweep)
  monkeypatch.setattr(ablation_module, "RUNS", tmp_path / "runs")
  (tmp_path / "config.yaml").write_text("env: {name: 'tiny:catch'}\n")

  def ablation(measures=None, **variants) -> Ablation:
    return Ablation(
      config=tmp_path / "config.yaml",
      results=tmp_path / "results",
      variants={"default": (), "other": ("targets.n_step=3",)} | variants,
      steps=1000,
      measures=measures or {},
    )

  return ablation, budgets


HEAD = "| variant | steps | training return, last 100 episodes | return, evaluation at the end |"
ROW = "1,000 | 2.5 2.5 (mean 2.5) | 3.0 ± 0.4 4.0 ± 0.4 (mean 3.5) |"


def test_missing_runs_are_made_and_the_table_is_printed(fake, tmp_path, capsys):
  ablation, budgets = fake
  empty = [f"{HEAD} wall s |", "|---|---|---|---|---|"]
  (tmp_path / "some").mkdir()
  (tmp_path / "some" / "README.md").write_text("<!-- some: begin -->\nold\n<!-- some: end -->")
  for option in ("--table", "--readme"):
    assert main(ablation(), tmp_path / "some", "Help.", [option]) == 0
    assert capsys.readouterr().out.splitlines() == empty
  text = (tmp_path / "some" / "README.md").read_text().splitlines()
  assert text == ["<!-- some: begin -->", "", *empty, "", "<!-- some: end -->"]
  assert main(ablation(), tmp_path / "some", "Help.", ["--variants", "other", "--seeds", "1"]) == 0
  assert (len(budgets), len(budgets[0].commands)) == (1, 1)
  assert {"targets.n_step=3", "seed=0", "max_env_steps=1000"} <= set(budgets[0].commands[0])
  measures = {"sum": lambda curve: sum(tick["train/return_mean"] for tick in curve)}
  assert main(ablation(measures), tmp_path / "some", "Help.", []) == 0
  assert len(budgets[1].commands) == 3
  table = capsys.readouterr().out.splitlines()[-4:]
  assert table[0] == f"{HEAD} sum | wall s |"
  assert table[-2:] == [f"| {name} | {ROW} 2.5 2.5 (mean 2.5) | 10 |" for name in ("default", "other")]
  # If the settings have changed, the existing results are refused.
  for changed, arguments, message in (
    (ablation(), ["--steps", "700"], "made with 1,000 steps instead of 700"),
    (
      ablation(other=("targets.n_step=4",)),
      ["--table"],
      "other_seed0: differs from the job in targets.n_step",
    ),
  ):
    assert main(changed, tmp_path / "some", "Help.", arguments) == 2
    assert message in capsys.readouterr().err
  assert len(budgets) == 2


@pytest.mark.slow
def test_run_without_evaluation_at_its_end_is_refused(fake, tmp_path):
  ablation, _ = fake
  main(ablation(), tmp_path / "some", "Help.", ["--variants", "default", "--seeds", "1"])
  path = tmp_path / "results" / "default_seed0" / "summary.json"
  path.write_text(json.dumps(json.loads(path.read_text()) | {"test_at_env_steps": 900}))
  with pytest.raises(UserError, match=r"default_seed0: .*evaluated"):
    ablation().table(1000)


def test_finished_runs_need_no_lock_and_missing_ones_do(fake, tmp_path):
  ablation, _ = fake
  (tmp_path / "runs").mkdir()
  with RunLock(tmp_path / "runs"), pytest.raises(RunError, match=str(os.getpid())):
    run_side_by_side(
      [ablation().job("default", 0, 1000)], tmp_path / "runs" / "some", tmp_path / "results", 1.0
    )


def test_growth_of_values_starts_at_the_full_buffer():
  script = importlib.import_module("experiments.value_lag.ablation")
  rising = [{"env_steps": s, "search/root_value": 1.0 + s / 50_000} for s in range(300_000, 700_000, 100_000)]
  before = {"env_steps": 200_000, "search/root_value": -1000.0}
  without_search = {"env_steps": 650_000}
  curve = [before, *rising, without_search]
  assert script.growth(curve) == pytest.approx(5.0)
  assert script.last_value(curve) == pytest.approx(13.0)
  assert np.isnan([script.growth([before, rising[0]]), script.last_value([before])]).all()


@pytest.mark.slow
@pytest.mark.parametrize(
  ("experiment", "steps"),
  [("minatar_two_cores", 300_000), ("asterix_ablation", 500_000), ("value_lag", 750_000)],
)
def test_committed_results_match_the_variants(experiment, steps):
  ablation = ablation_of(experiment)
  assert ablation.steps == steps
  made = {path.name.rpartition("_seed")[0] for path in ablation.results.glob("*_seed*")}
  table = ablation.table(steps)
  assert table.count("\n") == 1 + len(made)
  if experiment != "minatar_two_cores":  # its README names the variants differently
    assert table in (ablation.results.parent / "README.md").read_text()


def test_reanalyze_jobs_are_valid(tmp_path):
  config = reanalyze.job("space_invaders", "reanalyze_more_uniform", 1, 1000, 0.8).load_config(tmp_path)
  assert (config.seed, config.max_env_steps, config.runtime) == (1, 1000, "local")
  assert (config.reanalyze.ratio, config.replay.sampling) == (0.8, "uniform")
  assert (config.learner.samples_per_step, config.learner.learning_rate.decay_steps) == (16, 62)


@pytest.mark.slow
def test_committed_reanalyze_results_match_the_variants():
  made = {path.name.rpartition("_seed")[0] for path in reanalyze.RESULTS.glob("*_seed*")}
  table = reanalyze.table_of(250_000, 0.8)
  assert table.count("\n") == 1 + len(made)
  assert table in (reanalyze.HERE / "README.md").read_text()
  for steps, ratio, message in (
    (500_000, 0.8, "made with 250,880 steps instead of 500,000"),
    (250_000, 0.5, "differs from the job in reanalyze.ratio"),
  ):
    with pytest.raises(UserError, match=message):
      reanalyze.table_of(steps, ratio)


def test_offline_jobs_follow_one_another(tmp_path, monkeypatch):
  import argparse
  import types

  module = importlib.import_module("experiments.offline.sweep")
  options = argparse.Namespace(
    steps=1000, offline_steps=600, ratio=0.8, episodes=5, minutes=1.0, folder=tmp_path / "runs" / "one"
  )
  online, offline = module.jobs(options)
  first, second = (job.load_config(tmp_path) for job in (online, offline))
  assert first.trajectories.save
  assert first.checkpoint.milestones_env_steps == 500
  assert second.offline.trajectories == str(tmp_path / "runs" / "one" / "online")
  assert (second.offline.max_env_steps, second.max_env_steps, second.reanalyze.ratio) == (500, 600, 0.8)
  assert [e.checkpoint for job in (online, offline) for e in job.evaluations] == ["500", "last"]

  class Done(Sweep):
    def run(self, jobs) -> bool:
      for job, mean in zip(jobs, (20.0, 18.0), strict=True):
        folder = self._results / job.name
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text('{"training_s": 60.0}')
        (folder / "evaluations.json").write_text(json.dumps([{"return_mean": mean}]))
        (folder / "machine.json").write_text('{"cores": 2}')
        (folder / "config.yaml").write_text("{}\n")
      return True

  listed = types.SimpleNamespace(stdout=json.dumps({"bytes": 2**20, "steps": 500_000}))
  monkeypatch.setattr(module, "Sweep", Done)
  monkeypatch.setattr(module.subprocess, "run", lambda *args, **kwargs: listed)
  figures = module.measure(options, tmp_path / "results")
  assert (figures["share"], figures["mib_per_million_steps"]) == (0.9, 2.0)
  assert figures["wall_s"] == {"online": 60.0, "offline": 60.0}


def test_the_table_of_offline_learning_is_in_the_readme(capsys):
  module = importlib.import_module("experiments.offline.sweep")
  module.print_table(json.loads((module.RESULTS / "figures.json").read_text("utf-8")))
  table, _ = capsys.readouterr().out.split("\n\n")
  assert table in (module.RESULTS.parent / "README.md").read_text("utf-8")

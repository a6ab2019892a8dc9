"""Tests of the comparison of PPO with gymnax's, with synthetic results."""

import shutil

import pytest

from experiments.lib.sweep import is_done
from experiments.ppo_check import analysis, sweep
from tests.experiments.sample_results import evaluation, make_result

AS_GYMNAX = ("algorithm=ppo", "evaluation.noise_free=false", "evaluation.max_random_starts=0")


def test_jobs_have_gymnax_settings(tmp_path):
  jobs = sweep.jobs()
  configs = [job.load_config(tmp_path) for job in jobs]
  made = {
    job.name: (c.ppo.learning_rate, c.ppo.initial_bias, c.seed) for job, c in zip(jobs, configs, strict=True)
  }
  variants = {"rate_1e-3": (1e-3, 0.0), "rate_5e-4": (5e-4, 0.0), "rate_5e-4_biases": (5e-4, 0.05)}
  assert made == {
    f"ppo_breakout_{name}_seed{seed}": (*values, seed) for name, values in variants.items() for seed in (0, 1)
  }
  for job, config in zip(jobs, configs, strict=True):
    assert (config.algorithm, config.env.name, config.max_env_steps) == (
      "ppo",
      "minatar:breakout",
      10_000_000,
    )
    assert config.env.kwargs["sticky_action_prob"] == 0.0
    assert (config.evaluation.noise_free, config.evaluation.max_random_starts) == (False, 0)
    evaluated = [(int(e.checkpoint), e.episodes) for e in job.evaluations]
    assert evaluated == [(n * 1_000_000, 164) for n in range(1, 11)]
    assert all(steps % config.checkpoint.milestones_env_steps == 0 for steps, _ in evaluated)


def test_committed_jobs_are_done(tmp_path):
  for job in sweep.jobs():
    assert is_done(job, tmp_path, analysis.RESULTS), job.name


@pytest.mark.slow
def test_table_has_a_line_for_each_learning_rate(tmp_path, capsys):
  folder = tmp_path / "results"
  for name, rate, bias, seed, level in (
    ("a", "1e-3", 0, 0, 20.0),
    ("b", "1e-3", 0, 1, 30.0),
    ("c", "5e-4", 0, 0, 16.0),
    ("d", "5e-4", 0.05, 0, 17.0),
  ):
    figures = [evaluation(1_000_000, [level] * 164), evaluation(10_000_000, [level + 5] * 164)]
    overrides = (*AS_GYMNAX, f"ppo.learning_rate={rate}", f"ppo.initial_bias={bias}", f"seed={seed}")
    make_result(folder, name, figures[: 2 - (name == "c")], overrides=overrides)
  assert analysis.main(folder) == 0
  lines = (folder / "table.md").read_text().splitlines()
  assert capsys.readouterr().out.splitlines() == lines
  initial = "from 0 to 0.05 at first"
  assert lines == [
    "| million steps | 1 | 10 |",
    "|---|---|---|",
    "| learning rate 0.001, 2 seeds | **25.0** [20.0, 30.0] | **30.0** [25.0, 35.0] |",
    "| gymnax's, learning rate 0.001 | 20.3 | 43.4 |",
    "| learning rate 0.0005, 1 seed | **16.0** [16.0, 16.0] | – |",
    f"| learning rate 0.0005, biases {initial}, 1 seed | **17.0** [17.0, 17.0] | **22.0** [22.0, 22.0] |",
    "| gymnax's, learning rate 0.0005 | 16.6 | 22.9 |",
  ]


@pytest.mark.slow
def test_committed_table_matches_committed_results(tmp_path):
  committed, results = analysis.RESULTS, tmp_path / "results"
  shutil.copytree(committed, results, ignore=shutil.ignore_patterns("table.md"))
  assert analysis.main(results) == 0
  assert (results / "table.md").read_text() == (committed / "table.md").read_text()


def test_refuses_missing_and_mixed_results(tmp_path, capsys):
  folder = tmp_path / "results"
  assert analysis.main(folder) == 2
  assert "no results" in capsys.readouterr().err
  make_result(folder, "a", [evaluation(1_000_000, [1.0])], overrides=AS_GYMNAX)
  make_result(folder, "b", [evaluation(1_000_000, [1.0])], overrides=("algorithm=ppo", "seed=1"))
  assert analysis.main(folder) == 2
  assert "evaluation.noise_free of False and of True" in capsys.readouterr().err

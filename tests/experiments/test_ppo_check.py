"""The check of PPO against gymnax's: its jobs, and its table from results made by hand."""

import shutil

from tests.experiments.made import ROOT, evaluation, load_script, make_result

FOLDER = ("experiments", "ppo_check")
analysis = load_script(*FOLDER, "analysis.py")
AS_GYMNAX = ("algorithm=ppo", "evaluation.noise_free=false", "evaluation.max_random_starts=0")


def test_its_jobs_are_gymnaxs_settings_with_two_learning_rates_and_how_biases_begin(tmp_path):
  jobs = load_script(*FOLDER, "sweep.py").jobs()
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
    asked = [(int(e.checkpoint), e.episodes) for e in job.evaluations]
    assert asked == [(n * 1_000_000, 164) for n in range(1, 11)]
    # What is evaluated must have been kept.
    assert all(steps % config.checkpoint.milestones_env_steps == 0 for steps, _ in asked)


def test_its_table_has_a_line_for_each_learning_rate(tmp_path, capsys):
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
  begun = "from 0 to 0.05 at first"
  assert lines == [
    "| million steps | 1 | 10 |",
    "|---|---|---|",
    "| learning rate 0.001, 2 seeds | **25.0** [20.0, 30.0] | **30.0** [25.0, 35.0] |",
    "| gymnax's, learning rate 0.001 | 20.3 | 43.4 |",
    "| learning rate 0.0005, 1 seed | **16.0** [16.0, 16.0] | – |",
    f"| learning rate 0.0005, biases {begun}, 1 seed | **17.0** [17.0, 17.0] | **22.0** [22.0, 22.0] |",
    "| gymnax's, learning rate 0.0005 | 16.6 | 22.9 |",
  ]


def test_the_committed_table_is_what_the_committed_results_give(tmp_path):
  committed, results = ROOT.joinpath(*FOLDER, "results"), tmp_path / "results"
  shutil.copytree(committed, results, ignore=shutil.ignore_patterns("table.md"))
  assert analysis.main(results) == 0
  assert (results / "table.md").read_text() == (committed / "table.md").read_text()


def test_without_results_or_with_some_of_other_conditions_there_is_one_line_and_status_2(tmp_path, capsys):
  folder = tmp_path / "results"
  assert analysis.main(folder) == 2
  assert "there are no results yet" in capsys.readouterr().err
  make_result(folder, "a", [evaluation(1_000_000, [1.0])], overrides=AS_GYMNAX)
  make_result(folder, "b", [evaluation(1_000_000, [1.0])], overrides=("algorithm=ppo", "seed=1"))
  assert analysis.main(folder) == 2
  assert "evaluation.noise_free of False and of True" in capsys.readouterr().err

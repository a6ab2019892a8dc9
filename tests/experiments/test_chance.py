"""Tests of the jobs of experiments/chance."""

import json
from pathlib import Path

import pytest

from experiments.chance import random_play
from experiments.chance.sweep import HERE, SEEDS, VARIANTS, job, jobs
from experiments.chance.table import COLUMNS, table_of, tables
from experiments.lib.results import write_json
from moozi.experiments.jobs import differences
from moozi.io.config import load_config
from tests.experiments.sample_results import ROOT, evaluation, make_result

NODES = ["chance.codes", "planners.test.algorithm", "planners.train.algorithm"]


def test_variants_differ_in_model_and_search_only(tmp_path):
  chosen = {(job.name.rpartition("_seed")[0]): job for job in jobs() if job.seed == SEEDS[0]}
  assert len(chosen) == sum(len(variants) for variants in VARIANTS.values())
  for game in VARIANTS:
    configs = {v: chosen[f"{game}_{v}"].load_config(tmp_path) for v in VARIANTS[game]}
    for variant, config in configs.items():
      changed = differences(configs["stochastic_gumbel"], config)
      assert all(key.startswith(("chance.", "planners.", "targets.unroll_steps")) for key in changed), variant
      is_stochastic = variant.startswith("stochastic")
      assert (config.chance.codes > 0) == is_stochastic
      algorithm = variant if is_stochastic else variant.split("_")[0]
      assert config.planners.train.algorithm == config.planners.test.algorithm == algorithm
    # A control differs only in the chance nodes of the model and of the search.
    control = "gumbel_8" if game == "2048" else "gumbel"
    assert differences(configs["stochastic_gumbel"], configs[control]) == NODES
    if game == "2048":
      assert differences(configs["stochastic"], configs["puct"]) == NODES


def test_breakout_is_that_of_protocol_b(tmp_path):
  config = job("breakout", "gumbel", 0).load_config(tmp_path)
  assert config.env == load_config("minatar/sticky/breakout").env


@pytest.mark.slow
def test_random_play_is_measured_and_stated(tmp_path):
  assert random_play.main(["--episodes", "2", "--results", str(tmp_path)]) == 0
  small = json.loads((tmp_path / "random_play.json").read_text())
  committed = json.loads((HERE / "results" / "random_play.json").read_text())
  assert (small["num_episodes"], committed["num_episodes"]) == (2, random_play.NUM_EPISODES)
  assert small["evaluation"] == committed["evaluation"]
  mean = committed["mean"]
  assert f"random play: {mean:,.0f}" in (ROOT / "README.md").read_text("utf-8")
  assert f"(results/random_play.json) | | {mean:,.0f} |" in (HERE / "README.md").read_text("utf-8")
  config = (ROOT / "config" / "pgx" / "2048.yaml").read_text("utf-8")
  assert f"Random play returns about {round(mean, -2):,.0f}." in config


def test_the_table_is_in_the_readme():
  assert tables(HERE / "results") in (HERE / "README.md").read_text("utf-8")


def test_time_is_a_parameter(tmp_path):
  assert job("2048", "stochastic", 0, wall_s=20).load_config(tmp_path).max_wall_s == 20


def test_table(tmp_path: Path):
  path = make_result(tmp_path, "2048_puct_seed0", [evaluation(1000, [2000.0, 2500.0])])
  write_json(path / "job.json", {"env_steps": 90_000, "wall_s": 1500.0})
  assert table_of(tmp_path).splitlines()[2] == "| 2048 | puct | 2,250.0 | 2,250.0 |  | 90,000 | 60 | 1 |"


def test_table_without_results(tmp_path: Path):
  assert table_of(tmp_path).splitlines()[0] == f"| {' | '.join(COLUMNS)} |"
  assert len(table_of(tmp_path).splitlines()) == 2

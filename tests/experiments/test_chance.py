"""Tests of the jobs of experiments/chance."""

from pathlib import Path

from experiments.chance.sweep import SEEDS, VARIANTS, job, jobs
from experiments.chance.table import COLUMNS, table_of
from moozi.experiments.jobs import differences


def test_variants_differ_in_model_and_search_only(tmp_path):
  chosen = {(job.name.rpartition("_seed")[0]): job for job in jobs() if job.seed == SEEDS[0]}
  assert len(chosen) == sum(len(variants) for variants in VARIANTS.values())
  for game in VARIANTS:
    configs = {v: chosen[f"{game}_{v}"].load_config(tmp_path) for v in VARIANTS[game]}
    for variant, config in configs.items():
      changed = differences(configs["stochastic"], config)
      assert all(key.startswith(("chance.", "planners.")) for key in changed), variant
      is_stochastic = variant == "stochastic"
      assert (config.chance.codes > 0) == is_stochastic
      assert config.planners.train.algorithm == config.planners.test.algorithm == variant.split("_")[0]
    # puct is the control: it differs only in the chance nodes of the model and of the search.
    changed = differences(configs["stochastic"], configs["puct"])
    assert changed == ["chance.codes", "planners.test.algorithm", "planners.train.algorithm"]


def test_time_is_a_parameter(tmp_path):
  assert job("2048", "stochastic", 0, wall_s=20).load_config(tmp_path).max_wall_s == 20


def test_table_without_results(tmp_path: Path):
  assert table_of(tmp_path).splitlines()[0] == f"| {' | '.join(COLUMNS)} |"
  assert len(table_of(tmp_path).splitlines()) == 2

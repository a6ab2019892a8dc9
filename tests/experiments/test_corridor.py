"""Tests of the ablation of the corridor."""

from experiments.corridor import ablation


def test_variants_change_the_unroll_and_the_floor_only(tmp_path):
  found = ablation.ABLATION
  configs = {name: found.job(name, 0, found.steps).load_config(tmp_path) for name in found.variants}
  settings = {
    name: (c.targets.unroll_steps, c.planners.train.q_range_floor, c.planners.test.q_range_floor)
    for name, c in configs.items()
  }
  assert settings == {
    "default": (3, 0.3, 0.3),
    "long_unroll": (5, 0.3, 0.3),
    "low_floor": (3, 0.01, 0.01),
    "both": (5, 0.01, 0.01),
  }


def test_the_table_is_in_the_readme():
  table = ablation.ABLATION.table(ablation.ABLATION.steps)
  assert len(table.splitlines()) > 2
  assert table in (ablation.HERE / "README.md").read_text("utf-8")


def test_share_of_best_returns():
  curve = [{"test/return_mean": mean} for mean in (1.0, 0.0, *(1.0,) * 7, 0.1, 0.0)] + [{"loss/total": 1.0}]
  assert ablation.best_share(curve) == 70.0

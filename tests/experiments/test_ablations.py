"""Ablations: what their runs are begun with, and the table of what there is."""

import json

import numpy as np
import pytest

from experiments.lib import ablations, scratch
from experiments.lib.ablations import Ablation, main
from experiments.lib.jobs import differences
from experiments.lib.pieces import lock_experiments
from moozi.core.config import Config
from moozi.io.config import load_config
from tests.experiments.made import load_script


@pytest.fixture
def begun(monkeypatch):
  """The settings of the runs that were begun; none of them is made."""
  seen: list[Config] = []

  def run_whole(together, config, overrides, keys) -> dict:
    seen.append(load_config(config, overrides))
    summary = {
      "env_steps": seen[-1].max_env_steps,
      "test_return_mean": 3.0 + seen[-1].seed,
      "test_return_std": 2.0,
      "test_episodes": 100,
      "wall_s": 10.0,
    }
    return {"summary": summary, "curve": [{"train/return_mean": 1.0}, {"train/return_mean": 2.5}]}

  monkeypatch.setattr(ablations, "run_whole", run_whole)
  return seen


GAMES = {"minatar_two_cores": "breakout", "asterix_ablation": "asterix", "value_lag": "space_invaders"}
CHANGES = {
  ("minatar_two_cores", "default"): {},
  ("minatar_two_cores", "prioritized"): {"replay.sampling": "rank"},
  ("minatar_two_cores", "consistency"): {"learner.consistency_coef": 2.0},
  ("minatar_two_cores", "unroll_5"): {"targets.unroll_steps": 5},
  ("minatar_two_cores", "mean_root_value"): {"planners.train.root_value": "mean"},
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


@pytest.mark.parametrize(("experiment", "variant"), CHANGES)
def test_each_variant_changes_what_it_says_and_nothing_else(begun, experiment, variant):
  ablation = load_script("experiments", experiment, "ablation.py").ABLATION
  figures = ablation.run(None, variant, 1, 1000)
  assert figures["overrides"] == ablation.variants[variant]
  (settings,) = begun
  game = GAMES[experiment]
  assert (settings.env.name, settings.seed, settings.max_env_steps) == (f"minatar:{game}", 1, 1000)
  plain = load_config(ablation.config, ["seed=1", "max_env_steps=1000", *ablation.common])
  expected = CHANGES[experiment, variant]
  assert differences(plain, settings) == sorted(expected)
  for key, value in expected.items():
    found = settings
    for name in key.split("."):
      found = getattr(found, name)
    assert found == value


def test_no_variant_is_left_out_here():
  for experiment in GAMES:
    ablation = load_script("experiments", experiment, "ablation.py").ABLATION
    assert {(experiment, name) for name in ablation.variants} == {k for k in CHANGES if k[0] == experiment}


def test_asterix_s_runs_are_cut_by_no_clock(begun):
  load_script("experiments", "asterix_ablation", "ablation.py").ABLATION.run(None, "default", 0, 1000)
  assert begun[0].max_wall_s is None


def test_what_is_missing_is_made_and_the_table_printed(begun, tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(scratch, "lock_experiments", lambda runs: lock_experiments(tmp_path / "runs"))
  (tmp_path / "config.yaml").write_text("env: {name: 'tiny:catch'}\n")
  variants = {"default": (), "other": ("targets.n_step=3",)}

  def ablation(**more) -> Ablation:
    where = {"config": tmp_path / "config.yaml", "results": tmp_path / "results"}
    return Ablation(**where, variants=variants | more, steps=1000)

  head = (
    "| variant | steps | return while acting, last 100 episodes | return, evaluation at the end | wall s |"
  )
  assert main(ablation(), "doc", ["--table"]) == 0
  assert capsys.readouterr().out.splitlines() == [head, "|---|---|---|---|---|"]
  assert main(ablation(), "doc", ["--variants", "other", "--seeds", "1"]) == 0
  assert [(c.targets.n_step, c.seed, c.max_env_steps) for c in begun] == [(3, 0, 1000)]
  assert main(ablation(), "doc", []) == 0
  assert sorted((c.targets.n_step, c.seed) for c in begun[1:]) == [(3, 1), (10, 0), (10, 1)]
  assert json.loads(ablation().path_of("other", 0).read_text())["overrides"] == ["targets.n_step=3"]
  row = "1,000 | 2.5 2.5 (mean 2.5) | 3.0 ± 0.4 4.0 ± 0.4 (mean 3.5) | 10 |"
  assert capsys.readouterr().out.splitlines()[-2:] == [f"| default | {row}", f"| other | {row}"]

  # What was made otherwise is neither pooled nor taken for what is asked for.
  for changed, arguments, said in (
    (ablation(), ["--steps", "2000"], "made with 1,000 steps, and 2,000 are asked for: say --steps, or"),
    (
      ablation(other=("targets.n_step=4",)),
      ["--table"],
      "other_seed0.json: made with targets.n_step=3; move ",
    ),
  ):
    assert main(changed, "doc", arguments) == 2
    assert said in capsys.readouterr().err
  assert len(begun) == 4


def test_a_measure_of_the_curve_is_a_column(begun, tmp_path, monkeypatch):
  monkeypatch.setattr(scratch, "lock_experiments", lambda runs: lock_experiments(tmp_path / "runs"))
  (tmp_path / "config.yaml").write_text("env: {name: 'tiny:catch'}\n")
  ablation = Ablation(
    config=tmp_path / "config.yaml",
    results=tmp_path / "results",
    variants={"default": ()},
    steps=1000,
    measures={"sum": lambda curve: sum(tick["train/return_mean"] for tick in curve)},
  )
  assert main(ablation, "doc", []) == 0
  head, _, row = ablation.table(1000).splitlines()
  assert head.endswith("| return, evaluation at the end | sum | wall s |")
  assert row.endswith("| 3.0 ± 0.4 4.0 ± 0.4 (mean 3.5) | 3.5 3.5 (mean 3.5) | 10 |")


def test_growth_of_values_is_a_line_from_the_full_buffer_on():
  script = load_script("experiments", "value_lag", "ablation.py")
  rising = [{"env_steps": s, "search/root_value": 1.0 + s / 50_000} for s in range(300_000, 700_000, 100_000)]
  before = {"env_steps": 200_000, "search/root_value": -1000.0}
  of_no_search = {"env_steps": 650_000}
  curve = [before, *rising, of_no_search]
  assert script.growth(curve) == pytest.approx(5.0)
  assert script.last_value(curve) == pytest.approx(13.0)
  assert np.isnan([script.growth([before, rising[0]]), script.last_value([before])]).all()


@pytest.mark.parametrize(
  ("experiment", "steps"),
  [("minatar_two_cores", 300_000), ("asterix_ablation", 500_000), ("value_lag", 750_000)],
)
def test_committed_results_are_of_the_variants_as_they_are(experiment, steps):
  ablation = load_script("experiments", experiment, "ablation.py").ABLATION
  assert ablation.steps == steps
  made = {path.stem.rpartition("_seed")[0] for path in ablation.results.glob("*.json")}
  table = ablation.table(steps)
  assert table.count("\n") == 1 + len(made)
  if experiment != "minatar_two_cores":  # whose README has names in words
    assert table in (ablation.results.parent / "README.md").read_text()

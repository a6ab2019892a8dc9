"""Tests of the comparison of runs."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from moozi.api.compare import FILES, Comparison, compare, find_runs
from moozi.core.errors import UserError
from moozi.experiments.comparison import INTERVAL_NOTE, common_points, read_run
from tests.experiments.sample_results import make_result


def curve(*returns: float, period: int = 100, first: int = 100) -> list[tuple[int, float, float]]:
  """Returns a curve with an evaluation every `period` steps and every six seconds."""
  return [(first + period * i, 6.0 * (i + 1), value) for i, value in enumerate(returns)]


@pytest.fixture
def runs(tmp_path):
  """Makes three seeds of a fast learner, two of a slow one, and one of the fast one with sticky actions."""
  for seed in range(3):
    values = [float(x) for x in range(seed, seed + 8)]
    make_result(tmp_path, f"fast_breakout_seed{seed}", [], curve(*values), overrides=[f"seed={seed}"])
  for seed in range(2):
    overrides = [f"seed={seed}", "learner.batch_size=64"]
    make_result(tmp_path, f"slow_breakout_seed{seed}", [], curve(0, 0, 1, 1, 2, 2, 3), overrides=overrides)
  overrides = ["seed=0", "env.kwargs.sticky_action_prob=0.25"]
  make_result(tmp_path, "sticky_seed0", [], curve(1, 2), overrides=overrides)
  return tmp_path


def test_configurations_are_groups_and_protocols_are_tasks(runs):
  comparison = compare(runs)
  names = {task.name: [group.name for group in task.groups] for task in comparison.tasks}
  assert names == {
    "minatar:breakout (sticky_action_prob=0.0, max_episode_steps=1000)": ["fast", "slow"],
    "minatar:breakout (sticky_action_prob=0.25, max_episode_steps=1000)": ["sticky"],
  }
  (task, _) = comparison.tasks
  assert [run.seed for run in task.groups[0].runs] == [0, 1, 2]
  assert task.differing_settings() == {"learner.batch_size": [256, 64]}
  assert task.conditions["difficulty_ramping"] is True


def test_files_beside_the_runs_are_ignored(runs):
  """`moozi train --seeds` writes a log beside each run, which matches the pattern of the runs too."""
  (runs / "fast_breakout_seed0.log").touch()
  pattern = str(runs / "fast_breakout*")
  for argument in (pattern, sorted(runs.glob("fast_breakout*"))):
    (task,) = compare(argument).tasks
    assert len(task.groups[0].runs) == 3
  with pytest.raises(UserError, match="no run; must be a run, a folder of runs, or a pattern"):
    compare(runs / "fast_breakout_seed0.log")


def test_an_opponent_has_one_name(tmp_path):
  """`mcts` with its number of simulations beside it is the opponent mcts:N; others have no such number."""
  for seed, overrides in enumerate(
    (
      ["evaluation.opponent=mcts", "evaluation.opponent_simulations=200"],
      ["evaluation.opponent=mcts:200"],
      ["evaluation.opponent=random", "evaluation.opponent_simulations=200"],
      ["evaluation.opponent=random"],
    )
  ):
    make_result(tmp_path, f"a_seed{seed}", [], curve(1, 2), overrides=[f"seed={seed}", *overrides])
  tasks = compare(tmp_path).tasks
  assert [task.conditions["evaluation.opponent"] for task in tasks] == ["mcts:200", "random"]
  assert [len(task.groups[0].runs) for task in tasks] == [2, 2]


def test_final_figure_is_the_mean_of_the_last_five_evaluations(runs):
  table = compare(runs).table()
  fast, slow, sticky = (row for _, row in table.iterrows())
  assert fast["finals"] == (5.0, 6.0, 7.0)
  assert (fast["mean"], fast["iqm"], fast["seeds"], fast["finished"]) == (6.0, 6.0, 3, 0)
  assert slow["finals"] == (1.8, 1.8)
  assert sticky["finals"] == (1.5,), "the run has fewer evaluations than the final score averages"
  assert 5.0 <= fast["mean_low"] < 6.0 < fast["mean_high"] <= 7.0
  assert math.isnan(sticky["mean_low"])
  assert math.isnan(sticky["iqm_high"])
  assert fast["env_steps"] == 800


def test_evaluation_at_the_end_replaces_an_earlier_one_at_its_step(tmp_path):
  path = make_result(tmp_path, "a", [], [*curve(1, 2), (200, 20.0, 8.0)])
  run = read_run(path)
  assert run.returns.tolist() == [1.0, 8.0]
  assert not run.is_finished
  (path / "summary.json").write_text(json.dumps({"reason": "max_env_steps"}))
  assert read_run(path).is_finished


def test_minutes_exclude_evaluations_that_training_waits_for(tmp_path):
  waits = make_result(
    tmp_path, "a", [], [(100, 12.0, 1), (200, 24.0, 1)], overrides=["runtime=local"], test_seconds=6.0
  )
  np.testing.assert_allclose(read_run(waits).minutes, [0.1, 0.2])
  ray = make_result(tmp_path, "b", [], [(100, 12.0, 1), (200, 24.0, 1)], test_seconds=6.0)
  np.testing.assert_allclose(read_run(ray).minutes, [0.2, 0.4])


def test_band_covers_the_range_of_all_seeds(runs):
  path = make_result(runs, "fast_breakout_seed3", [], curve(3, 4, 5, first=250), overrides=["seed=3"])
  group = compare([*find_runs(str(runs / "fast*")), path]).tasks[0].groups[0]
  band = group.band("env_steps", "mean")
  assert (band.x[0], band.x[-1]) == (250, 450)
  assert ((band.low <= band.center) & (band.center <= band.high)).all()
  one = compare(runs / "sticky_seed0").tasks[0].groups[0].band("minutes", "iqm")
  assert one.low is None
  np.testing.assert_allclose(one.center, [1, 2])


def test_common_points():
  steps = [np.arange(1.0, 6.0), np.array([2.5, 4.5])]
  assert common_points(steps).tolist() == [2.5, 3, 4, 4.5]
  assert len(common_points([np.arange(1000.0)])) == 200
  assert common_points([np.array([1.0]), np.array([2.0])]).size == 0


def test_probability_of_improvement(runs):
  pairs = compare(runs).pairs()
  assert pairs[["first", "second", "probability"]].values.tolist() == [["fast", "slow", 1.0]]
  assert pairs[["low", "high"]].values.tolist() == [[1.0, 1.0]]
  single = compare([runs / "fast_breakout_seed0", runs / "slow_breakout_seed0"]).pairs()
  assert single["probability"][0] == 1.0
  assert pd.isna(single["low"][0])


def test_scores_have_the_form_of_rliable(runs):
  path = make_result(runs, "late", [], curve(1, first=5000), overrides=["learner.batch_size=32"])
  out = json.loads(json.dumps(compare(runs).to_json(), allow_nan=False))
  task = "minatar:breakout (sticky_action_prob=0.0, max_episode_steps=1000)"
  assert set(out["scores"]) == {"fast", "slow", "sticky", path.name}
  assert out["scores"]["fast"][task] == [[], [], []], "the runs have no evaluated step in common"
  out = compare([*find_runs(str(runs / "*seed*"))]).to_json()
  assert np.shape(out["scores"]["fast"][task]) == (3, len(out["metadata"]["checkpoints"][task])) == (3, 7)
  assert out["scores"]["fast"][task][1] == [1, 2, 3, 4, 5, 6, 7]
  assert out["final"]["slow"][task] == [1.8, 1.8]
  assert out["metadata"]["seeds"]["fast"][task] == [0, 1, 2]
  assert out["table"][2]["iqm_low"] is None


def test_two_runs_of_one_seed_are_refused(runs):
  make_result(runs, "again", [], curve(1, 2), overrides=["seed=1"])
  with pytest.raises(UserError, match=r"again and .*fast_breakout_seed1: both have seed 1"):
    compare(runs)


def test_a_path_given_twice_counts_once(runs):
  run = runs / "sticky_seed0"
  assert len(compare([run, str(run), runs / "sticky*"]).tasks[0].groups[0].runs) == 1


def test_run_without_evaluations_is_left_out(runs):
  make_result(runs, "new", [], curve=None)
  comparison = compare(runs)
  assert [path.name for path in comparison.left_out] == ["new"]
  assert "Left out, without evaluations: new." in str(comparison)
  with pytest.raises(UserError, match="no evaluations"):
    compare(runs / "new")


@pytest.mark.parametrize(
  ("path", "message"),
  [("none", "none: no run; must be a run"), ("runs*/x", "no run; must be"), ("empty", "empty: no run")],
)
def test_missing_runs_are_named(tmp_path, monkeypatch, path, message):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "empty").mkdir()
  with pytest.raises(UserError, match=message):
    compare(path)


def test_unnamed_groups_are_named_by_algorithm_and_settings(tmp_path):
  for i, size in enumerate((32, 64, 32)):
    overrides = [f"seed={i}", f"learner.batch_size={size}"]
    make_result(tmp_path, f"minatar-breakout-2026010{i}", [], curve(1), overrides=overrides)
  (task,) = compare(tmp_path).tasks
  assert [group.name for group in task.groups] == ["minatar-20260101", "muzero"]
  make_result(tmp_path, "x", [], curve(1), overrides=["seed=9", "learner.batch_size=64"])
  (task,) = compare(tmp_path).tasks
  assert [group.name for group in task.groups] == [
    "muzero (learner.batch_size=32)",
    "muzero (learner.batch_size=64)",
  ]


def test_network_of_evaluations_is_a_setting_of_the_method(tmp_path):
  for i, overrides in enumerate(([], ["evaluation.network=target"], ["checkpoint.first_s=5"])):
    make_result(tmp_path, f"minatar-breakout-2026010{i}", [], curve(1), overrides=[f"seed={i}", *overrides])
  (task,) = compare(tmp_path).tasks
  assert [[run.seed for run in group.runs] for group in task.groups] == [[1], [0, 2]]
  assert task.differing_settings() == {"evaluation.network": ["target", "online"]}


@pytest.mark.parametrize(
  ("decay_steps", "names"), [("budget", ["a"]), ("progress", ["a (max_wall_s=60.0)", "a (max_wall_s=90.0)"])]
)
def test_a_time_limit_is_a_setting_of_the_method_if_the_rate_follows_it(tmp_path, decay_steps, names):
  rate = ["learner.learning_rate.kind=cosine", f"learner.learning_rate.decay_steps={decay_steps}"]
  for seed, limit in enumerate((60, 60, 90)):
    overrides = [f"seed={seed}", f"max_wall_s={limit}", *rate]
    make_result(tmp_path, f"a_seed{seed}", [], curve(1, 2), overrides=overrides)
  (task,) = compare(tmp_path).tasks
  assert [group.name for group in task.groups] == names
  assert sum(len(group.runs) for group in task.groups) == 3


def test_a_schedule_by_time_without_a_time_limit_is_that_by_steps(tmp_path):
  steps = ["learner.learning_rate.decay_steps=budget", "ppo.anneal_by=steps"]
  time = ["learner.learning_rate.decay_steps=progress", "ppo.anneal_by=progress"]
  for seed, own in enumerate((steps, time)):
    overrides = [f"seed={seed}", "learner.learning_rate.kind=cosine", *own]
    make_result(tmp_path, f"a_seed{seed}", [], curve(1, 2), overrides=overrides)
  (task,) = compare(tmp_path).tasks
  assert [group.name for group in task.groups] == ["a"]


def test_text_says_what_an_interval_covers(runs):
  text = str(compare(runs))
  assert INTERVAL_NOTE in text
  row = next(line for line in text.splitlines() if line.startswith("sticky"))
  assert row.split() == ["sticky", "1", "0", "200", "0.2", "1.50", "–", "1.50", "–", "1.50"]
  assert "P(fast > slow) = 1.00 [1.00, 1.00]" in text


def test_saved_files(runs, tmp_path):
  comparison = compare(runs, center="mean")
  paths = comparison.save(tmp_path / "out")
  assert {path.name for path in paths.values()} == set(FILES.values())
  page = paths["page"].read_text("utf-8")
  assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
  assert paths["picture"].read_bytes().startswith(b"\x89PNG")
  assert list(pd.read_csv(paths["table"])["group"]) == ["fast", "slow", "sticky"]
  legends = [legend for axis in comparison.figure().axes if (legend := axis.get_legend()) is not None]
  labels = [text.get_text().strip() for legend in legends for text in legend.get_texts()]
  assert labels == ["fast, 3 seeds", "slow, 2 seeds", "sticky, 1 seed: no interval"]
  assert "<table" in comparison._repr_html_()
  (tmp_path / "file").touch()
  with pytest.raises(UserError, match="file: cannot be written"):
    comparison.save(tmp_path / "file")


def test_center_is_checked(runs):
  with pytest.raises(UserError, match="center='median': must be one of iqm, mean"):
    compare(runs, center="median")
  assert isinstance(compare(runs, center="mean"), Comparison)

"""Results on the disk: thinned metrics, and what is no result."""

import pytest

from moozi.core.errors import UserError
from moozi.experiments.results import read_results, thin
from tests.experiments.made import evaluation, make_result


def test_evaluations_stay_and_of_the_others_so_many_and_the_last():
  ticks = [{"env_steps": i, "loss/total": i / 3} for i in range(1000)]
  for i in (3, 500):
    ticks[i]["test/return_mean"] = 1.0
  kept = thin(ticks, most=100)
  steps = [tick["env_steps"] for tick in kept]
  assert {3, 500, 999} <= set(steps)
  assert 90 <= len(steps) <= 102
  assert steps == sorted(steps)
  assert kept[-1]["loss/total"] == 333.0
  assert next(t for t in kept if t["env_steps"] == 500)["loss/total"] == 166.667
  few = [{"env_steps": 1}, {"env_steps": 2}]
  assert thin(few, most=100) == few


def test_a_result_tells_what_it_is_of(tmp_path):
  make_result(tmp_path, "a", [evaluation(10, [1.0])], overrides=("algorithm=ppo", "seed=3"))
  make_result(tmp_path, "b", [], curve=None, game="tiny:catch")
  (tmp_path / ".a.12.tmp").mkdir()
  first, second = read_results(tmp_path)
  assert (first.agent, first.game, first.sticky_action_prob, first.cores) == ("PPO", "breakout", 0.0, 2)
  assert (first.has_curve, second.has_curve) == (True, False)
  assert (second.agent, second.game) == ("MooZi", "catch")
  assert read_results(tmp_path / "none") == []


def test_a_folder_that_is_no_result_is_named(tmp_path):
  folder = make_result(tmp_path, "a", [])
  (folder / "machine.json").write_text("[]")
  with pytest.raises(UserError, match=r"/a: not a result: TypeError"):
    read_results(tmp_path)

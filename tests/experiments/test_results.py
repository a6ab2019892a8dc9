"""Tests of reading, thinning and comparing results."""

import json

import numpy as np
import pytest

from experiments.lib import tables
from experiments.lib.results import (
  check_alike,
  check_same_conditions,
  read_results,
)
from moozi.core.errors import UserError
from moozi.experiments.results import machine, write_json
from moozi.io.checkpoints import code_commit
from tests.experiments.sample_results import ROOT, evaluation, make_result


def test_result_has_game_and_machine(tmp_path):
  make_result(tmp_path, "a", [evaluation(10, [1.0])], overrides=("algorithm=ppo", "seed=3"))
  make_result(tmp_path, "b", [], curve=None, game="tiny:catch")
  (tmp_path / ".a.12.tmp").mkdir()
  first, second = read_results(tmp_path)
  assert (first.game, first.cores) == ("breakout", 1)
  write_json(tmp_path / "a" / "summary.json", {"machine": {"cpu": "Intel(R) Xeon(R) Processor"}})
  write_json(tmp_path / "b" / "machine.json", {"cores": 1, "device": "AMD EPYC"})
  assert (first.processor, second.processor) == ("Intel Xeon", None)
  assert read_results(tmp_path)[1].processor == "AMD EPYC"
  assert second.game == "catch"
  assert read_results(tmp_path / "none") == []


def test_machine_has_commit_and_no_path():
  assert set(machine()) == {"cores", "processor", "python", "packages", "commit"}
  assert machine()["commit"] == code_commit()
  assert str(ROOT) not in json.dumps(machine())


def test_damaged_result_is_named(tmp_path):
  folder = make_result(tmp_path, "a", [])
  (folder / "machine.json").write_text("[]")
  with pytest.raises(UserError, match=r"/a: not a result: TypeError"):
    read_results(tmp_path)


def test_wall_s_excludes_evaluations(tmp_path):
  """With Ray, evaluations are concurrent with training; one process waits, and their time is excluded."""
  ray = make_result(tmp_path, "ray", [], [])
  ticks = [(0, 10.0), (200, 30.0), (300, 45.0), (400, 50.0), (400, 70.0)]
  lines = [{"env_steps": steps, "wall_s": at, "test/seconds": 40.0} for steps, at in ticks]
  (ray / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
  # Each evaluation of this run takes two seconds.
  make_result(
    tmp_path,
    "waits",
    [],
    [(100, 12.0, 1.0), (200, 24.0, 1.0)],
    overrides=("algorithm=ppo", "runtime=local"),
    test_seconds=2.0,
  )
  by_name = {result.path.name: result for result in read_results(tmp_path)}
  np.testing.assert_allclose(by_name["ray"].wall_s_at([100, 250, 400]), [20.0, 37.5, 50.0])
  np.testing.assert_allclose(by_name["waits"].wall_s_at([100, 150, 200]), [10.0, 15.0, 20.0])


def test_seeds_may_differ_in_length(tmp_path):
  for seed, more in enumerate(((), ("max_env_steps=5", "max_wall_s=7", "run.name=x", "logging.period_s=2"))):
    make_result(tmp_path, f"r{seed}", [], overrides=(f"seed={seed}", *more))
  results = read_results(tmp_path)
  check_alike(results)
  check_alike([])
  with pytest.raises(UserError, match=r"/r1 and .*/r1: both have seed 1"):
    check_alike([*results, results[1]])


@pytest.mark.parametrize(
  "key",
  ["learner.batch_size"]
  + [
    pytest.param(k, marks=pytest.mark.slow) for k in ("env.kwargs.max_episode_steps", "evaluation.episodes")
  ],
)
def test_seeds_with_different_settings_are_refused(tmp_path, key):
  make_result(tmp_path, "a", [])
  make_result(tmp_path, "b", [], overrides=("seed=1", f"{key}=77"))
  with pytest.raises(UserError, match=rf"/a and .*/b: differ in {key}; "):
    check_alike(read_results(tmp_path))


@pytest.mark.parametrize(
  ("override", "message"),
  [
    ("evaluation.noise_free=false", r"evaluation\.noise_free of True and of False"),
    pytest.param(
      "evaluation.max_random_starts=0", r"evaluation\.max_random_starts of 8 and of 0", marks=pytest.mark.slow
    ),
    pytest.param("evaluation.seed=5", r"evaluation\.seed of 20000003 and of 5", marks=pytest.mark.slow),
    pytest.param(
      "evaluation.max_episode_steps=50",
      r"evaluation\.max_episode_steps of 10000 and of 50",
      marks=pytest.mark.slow,
    ),
  ],
)
def test_returns_under_different_conditions_are_refused(tmp_path, override, message):
  make_result(tmp_path, "a", [])
  make_result(tmp_path, "b", [], overrides=("algorithm=ppo", "seed=1", "evaluation.episodes=3"))
  check_same_conditions(read_results(tmp_path))
  make_result(tmp_path, "c", [], overrides=(override,))
  with pytest.raises(UserError, match=rf"/a and .*/c: .*{message}"):
    check_same_conditions(read_results(tmp_path))


def test_tables_are_printed_and_written_into_the_pages(tmp_path, capsys, monkeypatch):
  readme = tmp_path / "some" / "README.md"
  readme.parent.mkdir()
  (tmp_path / "some" / "table.py").touch()
  readme.write_text("<!-- own: begin -->\nold\n<!-- own: end -->\n")
  monkeypatch.setattr(tables, "EXPERIMENTS", tmp_path)
  monkeypatch.setattr(tables, "tables_of", lambda name: {"own": lambda: "| a |", "other.md": lambda: "| b |"})
  assert tables.main([]) == 0
  assert "old" in readme.read_text()
  assert tables.main(["some", "--readme"]) == 0
  assert "begin -->\n\n| a |\n\n<!--" in readme.read_text()
  assert (readme.parent / "other.md").read_text() == "| b |\n"
  assert capsys.readouterr().out == "| a |\n\n| b |\n\n" * 2
  readme.write_text("no markers\n")
  assert tables.main(["--readme"]) == 2
  assert "needs one line <!-- own: begin -->" in capsys.readouterr().err
  assert tables.main(["none"]) == 2
  assert "none: has no tables; choose from some" in capsys.readouterr().err

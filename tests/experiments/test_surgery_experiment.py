"""Tests of experiments/surgery: what its run writes, on a small game, and its tables."""

import json
import sys

import pytest

from experiments.surgery import run, table
from moozi.io.lineage import read_lineage
from tests.tiny_run import RESUMABLE


def evaluation(*returns):
  return {"env_steps": 1000, "returns": returns}


def test_tables(tmp_path, monkeypatch):
  results = tmp_path / "results"
  results.mkdir()
  monkeypatch.setattr(table, "RESULTS", results)
  joints = [
    {"stage": "history", "before": evaluation(1, 3), "after": evaluation(1, 3)},
    {"stage": "width", "before": evaluation(2, 4), "after": evaluation(2, 4)},
    {
      "stage": "sticky",
      "before": evaluation(5, 7),
      "old_agent": evaluation(0, 2),
      "after": evaluation(1, 1),
    },
  ]
  ends = {"env_steps": [1], "returns": [4.0], "training_s": 90.0, "last": evaluation(4, 4)}
  text = json.dumps({"joints": joints, "surgeries": ends, "from_nothing": ends})
  for seed in (0, 1):
    (results / f"seed{seed}.json").write_text(text)
  for name in ("lineage_seed1.json", "report_seed1.html"):
    (results / name).write_text("")
  lines = table.joints_table().splitlines()
  sticky = "| sticky actions with probability 0 → 0.1 | 1,000 |"
  cells = "6.00 ± 1.96 | 1.00 ± 1.96 | 1.00 ± 0.00 |"
  assert lines[2] == "| history of 1 → 2 frames | 1,000 | 0 | 2.00 ± 1.96 | – | 2.00 ± 1.96 |"
  assert lines[6:] == [f"{sticky} 0 | {cells}", f"{sticky} [1](results/lineage_seed1.json) | {cells}"]
  assert [line.split(" | ")[0] for line in table.ends_table().splitlines()[2:]] == [
    "| three surgeries",
    "| [three surgeries](results/report_seed1.html)",
    "| from nothing",
    "| from nothing",
  ]


@pytest.mark.slow
def test_a_run_with_a_surgery(cli, tmp_path, monkeypatch):
  def moozi(*arguments):
    status, out, err = cli(*arguments)
    assert status == 0, err
    calls.append(arguments[0])
    return out

  small = dict(text.split("=", 1) for text in RESUMABLE if not text.startswith("env."))
  stages = (
    run.Stage("start", small | {"env.name": "tiny:corridor"}),
    run.Stage("slips", {"targets.history_length": 2, "env.kwargs.slip_prob": 0.4}),
  )
  replaced = {"CONFIG": "tiny/catch", "STEPS": 96, "TOTAL": 192, "EPISODES": 12, "PAGE_STEPS": 2}
  for name, value in (replaced | {"STAGES": stages, "_moozi": moozi}).items():
    monkeypatch.setattr(run, name, value)
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, "argv", ["run", "--results", "results"])
  results = tmp_path / "results" / "seed0.json"
  results.parent.mkdir()
  results.write_text(json.dumps({"joints": ["of a run that is not here"]}))
  calls: list[str] = []
  assert run.main() == 0
  found = json.loads(results.read_text())
  (slips,) = found["joints"]
  # The agents have equal outputs, and the game is another.
  for name in ("returns", "lengths"):
    assert slips["old_agent"][name] == slips["after"][name]
  assert slips["before"]["lengths"] != slips["after"]["lengths"]
  assert [found[kind]["last"]["env_steps"] for kind in ("surgeries", "from_nothing")] == [192, 192]
  lineage = tmp_path / "results" / "lineage_seed0.json"
  assert [joint.run for joint in read_lineage(lineage)] == ["runs/surgery/start_seed0"]
  page = (tmp_path / "results" / "report_seed0.html").read_text()
  assert '"joints":[{"x":96,"text":"surgery of runs/surgery/start_seed0 ' in page
  assert str(tmp_path) not in page
  assert calls.count("train") == 3
  assert run.main() == 0
  assert calls.count("train") == 3
  assert json.loads(results.read_text())["joints"] == found["joints"]

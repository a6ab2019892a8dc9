import json

import numpy as np
import pytest

import moozi
from moozi.core.errors import UserError

TICKS = (
  {"env_steps": 0, "learner_steps": 0, "wall_s": 1.5, "train/return_mean": None},
  {"env_steps": 64, "learner_steps": 3, "wall_s": 2.5, "train/return_mean": 1.0, "loss/total": 0.5},
  {"env_steps": 64, "learner_steps": 3, "wall_s": 3.0, "test/return_mean": 0.25, "test/return_std": 0.5}
  | {"test/episodes": 4.0, "test/at_env_steps": 60.0},
  {"env_steps": 96, "learner_steps": 5, "wall_s": 4.0, "odd": "<script>", "big": 10**400},
)


@pytest.fixture
def run(runs):
  path = runs["catch"]
  (path / "metrics.jsonl").write_text("".join(json.dumps(tick) + "\n" for tick in TICKS))
  (path / "summary.json").unlink(missing_ok=True)
  return moozi.Run(path)


def test_metrics(run):
  frame = run.metrics()
  assert list(frame.columns[:3]) == ["env_steps", "learner_steps", "wall_s"]
  assert frame["env_steps"].tolist() == [0, 64, 64, 96]
  assert frame["env_steps"].dtype == np.int64
  assert frame["train/return_mean"].dropna().tolist() == [1.0]
  assert frame[["odd", "big"]].isna().all(axis=None)
  evaluations = run.evaluations()
  assert evaluations.to_dict("records") == [
    {"env_steps": 60, "return_mean": 0.25, "return_std": 0.5, "episodes": 4.0}
  ]


def test_empty_metrics(run):
  run.directory.metrics_path.write_text("")
  assert run.metrics().shape == (0, 3)
  evaluations = run.evaluations()
  assert evaluations.empty
  assert evaluations.dtypes.astype(str).to_dict() == {
    "env_steps": "int64",
    **dict.fromkeys(("return_mean", "return_std", "episodes"), "float64"),
  }
  run.directory.metrics_path.unlink()
  with pytest.raises(UserError, match=r"metrics\.jsonl"):
    run.metrics()


def test_figures(run):
  figures = run.figures()
  assert list(figures) == ["return", "loss", "speed"]
  labels = [[line.get_label() for line in f.axes[0].lines] for f in figures.values()]
  assert labels == [["test/return_mean", "train/return_mean"], ["loss/total"], []]


def test_facts(run):
  assert (run.name, run.config.env.name) == ("catch", "tiny:catch")
  assert [c.env_steps for c in run.checkpoints()] == [64]
  assert moozi.Run(run) == run
  assert len({run, moozi.Run(str(run.path))}) == 1
  assert repr(run) == f"Run({str(run.path)!r})"
  assert run.agent(simulations=2).num_simulations == 2
  with pytest.raises(UserError, match="the run has not ended"):
    run.summary  # noqa: B018
  assert "in progress" in run._repr_html_()
  summary = {"reason": "<b>", "env_steps": 64, "test_return_mean": 1.0, "test_return_std": 0.0}
  (run.path / "summary.json").write_text(json.dumps(summary | {"test_episodes": 4}))
  assert run.summary["env_steps"] == 64
  assert "1.00 ± 0.00 over 4 evaluation episodes" in run._repr_html_()
  assert "<b>" not in run._repr_html_()


@pytest.mark.parametrize("text", ["missing", "x\0y"])
def test_no_run(tmp_path, text):
  with pytest.raises(UserError, match=r"no such folder|cannot be read"):
    moozi.Run(tmp_path / text)


@pytest.mark.slow
def test_report(run, tmp_path):
  page = run.report(tmp_path / "page.html", max_steps=3)
  assert page.read_text("utf-8").startswith("<!doctype html>")
  assert run.report(max_steps=2) == run.path / "report.html"

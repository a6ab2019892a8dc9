import errno
import json
import os
from pathlib import Path
from unittest import mock

import pytest

import moozi
from moozi.commands.compare import compare
from moozi.core.errors import UserError
from moozi.experiments import comparison
from tests.experiments.sample_results import make_result


@pytest.fixture
def runs(tmp_path):
  for seed in range(2):
    curve = [(100, 60.0, 1.0 + seed), (200, 120.0, 3.0)]
    make_result(tmp_path, f"first-seed{seed}", [], curve, overrides=[f"seed={seed}"])
  return tmp_path


def test_table_and_hint(runs, capsys):
  assert compare([str(runs)]) == 0
  out = capsys.readouterr().out
  row = next(line for line in out.splitlines() if line.startswith("first"))
  assert row.split()[:5] == ["first", "2", "0", "200", "2.0"]
  assert out.splitlines()[-1] == "--out DIR writes the curves as a page and a picture."


def test_escape_sequences_of_a_run_are_not_printed(runs, capsys):
  for path in runs.glob("*/config.yaml"):
    path.write_text(path.read_text().replace("minatar:breakout", '"minatar:\\e]0;owned\\abreakout"'))
  assert compare([str(runs)]) == 0
  out = capsys.readouterr().out
  assert "minatar:?]0;owned?breakout" in out
  assert "\x1b" not in out


def test_files_are_written_and_named(runs, tmp_path, capsys):
  assert compare([str(runs / "first*")], out=tmp_path / "out", center="mean") == 0
  assert str(tmp_path / "out" / "compare.html") in capsys.readouterr().out.splitlines()


def test_json_is_the_only_output(runs, capsys):
  assert compare([str(runs)], as_json=True) == 0
  out = json.loads(capsys.readouterr().out)
  assert out["scores"]["first"] == {
    "minatar:breakout (sticky_action_prob=0.0, max_episode_steps=1000)": [[1, 3], [2, 3]]
  }


def test_pairs_need_no_intervals_of_curves(runs):
  for seed in range(2):
    make_result(
      runs, f"other-seed{seed}", [], [(100, 60.0, 9.0)], overrides=[f"seed={seed}", "targets.n_step=3"]
    )
  found = moozi.compare(runs)
  with mock.patch.object(comparison, "bootstrap_interval", wraps=comparison.bootstrap_interval) as counted:
    assert found.pairs()["probability"].tolist() == [0.0]
    assert counted.call_count == 0


def test_errors_are_one_line(runs):
  with pytest.raises(UserError, match="none: no run"):
    compare([str(runs), "none"])


def test_paths_that_cannot_be_read(runs, refused, monkeypatch):
  assert f"{'x' * 300}: cannot be read: File name too long" in refused("compare", "x" * 300)
  assert "runs/**x: cannot be read: Invalid pattern" in refused("compare", "runs/**x")

  def deny(path):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

  monkeypatch.setattr(Path, "iterdir", deny)
  assert f"{runs}: cannot be read: Permission denied" in refused("compare", runs)

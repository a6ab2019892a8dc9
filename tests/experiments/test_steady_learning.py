"""Tests of the tables of full runs and of the two networks."""

import pytest

from experiments.lib.results import read_result
from experiments.steady_learning import networks
from experiments.steady_learning import table as tables
from tests.commands.conftest import make_run


def test_the_table_has_a_row_for_each_setting():
  lines = tables.full_runs().splitlines()
  assert lines[0] == "| settings | Asterix | Breakout | Freeway | Seaquest | Space Invaders |"
  assert "| the newest 32,768 steps; K = 3, L = 1; floor 0.01; T = 1 | 54.4 | 85.1 | – | 32.1 | – |" in lines


def test_minutes_of_full_runs_exclude_evaluations():
  text = " ".join((tables.FULL_RUNS.parent / "LOG.md").read_text("utf-8").split())
  for name in ("history_4_floor_0.1", "online"):
    minutes = []
    for game in ("breakout", "seaquest"):
      result = read_result(tables.FULL_RUNS / f"{game}_{name}_seed0")
      minutes.append(result.wall_s_at([result.job["env_steps"]])[0] / 60)
    assert "{:.0f} and {:.0f} minutes on one core".format(*minutes) in text


def test_the_table_of_networks_is_in_the_log():
  table = networks.table()
  assert len(table.splitlines()) > 2
  assert table in (networks.RESULTS.parent / "LOG.md").read_text("utf-8")


@pytest.mark.parametrize(
  ("decay", "message"),
  [("0", "learner.target_decay is 0"), ("0.9", "has 0 milestones; choose --milestones of at most 0")],
)
def test_runs_without_an_average_or_milestones_are_refused(tmp_path, capsys, decay, message):
  run = make_run(tmp_path, "some", f"learner.target_decay={decay}")
  assert networks.main([str(run)]) == 2
  assert message in capsys.readouterr().err

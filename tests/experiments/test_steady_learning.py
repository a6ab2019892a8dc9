"""Tests of the tables of full runs and of the two networks."""

import pytest

from experiments.lib.results import read_result, swing_of
from experiments.steady_learning import networks
from experiments.steady_learning import table as tables
from tests.commands.conftest import make_run

PAGE = tables.HERE / "README.md"


def test_the_table_has_a_row_for_each_setting():
  lines = tables.full_runs().splitlines()
  assert lines[0] == "| settings | Asterix | Breakout | Freeway | Seaquest | Space Invaders |"
  assert "| the newest 32,768 steps; K = 3, L = 1; floor 0.01; T = 1 | 54.4 | 85.1 | – | 32.1 | – |" in lines


@pytest.mark.parametrize(
  ("settings", "name"), [("floor 0.1, T = 1", "history_4_floor_0.1"), ("floor 0.3, T = 1.2", "online")]
)
def test_the_page_has_the_swings_and_the_minutes_without_evaluations(settings, name):
  cells = []
  for game in ("breakout", "seaquest"):
    result = read_result(tables.FULL_RUNS / f"{game}_{name}_seed0")
    last = sorted(result.evaluations, key=lambda evaluation: int(evaluation["env_steps"]))[-10:]
    swing = swing_of([evaluation["return_mean"] for evaluation in last])
    minutes = result.wall_s_at([result.job["env_steps"]])[0] / 60
    cells += [f"{swing:.1%}", f"{minutes:.0f}"]
  assert f"| {settings} | {' | '.join(cells)} |" in PAGE.read_text("utf-8")


def test_the_table_of_networks_is_in_the_page():
  table = networks.table()
  assert len(table.splitlines()) > 2
  assert table in PAGE.read_text("utf-8")


@pytest.mark.parametrize(
  ("decay", "message"),
  [("0", "learner.target_decay is 0"), ("0.9", "has 0 milestones; choose --milestones of at most 0")],
)
def test_runs_without_an_average_or_milestones_are_refused(tmp_path, capsys, decay, message):
  run = make_run(tmp_path, "some", f"learner.target_decay={decay}")
  assert networks.main([str(run)]) == 2
  assert message in capsys.readouterr().err

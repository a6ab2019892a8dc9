"""Tests of the table of full runs with different settings."""

from experiments.steady_learning import full_runs


def test_the_table_has_a_row_for_each_setting():
  lines = full_runs.table().splitlines()
  assert lines[0] == "| settings | Asterix | Breakout | Freeway | Seaquest | Space Invaders |"
  assert "| the newest 32,768 steps; K = 3, L = 1; floor 0.01; T = 1 | 54.4 | 85.1 | – | 32.1 | – |" in lines


def test_the_table_is_in_the_readme():
  assert full_runs.table() in (full_runs.FULL_RUNS.parent / "README.md").read_text("utf-8")

"""Test of the comparisons of training runs on Connect Four and Othello."""

import pytest

from experiments.boards import networks, othello


@pytest.mark.parametrize("experiment", networks.STEPS)
def test_the_table_is_in_the_log(experiment):
  table = networks.table(experiment)
  assert len(table.splitlines()) > 4
  assert table in (networks.RESULTS.parent / "LOG.md").read_text("utf-8")


@pytest.mark.parametrize("name", othello.TABLES)
def test_the_table_of_othello_is_in_the_log(name):
  table = othello.TABLES[name]()
  assert len(table.splitlines()) > 3
  assert table in (networks.RESULTS.parent / "LOG.md").read_text("utf-8")

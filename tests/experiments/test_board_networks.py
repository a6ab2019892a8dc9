"""Test of the comparisons of training runs on Connect Four."""

import pytest

from experiments.boards import networks


@pytest.mark.parametrize("experiment", networks.STEPS)
def test_the_table_is_in_the_readme(experiment):
  table = networks.table(experiment)
  assert len(table.splitlines()) > 4
  assert table in (networks.RESULTS.parent / "README.md").read_text("utf-8")

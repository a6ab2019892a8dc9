"""Test of the comparison of two networks on Connect Four."""

from experiments.boards import networks


def test_the_table_is_in_the_readme():
  table = networks.table()
  assert len(table.splitlines()) > 4
  assert table in (networks.FOLDER.parents[1] / "README.md").read_text("utf-8")

"""Tests that the notebook runs from top to bottom and is committed without outputs."""

import json

import pytest

from tests.docs.pages import ROOT

NOTEBOOK = ROOT / "notebooks" / "quickstart.ipynb"
# The test inserts this first cell, which shortens the training to a tenth.
FIRST = """
import functools, moozi
moozi.train_events = functools.partial(moozi.train_events, max_env_steps=3200)
"""


def test_the_notebook_has_no_outputs():
  cells = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
  assert [cell for cell in cells if cell["outputs"] or cell["execution_count"]] == []


@pytest.mark.slow
def test_the_notebook_runs(tmp_path, monkeypatch):
  nbclient = pytest.importorskip("nbclient")
  nbformat = pytest.importorskip("nbformat")
  pytest.importorskip("ipykernel")
  monkeypatch.setenv("PYTHONPATH", str(ROOT))
  monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
  monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
  notebook = nbformat.read(NOTEBOOK, as_version=4)
  notebook.cells.insert(0, nbformat.v4.new_code_cell(FIRST))
  client = nbclient.NotebookClient(
    notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
  )
  client.execute()
  kinds = {kind for cell in notebook.cells for out in cell.get("outputs", ()) for kind in out.get("data", ())}
  assert {"text/html", "image/png"} <= kinds

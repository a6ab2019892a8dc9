"""Tests what every experiment promises: its page, its sweep and its tables."""

import re

import pytest

from experiments.lib.answers import sentences_of
from experiments.lib.results import sweep_of
from experiments.lib.tables import EXPERIMENTS, tables_of
from moozi.experiments.results import has_result

pytestmark = pytest.mark.usefixtures("configurations_are_read_once")
PAGES = sorted(EXPERIMENTS.glob("*/README.md"))
FOLDERS = [page.parent for page in PAGES]
SWEEPS = [folder for folder in FOLDERS if (folder / f"{folder.name}.yaml").exists()]
TABLES = [path.parent for path in sorted(EXPERIMENTS.glob("*/table.py"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_a_page_starts_with_question_answer_table_and_command(page):
  """The answer has at most two sentences, and the first picture comes after the first command."""
  text = page.read_text("utf-8")
  assert len(sentences_of(text)) <= 2
  parts = text.split("\n\n")
  assert re.match(r"# .*[?]$", parts[0])
  if not parts[1].startswith("**Answer.** "):
    assert parts.pop(1).startswith("This experiment has former settings")
  assert parts[1].startswith("**Answer.** ")
  marks = {"table": "|", "command": "    ", "picture": "!["}
  found = [kind for part in parts[2:] for kind, mark in marks.items() if part.startswith(mark)]
  assert list(dict.fromkeys(found)) in (["table", "command"], ["table", "command", "picture"])


@pytest.mark.parametrize("folder", SWEEPS, ids=lambda folder: folder.name)
def test_committed_results_are_those_of_the_sweep(folder):
  """Otherwise the documented sweep refuses to continue, or makes them again."""
  sweep, name = sweep_of(folder), folder.name
  assert f"    moozi sweep experiments/{name}/{name}.yaml" in (folder / "README.md").read_text("utf-8")
  assert (sweep.folder.name, sweep.minutes) == (name, 55)
  assert folder in sweep.results.parents
  for job in sweep.jobs:
    if (sweep.results / job.name).exists():
      assert has_result(job, sweep.results), job.name


@pytest.mark.parametrize("folder", TABLES, ids=lambda folder: folder.name)
def test_the_tables_are_in_the_page(folder):
  page = (folder / "README.md").read_text("utf-8")
  for marker, make in tables_of(folder.name).items():
    text = make()
    assert len(text.splitlines()) > 2
    if marker.endswith(".md"):
      assert (folder / marker).read_text("utf-8") == f"{text}\n"
    else:
      assert f"<!-- {marker}: begin -->\n\n{text}\n\n<!-- {marker}: end -->" in page

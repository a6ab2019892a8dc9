"""Tests that generated pages and figures are up to date."""

import runpy
import sys

import pytest

from moozi.core.config import Config
from tests.docs.pages import ROOT, anchors


@pytest.mark.parametrize("name", ["config", "results"])
def test_a_page_is_up_to_date(name):
  module = runpy.run_path(str(ROOT / "scripts" / f"make_{name}_page.py"))
  assert module["PAGE"].read_text("utf-8") == module["page"](), f"run python scripts/make_{name}_page.py"


def test_figures_are_up_to_date(monkeypatch):
  folder = ROOT / "docs" / "figures"
  monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
  module = runpy.run_path(str(folder / "__main__.py"), run_name="figures")
  for draw in module["FIGURES"]:
    path = module["IMAGES"] / f"{draw.__name__}.svg"
    assert path.read_text("utf-8") == draw().svg(), "out of date; run python docs/figures"


def test_every_key_has_an_anchor():
  def keys(values, prefix=""):
    for name, value in values.items():
      if isinstance(value, dict) and value:
        yield from keys(value, f"{prefix}{name}.")
      else:
        yield f"{prefix}{name}"

  assert set(keys(Config().model_dump())) <= anchors(ROOT / "docs" / "configuration.md")

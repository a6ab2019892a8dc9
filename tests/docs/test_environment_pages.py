"""Tests that the environments' pages list what the code has."""

import re
import runpy

import pytest

from moozi.envs import registry
from tests.docs.pages import ROOT

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "make_environment_pages.py"))
PICTURES = runpy.run_path(str(ROOT / "scripts" / "make_environment_pictures.py"))["PICTURES"]
PAGES = sorted({ROOT / "docs" / "environments.md", *(ROOT / page for page in SCRIPT["PAGES"].values())})


@pytest.mark.parametrize("path", SCRIPT["BLOCKS"])
def test_tables_are_up_to_date(path):
  text = (ROOT / path).read_text("utf-8")
  blocks = SCRIPT["BLOCKS"][path]
  assert list(blocks) == re.findall(r"<!-- ([\w ]+): begin -->", text)
  for name, block in blocks.items():
    (found,) = re.findall(f"<!-- {name}: begin -->\n\n(.*?)\n\n<!-- {name}: end -->", text, re.DOTALL)
    assert found == block(), "run python scripts/make_environment_pages.py"
    assert "|  |" not in found, "an empty cell"


def test_every_library_has_a_row_and_a_page_with_its_games_and_options():
  overview = (ROOT / "docs" / "environments.md").read_text("utf-8")
  libraries = {info.name: info for info in registry.list_libraries()}
  assert set(SCRIPT["PAGES"]) == set(libraries)
  for name, info in libraries.items():
    assert re.search(rf"^\| \[`{name}`\]\([\w.#]+\) \| {info.num_games} \| ", overview, re.MULTILINE)
    page = (ROOT / SCRIPT["PAGES"][name]).read_text("utf-8")
    for env in registry.list_environments(name):
      game = env.name.partition(":")[2]
      assert f"`{env.name}`" in page or f"`{game}`" in page
      for key in env.options:
        assert f"\n| `{key}` | `" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_in_the_table_of_contents_and_has_its_picture(page):
  index = (ROOT / "docs" / "index.md").read_text("utf-8")
  (contents,) = re.findall(r"```{toctree}\n:caption: Environments\n:hidden:\n(.*?)```", index, re.DOTALL)
  assert page.stem in contents.split()
  assert f"](images/env_{page.stem}.png)" in page.read_text("utf-8")


def test_every_picture_is_committed_and_shown():
  text = "".join(page.read_text("utf-8") for page in PAGES)
  shown = set(re.findall(r"\(images/env_(\w+)\.png\)", text))
  assert shown == set(PICTURES)
  assert {path.stem.removeprefix("env_") for path in (ROOT / "docs/images").glob("env_*")} == set(PICTURES)


def test_defaults_are_written_as_in_a_configuration():
  as_yaml = SCRIPT["_as_yaml"]
  found = [as_yaml(text) for text in ("None", "True", "('random',)", "{}", "auto", "0.25", "'a: b'")]
  assert found == ["null", "true", "[random]", "{}", "auto", "0.25", "'a: b'"]

"""Tests that the files and anchors of all links within the repository exist."""

import re
from collections import Counter

import pytest

from tests.docs.pages import COMMENTS, PAGES, ROOT, anchors, links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_anchors_exist(page):
  missing = []
  for target, anchor in links(page):
    path = (page.parent / target).resolve() if target else page
    if not path.exists():
      missing.append(target)
    elif anchor and anchor not in anchors(path):
      missing.append(f"{target}#{anchor}")
  assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_comments_for_tests_are_known(page):
  text = page.read_text("utf-8")
  generated = re.findall(r"<!-- ([\w-]+): begin -->.*?<!-- \1: end -->", text, re.DOTALL)
  own = {"seeds"} if page.match("experiments/*/README.md") else set()  # read by scripts/make_results_page.py
  assert set(re.findall(r"<!-- ([\w-]+): .*?-->", text)) <= {*COMMENTS, *generated, *own}


@pytest.mark.parametrize(
  "page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_merges_are_finished(page):
  lines = page.read_text("utf-8").splitlines()
  assert [line for line in lines if line.startswith(("<<<<<<< ", ">>>>>>> "))] == []


def test_no_two_pages_of_the_site_have_one_title():
  """The site has no README of the repository. Tables of results get titles with their experiments' names."""
  pages = [page for page in PAGES if page != ROOT / "README.md"]
  pages += [ROOT / "CHANGELOG.md", *ROOT.glob("zoo/*/*/card.md")]
  titles = Counter(re.search(r"^# (.+)$", page.read_text("utf-8"), re.MULTILINE)[1] for page in pages)
  assert [title for title, count in titles.items() if count > 1] == []

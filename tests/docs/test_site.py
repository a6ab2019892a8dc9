"""Tests that the site builds without warnings and loads nothing from other hosts."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.docs.pages import ROOT

# Matches resources that a browser loads from another host; links are not among them.
_LOADS = re.compile(
  r"<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?\b(?:src|data|srcset)=\"(?:https?:)?//"
  r"|<link\b(?![^>]*rel=\"(?:canonical|next|prev|search|index)\")[^>]*href=\"(?:https?:)?//"
  r"|@import\s+(?:url\()?[\"']?(?:https?:)?//|url\([\"']?(?:https?:)?//"
)

# One page of each kind.
ACCESSIBLE = (
  "docs/index",
  "docs/quickstart",
  "docs/environments",
  "docs/results",
  "docs/api",
  "docs/configuration",
  "experiments/minatar_vs_ppo/README",
)


# The experiments with the widest tables.
WIDE = ("boards", "corridor", "minatar_vs_ppo", "ppo_tuning", "reanalyze_sample_efficiency")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
  pytest.importorskip("sphinx", reason="the extra docs is not installed")
  pytest.importorskip("furo", reason="the extra docs is not installed")
  folder = tmp_path_factory.mktemp("site")
  build = ["-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-c", "docs", "-d", str(folder / "doctrees")]
  done = subprocess.run(
    [sys.executable, *build, ".", str(folder / "html")],
    cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  return folder / "html"


@pytest.mark.slow
def test_the_site_loads_nothing_from_another_host(site):
  files = [path for suffix in ("html", "css", "svg") for path in site.rglob(f"*.{suffix}")]
  assert len(files) > 50
  found = {str(path.relative_to(site)): _LOADS.findall(path.read_text("utf-8")) for path in files}
  assert {name: loads for name, loads in found.items() if loads} == {}


@pytest.mark.slow
def test_links_and_anchors_of_the_site_exist(site):
  ids = {}

  def ids_of(path: Path) -> set[str]:
    if path not in ids:
      ids[path] = set(re.findall(r'\bid="([^"]+)"', path.read_text("utf-8")))
    return ids[path]

  missing = []
  for page in site.rglob("*.html"):
    for target in set(re.findall(r'<a\b[^>]*?href="([^"]*)"', page.read_text("utf-8"))):
      if re.match(r"[a-z]+:|//", target):
        continue
      file, _, anchor = target.partition("#")
      path = (page.parent / file).resolve() if file else page
      if not path.is_file() or (anchor and path.suffix == ".html" and anchor not in ids_of(path)):
        missing.append(f"{page.relative_to(site)}: {target}")
  assert missing == []


@pytest.mark.slow
@pytest.mark.parametrize(
  ("words", "page"),
  [
    ("load agent", "docs/api"),
    ("save a model", "docs/faq"),
    ("play against the agent", "docs/board_games"),
    ("resume training", "docs/usage"),
    ("custom reward", "docs/faq"),
    ("continuous", "docs/faq"),
    ("own environment", "docs/custom_environment"),
    ("cluster", "docs/cluster"),
    ("minatar", "docs/minatar"),
    ("list of environments", "docs/environments"),
  ],
)
def test_search_has_the_right_page_among_the_first_three(site, words, page):
  """The site's own search, in a browser. A page counts once, however many of its sections are found."""
  from tests.vis.chromium import Page

  found = (
    "[...document.querySelectorAll('#search-results ul.search li > a')].map(a => a.getAttribute('href'))"
  )
  finished = (
    "/finished|did not match/.test((document.querySelector('.search-summary') || {}).innerText || '')"
  )
  with Page() as browser:
    browser.open(f"{(site / 'search.html').as_uri()}?q={quote(words)}")
    browser.wait_for(finished)
    pages = [str(link).partition(".html")[0] for link in browser.evaluate(found)]
  assert page in list(dict.fromkeys(pages))[:3]


@pytest.mark.slow
def test_the_api_links_to_the_code_which_search_leaves_out(site):
  page = (site / "docs" / "api.html").read_text("utf-8")
  links = re.findall(r'href="\.\./(_modules/moozi/[\w/]+\.html)#[\w.]+"', page)
  assert links
  assert all((site / link).is_file() for link in links)
  assert "_modules/" not in (site / "searchindex.js").read_text("utf-8")


def test_a_load_from_another_host_is_found():
  assert _LOADS.search('<script async src="https://cdn.example/x.js">')
  assert _LOADS.search('<link rel="stylesheet" href="//fonts.example/x.css">')
  assert _LOADS.search("body { background: url(https://cdn.example/x.png) }")
  assert not _LOADS.search('<a href="https://example.org">')


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone(site, scheme):
  from tests.vis.chromium import Page

  pages = sorted((site / "docs").glob("*.html"))
  pages += [site / "experiments" / name / "README.html" for name in WIDE]
  with Page() as page:
    for path in pages:
      page.open(path, width=390, height=800, scheme=scheme)
      assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
      assert page.problems() == [], path


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
@pytest.mark.parametrize("name", ACCESSIBLE)
def test_pages_are_accessible(site, name, width, scheme):
  from tests.vis.axe import serious_findings
  from tests.vis.chromium import Page

  with Page() as page:
    page.open(site / f"{name}.html", width=width, height=800, scheme=scheme)
    assert serious_findings(page) == []


@pytest.mark.slow
def test_the_first_column_of_a_wide_table_stays_in_view_on_a_phone(site):
  from tests.vis.chromium import Page

  scroll = "const t = document.querySelector('#minatar .table-wrapper'); t.scrollLeft = 150; t.scrollLeft"
  left = (
    "(x => x.querySelector('td:first-child').getBoundingClientRect().left - x.getBoundingClientRect().left)"
  )
  with Page() as page:
    page.open(site / "docs" / "results.html", width=390, height=800)
    assert page.evaluate(scroll) == 150
    assert abs(page.evaluate(f"{left}(document.querySelector('#minatar .table-wrapper'))")) <= 2

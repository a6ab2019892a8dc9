"""Tests of the comparison page in a browser; they need Chromium (apt-get install chromium)."""

import pytest

from moozi.api.compare import compare
from tests.experiments.sample_results import make_result
from tests.vis.axe import serious_findings
from tests.vis.chromium import Page

pytestmark = pytest.mark.slow

UNSAFE = "<b>&\"'</b>"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
  folder = tmp_path_factory.mktemp("runs")
  for name, size, count in (("a", 32, 4), ("b", 64, 2), (UNSAFE.replace("/", ""), 128, 1)):
    for seed in range(count):
      curve = [(1000 * i, 60.0 * i, float(i * (seed + 1) + size)) for i in range(1, 12)]
      overrides = [f"seed={seed}", f"learner.batch_size={size}"]
      make_result(folder, f"{name}-seed{seed}", [], curve, overrides=overrides)
  make_result(folder, "c-seed0", [], [(10, 1.0, 0.5)], game="tiny:catch", overrides=["env.kwargs="])
  return compare(folder).save(folder / "out")["page"]


@pytest.fixture(scope="module")
def browser():
  with Page() as page:
    yield page


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark"), (320, "light")])
def test_page_shows_all_parts_at_any_width(browser, path, width, scheme):
  browser.open(path, width, 900, scheme)
  browser.wait_for("document.querySelectorAll('.chart path').length > 8")
  assert browser.problems() == []
  assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
  assert browser.evaluate("[...document.querySelectorAll('caption')].map(e => e.textContent)") == [
    "Final scores: the mean of each run’s last 5 evaluations",
    "Probability that a run of one group has a higher final score than a run of another",
    "Settings that differ",
    "Final scores: the mean of each run’s last 5 evaluations",
  ]
  labels = browser.evaluate("[...document.querySelectorAll('fieldset label')].map(e => e.textContent)")
  assert labels == ["<b>&\"'<b>, 1 seed, no interval", "a, 4 seeds", "b, 2 seeds", "c, 1 seed, no interval"]
  assert browser.evaluate("document.querySelectorAll('b').length") == 0, "names must be escaped"


def test_group_is_hidden_and_values_are_read_with_the_keyboard(browser, path):
  browser.open(path)
  count = "document.querySelectorAll('#task-0 .chart path').length"
  # Each chart has a thin line for each seed, a thick one for each group, and a band for two of the groups.
  assert browser.evaluate(count) == 2 * (7 + 3 + 2)
  browser.evaluate("document.querySelectorAll('#task-0 input[type=checkbox]')[1].focus()")
  browser.press(" ")
  browser.wait_for(f"{count} === {2 * (3 + 2 + 1)}")
  read = "document.querySelector('#task-0 output').textContent"
  assert browser.evaluate(read).startswith("At 11,000 steps, interquartile mean: ")
  assert "a " not in browser.evaluate(read).partition("mean: ")[2]
  browser.evaluate("document.querySelector('#task-0 input[type=range]').focus()")
  browser.press("Home")
  assert browser.evaluate(read).startswith("At 0 steps, ")
  browser.press("End")
  assert "b 80.50 [75.00, 86.00]" in browser.evaluate(read)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(browser, path, width, scheme):
  browser.open(path, width, 900, scheme)
  assert serious_findings(browser) == []

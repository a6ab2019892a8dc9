"""Tests of a run's report in a browser; they need Chromium (apt-get install chromium)."""

import dataclasses
import json

import numpy as np
import pytest

from moozi.vis.action_names import action_label, action_name
from moozi.vis.frames import PALETTE
from moozi.vis.report import write_report
from tests.vis.axe import serious_findings
from tests.vis.chromium import Page
from tests.vis.test_joint_actions import DIALS, sampled_episode
from tests.vis.test_report import BOARD, RUN, SPEC, TICKS
from tests.vis.trees import make_episode

pytestmark = pytest.mark.slow

DESCRIBE_FRAME = (
  "(() => { const c = document.getElementById('frame'); return [c.dataset.step, c.toDataURL()]; })()"
)


@pytest.fixture(scope="module")
def episode():
  return make_episode(SPEC, num_frames=130, num_simulations=60)


@pytest.fixture(scope="module")
def path(tmp_path_factory, episode):
  path = tmp_path_factory.mktemp("page") / "report.html"
  return write_report(path, episode, SPEC, run=RUN, ticks=TICKS, config="seed: 0\n")


@pytest.fixture(scope="module")
def browser():
  with Page() as page:
    yield page


@pytest.fixture
def page(browser, path):
  browser.open(path)
  browser.wait_for("document.getElementById('frame').dataset.step === '0'")
  yield browser
  assert browser.problems() == []


def text(page, selector):
  return page.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")


def facts(page, selector):
  terms = page.evaluate(f"[...document.querySelectorAll('{selector} dt')].map(e => e.textContent)")
  shown = page.evaluate(f"[...document.querySelectorAll('{selector} dd')].map(e => e.textContent)")
  return dict(zip(terms, shown, strict=True))


def number(shown):
  return float(shown.replace("−", "-").split()[0])


def box_of(page, selector):
  """Scrolls an element to the center of the screen; returns its left, top, right and bottom."""
  return page.evaluate(
    f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
    " e.scrollIntoView({block: 'center', behavior: 'instant'}); const b = e.getBoundingClientRect();"
    " return [b.left, b.top, b.right, b.bottom]; })()"
  )


def set_slider(page, step):
  """Sets the slider to a step, with the event of a drag."""
  page.evaluate(
    f"(() => {{ const s = document.getElementById('step'); s.value = {step};"
    " s.dispatchEvent(new Event('input', {bubbles: true})); })()"
  )


def test_page_loads(page, episode):
  assert text(page, "#run-name") == "first"
  assert text(page, "#step-text") == "step 0 of 129"
  assert page.evaluate("document.getElementById('step').max") == "129"
  assert page.evaluate("document.querySelectorAll('#actions tbody tr').length") == 4
  assert page.evaluate("document.querySelectorAll('#values path').length") == 3
  assert page.evaluate("[...document.querySelectorAll('#planes .plane')].map(e => e.innerText)") == [
    "paddle",
    "ball",
    "trail",
    "brick",
  ]
  ball = "getComputedStyle(document.querySelectorAll('#planes .swatch')[1]).backgroundColor"
  assert page.evaluate(ball) == "rgb({}, {}, {})".format(*PALETTE[1])
  assert page.evaluate("document.querySelectorAll('.curves figure path').length") >= 1


def test_slider(page, episode):
  before = page.evaluate(DESCRIBE_FRAME)
  for step in (7, 120):  # step 120 is on another sprite sheet
    set_slider(page, step)
    page.wait_for(f"document.getElementById('frame').dataset.step === '{step}'")
    after = page.evaluate(DESCRIBE_FRAME)
    assert after[1] != before[1]
    before = after
    shown = facts(page, "#now")
    assert number(shown["search value"]) == pytest.approx(episode.root_values[step], abs=2e-3)
    assert number(shown["return from here"]) == pytest.approx(episode.returns[step], abs=2e-3)
    assert shown["action"] == ("end", "noop", "left", "right")[episode.actions[step]]
    assert text(page, "#actions tr.played td").startswith(shown["action"])
    rows = page.evaluate(
      "[...document.querySelectorAll('#imagined tbody tr')].map(r => r.innerText.split('\\t'))"
    )
    assert len(rows) == 4
    assert number(rows[2][4]) == pytest.approx(episode.imagined_values[step, 2], abs=2e-3)
    assert number(rows[2][3]) == pytest.approx(episode.rewards[step + 2], abs=2e-3)


def test_click_on_node(page, episode):
  set_slider(page, 3)
  tree = episode.trees[3]
  page.click('#tree [data-node="1"]')
  assert page.evaluate("document.querySelector('#tree [aria-selected=true]').dataset.node") == "1"
  shown = facts(page, "#node-facts")
  assert shown["visits"].startswith(f"{tree.visits[1]} ")
  assert number(shown["mean value V"]) == pytest.approx(tree.value[1], abs=2e-3)
  assert number(shown["reward"]) == pytest.approx(tree.reward[1], abs=2e-3)
  assert number(shown["network probability"]) == pytest.approx(tree.prior[1], abs=2e-3)
  assert number(shown["Q"]) == pytest.approx(tree.reward[1] + 0.99 * tree.value[1], abs=2e-3)
  assert "left out" in text(page, "#tree-note")


def test_tree_zoom_and_pan(page):
  def view():
    return [
      float(x) for x in page.evaluate("document.getElementById('tree').getAttribute('viewBox')").split()
    ]

  before = view()
  page.click("#zoom-in")
  assert view()[2] == pytest.approx(before[2] / 1.25, rel=1e-3)
  page.click("#zoom-fit")
  assert view()[2] > before[2]
  fitted = view()
  left, _, _, bottom = box_of(page, "#tree")
  x, y = left + 30, bottom - 30
  page.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, button="left", buttons=1, clickCount=1)
  for i in range(1, 5):
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + 20 * i, y=y, button="left", buttons=1)
  page.call("Input.dispatchMouseEvent", type="mouseReleased", x=x + 80, y=y, button="left", clickCount=1)
  assert view()[0] < fitted[0]


def test_keyboard(page):
  page.evaluate("document.activeElement.blur()")
  reached = []
  for _ in range(60):
    page.press("Tab")
    reached.append(
      page.evaluate(
        "document.activeElement.id || document.activeElement.dataset.node || document.activeElement.tagName"
      )
    )
    if reached[-1] == "0":
      break
  controls = [
    "first",
    "back",
    "play",
    "next",
    "last",
    "speed",
    "step",
    "zoom-in",
    "zoom-out",
    "zoom-fit",
    "0",
  ]
  assert [name for name in reached if name in controls] == controls
  # The last Tab has moved the focus to the root of the tree.
  page.press("ArrowRight")
  assert page.evaluate("document.activeElement.dataset.node") not in (None, "0")
  assert text(page, "#node-title").startswith("After ")
  page.press("ArrowLeft")
  assert page.evaluate("document.activeElement.dataset.node") == "0"
  assert text(page, "#step-text").startswith("step 0 ")
  page.evaluate("document.activeElement.blur()")
  page.press("ArrowRight")
  page.press("ArrowRight")
  assert text(page, "#step-text").startswith("step 2 ")
  page.press("End")
  assert text(page, "#step-text").startswith("step 129 ")
  assert "No search" in text(page, "#tree-note")
  assert text(page, "#actions-note") == "No action: the episode has ended."
  page.press("Home")
  assert text(page, "#step-text").startswith("step 0 ")
  page.evaluate("document.getElementById('step').focus()")
  page.press("ArrowRight")
  assert text(page, "#step-text").startswith("step 1 ")


def test_play_and_pause(page):
  page.evaluate("document.getElementById('speed').value = '30'")
  page.click("#play")
  page.wait_for("Number(document.getElementById('step').value) >= 3")
  page.click("#play")
  assert text(page, "#play") == "Play"
  at = page.evaluate("document.getElementById('step').value")
  assert (
    page.evaluate("new Promise(r => setTimeout(() => r(document.getElementById('step').value), 200))") == at
  )


def test_click_on_chart(page):
  left, top, right, _ = box_of(page, "#values svg")
  x, y = (left + right) / 2, top + 60
  for kind in ("mousePressed", "mouseReleased"):
    page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)
  assert 60 < page.evaluate("Number(document.getElementById('step').value)") < 70


def test_curves(page):
  page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
  page.wait_for("document.querySelectorAll('.curves figure path').length >= 2")
  assert text(page, "#config") == "seed: 0\n"


def test_page_without_an_episode(browser, tmp_path):
  """Runs of algorithms without a search have a page with curves and settings only."""
  path = write_report(tmp_path / "ppo.html", None, SPEC, run=RUN, ticks=TICKS, config="seed: 0\n")
  browser.open(path)
  assert text(browser, "#run-name") == "first"
  assert text(browser, "nav").split() == ["Curves", "Settings"]
  assert browser.evaluate("document.querySelectorAll('.curves figure path').length") >= 1
  assert text(browser, "#config") == "seed: 0\n"
  assert not browser.evaluate("document.getElementById('episode')")
  assert browser.problems() == []


def test_joints_are_listed_and_drawn(browser, tmp_path):
  joints = [(-1, "start from a"), (20, "surgery of b at 20 steps")]
  path = write_report(tmp_path / "a.html", None, SPEC, run=RUN, ticks=TICKS, config="", joints=joints)
  browser.open(path)
  shown = browser.evaluate("[...document.querySelectorAll('#joints li')].map(e => e.textContent)")
  lines = ["before this run: start from a", "at 20 steps (dashed line): surgery of b at 20 steps"]
  assert shown == lines
  assert browser.evaluate("document.querySelectorAll('#curves line.joint').length") == 1
  assert serious_findings(browser) == []
  assert browser.problems() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_accessibility(browser, path, tmp_path, width, scheme):
  browser.open(path, width=width, height=844, scheme=scheme)
  browser.wait_for("document.getElementById('frame').dataset.step === '0'")
  set_slider(browser, 3)
  browser.click('#tree [data-node="1"]')
  assert serious_findings(browser) == []
  browser.open(
    write_report(tmp_path / "ppo.html", None, SPEC, run=RUN, ticks=TICKS, config="seed: 0\n"), width=width
  )
  assert serious_findings(browser) == []


def test_phone_shows_all_columns_of_actions(browser, path):
  browser.open(path, width=390, height=844)
  browser.wait_for("document.getElementById('frame').dataset.step === '0'")
  shown = browser.evaluate(
    "[...document.querySelectorAll('#actions th')].filter(e => e.getBoundingClientRect().right"
    " <= e.closest('.scroll').getBoundingClientRect().right + 1).map(e => e.innerText)"
  )
  assert [" ".join(words.split()) for words in shown] == [
    "Action",
    "Network policy",
    "Search policy",
    "Visits",
    "Network Q",
    "Search Q",
  ]
  # Arrow keys scroll a table that is wider than the page.
  browser.evaluate("document.querySelector('#imagined').closest('.scroll').focus()")
  browser.press("ArrowRight")
  browser.wait_for("document.querySelector('#imagined').closest('.scroll').scrollLeft > 0")
  assert text(browser, "#step-text").startswith("step 0 "), "the key must not change the step"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_screen(browser, path, scheme):
  browser.open(path, width=360, height=640, scheme=scheme)
  browser.wait_for("document.getElementById('frame').dataset.step === '0'")
  assert browser.evaluate("document.documentElement.scrollWidth") <= 360
  for selector in ("#frame", "#tree", "#step", "#values svg"):
    box = box_of(browser, selector)
    assert box[0] >= 0
    assert box[2] <= 360
  assert browser.problems() == []


def test_two_players(browser, tmp_path):
  episode = make_episode(BOARD, end="cut", seat=1)
  path = write_report(tmp_path / "board.html", episode, BOARD, run=RUN, ticks=[], config="")
  browser.open(path)
  browser.wait_for("document.getElementById('frame').dataset.step === '0'")
  assert "player 1" in text(browser, "#episode-lead")
  assert "unroll chart are the agent’s" in text(browser, "#values-note")
  assert "search value of the last frame" in text(browser, "#values-note")
  assert "the agent’s in the chart" in text(browser, "#imagined-note")
  assert not browser.evaluate("document.getElementById('planes').checkVisibility()")
  assert "to" not in facts(browser, "#now")["reward on entering"]
  set_slider(browser, 3)
  shown = facts(browser, "#now")
  assert shown["reward on entering"].endswith(" to player 0, the agent")
  assert shown["values are for"] == "player 1, the opponent"
  assert text(browser, "#curve-groups") == "The run has no metrics."
  # After the last frame of a cut episode, there is nothing to compare with.
  set_slider(browser, episode.num_frames - 1)
  cells = browser.evaluate(
    "[...document.querySelectorAll('#imagined tbody tr')].map(r => r.cells[3].textContent)"
  )
  assert cells[1:] == ["–"] * 3
  assert text(browser, "#actions-note") == "No action: the recording stops here."
  assert browser.problems() == []


def test_a_run_without_a_model_has_no_unroll(browser, tmp_path):
  episode = make_episode(BOARD, end="cut", seat=1)
  rewards, values = episode.imagined_rewards[:, :0], episode.imagined_values[:, :1]
  episode = dataclasses.replace(episode, imagined_rewards=rewards, imagined_values=values)
  path = write_report(tmp_path / "board.html", episode, BOARD, run=RUN, ticks=[], config="")
  browser.open(path)
  browser.wait_for("document.getElementById('frame').dataset.step === '0'")
  assert not browser.evaluate("document.getElementById('imagined').checkVisibility()")
  assert "Mean absolute error" not in text(browser, "#imagined-note")
  set_slider(browser, 3)
  assert browser.problems() == []


@pytest.mark.bench
def test_opens_in_two_seconds(browser, tmp_path):
  episode = make_episode(SPEC, num_frames=1001, num_simulations=50, unroll=5)
  # As in a game, only a few cells change from frame to frame.
  episode.frames[:] = episode.frames[:1]
  episode.frames[np.arange(1001), np.arange(1001) % 10, np.arange(1001) // 100 % 10] = True
  ticks = [{"env_steps": i, **{f"loss/{name}": i % 7 for name in "abcdefghij"}} for i in range(2000)]
  path = write_report(tmp_path / "long.html", episode, SPEC, run=RUN, ticks=ticks, config="")
  browser.open(path)
  browser.wait_for("document.getElementById('frame').dataset.step === '0'")
  opened_ms = browser.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
  print(f"{path.stat().st_size / 1e6:.2f} MB, opened in {opened_ms:.0f} ms")
  assert opened_ms < 2000


def test_sampled_choices_are_named(browser, tmp_path):
  episode = sampled_episode()
  browser.open(write_report(tmp_path / "page.html", episode, DIALS, run=RUN, ticks=TICKS, config="seed: 0\n"))
  browser.wait_for("document.getElementById('frame').dataset.step === '0'")
  cells = "[...document.querySelectorAll('#actions tbody tr{}')].map(e => e.cells[0].textContent)"
  for t in range(3):
    if t:
      browser.evaluate("document.getElementById('next').click()")
      browser.wait_for(f"document.getElementById('frame').dataset.step === '{t}'")
    names = [action_name(DIALS, action) for action in episode.choices[t].tolist()]
    assert browser.evaluate(cells.format("")) == names
    assert browser.evaluate(cells.format(".played")) == [names[2]]
    shown = browser.evaluate("[...document.querySelectorAll('#tree text.name')].map(e => e.textContent)")
    assert shown[0] == "root"
    assert set(shown[1:]) <= {action_label(DIALS, action) for action in episode.choices[t].tolist()}
  assert "Actions are values of: dial 0, dial 1, dial 2." in text(browser, "#tree-note")
  assert "the search has sampled" in text(browser, "#actions-note")
  browser.evaluate("document.getElementById('last').click()")
  browser.wait_for("document.getElementById('frame').dataset.step === '3'")
  assert browser.evaluate(cells.format("")) == []
  assert browser.problems() == []

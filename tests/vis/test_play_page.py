"""Tests of the page of `moozi play --web` in a browser; they need Chromium (apt-get install chromium)."""

import threading

import pytest

from moozi.api.match import Match, make_advisor
from moozi.api.players import load_players
from moozi.commands.play_web import server_of
from moozi.envs import registry
from moozi.envs.table import EnvironmentTable
from tests.envs.joint import CAR, make_car
from tests.vis.axe import serious_findings
from tests.vis.chromium import Page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", name="browser")
def _browser():
  with Page() as page:
    yield page


@pytest.fixture(name="start")
def _start():
  """Returns a function that starts a game and returns its address."""
  pytest.importorskip("pyspiel")
  servers = []

  def start(game, opponent=None, advisor=None):
    table = registry.make_table(f"open_spiel:{game}")
    entrant = None if opponent is None else load_players([opponent], table.spec, None, False)[opponent]
    users = frozenset(range(table.num_seats) if entrant is None else (0,))
    advice = None if advisor is None else make_advisor(advisor, table, None, False)
    server = server_of(Match(table, users, entrant, 0, advice), opponent or "self")
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    servers.append(server)
    return f"http://127.0.0.1:{server.server_address[1]}/"

  yield start
  for server in servers:
    server.shutdown()
    server.server_close()


def ready(browser, url, width=1280, scheme="light"):
  browser.open(url, width, 900, scheme)
  browser.wait_for("document.querySelector('#status').textContent.endsWith('to move')")


def problems(browser, url):
  return [x for x in browser.problems() if not x.startswith(f"a request to {url}")]


def test_click_keyboard_opinion_and_end(browser, start):
  url = start("tic_tac_toe", advisor="mcts:100")
  ready(browser, url)
  status = "document.querySelector('#status').textContent"
  assert not browser.evaluate("document.querySelector('#seat-label').checkVisibility()"), (
    "both seats are mine"
  )
  browser.click("[data-cell='4']")
  browser.wait_for(f"{status} === 'O to move'")
  assert browser.evaluate("document.querySelector('#moves').textContent") == "X plays (1,1)"
  assert browser.evaluate("document.querySelector('.last').dataset.cell") == "4"
  # A taken cell is not a move.
  browser.click("[data-cell='4']")
  assert browser.evaluate(status) == "O to move"
  # The focus is still in the middle: up and left is the corner.
  browser.evaluate("document.querySelector('[data-cell=\"4\"]').focus()")
  browser.press("ArrowUp")
  browser.press("ArrowLeft")
  assert browser.evaluate("document.activeElement.dataset.cell") == "0"
  assert browser.evaluate("document.activeElement.getAttribute('aria-label')") == "(0,0), row 1, column 1"
  browser.press(" ")
  browser.wait_for(f"{status} === 'X to move'")
  assert browser.evaluate("document.activeElement.dataset.cell") == "0", "the focus stays on the board"
  browser.click("#opinion")
  browser.wait_for("!document.querySelector('#advice').hidden")
  assert browser.evaluate("document.querySelectorAll('#rows tr').length") == 7
  assert browser.evaluate("document.querySelectorAll('.cell span').length") == 7
  for cell, player in ((1, "O"), (8, "X"), (7, "you")):
    browser.click(f"[data-cell='{cell}']")
    if player != "you":
      browser.wait_for(f"{status} === '{player} to move'")
  browser.wait_for(f"{status} === 'X won (return 1)'")
  browser.click("#new")
  browser.wait_for(f"{status} === 'X to move'")
  assert problems(browser, url) == []


@pytest.mark.parametrize(
  ("game", "width", "scheme"),
  [
    ("connect_four", 390, "dark"),
    ("hex(board_size=5)", 320, "light"),
    ("go(board_size=9)", 320, "dark"),
    ("kuhn_poker", 320, "light"),
    ("stratego", 1280, "light"),
  ],
)
def test_page_is_accessible_and_fits(browser, start, game, width, scheme):
  advisor = None if game in ("kuhn_poker", "stratego") else "mcts:50"
  url = start(game, "random", advisor)
  ready(browser, url, width, scheme)
  if advisor is not None:
    browser.click("#opinion")
    browser.wait_for("!document.querySelector('#advice').hidden")
  assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
  assert serious_findings(browser) == []
  assert problems(browser, url) == []


@pytest.mark.parametrize(
  ("game", "place", "move"),
  [
    ("connect_four", "[data-cell='38']", "3"),  # the lowest cell of the fourth column
    ("othello", "[data-cell='19']", "d3"),
    ("go(board_size=5)", "[data-cell='0']", "a5"),  # row 1 is below
    ("go(board_size=5)", "#actions button", "PASS"),
    ("hex(board_size=5)", "[data-cell='7']", "c2"),
  ],
)
def test_a_click_plays_the_move_of_its_place(browser, start, game, place, move):
  url = start(game)
  ready(browser, url)
  moves = "document.querySelector('#moves').textContent"
  browser.click(place)
  browser.wait_for(f"{moves} !== ''")
  assert f"plays {move}" in browser.evaluate(moves)
  assert problems(browser, url) == []


def test_cards_are_played_by_buttons(browser, start):
  url = start("uno", "random")
  ready(browser, url, 390)
  count = "document.querySelectorAll('#moves li').length"
  browser.click("#actions button")
  browser.wait_for(f"{count} >= 2")
  assert problems(browser, url) == []


@pytest.mark.parametrize("width", [1280, 320])
def test_a_control_for_each_dimension(browser, width):
  with server_of(Match(EnvironmentTable(make_car(2)), frozenset({0, 1})), "self") as server:
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    ready(browser, url, width)
    moves = "[...document.querySelectorAll('#moves li')].map(e => e.textContent)"
    gear = "document.querySelectorAll('#actions select')[2]"
    browser.evaluate(f"(() => {{ {gear}.value = 2; {gear}.dispatchEvent(new Event('change')); }})()")
    # The other values are in the middle; the page keeps all for the next move.
    action = CAR.parse("0 0 4 1 1 1")
    for ply in (1, 2):
      browser.click("#actions button")
      browser.wait_for(f"{moves}.length === {ply}")
    assert browser.evaluate(moves) == [f"player {i} plays {CAR.name(action)}" for i in (0, 1)]
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert serious_findings(browser) == []
    assert problems(browser, url) == []
    server.shutdown()


def test_two_clicks_move_a_piece(browser, start):
  url = start("stratego")
  ready(browser, url)
  count = "document.querySelectorAll('#moves li').length"
  hint = "document.querySelector('#hint').textContent"
  for number in range(24):
    browser.click("#actions button")
    browser.wait_for(f"{count} === {number + 1}")
  assert browser.evaluate(hint).startswith("Choose a piece")
  browser.click(".cell[aria-disabled='false']")
  browser.wait_for("document.querySelector('.cell[aria-pressed=\"true\"]') !== null")
  browser.click(".cell[aria-disabled='false']:not([aria-pressed='true'])")
  browser.wait_for(f"{count} === 25")
  assert problems(browser, url) == []


def test_a_server_that_has_ended_is_reported(browser, start):
  ready(browser, start("tic_tac_toe"))
  # A move of another page in between: this page's move is refused, and it shows the game as it is.
  browser.evaluate(
    "fetch('/move', {method: 'POST', headers: {'Content-Type': 'application/json'},"
    " body: JSON.stringify({game: 0, ply: 0, action: 0})})"
  )
  browser.click("[data-cell='5']")
  browser.wait_for("document.querySelector('#error').textContent.startsWith('this move belongs to')")
  browser.wait_for("document.querySelector('#status').textContent === 'O to move'")

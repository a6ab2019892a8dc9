"""Tests of the server of `moozi play --web`: the game by requests, and the requests that it refuses."""

import base64
import http.client
import io
import json
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from moozi.api.match import Match, make_advisor
from moozi.api.players import load_players
from moozi.commands import play_web
from moozi.commands.play_web import server_of
from moozi.core.errors import EnvError, UserError
from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.envs.table import EnvironmentTable
from moozi.vis.play_page import board_shape, cells_of_actions, picture_of
from tests.envs.joint import CAR, make_car

pytest.importorskip("pyspiel")


class Client:
  """Sends requests to the server of one game."""

  def __init__(self, server):
    self.port = server.server_address[1]

  def send(self, method, path, body=None, **headers):
    """Returns (status, headers, body) of a request as the page sends it, with changed headers."""
    connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
    given = {"Content-Type": "application/json"} if body is not None else {}
    data = body if isinstance(body, str) or body is None else json.dumps(body)
    connection.request(method, path, data, given | {k.replace("_", "-"): v for k, v in headers.items()})
    response = connection.getresponse()
    out = response.status, dict(response.headers), response.read().decode()
    connection.close()
    return out

  def get(self, path):
    return json.loads(self.send("GET", path)[2])

  def post(self, path, **body):
    status, _, text = self.send("POST", path, body)
    return status, json.loads(text)


@pytest.fixture(name="start")
def _start():
  """Returns a function that starts a server and returns its client."""
  servers = []

  def start(game, opponent=None, advisor=None, seat=0, seed=0, **options):
    table = registry.make_table(f"open_spiel:{game}", **options)
    entrant = None if opponent is None else load_players([opponent], table.spec, None, False)[opponent]
    users = frozenset(range(table.num_seats) if entrant is None else (seat,))
    advice = None if advisor is None else make_advisor(advisor, table, None, False)
    server = server_of(Match(table, users, entrant, seed, advice), opponent or "self")
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    servers.append(server)
    return Client(server)

  yield start
  for server in servers:
    server.shutdown()
    server.server_close()


def test_page_loads_nothing_else(start):
  status, headers, page = start("tic_tac_toe").send("GET", "/")
  assert status == 200
  assert headers["Content-Type"] == "text/html; charset=utf-8"
  assert headers["X-Frame-Options"] == "DENY"
  assert "connect-src &#x27;self&#x27;" in page
  assert "default-src &#x27;none&#x27;" in page
  assert "http://" not in page.replace("http://www.w3.org", "")
  assert "https://" not in page


def test_game_against_a_bot(start):
  client = start("tic_tac_toe", "random")
  state = client.get("/state")
  assert (state["ply"], state["user"], state["opponent"], state["shape"]) == (0, 0, "random", [3, 3])
  assert state["status"] == "X to move"
  assert state["picture"].startswith("data:image/png;base64,")
  assert [x["cells"] for x in state["actions"]] == [[i] for i in range(9)]
  while not state["is_over"]:
    action = state["actions"][0]["action"]
    status, state = client.post("/move", game=0, ply=state["ply"], action=action)
    assert status == 200
  assert state["status"].startswith("you ")
  assert state["actions"] == []
  assert len(state["moves"]) == state["ply"]
  status, again = client.post("/new", seat=1)
  assert (status, again["game"], again["user"], again["ply"]) == (200, 1, 1, 1)
  assert again["moves"][0].startswith("X plays (")


def test_stale_and_illegal_moves_change_nothing(start):
  client = start("tic_tac_toe")
  client.post("/move", game=0, ply=0, action=4)
  for body, message in (
    ({"game": 0, "ply": 0, "action": 5}, "this move belongs to an earlier position"),
    ({"game": 1, "ply": 1, "action": 5}, "this move belongs to an earlier position"),
    ({"game": 0, "ply": 1, "action": 4}, "action=4: cannot be played now; must be one of [0, 1, 2, 3, 5"),
    ({"game": 0, "ply": 1, "action": 99}, "action=99: cannot be played now"),
    ({"game": 0, "ply": 1, "action": True}, "action: must be a number"),
    ({"game": 0, "ply": 1}, "action: must be a number"),
  ):
    status, answer = client.post("/move", **body)
    assert status == 409
    assert message in answer["error"]
  assert client.post("/new", seat=7)[1]["error"].startswith("seat=7: must be from 0 to 1")
  assert client.get("/state")["moves"] == ["X plays (1,1)"]


def test_other_pages_and_hosts_are_refused(start):
  client = start("tic_tac_toe")
  move = {"game": 0, "ply": 0, "action": 4}
  for headers in (
    {"Host": "example.com"},
    {"Host": f"example.com:{client.port}"},
    {"Origin": "http://example.com"},
    {"Origin": "null"},
    {"Content_Type": "text/plain"},
  ):
    assert client.send("POST", "/move", move, **headers)[0] == 403, headers
  assert client.send("GET", "/state", Host="example.com")[0] == 403
  assert client.send("POST", "/move", move, Host=f"localhost:{client.port}")[0] == 200
  assert client.get("/state")["ply"] == 1


@pytest.mark.parametrize("body", ["[1]", "{", "1" * 20_000, "[" * 5000])
def test_bad_bodies(start, body):
  assert start("tic_tac_toe").send("POST", "/move", body)[0] == 400


def test_unknown_pages(start):
  client = start("tic_tac_toe")
  assert client.send("GET", "/../etc/passwd")[0] == 404
  assert client.send("POST", "/state", {})[0] == 404


def test_opinion_of_mcts_finds_the_win(start):
  client = start("tic_tac_toe", advisor="mcts:200")
  for ply, action in enumerate((0, 3, 1, 4)):
    client.post("/move", game=0, ply=ply, action=action)
  status, opinion = client.post("/opinion")
  assert (status, opinion["by"], opinion["ply"]) == (200, "mcts:200", 4)
  assert (opinion["advice"][0]["action"], opinion["advice"][0]["value"]) == (2, 1.0)
  assert sum(x["share"] for x in opinion["advice"]) == pytest.approx(1)
  assert {x["action"] for x in opinion["advice"]} == {2, 5, 6, 7, 8}


def test_without_an_advisor_there_is_no_opinion(start):
  client = start("kuhn_poker")
  assert client.get("/state")["advisor"] is None
  assert client.post("/opinion")[0] == 409


def test_cards_are_a_list_of_actions_and_hands_stay_hidden(start):
  client = start("uno", "random")
  state = client.get("/state")
  assert "picture" not in state
  assert state["text"]
  assert {"action", "name", "cells"} == set(state["actions"][0])
  own = set(state["text"].splitlines())
  state = client.post("/move", game=0, ply=0, action=state["actions"][0]["action"])[1]
  assert state["status"] == "player 0 to move"
  assert own != set(state["text"].splitlines())


def test_failed_opponent_shows_no_hand_and_plays_at_the_next_request(start, monkeypatch):
  client, reply, failures = start("uno", "random"), Match.reply, [EnvError("it broke")]

  def fails_once(match):
    if failures and not (match.is_over or match.is_users_turn):
      raise failures.pop()
    return reply(match)

  monkeypatch.setattr(Match, "reply", fails_once)
  action = client.get("/state")["actions"][0]["action"]
  status, state = client.post("/move", game=0, ply=0, action=action)
  assert (status, state["error"], state["text"], state["actions"]) == (200, "it broke", "", [])
  assert state["status"] == "player 1 to move"
  state = client.get("/state")
  assert state["error"] is None
  assert state["status"] == "player 0 to move"
  assert state["text"]
  assert state["actions"]


def test_unexpected_error_is_one_line(start, monkeypatch, capfd):
  client = start("tic_tac_toe")

  def breaks(match):
    raise RuntimeError("no memory")

  monkeypatch.setattr(Match, "reply", breaks)
  assert client.send("GET", "/state")[0] == 500
  assert client.get("/state") == {"error": "RuntimeError: no memory"}
  # The traceback is printed before the answer is sent.
  assert capfd.readouterr().err.count("RuntimeError: no memory") == 2


def test_closed_page_prints_nothing(start, monkeypatch, capfd):
  client = start("tic_tac_toe")

  def is_closed(handler, *arguments):
    raise BrokenPipeError

  for path in ("/state", "/", "/nothing"):
    with monkeypatch.context() as patch:
      patch.setattr(play_web._Handler, "_write", is_closed)
      with pytest.raises(http.client.RemoteDisconnected):
        client.send("GET", path)
  assert client.send("GET", "/state")[0] == 200
  assert capfd.readouterr().err == ""


def test_hidden_moves_are_not_named(start):
  client = start("stratego", "random", seat=1)
  state = client.get("/state")
  assert state["mode"] == "from_to"
  assert all(x["cells"] == [] for x in state["actions"])  # the set-up
  assert state["moves"] == ["red moves"]


def test_three_players(start):
  client = start("uno(players=3)", "random", seat=2)
  state = client.get("/state")
  assert (state["ply"], state["seats"]) == (2, ["player 0", "player 1", "player 2"])


def test_port_in_use(start):
  client, table = start("tic_tac_toe"), registry.make_table("open_spiel:tic_tac_toe")
  with pytest.raises(UserError, match=rf"--port={client.port}: cannot be used"):
    server_of(Match(table, frozenset((0, 1))), "self", client.port)


def cells(game):
  spec = registry.env_spec(f"open_spiel:{game}", **({"seat": "random"} if game == "stratego" else {}))
  return cells_of_actions(spec, *spec.frame_shape[:2])


def test_cells_as_drawn():
  mode, of_actions = cells("connect_four")
  assert (mode, of_actions[2]) == ("columns", [2, 9, 16, 23, 30, 37])
  mode, of_actions = cells("go(board_size=5)")
  # a1 is drawn at the bottom left.
  assert (mode, of_actions[0], of_actions[24], of_actions[25]) == ("cells", [20], [4], [])
  mode, of_actions = cells("othello")
  assert (mode, of_actions[0], of_actions[63], of_actions[64]) == ("cells", [0], [63], [])
  mode, of_actions = cells("stratego")
  names = registry.env_spec("open_spiel:stratego", seat="random").action_names
  assert (mode, of_actions[names.index("f1-f5")]) == ("from_to", [35, 11])


def own_spec(num_actions, places, dtype="bool", planes=2):
  return EnvSpec(
    name="own",
    frame_shape=(2, 3, planes),
    frame_dtype=dtype,
    num_env_actions=num_actions,
    num_players=2,
    action_places=places,
  )


@pytest.mark.parametrize(
  ("spec", "mode", "cells"),
  [
    (own_spec(6, "cells"), "cells", [[0], [1], [2], [3], [4], [5]]),
    (own_spec(9, "cells", "uint8"), "cells", [[0], [1], [2], [3], [4], [5], [], [], []]),
    (own_spec(6, "columns"), "columns", [[0, 3], [1, 4], [2, 5], [], [], []]),
    (own_spec(4, "columns", "float32", 1), "columns", [[0, 3], [1, 4], [2, 5], []]),
  ],
)
def test_places_of_actions_of_an_own_game(spec, mode, cells):
  frame = np.zeros(spec.frame_shape, spec.frame_dtype)
  frame[1, 2, 0] = 1
  assert board_shape(frame, spec) == (2, 3)
  assert cells_of_actions(spec, 2, 3) == (mode, cells)
  picture = picture_of(frame, spec, 0)["picture"].removeprefix("data:image/png;base64,")
  drawn = np.asarray(Image.open(io.BytesIO(base64.b64decode(picture))))
  rows, columns = (side // n for side, n in zip(drawn.shape[:2], (2, 3), strict=True))
  assert rows == columns > 99  # the page lays its cells over the picture
  tiles = drawn.reshape(2, rows, 3, columns, 3).swapaxes(1, 2)
  differs = (tiles != tiles[0, 0]).any(axis=(2, 3, 4))
  assert differs[1, 2]
  assert not differs[:, :2].any()


def test_frames_without_places_have_no_cells():
  spec = own_spec(6, "none")
  frame = np.zeros(spec.frame_shape, bool)
  assert board_shape(frame, spec) is None
  assert "picture" not in picture_of(frame, spec, 0)


ROOT = Path(__file__).resolve().parents[2]
PAGE = """
const calls = [], shown = {};
let answer;
const element = () => new Proxy({}, {
  get: (o, k) => k in o ? o[k] : k === "querySelectorAll" || k === "children" ? () => [] : () => undefined,
});
const elements = {};
globalThis.document = {
  getElementById: (id) => elements[id] ??= element(), body: element(), createElement: element,
  addEventListener() {},
};
globalThis.Option = function () {};
globalThis.fetch = (path, options) => {
  calls.push(path + (options.body ?? ""));
  return new Promise((resolve) => { answer = (x) => resolve({ok: true, json: async () => x}); });
};
const settle = () => new Promise((resolve) => setTimeout(resolve, 5));
"""
CLICKS = """
(async () => {
  const state = {error: null, env: "e", user: null, seats: [], status: "", advisor: null,
    is_over: false, moves: [], text: "", actions: [], dimensions: [], mode: "none", game: 0, ply: 0};
  await settle(); answer(state); await settle();
  showOpinion(); await settle();
  update("/move", {action: 1}); update("/move", {action: 2});
  const said = elements.error.textContent;
  await settle();
  const before = calls.length;
  answer({game: 0, ply: 1}); await settle();
  console.log(JSON.stringify({said, before, calls}));
})();
"""


def run_script(folder, code):
  """Returns what the page's script with this code after it prints, as JSON."""
  script = (ROOT / "moozi/vis/report_page/play.js").read_text("utf-8")
  (folder / "page.js").write_text(PAGE + script + code)
  done = subprocess.run(["node", folder / "page.js"], capture_output=True, text=True, check=True, timeout=60)
  return json.loads(done.stdout)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_click_during_an_opinion_waits_and_says_so(tmp_path):
  found = run_script(tmp_path, CLICKS)
  assert found["said"] == "This waits until the answer before is there."
  assert (found["before"], found["calls"]) == (2, ["/state", "/opinion{}", '/move{"action":2}'])


JOINT = """
(async () => {
  await settle();
  answer({error: null, env: "e", user: null, seats: [], status: "", advisor: null, is_over: false, moves: [],
    text: "", actions: [], mode: "list", game: 0, ply: 0,
    dimensions: [{name: "a", values: ["0", "1"]}, {name: "b c", values: ["-1", "0", "+1"]}]});
  await settle();
  const first = [...chosen];
  chosen = [1, 2];
  console.log(JSON.stringify({first, action: jointAction(), name: jointName(jointAction())}));
})();
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_page_numbers_and_names_joint_actions(tmp_path):
  assert run_script(tmp_path, JOINT) == {"first": [1, 1], "action": 5, "name": "a=1 b c=+1"}


def test_joint_actions_have_a_control_for_each_dimension():
  table = EnvironmentTable(make_car(2))
  with server_of(Match(table, frozenset({0, 1})), "self") as server:
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    client = Client(server)
    state = client.get("/state")
    assert [x["name"] for x in state["dimensions"]] == list(CAR.names)
    assert state["dimensions"][2]["values"] == ["2", "3", "4"]
    assert state["actions"] == []
    status, answer = client.post("/move", game=0, ply=0, action=CAR.num_joint_actions)
    assert (status, answer["error"]) == (409, "action=1176: must be from 0 to 1175")
    status, state = client.post("/move", game=0, ply=0, action=100)
    assert (status, state["moves"]) == (200, [f"player 0 plays {CAR.name(100)}"])
    server.shutdown()

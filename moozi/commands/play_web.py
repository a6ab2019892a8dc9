"""The server of `moozi play --web`: one game on a page, on 127.0.0.1 only.

Requests whose Host is not this server, or that have the Origin of another page, are refused, so that other
pages in the browser cannot send moves.
"""

import contextlib
import http.server
import json
import threading
import traceback
from http import HTTPStatus
from typing import Any

import numpy as np

from moozi.api.match import Match, Move
from moozi.commands import common
from moozi.core.errors import UserError, reason_of
from moozi.io.output import say
from moozi.vis.lettering import rounded
from moozi.vis.play_page import (
  actions_of,
  board_shape,
  cells_of_actions,
  dimensions_of,
  picture_of,
  play_page,
)
from moozi.vis.render_spec import player_name, render_spec_of

_MAX_BYTES = 10_000


def serve(match: Match, label: str, port: int) -> int:
  """Serves the page until Ctrl-C.

  Args:
    label: name of the player of the other seats; "self" if the user plays all seats.

  Raises: UserError: the port cannot be used.
  """
  with server_of(match, label, port) as server:
    say(f"http://127.0.0.1:{server.server_address[1]}/ (Ctrl-C ends)")
    with contextlib.suppress(KeyboardInterrupt):
      server.serve_forever()
  return 0


def server_of(match: Match, label: str, port: int = 0) -> http.server.ThreadingHTTPServer:
  """Returns the server, which listens on 127.0.0.1. Raises UserError if the port cannot be used."""
  game = WebGame(match, label)

  class Handler(_Handler):
    web_game = game

  try:
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
  except OSError as error:
    raise UserError(f"--port={port}: cannot be used ({reason_of(error)}); 0 takes a free port") from None


class WebGame:
  """A match for the page. `answer` returns plain data, and raises UserError for a bad request."""

  def __init__(self, match: Match, label: str) -> None:
    self._match, self._label, self._game = match, label, 0
    self._lock = threading.Lock()
    self.page = play_page(match.table.spec.name)
    shape = board_shape(match.table.view().frame, match.table.spec)
    self._shape = shape
    self._mode, self._cells = ("list", []) if shape is None else cells_of_actions(match.table.spec, *shape)
    self._dimensions = dimensions_of(match.table.spec)
    self._reply()

  def answer(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer to a request: `/state`, `/move`, `/new` or `/opinion`."""
    with self._lock, common.stdout_to_stderr():
      if path == "/move":
        if (request.get("game"), request.get("ply")) != (self._game, len(self._match.moves)):
          raise UserError("this move belongs to an earlier position; the page now shows the current one")
        action = request.get("action")
        if type(action) is not int:
          raise UserError("action: must be a number")
        self._match.play(action)
      elif path == "/new":
        seat = request.get("seat", min(self._match.users))
        if type(seat) is not int or not 0 <= seat < self._match.table.num_seats:
          raise UserError(f"seat={seat!r}: must be from 0 to {self._match.table.num_seats - 1}")
        self._match.start(self._match.users if self._label == "self" else frozenset({seat}))
        self._game += 1
      elif path == "/opinion":
        return self._opinion()
      # The next request tries again if the other player fails.
      try:
        self._reply()
      except UserError as error:
        return self._state(str(error))
      return self._state()

  def _reply(self) -> None:
    while self._match.reply() is not None:
      pass

  def _state(self, error: str | None = None) -> dict[str, Any]:
    match, spec = self._match, self._match.table.spec
    seats = [player_name(spec, seat) for seat in range(match.table.num_seats)]
    board = render_spec_of(spec).board
    is_open = spec.is_perfect_information and self._shape is not None
    view = match.table.view() if match.is_users_turn or is_open else None
    last = [move for move in match.moves[-len(seats) :] if match.may_show(move)]
    return {
      "env": spec.name,
      "game": self._game,
      "ply": len(match.moves),
      "is_over": match.is_over,
      "status": match.outcome_text() if match.is_over else f"{seats[match.table.to_play]} to move",
      "seats": seats,
      "user": None if self._label == "self" else min(match.users),
      "opponent": self._label,
      "shape": self._shape,
      "mode": self._mode,
      "is_hex": board is not None and board.ground == "hexes",
      **({"text": ""} if view is None else picture_of(view.frame, spec, match.table.to_play)),
      "actions": self._actions() if match.is_users_turn else [],
      "dimensions": self._dimensions if match.is_users_turn else [],
      "moves": [match.move_text(move) for move in match.moves],
      "last": self._last_cell(last[-1]) if last else None,
      "advisor": None if match.advisor is None else match.advisor.name,
      "error": error,
    }

  def _actions(self) -> list[dict[str, Any]]:
    """Returns the actions that the page lists; none if it has a control for each dimension instead."""
    table = self._match.table
    return [] if self._dimensions else actions_of(table.spec, table.view().legal, self._cells)

  def _last_cell(self, move: Move) -> int | None:
    """Returns the cell that a move names, or None."""
    cells = self._cells[move.action] if self._cells else []
    return cells[0] if self._mode == "cells" and cells else None

  def _opinion(self) -> dict[str, Any]:
    opinion = self._match.opinion()

    def number(x: float | None) -> float | None:
      return None if x is None or not np.isfinite(x) else rounded(x)

    return {
      "by": opinion.by,
      "game": self._game,
      "ply": len(self._match.moves),
      "value": number(opinion.value),
      "advice": [{"action": x.action, "share": x.share, "value": number(x.value)} for x in opinion.advice],
    }


class _Handler(http.server.BaseHTTPRequestHandler):
  web_game: WebGame
  server_version, sys_version = "moozi", ""

  def do_GET(self) -> None:
    if not self._is_own():
      self._send(HTTPStatus.FORBIDDEN, {"error": "refused: not a request of this page"})
    elif self.path == "/":
      self._send_bytes(HTTPStatus.OK, self.web_game.page.encode(), "text/html; charset=utf-8")
    elif self.path == "/state":
      self._answer({})
    else:
      self._send(HTTPStatus.NOT_FOUND, {"error": f"{self.path[:80]}: no such page"})

  def do_POST(self) -> None:
    length = self.headers.get("Content-Length", "")
    is_json = self.headers.get("Content-Type", "").startswith("application/json")
    if not (self._is_own() and is_json):
      self._send(HTTPStatus.FORBIDDEN, {"error": "refused: not a request of this page"})
      return
    if self.path not in ("/move", "/new", "/opinion"):
      self._send(HTTPStatus.NOT_FOUND, {"error": f"{self.path[:80]}: no such page"})
      return
    try:
      if not length.isdigit() or int(length) > _MAX_BYTES:
        raise ValueError
      request = json.loads(self.rfile.read(int(length)))
      if not isinstance(request, dict):
        raise ValueError
    except (ValueError, RecursionError):
      self._send(HTTPStatus.BAD_REQUEST, {"error": "the request must be a short JSON object"})
      return
    self._answer(request)

  def _answer(self, request: dict[str, Any]) -> None:
    try:
      status, data = HTTPStatus.OK, self.web_game.answer(self.path, request)
    except UserError as error:
      status, data = HTTPStatus.CONFLICT, {"error": str(error)}
    except Exception as error:
      traceback.print_exc()
      status, data = HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"{type(error).__name__}: {error}"}
    self._send(status, data)

  def _is_own(self) -> bool:
    """Returns whether Host is this server and Origin, if there is one, is this server's page."""
    port: int = self.server.server_address[1]  # type: ignore[index, assignment]
    # Browsers leave out port 80.
    ports = ("", ":80") if port == 80 else (f":{port}",)
    own = {f"{name}{text}" for name in ("127.0.0.1", "localhost") for text in ports}
    origin = self.headers.get("Origin")
    return self.headers.get("Host") in own and (origin is None or origin.removeprefix("http://") in own)

  def _send(self, status: HTTPStatus, data: dict[str, Any]) -> None:
    self._send_bytes(status, json.dumps(data, allow_nan=False).encode(), "application/json")

  def _send_bytes(self, status: HTTPStatus, body: bytes, kind: str) -> None:
    # The page may have been closed or reloaded, for example while the other player was thinking.
    with contextlib.suppress(ConnectionError):
      self._write(status, body, kind)

  def _write(self, status: HTTPStatus, body: bytes, kind: str) -> None:
    self.send_response(status)
    for name, value in (
      ("Content-Type", kind),
      ("Content-Length", str(len(body))),
      ("Cache-Control", "no-store"),
      ("X-Content-Type-Options", "nosniff"),
      ("X-Frame-Options", "DENY"),
      ("Referrer-Policy", "no-referrer"),
    ):
      self.send_header(name, value)
    self.end_headers()
    self.wfile.write(body)

  def log_message(self, format: str, *args: Any) -> None:
    """Prints no line per request."""

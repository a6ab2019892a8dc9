"""The interface of players, players that play each game separately, and the players in the seats of games.

A *place* is one seat in one game: the pair (game, seat). Players take the places of several games at once, so
that an agent searches in all of them together.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from moozi.core import plugins, user_code
from moozi.core.errors import EnvError, UserError, one_line
from moozi.core.spec import EnvSpec
from moozi.envs.bots import SEARCHES, make_bot
from moozi.envs.environment import EpisodePlayer, check_action
from moozi.envs.table import PlayedGame, Table, View

T = TypeVar("T")

Place = tuple[int, int]
"""A seat in a game: (number of the game, number of the seat)."""

PlayerMaker = Callable[[EnvSpec, int], EpisodePlayer]
"""A function (env_spec, seed) that returns the player of one episode.

It is called in every episode, so it may return a different player each time, for example the newest
checkpoint of a folder, or a player drawn from a pool.
"""


@dataclasses.dataclass(frozen=True)
class Advice:
  """What a search found about one legal action.

  Attributes:
    share: the action's share of the visits; if the search has no visits, the action's probability.
    value: expected return after the action for the player to move; None if the search did not try it.
  """

  action: int
  share: float
  value: float | None


@dataclasses.dataclass(frozen=True)
class Opinion:
  """What a search found about a position.

  Attributes:
    by: the name of the player.
    advice: one entry for each legal action, the one with the largest share first.
    value: expected return for the player to move; None if unknown.
  """

  by: str
  advice: tuple[Advice, ...]
  value: float | None

  @classmethod
  def of(cls, by: str, advice: Sequence[Advice], value: float | None) -> "Opinion":
    """Returns the opinion with its advice sorted, the largest share first."""
    return cls(by, tuple(sorted(advice, key=lambda x: (-x.share, x.action))), value)


@runtime_checkable
class Player(Protocol):
  """Plays seats of several games at once: bots, a user's player, a trained agent.

  At each move of a game, `act` is called for the player's place that is to move, or `take` if somebody else
  chooses the move. For the player's other places in this game, `observe` is called, unless the game hides
  moves.

  Attributes:
    name: the player's name.
  """

  name: str

  def check(self, game: PlayedGame) -> None:
    """Raises UserError if the player cannot play the game."""

  def reset(self, places: Mapping[Place, tuple[PlayedGame, int]]) -> None:
    """Starts new games in these places: {place: (the game, the seed of the player's own draws)}."""

  def act(self, views: Mapping[Place, View]) -> dict[Place, int]:
    """Returns one of the environment's actions for each of these places, which are to move."""

  def observe(self, views: Mapping[Place, View], actions: Mapping[Place, int]) -> None:
    """Receives moves of others in the games of these places: what the mover sees, and its action."""

  def take(self, views: Mapping[Place, View], actions: Mapping[Place, int]) -> None:
    """Receives moves that somebody else, such as a person, chose for these places, which are to move."""

  def opinion(self, place: Place, view: View) -> Opinion:
    """Returns what the player's search finds in a place that is to move.

    Raises: UserError: the player has no search.
    """


class Seats:
  """The players in the seats of several games. The caller plays the seats without a player.

  Args:
    hides_moves: whether the games hide moves; `observe` then does nothing.
  """

  def __init__(self, hides_moves: bool = False) -> None:
    self._hides_moves = hides_moves
    self._players: dict[Place, Player] = {}

  def start(self, games: Mapping[int, tuple[PlayedGame, Mapping[int, tuple[Player, int]]]]) -> None:
    """Starts new games: {number: (the game, {seat: (its player, the player's seed)})}."""
    self._players = {place: player for place, player in self._players.items() if place[0] not in games}
    starts: _ByPlayer[tuple[PlayedGame, int]] = {}
    for number, (game, seats) in games.items():
      for seat, (player, seed) in seats.items():
        self._players[number, seat] = player
        _add(starts, player, (number, seat), (game, seed))
    for player, places in starts.values():
      player.reset(places)

  def act(self, views: Mapping[int, View]) -> dict[int, int]:
    """Returns {game: action} for the games of `views` in which a player is to move."""
    to_move: _ByPlayer[View] = {}
    for number, view in views.items():
      place = number, view.seat
      if place in self._players:
        _add(to_move, self._players[place], place, view)
    return {
      number: action for player, seen in to_move.values() for (number, _), action in player.act(seen).items()
    }

  def observe(self, views: Mapping[int, View], actions: Mapping[int, int]) -> None:
    """Passes the moves of these games, before they are played, to the players in the other seats."""
    if self._hides_moves:
      return
    others: _ByPlayer[View] = {}
    for place, player in self._players.items():
      if place[0] in actions and views[place[0]].seat != place[1]:
        _add(others, player, place, views[place[0]])
    for player, seen in others.values():
      player.observe(seen, {place: actions[place[0]] for place in seen})

  def play(self, tables: Mapping[int, Table]) -> dict[int, int]:
    """Plays one move at each table in which a player is to move; returns {table: action}."""
    views = {number: table.view() for number, table in tables.items()}
    actions = self.act(views)
    self.observe(views, actions)
    for number, action in actions.items():
      tables[number].step(action)
    return actions


_ByPlayer = dict[int, tuple[Player, dict[Place, T]]]
"""{id of a player: (the player, {place: a value})}"""


def _add(groups: "_ByPlayer[T]", player: Player, place: Place, value: T) -> None:
  groups.setdefault(id(player), (player, {}))[1][place] = value


class SeparatePlayer:
  """Plays each place with an `EpisodePlayer` of its own: random, mcts, alpha_beta, or the user's.

  `reset` makes the user's player. A bot is made at the place's first decision, because it may copy the game.
  `act` and `observe` raise EnvError if the player fails; `act` also raises it for an illegal action.

  Args:
    name: a name that `core.plugins.PLAYERS` knows, but not that of a trained agent.
    key: the option that has the name, for errors.

  Raises: UserError: there is no such player.
  """

  def __init__(self, name: str, spec: EnvSpec, key: str | None = None) -> None:
    self.name, self._spec = name, spec
    self._where = f"{key}={name}" if key else name
    self._bot = bot_of(name)
    self._maker = None if self._bot is not None else plugins.PLAYERS.get(name, key or "player")
    self._places: dict[Place, tuple[PlayedGame, int]] = {}
    self._made: dict[Place, tuple[user_code.Plugin, EpisodePlayer]] = {}

  def check(self, game: PlayedGame) -> None:
    self._make(game, 0)

  def reset(self, places: Mapping[Place, tuple[PlayedGame, int]]) -> None:
    self._places |= places
    self._made = {place: made for place, made in self._made.items() if place not in places}
    if self._maker is not None:
      self._made |= {place: self._make(game, seed) for place, (game, seed) in places.items()}

  def act(self, views: Mapping[Place, View]) -> dict[Place, int]:
    return {place: self._choose(place, view) for place, view in views.items()}

  def observe(self, views: Mapping[Place, View], actions: Mapping[Place, int]) -> None:
    if self._maker is None:
      return
    for place, view in views.items():
      plugin, player = self._player(place)
      with plugin.errors("the player failed", EnvError):
        observe = getattr(player, "observe", None)
        if observe is not None:
          observe(self._visible(view.frame), self._visible(view.legal), actions[place])

  def take(self, views: Mapping[Place, View], actions: Mapping[Place, int]) -> None:
    """Does nothing: a bot does not need the moves, and a user's player has no method for such a move."""

  def opinion(self, place: Place, view: View) -> Opinion:
    plugin, player = self._player(place)
    search = getattr(player, "search", None)
    if self._maker is not None or search is None:
      raise UserError(f"{self._where}: reports no search")
    with plugin.errors("the player failed", EnvError):
      found: list[tuple[int, int, float | None]] = search()
    total = max(1, sum(visits for _, visits, _ in found))
    known = [(visits, value) for _, visits, value in found if value is not None]
    mean = sum(n * v for n, v in known) / max(1, sum(n for n, _ in known)) if known else None
    return Opinion.of(self.name, [Advice(a, visits / total, value) for a, visits, value in found], mean)

  def _choose(self, place: Place, view: View) -> int:
    plugin, player = self._player(place)
    if self._maker is None:
      with plugin.errors("the player failed", EnvError):
        return int(player.action(np.empty(0), view.legal))
    with plugin.errors("the player failed", EnvError):
      legal = view.legal
      action = player.action(view.frame.copy(), legal.copy())
      if self._spec.factors is not None:
        return check_action(action, self._spec, legal)
      if not isinstance(action, int | np.integer) or not 0 <= action < len(legal) or not legal[action]:
        allowed = one_line(np.flatnonzero(legal).tolist(), 80)
        raise EnvError(f"{plugin.where}: plays {one_line(action, 80)}; must be one of {allowed}")
      return int(action)

  def _player(self, place: Place) -> tuple[user_code.Plugin, EpisodePlayer]:
    if place not in self._made:
      self._made[place] = self._make(*self._places[place])
    return self._made[place]

  def _make(self, game: PlayedGame, seed: int) -> tuple[user_code.Plugin, EpisodePlayer]:
    """Returns a player of one episode, with the plug-in that describes its errors."""
    if self._maker is not None:
      return self._maker, self._make_own(self._maker, game, seed)
    assert self._bot is not None, "there is no maker"
    kind, budget = self._bot
    try:
      bot = make_bot(game, kind, budget, seed)
    except UserError as error:  # it begins with the kind
      raise UserError(f"{self._where}{str(error).removeprefix(kind)}") from None
    return user_code.Plugin(self._where, bot.action), bot

  def _make_own(self, maker: user_code.Plugin, game: PlayedGame, seed: int) -> EpisodePlayer:
    player: EpisodePlayer = maker(self._spec, seed)
    with maker.errors("the player failed", EnvError):
      if not callable(getattr(player, "action", None)):
        raise UserError(
          f"{maker.where}: returns {one_line(player, 80)}; must return an object with "
          "action(observation, legal)"
        )
      follow = getattr(player, "follow", None)
      if follow is not None:
        follow(game.position)
    return player

  def _visible(self, seen: np.ndarray) -> np.ndarray:
    """Returns a copy of a frame or mask as other players may see it: zeros with hidden information."""
    return seen.copy() if self._spec.is_perfect_information else np.zeros_like(seen)


def make_player(
  name: str, spec: EnvSpec, key: str | None = None, allow_code: bool = False, width: int = 1
) -> Player:
  """Creates a player; `key` is the option that has the name, for errors.

  Args:
    allow_code: whether the run of a trained agent may import the modules that its configuration names.
    width: largest number of games that a trained agent searches at once.

  Raises: UserError: there is no such player, or it plays another environment.
  """
  if plugins.PLAYERS.is_built_in(name) and bot_of(name) is None:
    player: Player = plugins.PLAYERS.get(name, key or "player", allow_code)(spec, width)
    return player
  return SeparatePlayer(name, spec, key)


def bot_of(name: str) -> tuple[str, int] | None:
  """Returns the kind of a bot and its budget: ("mcts", 100) for `mcts:100`, ("random", 1) for `random`.

  Returns None for any other player.
  """
  kind, _, budget = name.partition(":")
  if not plugins.PLAYERS.is_built_in(name) or kind not in ("random", *SEARCHES):
    return None
  return kind, int(budget or SEARCHES.get(kind, 1))


def check_seat_player(name: str) -> str:
  """Returns `name`. Raises ValueError if this player cannot play the seats that the agent does not play."""
  if not plugins.OTHER_PLAYERS.accepts(name):
    raise ValueError(f"{name!r} must be {plugins.OTHER_PLAYERS.allowed(name)}")
  return name

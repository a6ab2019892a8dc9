"""Games between players from every seat, with openings that all pairs of players share.

An *opening* is a number. With the arena's seed, it determines the seed of the game's chance and the random
moves at its start. All games of one opening start from the same position. A game depends only on the seed,
its players, their seats and its opening, not on the games that are played beside it. The exception is a
trained agent with evaluation.noise_free=false: its games in one block share a stream of random numbers.
"""

import contextlib
import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Shaped

from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs.players import Player, make_player, observe
from moozi.envs.table import Table

MAX_STEPS = 10_000
"""A game is stopped after this number of actions, with the returns at that point."""

MIN_STARTS = 10
"""Minimum number of distinct starts for which games are grouped by their starts; see `openings_of`."""

_MAX_TRIES = 100
_MOST_PLIES = 4
_NUM_PROBES, _LONGEST = 20, 100


@dataclasses.dataclass(frozen=True)
class Pairing:
  """A game to play: the players' names by seat, and the opening's number."""

  players: tuple[str, ...]
  opening: int


@dataclasses.dataclass(frozen=True)
class GameRecord:
  """A finished game.

  Attributes:
    pairing: the players and the opening.
    num_random: number of random actions at the start.
    actions: all actions, including the random ones, without chance outcomes.
    returns: the return of each seat.
  """

  pairing: Pairing
  num_random: int
  actions: tuple[int, ...]
  returns: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class View:
  """What the seat to move sees: its frame and its legal actions."""

  frame: Shaped[np.ndarray, "H W C"]
  legal: Bool[np.ndarray, "E"]


@runtime_checkable
class Seated(Protocol):
  """A player in several games. A lane is one of its seats in one game."""

  def choose(self, lanes: Sequence[int], views: Sequence[View]) -> Sequence[int]:
    """Returns one of the environment's actions for each of `lanes`, in which this player is to move."""

  def observe(self, lanes: Sequence[int], views: Sequence[View], actions: Sequence[int]) -> None:
    """Receives the moves that other seats make in the games of `lanes`, before the moves are played."""


@runtime_checkable
class Entrant(Protocol):
  """A player in the arena."""

  name: str

  def check(self, table: Table) -> None:
    """Raises UserError if the player cannot play the game."""

  def sit(self, tables: Sequence[Table], seeds: Sequence[int]) -> Seated:
    """Returns the player in one seat of each table; a table may occur more than once."""


# --- schedule


def schedule(players: Sequence[str], num_seats: int, num_openings: int, seed: int) -> list[list[Pairing]]:
  """Returns the games of each group of players who meet; each player of a group plays from every seat.

  With two seats, the groups are the pairs, and each opening is played from both sides. With S > 2 seats, a
  group has S players. If there are fewer, it has all of them, and some fill several seats. For each opening,
  an order of seats is drawn and played in all S rotations.

  Args:
    players: distinct names.

  Raises: UserError: there are fewer than two players.
  """
  if len(players) < 2:
    raise UserError(f"{', '.join(players) or 'no player'}: an arena needs at least two players")
  out = []
  for table in itertools.combinations(players, min(len(players), num_seats)):
    order = list(itertools.islice(itertools.cycle(table), num_seats))
    pairings = []
    for opening in range(num_openings):
      drawn = order
      if num_seats > 2:
        random = np.random.default_rng(_seed(seed, "order", opening, *table))
        drawn = [order[i] for i in random.permutation(num_seats)]
      rotations = (tuple(drawn[i:] + drawn[:i]) for i in range(num_seats))
      # Fewer players than seats can repeat an order.
      pairings += [Pairing(seats, opening) for seats in dict.fromkeys(rotations)]
    out.append(pairings)
  return out


def blocks(
  tables: Iterable[Sequence[Pairing]], done: set[Pairing], num_openings: int = 16
) -> list[list[Pairing]]:
  """Returns the games that are not done, in blocks of at most `num_openings` openings of one group.

  A block is played in lockstep, so that an agent searches several positions at once.
  """
  out = []
  for table in tables:
    missing = [pairing for pairing in table if pairing not in done]
    openings = list(dict.fromkeys(pairing.opening for pairing in missing))
    for i in range(0, len(openings), num_openings):
      chosen = set(openings[i : i + num_openings])
      out.append([pairing for pairing in missing if pairing.opening in chosen])
  return out


# --- play


def play(
  pairings: Sequence[Pairing],
  make_table: Callable[[], Table],
  entrants: Mapping[str, Entrant],
  seed: int,
  num_random: int,
) -> list[GameRecord]:
  """Plays games in lockstep, and returns them in order.

  Raises: UserError: an opening cannot be made, because its games end within `num_random` actions. EnvError: a
    user's player failed.
  """
  with contextlib.ExitStack() as stack:
    tables = [stack.enter_context(contextlib.closing(make_table())) for _ in pairings]
    actions = [open_game(t, seed, p.opening, num_random) for t, p in zip(tables, pairings, strict=True)]
    groups = [
      _Group(entrants[name], name, pairings, tables, seed)
      for name in dict.fromkeys(name for pairing in pairings for name in pairing.players)
    ]
    while live := {i for i, table in enumerate(tables) if not table.is_over and len(actions[i]) < MAX_STEPS}:
      views = {i: View(tables[i].frame(), tables[i].legal_actions_mask()) for i in live}
      to_play = {i: tables[i].to_play for i in live}
      chosen: dict[int, int] = {}
      for group in groups:
        chosen |= group.choose(views, to_play)
      for group in () if tables[0].hides_moves else groups:
        group.observe(views, to_play, chosen)
      for i, action in chosen.items():
        tables[i].step(action)
        actions[i].append(action)
    return [
      GameRecord(pairing, num_random, tuple(played), tuple(table.returns()))
      for pairing, played, table in zip(pairings, actions, tables, strict=True)
    ]


class _Group:
  """A player with its seats in the games of a block."""

  def __init__(
    self, entrant: Entrant, name: str, pairings: Sequence[Pairing], tables: Sequence[Table], seed: int
  ) -> None:
    self._lanes = [
      (i, s) for i, p in enumerate(pairings) for s, player in enumerate(p.players) if player == name
    ]
    seeds = [_seed(seed, "player", pairings[i].opening, s, *pairings[i].players) for i, s in self._lanes]
    self._seated = entrant.sit([tables[i] for i, _ in self._lanes], seeds)

  def choose(self, views: Mapping[int, View], to_play: Mapping[int, int]) -> dict[int, int]:
    """Returns the actions by game, for the games in which this player is to move."""
    lanes = [lane for lane, (i, seat) in enumerate(self._lanes) if to_play.get(i) == seat]
    if not lanes:
      return {}
    games = [self._lanes[lane][0] for lane in lanes]
    actions = self._seated.choose(lanes, [views[i] for i in games])
    return {i: int(action) for i, action in zip(games, actions, strict=True)}

  def observe(
    self, views: Mapping[int, View], to_play: Mapping[int, int], actions: Mapping[int, int]
  ) -> None:
    lanes = [lane for lane, (i, seat) in enumerate(self._lanes) if i in views and to_play[i] != seat]
    if lanes:
      games = [self._lanes[lane][0] for lane in lanes]
      self._seated.observe(lanes, [views[i] for i in games], [actions[i] for i in games])


def open_game(table: Table, seed: int, opening: int, num_random: int) -> list[int]:
  """Starts a game, plays its random actions and returns them.

  If the game ends during these actions, starts again with another seed.

  Raises: UserError: 100 attempts ended during the random actions.
  """
  for attempt in range(_MAX_TRIES):
    random = np.random.default_rng(_seed(seed, "opening", opening, attempt))
    table.reset(_seed(seed, "chance", opening, attempt))
    actions: list[int] = []
    while not table.is_over and len(actions) < num_random:
      actions.append(int(random.choice(np.flatnonzero(table.legal_actions_mask()))))
      table.step(actions[-1])
    if not table.is_over:
      return actions
  raise UserError(
    f"--opening-plies={num_random}: every game of {table.spec.name} ends within {num_random} random moves; "
    "use fewer"
  )


def default_plies(make_table: Callable[[], Table]) -> int:
  """Returns a quarter of the mean length of 20 random games, at most 4; 0 with chance and hidden information.

  If that is at least 1 and makes fewer than `MIN_STARTS` distinct sequences of moves in 20 openings, returns
  more, at most 4 and at most half of the mean length. Returns 0 if the mean length is below 4.
  """
  table = make_table()
  with contextlib.closing(table):
    if not table.spec.is_perfect_information and not table.is_deterministic:
      return 0  # chance deals other cards in each game
    lengths = []
    for i in range(_NUM_PROBES):
      random, length = np.random.default_rng(i), 0
      table.reset(i)
      while not table.is_over and length < _LONGEST:
        table.step(int(random.choice(np.flatnonzero(table.legal_actions_mask()))))
        length += 1
      lengths.append(length)
    mean = int(np.mean(lengths))
    plies = min(_MOST_PLIES, mean // 4)
    while 0 < plies < min(_MOST_PLIES, mean // 2) and _num_starts(table, plies) < MIN_STARTS:
      plies += 1
  return plies


def _num_starts(table: Table, plies: int) -> int:
  return len({tuple(open_game(table, 0, i, plies)) for i in range(2 * MIN_STARTS)})


def _seed(seed: int, *parts: object) -> int:
  """Returns a 31-bit seed that depends on all arguments."""
  digest = hashlib.sha256(repr((seed, *parts)).encode()).digest()
  return int.from_bytes(digest[:4], "little") >> 1


# --- players of one game each


class SimpleEntrant:
  """A player with a separate instance for each game: random, mcts, or the user's own.

  Args:
    player: a name that `core.plugins.PLAYERS` knows.

  Attributes:
    name: the name in the arena; it has a suffix such as ` #2` if the player is listed again.
  """

  def __init__(self, player: str) -> None:
    self._kind, self.name = player, player

  def check(self, table: Table) -> None:
    self._player(table, 0)

  def sit(self, tables: Sequence[Table], seeds: Sequence[int]) -> Seated:
    return _Singles([self._player(*pair) for pair in zip(tables, seeds, strict=True)], tables[0].spec)

  def _player(self, table: Table, seed: int) -> Player:
    return make_player(self._kind, table, table.spec, seed)


class _Singles:
  def __init__(self, players: Sequence[Player], spec: EnvSpec) -> None:
    self._players, self._spec = players, spec

  def choose(self, lanes: Sequence[int], views: Sequence[View]) -> list[int]:
    return [self._players[i].action(v.frame, v.legal) for i, v in zip(lanes, views, strict=True)]

  def observe(self, lanes: Sequence[int], views: Sequence[View], actions: Sequence[int]) -> None:
    for lane, view, action in zip(lanes, views, actions, strict=True):
      observe(self._players[lane], self._spec, view.frame, view.legal, action)


def openings_of(games: Sequence[GameRecord], is_deterministic: bool) -> list[object]:
  """Returns a key for the opening of each game; games with the same key are one observation.

  In a game without chance, the key is the sequence of random moves at the start: two openings can have the
  same moves, and deterministic players then repeat the same game. With chance, or with fewer than ten
  distinct starts, the key is the opening's number.
  """
  starts = [game.actions[: game.num_random] for game in games]
  if is_deterministic and len(set(starts)) >= MIN_STARTS:
    return list(starts)
  return [game.pairing.opening for game in games]

"""Plays games between players. Each player plays from every seat, and all groups of players share the
openings.

An *opening* is a number. The opening and the arena's seed determine the seed of a game's chance and the
random moves at the game's start, so all games of one opening start from the same position. A game does not
depend on the other games of its block.
"""

import contextlib
import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from moozi.core.errors import UserError
from moozi.envs.environment import random_action
from moozi.envs.players import Player, Seats
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

  def to_json(self) -> dict[str, Any]:
    """Returns the game as plain data."""
    own = {name: getattr(self, name) for name in ("returns", "num_random", "actions")}
    return {"players": self.pairing.players, "opening": self.pairing.opening, **own}

  @classmethod
  def from_json(cls, record: Mapping[str, Any]) -> "GameRecord":
    """Reverses `to_json`; raises KeyError, TypeError, ValueError or OverflowError if this is no game."""
    pairing = Pairing(tuple(str(name) for name in record["players"]), int(record["opening"]))
    returns = tuple(float(x) for x in record["returns"])
    if len(returns) != len(pairing.players) or not np.isfinite(returns).all():
      raise ValueError("returns")
    return cls(pairing, int(record["num_random"]), tuple(int(a) for a in record["actions"]), returns)


# --- schedule


def schedule(players: Sequence[str], num_seats: int, num_openings: int, seed: int) -> list[list[Pairing]]:
  """Returns the games of each group of players who meet; each player of a group plays from every seat.

  With two seats, the groups are the pairs, and each opening is played from both sides. With S > 2 seats, a
  group has S players. If there are fewer, there is one group, in which some or all players fill several
  seats. For each opening, an order of seats is drawn, and its different rotations are played.

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
  players: Mapping[str, Player],
  seed: int,
  num_random: int,
) -> list[GameRecord]:
  """Plays games in lockstep, and returns them in order.

  Raises: UserError: an opening cannot be made, because its games end within `num_random` actions. EnvError: a
    user's player or an environment failed.
  """
  with contextlib.ExitStack() as stack:
    tables = [stack.enter_context(contextlib.closing(make_table())) for _ in pairings]
    actions = [open_game(t, seed, p.opening, num_random) for t, p in zip(tables, pairings, strict=True)]
    seats = Seats(tables[0].hides_moves)
    seats.start(
      {
        i: (
          table,
          {
            seat: (players[name], _seed(seed, "player", pairing.opening, seat, *pairing.players))
            for seat, name in enumerate(pairing.players)
          },
        )
        for i, (table, pairing) in enumerate(zip(tables, pairings, strict=True))
      }
    )
    while live := [i for i, table in enumerate(tables) if not table.is_over and len(actions[i]) < MAX_STEPS]:
      for i, action in seats.play({i: tables[i] for i in live}).items():
        actions[i].append(action)
    return [
      GameRecord(pairing, num_random, tuple(played), tuple(table.returns()))
      for pairing, played, table in zip(pairings, actions, tables, strict=True)
    ]


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
      actions.append(random_action(table.spec, table.legal_actions_mask(), random))
      table.step(actions[-1])
    if not table.is_over:
      return actions
  raise UserError(
    f"--opening-plies={num_random}: every game of {table.spec.name} ends within {num_random} random moves; "
    "use fewer"
  )


def default_plies(make_table: Callable[[], Table]) -> int:
  """Returns a quarter of the mean length of 20 random games, at most 4; 0 with chance and hidden information.

  The lengths count up to 100 actions, and the quarter is rounded down. If it is at least 1 and makes fewer
  than `MIN_STARTS` distinct sequences of moves in 20 openings, returns the smallest larger number that makes
  as many, but at most 4 and at most half of the mean length.
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
        table.step(random_action(table.spec, table.legal_actions_mask(), random))
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

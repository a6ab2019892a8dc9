"""A game between people and players, with an advisor: the core of `moozi play` for two or more seats."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np

from moozi.api.players import TrainedPlayer, run_of_approach
from moozi.core.errors import UserError
from moozi.envs.environment import Observation
from moozi.envs.players import mcts_simulations
from moozi.envs.table import Table
from moozi.evaluation.arena import Entrant, Seated, View

if TYPE_CHECKING:
  from moozi.api.agent import Agent


@dataclasses.dataclass(frozen=True)
class Advice:
  """What a search found about one legal action.

  Attributes:
    share: the action's share of the visits; if the search has no visits, its probability.
    value: expected return after the action for the player to move; None if the search did not try it.
  """

  action: int
  share: float
  value: float | None


@dataclasses.dataclass(frozen=True)
class Opinion:
  """What a search found about a position.

  Attributes:
    by: the name of the advisor.
    advice: one entry for each legal action, the best first.
    value: expected return for the player to move; None if unknown.
  """

  by: str
  advice: tuple[Advice, ...]
  value: float | None


@dataclasses.dataclass(frozen=True)
class Played:
  """One move of the game."""

  seat: int
  action: int


class Advisor(Protocol):
  """A player that follows the game and searches the current position on request."""

  name: str

  def reset(self) -> None:
    """Starts a new game."""

  def observe(self, seat: int, view: View, action: int, *, is_users: bool) -> None:
    """Receives a move before it is played."""

  def opinion(self, seat: int, view: View) -> Opinion:
    """Returns the opinion of the current position."""


class Match:
  """A game at a table: people in some seats, and players in the others.

  Args:
    users: the people's seats in the first game. The players of the other seats move at once.
    opponent: plays each other seat; None if there is none.
    seed: seed of the first game; each later game has another one.
    advisor: gives opinions; None if there is none.

  Attributes:
    users: the people's seats.
    moves: the moves of the current game.
  """

  def __init__(
    self,
    table: Table,
    users: frozenset[int],
    opponent: Entrant | None = None,
    seed: int = 0,
    advisor: Advisor | None = None,
  ) -> None:
    others = set(range(table.num_seats)) - users
    if others and opponent is None:
      raise UserError(f"{table.spec.name}: has {table.num_seats} seats, and no player for seat {min(others)}")
    if opponent is not None and others:
      opponent.check(table)
    self.table, self.opponent, self.advisor = table, opponent, advisor
    self._seed, self._num_games = seed, 0
    self.start(users)

  def start(self, users: frozenset[int]) -> None:
    """Starts a new game in which people play `users`. Call `reply` until a person is to move."""
    seed = self._seed + self._num_games
    self._num_games += 1
    self.users, self.moves = users, list[Played]()
    self.table.reset(seed)
    self._seated: dict[int, Seated] = {}
    for seat in set(range(self.table.num_seats)) - users:
      assert self.opponent is not None, "__init__ requires a player for the other seats"
      self._seated[seat] = self.opponent.sit([self.table], [seed + seat])
    if self.advisor is not None:
      self.advisor.reset()

  @property
  def is_over(self) -> bool:
    return self.table.is_over

  @property
  def is_users_turn(self) -> bool:
    """Whether a person is to move."""
    return not self.is_over and self.table.to_play in self.users

  def view(self) -> View:
    """Returns the view of the seat to move; after the end, of the seat that would move next."""
    return View(self.table.frame(), self.table.legal_actions_mask())

  def play(self, action: int) -> None:
    """Plays a person's legal action. Raises UserError if it is illegal, or if no person is to move."""
    legal = self.table.legal_actions_mask() if self.is_users_turn else np.zeros(0, bool)
    if not 0 <= action < len(legal) or not legal[action]:
      raise UserError(
        f"action={action}: cannot be played now; must be one of {np.flatnonzero(legal).tolist()}"
      )
    self._step(action)

  def reply(self) -> Played | None:
    """Plays one move of a player. If a person is to move or the game is over, plays nothing; returns None."""
    if self.is_over or self.is_users_turn:
      return None
    self._step(int(self._seated[self.table.to_play].choose([0], [self.view()])[0]))
    return self.moves[-1]

  def opinion(self) -> Opinion:
    """Returns the advisor's opinion. Raises UserError if there is no advisor, or no person is to move."""
    if self.advisor is None:
      raise UserError(f"{self.table.spec.name}: has no advisor; choose one with --advisor")
    if not self.is_users_turn:
      raise UserError("no opinion: no person is to move")
    return self.advisor.opinion(self.table.to_play, self.view())

  def may_show(self, move: Played) -> bool:
    """Returns whether people may see a move: it is their own, or the game hides no moves."""
    return move.seat in self.users or not self.table.hides_moves

  def _step(self, action: int) -> None:
    seat, view = self.table.to_play, self.view()
    if not self.table.hides_moves:
      for other, seated in self._seated.items():
        if other != seat:
          seated.observe([0], [view], [action])
    if self.advisor is not None:
      self.advisor.observe(seat, view, action, is_users=seat in self.users)
    self.table.step(action)
    self.moves.append(Played(seat, action))


class AgentAdvisor:
  """A trained agent that gives the opinion of its search."""

  def __init__(self, player: TrainedPlayer, table: Table) -> None:
    self._agent: Agent = player.agent
    self._table = table
    self._sees_others, self.name = player.sees_others, player.name

  def reset(self) -> None:
    self._agent.reset()

  def observe(self, seat: int, view: View, action: int, *, is_users: bool) -> None:
    if self._sees_others or is_users:
      self._agent.observe(self._observation(seat, view), action)

  def opinion(self, seat: int, view: View) -> Opinion:
    position = self._table.position() if self._agent.config.plans_with_rules else None
    search = self._agent.search(self._observation(seat, view), position=position)
    total = int(search.visits.sum())
    shares = search.visits / total if total else search.policy
    advice = [
      Advice(a, float(shares[a]), float(search.q_values[a]) if search.visits[a] else None)
      for a in np.flatnonzero(search.legal).tolist()
    ]
    return Opinion(self.name, _sorted(advice), float(search.value))

  def _observation(self, seat: int, view: View) -> Observation:
    return Observation(view.frame, view.legal, seat if self._sees_others else 0)


class BotAdvisor:
  """A bot of the environment's library that searches the state of the game, such as MCTS."""

  def __init__(self, name: str, search: Callable[[], list[tuple[int, int, float | None]]]) -> None:
    self.name, self._search = name, search

  def reset(self) -> None:
    pass

  def observe(self, seat: int, view: View, action: int, *, is_users: bool) -> None:
    pass

  def opinion(self, seat: int, view: View) -> Opinion:
    found = self._search()
    total = max(1, sum(visits for _, visits, _ in found))
    known = [(visits, value) for _, visits, value in found if value is not None]
    mean = sum(n * v for n, v in known) / max(1, sum(n for n, _ in known)) if known else None
    return Opinion(self.name, _sorted([Advice(a, visits / total, value) for a, visits, value in found]), mean)


def _sorted(advice: list[Advice]) -> tuple[Advice, ...]:
  return tuple(sorted(advice, key=lambda x: (-x.share, x.action)))


def make_advisor(
  name: str, table: Table, users: frozenset[int], simulations: int | None, allow_code: bool
) -> Advisor:
  """Returns the advisor `name` of the people in the seats `users`: `mcts:N`, or a trained agent.

  Raises: UserError: the player has no search, does not fit the game, or was trained for one seat while people
    play several.
  """
  found = mcts_simulations(name)
  if found is not None:
    bot = table.make_bot("mcts", found, 0)
    search = getattr(bot, "search", None)
    if search is None:
      raise UserError(
        f"--advisor={name}: the MCTS of {table.spec.name} does not report visits and values; choose a run"
      )
    return BotAdvisor(name, search)
  name = run_of_approach(name, table.spec, allow_code)
  if name.partition(":")[0] not in ("run", "zoo"):
    raise UserError(
      f"--advisor={name}: must be mcts:N, run:PATH[@checkpoint], zoo:NAME, approach:NAME or none"
    )
  from moozi.api.run_access import check_searches

  player = TrainedPlayer(name, simulations, allow_code)
  player.check(table.spec, f"--advisor={name}")
  check_searches(player.agent.directory.path, player.agent.config, "--advisor")
  if not player.can_advise(users):
    raise UserError(f"--advisor={name}: was trained for one seat, but you play {len(users)}; set --opponent")
  return AgentAdvisor(player, table)

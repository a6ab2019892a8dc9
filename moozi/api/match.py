"""A game between people and players, with an advisor: the core of `moozi play` for two or more seats."""

import contextlib
from typing import NamedTuple

import numpy as np

from moozi.api.players import TrainedPlayer, load_players, run_of_approach
from moozi.api.run_access import check_player, check_searches
from moozi.core.errors import UserError
from moozi.envs.bots import make_bot
from moozi.envs.players import Opinion, Player, Seats, SeparatePlayer, bot_of
from moozi.envs.table import Table, View
from moozi.vis.action_names import action_name
from moozi.vis.lettering import rounded
from moozi.vis.render_spec import player_name

_DEFAULT_ADVISOR = "mcts:500"


class Move(NamedTuple):
  """One move of the game."""

  seat: int
  action: int


class Match:
  """A game at a table: people in some seats, and a player in the others.

  Args:
    users: the people's seats in the first game. Their opponents move when `reply` is called.
    opponent: plays each other seat; None if people play all seats.
    seed: seed of the first game; each later game has another one.
    advisor: gives opinions where a person is to move; None if there is none.

  Attributes:
    users: the people's seats in the current game.
    moves: the moves of the current game.

  Raises: UserError: a seat has no player, or the opponent cannot play the game.
  """

  def __init__(
    self,
    table: Table,
    users: frozenset[int],
    opponent: Player | None = None,
    seed: int = 0,
    advisor: Player | None = None,
  ) -> None:
    others = set(range(table.num_seats)) - users
    if others and opponent is None:
      raise UserError(f"{table.spec.name}: has {table.num_seats} seats, and no player for seat {min(others)}")
    if opponent is not None and others:
      opponent.check(table)
    self.table, self.opponent, self.advisor = table, opponent, advisor
    self._seed, self._num_games, self._seats = seed, 0, Seats(table.hides_moves)
    self.start(users)

  def start(self, users: frozenset[int]) -> None:
    """Starts a new game in which people play `users`. Call `reply` until a person is to move."""
    seed = self._seed + self._num_games
    self._num_games += 1
    self.users, self.moves = users, list[Move]()
    self.table.reset(seed)
    others = set(range(self.table.num_seats)) - users
    assert self.opponent is not None or not others, "__init__ requires a player for the other seats"
    seats = {} if self.opponent is None else {seat: (self.opponent, seed + seat) for seat in others}
    self._seats.start({0: (self.table, seats)})
    if self.advisor is not None:
      self.advisor.reset({(0, seat): (self.table, 0) for seat in users})

  @property
  def is_over(self) -> bool:
    return self.table.is_over

  @property
  def is_users_turn(self) -> bool:
    """Whether a person is to move."""
    return not self.is_over and self.table.to_play in self.users

  def play(self, action: int) -> None:
    """Plays a person's legal action. Raises UserError if it is illegal, or if no person is to move."""
    legal = self.table.legal_actions_mask() if self.is_users_turn else np.zeros(0, bool)
    spec = self.table.spec
    if spec.is_factored and self.is_users_turn:
      if not 0 <= action < spec.num_env_actions:
        raise UserError(f"action={action}: must be from 0 to {spec.num_env_actions - 1}")
    elif not 0 <= action < len(legal) or not legal[action]:
      raise UserError(
        f"action={action}: cannot be played now; must be one of {np.flatnonzero(legal).tolist()}"
      )
    self._step(self.table.view(), action)

  def reply(self) -> Move | None:
    """Plays one move of a player. If a person is to move or the game is over, plays nothing; returns None."""
    if self.is_over or self.is_users_turn:
      return None
    view = self.table.view()
    self._step(view, self._seats.act({0: view})[0])
    return self.moves[-1]

  def opinion(self) -> Opinion:
    """Returns the advisor's opinion. Raises UserError if there is no advisor, or no person is to move."""
    if self.advisor is None:
      raise UserError(f"{self.table.spec.name}: has no advisor; choose one with --advisor")
    if not self.is_users_turn:
      raise UserError("no opinion: no person is to move")
    view = self.table.view()
    return self.advisor.opinion((0, view.seat), view)

  def may_show(self, move: Move) -> bool:
    """Returns whether people may see a move: it is their own, or the game hides no moves."""
    return move.seat in self.users or not self.table.hides_moves

  def move_text(self, move: Move) -> str:
    """Returns a move as text; a hidden move of another player is not named."""
    spec = self.table.spec
    what = f"plays {action_name(spec, move.action + 1)}" if self.may_show(move) else "moves"
    return f"{player_name(spec, move.seat)} {what}"

  def outcome_text(self) -> str:
    """Returns the result of the finished game as text, from the user's view if the user plays one seat.

    A user of one seat has won, drawn or lost against the best return of the other seats. Else the seats with
    the best return have won; if all seats have it, the game is a draw.
    """
    returns = self.table.returns()
    if len(self.users) == 1:
      (seat,) = self.users
      own, other = returns[seat], max(x for i, x in enumerate(returns) if i != seat)
      word = "won" if own > other else "lost" if own < other else "drew"
      return f"you {word} (return {rounded(own):g})"
    best = max(returns)
    if best == min(returns):
      return "a draw"
    winners = [player_name(self.table.spec, seat) for seat, x in enumerate(returns) if x == best]
    return f"{' and '.join(winners)} won (return {rounded(best):g})"

  def _step(self, view: View, action: int) -> None:
    self._seats.observe({0: view}, {0: action})
    if self.advisor is not None:
      for seat in self.users:
        follow = self.advisor.take if seat == view.seat else self.advisor.observe
        follow({(0, seat): view}, {(0, seat): action})
    self.table.step(action)
    self.moves.append(Move(view.seat, action))


def make_advisor(name: str, table: Table, simulations: int | None, allow_code: bool) -> Player:
  """Returns the advisor `name`: `mcts:N`, or a trained agent with its search.

  Raises: UserError: the player does not exist, has no search, or does not fit the game.
  """
  kind, budget = bot_of(name) or (None, 0)
  if kind == "mcts":
    if not hasattr(make_bot(table, "mcts", budget, 0), "search"):
      raise UserError(
        f"--advisor={name}: the MCTS of {table.spec.name} does not report visits and values; choose a run"
      )
    return SeparatePlayer(name, table.spec, "--advisor")
  name = run_of_approach(name, table.spec, allow_code)
  if name.partition(":")[0] not in ("run", "zoo"):
    raise UserError(
      f"--advisor={name}: must be mcts:N, run:PATH[@checkpoint], zoo:NAME, approach:NAME or none"
    )
  player = TrainedPlayer(name, table.spec, simulations, allow_code, f"--advisor={name}")
  check_searches(player.agent.directory.path, player.agent.config, "--advisor")
  return player


def make_match(
  table: Table,
  seat: int,
  seed: int,
  simulations: int | None,
  allow_code: bool,
  *,
  opponent: str | None,
  agent: str | None,
  advisor: str | None,
) -> tuple[Match, str]:
  """Makes the match of `moozi play` from its options.

  Args:
    opponent: the player of the other seats; "agent" names `agent`; with "human" or "self" the user plays all
      seats. None: "agent", or "self" without one.
    agent: the name of the run's agent; None if the command names an environment instead of a run.
    advisor: as in `make_advisor`, or "none". None: the opponent if it is a trained agent, else the run's
      agent. If there is no such agent or it has no search, `mcts:500`, or none if the game has no such
      search.

  Returns: the match, and who plays the other seats: "agent", "self" if the user plays all seats, or the name
    that was given.
  Raises: UserError: a player does not exist or does not fit, or an option has no effect.
  """
  if seat >= table.num_seats:
    raise UserError(f"--seat={seat}: must be from 0 to {table.num_seats - 1} in {table.spec.name}")
  opponent = opponent or ("agent" if agent else "self")
  opponent = "self" if opponent == "human" else opponent
  check_player("--opponent", opponent, "agent", "human")
  if opponent == "agent" and agent is None:
    raise UserError(f"--opponent=agent: {table.spec.name} is not a run; `moozi train` makes one")
  player = None
  if opponent != "self":
    name = agent if opponent == "agent" and agent else _with_simulations(opponent, simulations)
    name = run_of_approach(name, table.spec, allow_code)
    (player,) = load_players([name], table.spec, simulations, allow_code).values()
  trained = player if isinstance(player, TrainedPlayer) else None
  users = frozenset(range(table.num_seats) if player is None else (seat,))
  if advisor is None:
    advice = _default_advisor(trained, agent, table, simulations, allow_code)
  else:
    name = _with_simulations(advisor, simulations)
    advice = None if name == "none" else make_advisor(name, table, simulations, allow_code)
  is_searching = trained is not None and trained.agent.config.searches and not trained.uses_prior
  is_used = is_searching or isinstance(advice, TrainedPlayer) or "mcts" in (opponent, advisor)
  if simulations is not None and not is_used:
    raise UserError(f"--simulations={simulations}: needs a trained agent or mcts as --opponent or --advisor")
  return Match(table, users, player, seed, advice), opponent


def _with_simulations(name: str, simulations: int | None) -> str:
  """Returns the name; that of plain mcts with the number of simulations."""
  return f"mcts:{simulations}" if name == "mcts" and simulations else name


def _default_advisor(
  player: TrainedPlayer | None, agent: str | None, table: Table, simulations: int | None, allow_code: bool
) -> Player | None:
  with contextlib.suppress(UserError):  # a run may have no checkpoint yet
    if player is None and agent is not None:
      player = TrainedPlayer(agent, None, simulations, allow_code)
  if player is not None and player.agent.config.searches:
    return player.for_games(1)
  with contextlib.suppress(UserError):
    return make_advisor(_DEFAULT_ADVISOR, table, None, allow_code)
  return None

"""Players of a game's seats: their interfaces, bots as players, and the wrapper of a user's player."""

import re
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Shaped

from moozi.core import plugins, user_code
from moozi.core.errors import EnvError, UserError, one_line
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Bot

_MCTS = re.compile(r"mcts(?::([1-9]\d{0,6}))?")
_DEFAULT_SIMULATIONS = 100


@runtime_checkable
class Player(Protocol):
  """Plays one seat of an episode."""

  def action(self, observation: Shaped[np.ndarray, "H W C"], legal: Bool[np.ndarray, "E"]) -> int:
    """Returns one of the environment's E actions for the player to move.

    Args:
      observation: the frame that the player to move sees.
      legal: mask of the legal actions among the environment's E actions.
    """


@runtime_checkable
class Observer(Protocol):
  """A player that also receives the moves of the others; a player need not have this method."""

  def observe(
    self, observation: Shaped[np.ndarray, "H W C"], legal: Bool[np.ndarray, "E"], action: int
  ) -> None:
    """Receives a frame at which another player moves, its legal actions, and that player's `action`.

    In games with hidden information the frame is zero and no action is legal, because legal actions may show
    what the other player holds. For each move of the episode, in order, either `action` or `observe` is
    called; `observe` is not called in games whose players hide moves, such as Stratego.
    """


@runtime_checkable
class Follower(Protocol):
  """A player that needs the game's position, for example to search with the true rules."""

  def follow(self, position: Callable[[], Any]) -> None:
    """Receives a function that returns the game's current position (`Environment.position`).

    Called before the player's first frame.
    """


def observe(
  player: object,
  spec: EnvSpec,
  observation: Shaped[np.ndarray, "H W C"],
  legal: Bool[np.ndarray, "E"],
  action: int,
) -> None:
  """Passes another player's move to `player` if it is an Observer; does nothing otherwise."""
  if isinstance(player, Observer):
    player.observe(visible(spec, observation), visible(spec, legal), action)


def visible(spec: EnvSpec, seen: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "..."]:
  """Returns a frame or mask as other players may see it: unchanged, or zeros with hidden information."""
  return seen if spec.is_perfect_information else np.zeros_like(seen)


PlayerMaker = Callable[[EnvSpec, int], Player]
"""A function (env_spec, seed) that returns the player of one episode.

It is called at the start of every episode, so it may return a different player each time, for example the
newest checkpoint of a folder, or a player drawn from a pool.
"""


class BotPlayer:
  """Plays an environment's bot: random actions, or OpenSpiel's MCTS, which reads the state of the game.

  `action` raises EnvError, which starts with `where`, if the bot fails: a search steps copies of the game.
  """

  def __init__(self, where: str, action: Callable[[np.ndarray], int]) -> None:
    self._plugin = user_code.Plugin(where, action)

  def action(self, observation: Shaped[np.ndarray, "H W C"], legal: Bool[np.ndarray, "E"]) -> int:
    with self._plugin.errors("the player failed", EnvError):
      return int(self._plugin.function(legal))


class CustomPlayer:
  """Wraps a user's player. `action` raises EnvError if the player fails or chooses an illegal action.

  Args:
    position: passed to a `Follower`.
  """

  def __init__(self, plugin: user_code.Plugin, spec: EnvSpec, seed: int, position: Callable[[], Any]) -> None:
    self._plugin, self._player = plugin, plugin(spec, seed)
    with plugin.errors("the player failed", EnvError):
      if not callable(getattr(self._player, "action", None)):
        raise UserError(
          f"{plugin.where}: returns {one_line(self._player, 80)}; must return an object with "
          "action(observation, legal)"
        )
      self._observes = isinstance(self._player, Observer)
      if isinstance(self._player, Follower):
        self._player.follow(position)

  def observe(
    self, observation: Shaped[np.ndarray, "H W C"], legal: Bool[np.ndarray, "E"], action: int
  ) -> None:
    if self._observes:
      with self._plugin.errors("the player failed", EnvError):
        self._player.observe(observation.copy(), legal.copy(), action)

  def action(self, observation: Shaped[np.ndarray, "H W C"], legal: Bool[np.ndarray, "E"]) -> int:
    with self._plugin.errors("the player failed", EnvError):
      action = self._player.action(observation.copy(), legal.copy())
      if not isinstance(action, int | np.integer) or not 0 <= action < len(legal) or not legal[action]:
        allowed = one_line(np.flatnonzero(legal).tolist(), 80)
        raise EnvError(f"{self._plugin.where}: plays {one_line(action, 80)}; must be one of {allowed}")
      return int(action)


@runtime_checkable
class Bots(Protocol):
  """A game with bots: an Environment or a Table."""

  def make_bot(self, kind: str, simulations: int, seed: int) -> Bot:
    """Returns the bot `kind`; raises UserError if the game has no such bot."""

  def position(self) -> Any:
    """Returns the game's current position."""


def make_player(
  name: str, game: Bots, spec: EnvSpec, seed: int, key: str | None = None, allow_code: bool = False
) -> Player:
  """Creates the player of one episode in `game`; `key` is the option that has the name, for errors.

  With `allow_code`, a run that the name names may import the modules that it names.

  Raises: UserError: there is no such player, or the game does not provide it.
  """
  simulations = mcts_simulations(name)
  if name != "random" and simulations is None:
    return CustomPlayer(plugins.PLAYERS.get(name, key or "player", allow_code), spec, seed, game.position)
  kind, where = name.partition(":")[0], f"{f'{key}=' if key else ''}{name}"
  try:
    return BotPlayer(where, game.make_bot(kind, simulations or 1, seed).action)
  except UserError as error:  # it begins with the kind
    raise UserError(f"{where}{str(error).removeprefix(kind)}") from None


def mcts_simulations(name: str) -> int | None:
  """Returns the number of simulations of `mcts` (100) and `mcts:N`; None for any other player."""
  match = _MCTS.fullmatch(name)
  return None if match is None else int(match[1] or _DEFAULT_SIMULATIONS)


def check_seat_player(name: str) -> str:
  """Returns `name` unchanged. Raises ValueError if it cannot play seats that the agent does not play."""
  if not plugins.OTHER_PLAYERS.accepts(name):
    raise ValueError(f"{name!r} must be {plugins.OTHER_PLAYERS.allowed(name)}")
  return name

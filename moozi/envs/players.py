"""Players of a game's seats: the interface, and the user's own."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Shaped

from moozi.core import plugins
from moozi.core.errors import EnvError, UserError, one_line
from moozi.core.spec import EnvSpec

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


PlayerMaker = Callable[[EnvSpec, int], Player]
"""A function (env_spec, seed) that returns the player of one episode.

It is called at the start of every episode, so it may return another player each time: the newest checkpoint
of a folder, or one drawn from a pool.
"""


class CustomPlayer:
  """Plays a user's player. `action` raises EnvError if the player fails or chooses an illegal action."""

  def __init__(self, plugin: plugins.Plugin, spec: EnvSpec, seed: int) -> None:
    self._plugin, self._player = plugin, plugin(spec, seed)
    if not callable(getattr(self._player, "action", None)):
      raise UserError(
        f"{plugin.where}: returns {one_line(self._player, 80)}; must return an object with "
        "action(observation, legal)"
      )

  def action(self, observation: Shaped[np.ndarray, "H W C"], legal: Bool[np.ndarray, "E"]) -> int:
    with self._plugin.errors("the player failed", EnvError):
      action = self._player.action(observation.copy(), legal.copy())
    if not isinstance(action, int | np.integer) or not 0 <= action < len(legal) or not legal[action]:
      allowed = one_line(np.flatnonzero(legal).tolist(), 80)
      raise EnvError(f"{self._plugin.where}: plays {one_line(action, 80)}; must be one of {allowed}")
    return int(action)


def mcts_simulations(name: str) -> int | None:
  """Returns the number of simulations of `mcts` (100) and `mcts:N`; None for any other player."""
  match = plugins.MCTS_NAME.fullmatch(name)
  return None if match is None else int(match[1] or _DEFAULT_SIMULATIONS)


def check_seat_player(name: str) -> str:
  """Returns the name of a player for seats that the agent does not play. Raises ValueError if it is none."""
  is_known = name != "self" and plugins.PLAYERS.is_known(name)
  if not is_known and mcts_simulations(name) is None and not plugins.is_code(name):
    raise ValueError(f"{name!r} must be random, mcts:N, module:function or a registered name")
  return name

"""A game with all its seats open, for players who play each other.

An `Environment` shows one agent's view of an episode. A `Table` shows each seat its own view, and knows what
each seat has gained.
"""

import numpy as np
from jaxtyping import Bool, Shaped

from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Bot, Environment, RandomBot
from moozi.ops.players import player_sign


class Table:
  """One game at a time. Call `reset` first; after the end, only `returns` and `reset` are allowed.

  Attributes:
    spec: the specification of the frames and actions. Its `num_players` is not the number of seats.
    num_seats: number of players of the game.
    hides_moves: whether a seat's move may be hidden from the others.
    is_over: whether the game has ended.
  """

  spec: EnvSpec
  num_seats: int
  hides_moves: bool = False
  is_over: bool

  def reset(self, seed: int) -> None:
    """Starts a game whose chance follows from `seed`."""
    raise NotImplementedError

  @property
  def to_play(self) -> int:
    """The seat to move."""
    raise NotImplementedError

  def frame(self) -> Shaped[np.ndarray, "H W C"]:
    """Returns what the seat to move sees, a fresh array."""
    raise NotImplementedError

  def legal_actions_mask(self) -> Bool[np.ndarray, "E"]:
    """Returns the mask of the legal actions, read-only."""
    raise NotImplementedError

  def step(self, action: int) -> None:
    """Plays a legal action for the seat to move."""
    raise NotImplementedError

  def returns(self) -> list[float]:
    """Returns what each seat has gained so far."""
    raise NotImplementedError

  def make_bot(self, kind: str, simulations: int, seed: int) -> Bot:
    """Makes a player that may read the table's state.

    Args:
      kind: "random" exists at every table; a suite may offer others.

    Raises: UserError: the table has no such player.
    """
    if kind == "random":
      return RandomBot(seed)
    raise UserError(f"{kind}: {self.spec.name} has no such player")

  def close(self) -> None:
    """Frees the resources of the game."""


class EnvironmentTable(Table):
  """A two-player environment as a table.

  Raises: UserError: the environment does not have two players.
  """

  num_seats = 2

  def __init__(self, env: Environment) -> None:
    self._env, self.spec, self.is_over = env, env.env_spec, True
    if self.spec.num_players != 2:
      raise UserError(f"{self.spec.name}: has one player; players meet only in games of two or more")

  def reset(self, seed: int) -> None:
    self._env.seed(seed)
    self._seen, self._returns, self.is_over = self._env.reset().observation, [0.0, 0.0], False

  @property
  def to_play(self) -> int:
    return int(self._seen.to_play)

  def frame(self) -> Shaped[np.ndarray, "H W C"]:
    return np.asarray(self._seen.frame)

  def legal_actions_mask(self) -> Bool[np.ndarray, "E"]:
    return np.asarray(self._seen.legal_actions_mask)

  def step(self, action: int) -> None:
    mover = self.to_play
    step = self._env.step(action)
    for seat in range(2):
      self._returns[seat] += float(player_sign(mover, seat)) * float(step.reward)
    self._seen, self.is_over = step.observation, step.last()

  def returns(self) -> list[float]:
    return list(self._returns)

  def make_bot(self, kind: str, simulations: int, seed: int) -> Bot:
    return self._env.make_bot(kind, simulations, seed)

  def close(self) -> None:
    self._env.close()

"""A game in which the caller plays every seat, for players who play each other.

An `Environment` has one agent's view of an episode. A `Table` has the view and the return of each seat.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped

from moozi.core.errors import UserError
from moozi.core.spec import EnvSpec
from moozi.envs.checked import CheckedEnvironment
from moozi.envs.environment import Environment, EpisodePlayer, Observation, random_action
from moozi.ops.signs import player_sign

# Random games that show whether a game has chance: each is played with the same moves from several seeds.
_NUM_GAMES, _NUM_SEEDS, _LONGEST = 4, 4, 100


class View:
  """What the seat to move sees: its frame [H, W, C], and the mask [E] of its legal actions.

  Both are read when they are first needed, so use a view before the move is played.
  """

  def __init__(self, seat: int, frame: Callable[[], np.ndarray], legal: Callable[[], np.ndarray]) -> None:
    self.seat, self._frame, self._legal = seat, frame, legal

  @functools.cached_property
  def frame(self) -> Shaped[np.ndarray, "H W C"]:
    return self._frame()

  @functools.cached_property
  def legal(self) -> Bool[np.ndarray, "E"]:
    return self._legal()


def view_of(seen: Observation) -> View:
  """Returns an environment's observation as the view of the player to move."""
  return View(int(seen.to_play), lambda: np.asarray(seen.frame), lambda: np.asarray(seen.legal_actions_mask))


class Table:
  """A game of several seats, one game at a time. Call `reset` first, and play no action after the end.

  A user's game is a subclass (docs/custom_environment.md). It has at least `spec`, `num_seats`, `is_over`,
  `reset`, `to_play`, `frame_of`, `step` and `returns`.

  Attributes:
    spec: the specification of the frames and actions. Its `num_players` may differ from `num_seats`.
    num_seats: number of players of the game.
    hides_moves: whether a seat's move may be hidden from the others.
    is_deterministic: whether the game has no chance, so that games with the same moves are the same.
    is_over: whether the game has ended.
    environment: the environment that plays the game, which bots may copy; None if there is none.
  """

  spec: EnvSpec
  num_seats: int
  hides_moves: bool = False
  is_deterministic: bool = True
  is_over: bool = True
  environment: Environment | None = None

  def reset(self, seed: int) -> None:
    """Starts a game whose chance outcomes are drawn from `seed`."""
    raise NotImplementedError(f"{type(self).__name__} has no `reset`")

  def start(self, random: np.random.Generator) -> None:
    """Starts a game whose chance outcomes are drawn from `random`."""
    self.reset(int(random.integers(2**31)))

  @property
  def to_play(self) -> int:
    """The seat to move; after the end, the seat that would move next."""
    raise NotImplementedError(f"{type(self).__name__} has no `to_play`")

  def frame(self) -> Shaped[np.ndarray, "H W C"]:
    """Returns the frame of the seat to move. Later steps do not change the array."""
    return self.frame_of(self.to_play)

  def frame_of(self, seat: int) -> Shaped[np.ndarray, "H W C"]:
    """Returns what a seat sees; it need not be the one to move. Later steps do not change the array."""
    raise NotImplementedError(f"{type(self).__name__} has no `frame_of`")

  def legal_actions_mask(self) -> Bool[np.ndarray, "E"]:
    """Returns the mask of the legal actions, by default all; do not modify it."""
    return np.ones(self.spec.mask_size, bool)

  def view(self) -> View:
    """Returns the view of the seat to move; after the end, of the seat that would move next."""
    return View(self.to_play, self.frame, self.legal_actions_mask)

  def step(self, action: int) -> None:
    """Plays a legal action for the seat to move."""
    raise NotImplementedError(f"{type(self).__name__} has no `step`")

  def returns(self) -> list[float]:
    """Returns the return of each seat so far."""
    raise NotImplementedError(f"{type(self).__name__} has no `returns`")

  def position(self) -> Any:
    """Returns the current position; see `Environment.position`."""
    raise NotImplementedError

  def make_bot(self, kind: str, budget: int, seed: int) -> EpisodePlayer | None:
    """Makes a bot of the game itself, which may read the game's state; see `Environment.make_bot`."""
    return None

  def close(self) -> None:
    """Frees the resources of the game."""


def plays_alike(table: Table) -> bool:
  """Returns whether random games with the same moves and different seeds are the same."""
  return all(
    len({_random_game(table, seed, moves) for seed in range(_NUM_SEEDS)}) == 1 for moves in range(_NUM_GAMES)
  )


def _random_game(table: Table, seed: int, moves: int) -> bytes:
  """Plays random moves, drawn from `moves`, in a game with this seed; returns all that the players saw."""
  random, seen = np.random.default_rng(moves), []
  table.reset(seed)
  for _ in range(_LONGEST):
    legal = table.legal_actions_mask()
    seen += [table.frame().tobytes(), legal.tobytes(), repr((table.to_play, table.returns())).encode()]
    if table.is_over:
      break
    table.step(random_action(table.spec, legal, random))
  return b"".join(seen)


def num_seat_planes(num_seats: int) -> int:
  """Returns the number of last planes of a frame that hold a seat.

  One seat: 0. Two seats: 1, filled with the seat's number (255 for 1 in bytes). More seats: one plane
  per seat, one-hot.
  """
  return {1: 0, 2: 1}.get(num_seats, num_seats)


def write_seat(frame: Shaped[np.ndarray, "H W C"], seat: int, num_seats: int) -> None:
  """Writes a seat into the last planes of a frame of zeros; in bytes, 255 stands for 1."""
  one = 255 if frame.dtype == np.uint8 else 1
  if num_seats == 2:
    frame[..., -1] = one * seat
  elif num_seats > 2:
    frame[..., seat - num_seats] = one


class EnvironmentTable(Table):
  """A two-player environment as a table.

  Args:
    is_deterministic: whether the game has no chance. With None, reading the attribute may play random games
      to find out, so read it between games.

  Raises: UserError: the environment does not have two players. EnvError, by any method: it fails.
  """

  num_seats = 2

  def __init__(self, environment: Environment, is_deterministic: bool | None = None) -> None:
    self.environment, self._env = environment, CheckedEnvironment(environment)
    self.spec, self.is_over = environment.env_spec, True
    if self.spec.num_players != 2:
      environment.close()
      raise UserError(f"{self.spec.name}: has one player; players meet only in games of two or more")
    self._is_deterministic = is_deterministic

  @functools.cached_property
  def is_deterministic(self) -> bool:  # type: ignore[override]
    if self._is_deterministic is not None:
      return self._is_deterministic
    # A game with `max_moves` has no chance.
    out = self._env.max_moves is not None or plays_alike(self)
    self.is_over = True
    return out

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

  def position(self) -> Any:
    return self._env.position()

  def make_bot(self, kind: str, budget: int, seed: int) -> EpisodePlayer | None:
    return self._env.make_bot(kind, budget, seed)

  def close(self) -> None:
    self._env.close()


PlayedGame = Environment | Table
"""A game in whose seats players play."""

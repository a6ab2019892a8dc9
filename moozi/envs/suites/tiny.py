"""Small environments for tests and first runs.

Catch: a ball falls from a random column, and the paddle must catch it. The optimal return is 1, because the
paddle reaches every column within two of the nine steps. A missed ball returns -1. A paddle that stays in the
middle catches one column of five and returns -0.6 on average. Source: bsuite's Catch. Departures: ball and
paddle are on separate planes.

Corridor: a walker starts in cell 1. Cell 0 ends the episode with reward 0.1, the far end (cell length - 1)
with 1. The optimal return is 1, after length - 2 steps to the right, if the step cap allows them. With a
discount, the far end is better if discount ** (length - 3) > 0.1. The step cap truncates, so this environment
has both kinds of end. With probability `slip_prob` (default 0), a step goes in the other direction; if this
is above 0 and below 1, the optimal return is below 1.

Coin: at the start, safe pays `safe_reward` and ends the episode. Risk flips a coin, which the next frame
shows. Then risk pays 1 for heads and -1 for tails, safe pays 0, and the episode ends. Without discount, the
optimal value of the first risk is therefore the probability of heads. A deterministic model has one state
after the flip, for heads and tails.

Dials: `num_dials` dials of `num_positions` positions each, and a target position for each dial, which the
frame shows. One action turns all dials and ends the episode. The return is 1 minus the mean distance to the
targets, in units of num_positions - 1; the optimal return is 1.

Gates: a walker in a corridor of `length` cells must choose the key that the frame shows, one of `num_keys`,
and step forward in the same action. Unless it does both, it stays where it is. The far end pays 1 and
ends the episode; each step costs 0.01. The optimal return is 1 - 0.01 (length - 1), if the step cap allows
length - 1 steps.

Point: a point in the plane moves by up to 0.25 along each axis per step, for ten steps. The reward is minus
the larger absolute coordinate. `best_point_return` gives the optimal return from a start with continuous
actions.

T-maze: the first frame shows a cue, up or down with equal probability. The walker then moves along a
corridor, whatever the action. It reaches a junction `length` steps after the cue. There, the arm that the cue
shows pays 1, and the other arm pays -1. The other frames do not depend on the cue, so the agent must remember
it. The optimal return is 1; without memory every policy returns 0 on average. Source: Bakker 2002.
Departures: the walker cannot stand or turn back, so an episode has length + 1 steps; the wrong arm pays -1.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field

from moozi.core.config import PositiveInt, Probability, Section
from moozi.core.factors import ActionPart, Factors, Intervals, bins
from moozi.core.spec import EnvSpec
from moozi.envs.action_spaces import DEFAULT_BINS, ActionBins, joint_names
from moozi.envs.environment import Environment
from moozi.envs.game import Game, GameEnvironment
from moozi.envs.suite import Suite

OPTIMAL_RETURN, NEAR_RETURN = 1.0, 0.1
ROWS, COLUMNS = 10, 5
BALL, PADDLE = 0, 1
"""Planes of a frame of Catch."""
COIN_START, COIN_HEADS, COIN_TAILS, COIN_END = range(4)
"""Cells of a frame of Coin; exactly one is true."""

CUE_UP, CUE_DOWN, MAZE_CORRIDOR, MAZE_JUNCTION, MAZE_END = range(5)
"""Cells of a frame of T-maze; exactly one is true."""

STEP_COST = 0.01
POINT_STEPS, POINT_SPEED = 10, 0.25

_CAP = "truncate an episode after this number of steps"


class CatchOptions(Section):
  max_episode_steps: PositiveInt | None = Field(None, description=_CAP)


class CorridorOptions(Section):
  length: Annotated[int, Field(ge=3, le=1000)] = Field(8, description="number of cells; 3 to 1000")
  slip_prob: Probability = Field(0.0, description="probability of a step in the other direction")
  max_episode_steps: PositiveInt | None = Field(50, description=_CAP)


class DialsOptions(Section):
  num_dials: Annotated[int, Field(ge=1, le=8)] = Field(3, description="number of dials; 1 to 8")
  num_positions: Annotated[int, Field(ge=2, le=12)] = Field(5, description="positions of a dial; 2 to 12")
  max_episode_steps: PositiveInt | None = Field(None, description=_CAP)


class GatesOptions(Section):
  length: Annotated[int, Field(ge=2, le=1000)] = Field(6, description="number of cells; 2 to 1000")
  num_keys: Annotated[int, Field(ge=2, le=1000)] = Field(20, description="number of keys; 2 to 1000")
  max_episode_steps: PositiveInt | None = Field(50, description=_CAP)


class PointOptions(Section):
  action_bins: ActionBins = Field(
    DEFAULT_BINS, description="number of moves along each axis; 0: none, moves are continuous"
  )
  max_episode_steps: PositiveInt | None = Field(None, description=_CAP)


class CoinOptions(Section):
  heads_prob: Probability = Field(0.6, description="probability of heads")
  safe_reward: float = Field(0.3, description="reward of safe at the start")
  max_episode_steps: PositiveInt | None = Field(None, description=_CAP)


class TMazeOptions(Section):
  length: Annotated[int, Field(ge=1, le=1000)] = Field(
    30, description="steps from the cue to the junction; 1 to 1000"
  )
  max_episode_steps: PositiveInt | None = Field(None, description=_CAP)


class _Catch(Game):
  def __init__(self) -> None:
    self.seed(0)
    self.reset()

  def seed(self, seed: int) -> None:
    self._random = np.random.default_rng(seed)

  def reset(self) -> None:
    self._ball_row = 0
    self._ball_column = int(self._random.integers(COLUMNS))
    self._paddle_column = COLUMNS // 2

  def step(self, action: int) -> tuple[float, bool, bool]:
    self._paddle_column = min(max(self._paddle_column + action - 1, 0), COLUMNS - 1)
    self._ball_row += 1
    if self._ball_row < ROWS - 1:
      return 0.0, False, False
    return OPTIMAL_RETURN if self._paddle_column == self._ball_column else -1.0, True, False

  def frame(self) -> np.ndarray:
    frame = np.zeros((ROWS, COLUMNS, 2), bool)
    frame[self._ball_row, self._ball_column, BALL] = True
    frame[ROWS - 1, self._paddle_column, PADDLE] = True
    return frame


class _Corridor(Game):
  def __init__(self, length: int, slip_prob: float) -> None:
    self._length, self._slip_prob = length, slip_prob
    self._cell = 1
    self.seed(0)

  def seed(self, seed: int) -> None:
    self._random = np.random.default_rng(seed)

  def reset(self) -> None:
    self._cell = 1

  def step(self, action: int) -> tuple[float, bool, bool]:
    is_right = (action == 1) != (self._random.random() < self._slip_prob)
    self._cell += 1 if is_right else -1
    if self._cell == 0:
      return NEAR_RETURN, True, False
    is_far_end = self._cell == self._length - 1
    return OPTIMAL_RETURN if is_far_end else 0.0, is_far_end, False

  def frame(self) -> np.ndarray:
    frame = np.zeros((1, self._length, 1), bool)
    frame[0, self._cell, 0] = True
    return frame


class _Coin(Game):
  def __init__(self, heads_prob: float, safe_reward: float) -> None:
    self._heads_prob, self._safe_reward = heads_prob, safe_reward
    self.seed(0)
    self.reset()

  def seed(self, seed: int) -> None:
    self._random = np.random.default_rng(seed)

  def reset(self) -> None:
    self._cell = COIN_START

  def step(self, action: int) -> tuple[float, bool, bool]:
    was, is_risk = self._cell, action == 1
    self._cell = COIN_END
    if was == COIN_START and is_risk:
      self._cell = COIN_HEADS if self._random.random() < self._heads_prob else COIN_TAILS
      return 0.0, False, False
    if was == COIN_START:
      return self._safe_reward, True, False
    return (1.0 if was == COIN_HEADS else -1.0) if is_risk else 0.0, True, False

  def frame(self) -> np.ndarray:
    frame = np.zeros((1, 4, 1), bool)
    frame[0, self._cell, 0] = True
    return frame


class _Dials(Game):
  def __init__(self, num_dials: int, num_positions: int) -> None:
    self._shape = num_dials, num_positions
    self.seed(0)
    self.reset()

  def seed(self, seed: int) -> None:
    self._random = np.random.default_rng(seed)

  def reset(self) -> None:
    self._targets = self._random.integers(self._shape[1], size=self._shape[0])

  def step(self, action: int) -> tuple[float, bool, bool]:
    turned = np.unravel_index(action, (self._shape[1],) * self._shape[0])
    distance = np.abs(np.array(turned) - self._targets).mean() / (self._shape[1] - 1)
    return OPTIMAL_RETURN - float(distance), True, False

  def frame(self) -> np.ndarray:
    frame = np.zeros((*self._shape, 1), bool)
    frame[np.arange(self._shape[0]), self._targets] = True
    return frame


class _Gates(Game):
  def __init__(self, length: int, num_keys: int) -> None:
    self._length, self._num_keys = length, num_keys
    self.seed(0)
    self.reset()

  def seed(self, seed: int) -> None:
    self._random = np.random.default_rng(seed)

  def reset(self) -> None:
    self._cell, self._key = 0, int(self._random.integers(self._num_keys))

  def step(self, action: int) -> tuple[float, bool, bool]:
    is_forward, key = divmod(action, self._num_keys)
    if is_forward and key == self._key:
      self._cell += 1
      self._key = int(self._random.integers(self._num_keys))
    is_end = self._cell == self._length - 1
    return OPTIMAL_RETURN * is_end - STEP_COST, is_end, False

  def frame(self) -> np.ndarray:
    frame = np.zeros((1, self._length + self._num_keys, 1), bool)
    frame[0, self._cell], frame[0, self._length + self._key] = True, True
    return frame


class _Point(Game):
  def __init__(self, factors: Factors | Intervals) -> None:
    self._factors = factors
    self.seed(0)
    self.reset()

  def seed(self, seed: int) -> None:
    self._random = np.random.default_rng(seed)

  def reset(self) -> None:
    self._time, self._place = 0, self._random.uniform(-1.0, 1.0, 2)

  def step(self, action: Any) -> tuple[float, bool, bool]:
    self._place = np.clip(self._place + self._factors.own_action(action), -1.0, 1.0)
    self._time += 1
    return -float(np.abs(self._place).max()), self._time == POINT_STEPS, False

  def frame(self) -> np.ndarray:
    return np.array([*self._place, self._time / POINT_STEPS], np.float32).reshape(1, 1, 3)


class _TMaze(Game):
  def __init__(self, length: int) -> None:
    self._length = length
    self.seed(0)
    self.reset()

  def seed(self, seed: int) -> None:
    self._random = np.random.default_rng(seed)

  def reset(self) -> None:
    self._time, self._cue = 0, int(self._random.integers(2))

  def step(self, action: int) -> tuple[float, bool, bool]:
    self._time += 1
    if self._time <= self._length:
      return 0.0, False, False
    return OPTIMAL_RETURN if action == self._cue else -1.0, True, False

  def frame(self) -> np.ndarray:
    frame = np.zeros((1, 5, 1), bool)
    if self._time == 0:
      cell = (CUE_UP, CUE_DOWN)[self._cue]
    elif self._time < self._length:
      cell = MAZE_CORRIDOR
    else:
      cell = MAZE_JUNCTION if self._time == self._length else MAZE_END
    frame[0, cell, 0] = True
    return frame


def best_point_return(place: Sequence[float]) -> float:
  """Returns the largest return of Point from a place, with continuous moves of up to `POINT_SPEED`."""
  distance = float(np.abs(place).max())
  return -sum(max(0.0, distance - POINT_SPEED * (t + 1)) for t in range(POINT_STEPS))


class _Entry(NamedTuple):
  """One game of the suite; the functions take its options."""

  summary: str
  options: type[Section]
  action_names: tuple[str, ...]
  frame_shape: Callable[[Any], tuple[int, int, int]]
  make: Callable[[Any], Game]
  factors: Callable[[Any], Factors | Intervals | None] = lambda options: None
  frame_dtype: str = "bool"
  frame_names: tuple[str, ...] = ()


_GAMES = {
  "catch": _Entry(
    "catch a falling ball; optimal return 1",
    CatchOptions,
    ("left", "stay", "right"),
    lambda options: (ROWS, COLUMNS, 2),
    lambda options: _Catch(),
  ),
  "corridor": _Entry(
    "walk past a small reward to a larger one; optimal return 1",
    CorridorOptions,
    ("left", "right"),
    lambda options: (1, options.length, 1),
    lambda options: _Corridor(options.length, options.slip_prob),
  ),
  "coin": _Entry(
    "a known reward, or a coin flip that is seen before the bet",
    CoinOptions,
    ("safe", "risk"),
    lambda options: (1, 4, 1),
    lambda options: _Coin(options.heads_prob, options.safe_reward),
  ),
  "dials": _Entry(
    "turn all dials to their targets at once; optimal return 1",
    DialsOptions,
    (),
    lambda options: (options.num_dials, options.num_positions, 1),
    lambda options: _Dials(options.num_dials, options.num_positions),
    lambda options: _choices({f"dial {i}": options.num_positions for i in range(options.num_dials)}),
  ),
  "gates": _Entry(
    "choose the shown key and step forward in one action",
    GatesOptions,
    (),
    lambda options: (1, options.length + options.num_keys, 1),
    lambda options: _Gates(options.length, options.num_keys),
    lambda options: _choices({"forward": 2, "key": options.num_keys}),
  ),
  "point": _Entry(
    "move a point to the origin; continuous actions",
    PointOptions,
    (),
    lambda options: (1, 1, 3),
    lambda options: _Point(_moves(options)),
    lambda options: _moves(options),
    "float32",
    ("x", "y", "time"),
  ),
  "tmaze": _Entry(
    "remember a cue until the junction; optimal return 1",
    TMazeOptions,
    ("up", "down"),
    lambda options: (1, 5, 1),
    lambda options: _TMaze(options.length),
  ),
}


def _make_spec(game: str, options: Any) -> EnvSpec:
  entry = _GAMES[game]
  factors = entry.factors(options)
  return EnvSpec(
    name=f"tiny:{game}",
    frame_shape=entry.frame_shape(options),
    frame_dtype=entry.frame_dtype,
    num_env_actions=len(entry.action_names) if factors is None else factors.num_joint_actions,
    factors=factors,
    action_names=entry.action_names or joint_names(factors),
    frame_names=entry.frame_names,
  )


def _choices(sizes: Mapping[str, int]) -> Factors:
  values = tuple(tuple(range(size)) for size in sizes.values())
  part = ActionPart(path=(), shape=(len(sizes),), dtype="int64", values=values)
  return Factors(parts=(part,), names=tuple(sizes))


def _moves(options: PointOptions) -> Factors | Intervals:
  num_bins = options.action_bins
  values = (bins(-POINT_SPEED, POINT_SPEED, num_bins or 2),) * 2
  part = ActionPart(path=(), shape=(2,), dtype="float32", values=values)
  return (Factors if num_bins else Intervals)(parts=(part,), names=("x", "y"))


def _make_environment(game: str, options: Any) -> Environment:
  rules = _GAMES[game].make(options)
  return GameEnvironment(rules, _make_spec(game, options), options.max_episode_steps)


SUITE = Suite(
  summary="small games with known best returns, for tests",
  package=None,
  list_games=lambda: {name: entry.summary for name, entry in _GAMES.items()},
  options=lambda game: _GAMES[game].options,
  make_spec=_make_spec,
  make_environment=_make_environment,
)

"""Environments that return an odd value in one place, and what a reader of the documentation calls right.

A place is a part of what a user's environment returns, such as `reward`. After the first `since` calls of its
place, an environment returns the odd value there instead of its own.
"""

import asyncio
import decimal
import fractions
import math
from collections.abc import Callable
from typing import Any, ClassVar

import dm_env
import numpy as np
from dm_env import specs
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from moozi.core.spec import EnvSpec
from moozi.envs.environment import Environment, Observation
from moozi.envs.game import Game, GameEnvironment


class Panic(BaseException):
  """As the panics of environments in Rust (PyO3), which are no subclass of Exception."""


class MuteError(Exception):
  """An error that cannot be described."""

  def __str__(self) -> str:
    raise ValueError("no text")


class Raises:
  """Stands for an error: a place with this value raises it."""

  def __init__(self, error: BaseException) -> None:
    self.error = error

  def __repr__(self) -> str:
    return f"Raises({type(self.error).__name__})"


def give(value: Any) -> Any:
  """Returns the value, or raises the error that it stands for, without the traceback of earlier cases."""
  if type(value) is Raises:
    raise value.error.with_traceback(None)
  return value


def name_of(value: Any) -> str:
  """Returns a text for the value, which may have none."""
  kind = type(value)
  return f"{value!r:.40}" if kind is Raises or kind.__module__ in ("builtins", "numpy") else kind.__name__


class _Unreadable:
  """An object whose conversions all fail."""

  def _fail(self, *args: Any) -> Any:
    raise RuntimeError("cannot be converted")

  __array__ = __bool__ = __float__ = __index__ = __int__ = __len__ = __iter__ = __eq__ = __str__ = _fail
  __hash__ = None  # type: ignore[assignment]

  def __repr__(self) -> str:
    raise RuntimeError("no repr")


ERRORS = (
  ValueError("a\nb"),
  StopIteration(),
  KeyError("x"),
  MemoryError(),
  RecursionError("deep"),
  AssertionError(),
  SystemExit(0),
  SystemExit("bye"),
  Panic("unwrap on None"),
  MuteError(),
  OSError(28, "No space left"),
  UnicodeError("\ud800"),
  GeneratorExit(),
  asyncio.CancelledError(),
)
SCALARS = (
  None,
  True,
  False,
  0,
  1,
  -1,
  2,
  7,
  2**70,
  10**400,
  0.0,
  0.5,
  1.0,
  -1.0,
  1e39,
  1e300,
  math.nan,
  math.inf,
  -math.inf,
  "",
  "0",
  "3",
  "nan",
  "False",
  "text\nof two lines",
  b"1",
  1 + 2j,
  ...,
  int,
  object(),
  _Unreadable(),
  fractions.Fraction(1, 2),
  decimal.Decimal("0.5"),
  decimal.Decimal("nan"),
  (),
  [],
  [0],
  [1],
  [1, 0],
  [[1], [1, 0]],
  {},
  {"a": 1},
  {0, 1},
  range(4),
  np.datetime64("2020-01-01"),
  np.bool_(True),
  np.int8(-1),
  np.float16(0.5),
  np.float64(math.nan),
  np.array(1),
  np.array([1]),
  np.array([0.5]),
  np.array([1, 0]),
  np.array(["0", "1"]),
  np.array(None),
  np.zeros(0),
  np.zeros((1, 1, 1)),
  np.zeros((2, 2)),
  np.array([1j]),
  np.ma.masked,
  np.ma.array([1, 2], mask=[True, False]),
  np.array([0.0, -math.inf]),
  np.array([0.0, -1e9]),
  np.array([0, 2]),
  np.zeros(2, [("a", int)]),
)


def odd_values() -> st.SearchStrategy[Any]:
  """Draws a value of any type, shape, dtype and size that a user's code could return, or an error."""
  dtypes = st.one_of(
    st_numpy.boolean_dtypes(),
    st_numpy.integer_dtypes(),
    st_numpy.unsigned_integer_dtypes(),
    st_numpy.floating_dtypes(),
    st_numpy.complex_number_dtypes(),
    st_numpy.unicode_string_dtypes(max_len=3),
  )
  arrays = st_numpy.arrays(dtypes, st_numpy.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
  return st.one_of(
    st.sampled_from(range(len(SCALARS))).map(SCALARS.__getitem__),  # Hypothesis prints what it draws from
    st.sampled_from(ERRORS).map(Raises),
    arrays,
    st.floats(),
    st.integers(),
    st.text(max_size=3),
  )


class _Odd:
  """The odd value of one place.

  Attributes:
    given: whether it was returned.
  """

  def __init__(self, place: str, value: Any, since: int) -> None:
    self._place, self._value, self._since = place, value, since
    self._calls, self.given = 0, False

  def __deepcopy__(self, memo: Any) -> "_Odd":
    return self  # the calls of all copies of an environment count

  def __call__(self, place: str, own: Any) -> Any:
    if place != self._place:
      return own
    self._calls += 1
    if self._calls <= self._since:
      return own
    self.given = True
    return give(self._value)


def number(value: Any) -> float | None:
  """Returns the number that a value is: a real scalar, or an array of one; None for anything else."""
  if isinstance(value, fractions.Fraction | decimal.Decimal):
    return float(value)
  if isinstance(value, int):
    return float(value) if abs(value) < 10**300 else math.inf
  if np.ma.is_masked(value) or isinstance(value, _Unreadable | str | bytes | Raises):
    return None
  try:
    array = np.asarray(value)
    if array.size == 1 and array.dtype.kind in "biuf":
      return float(array.item())
  except (ValueError, TypeError):
    pass
  return None


def is_flag(value: Any) -> bool:
  return number(value) in (0.0, 1.0)


def is_array(value: Any, shape: tuple[int, ...], low: float = -3.4e38, high: float = 3.4e38) -> bool:
  """Returns whether a value is an array of finite real numbers of this shape, within bounds."""
  if isinstance(value, _Unreadable) or np.ma.is_masked(value):
    return False
  try:
    array = np.asarray(value)
  except (ValueError, TypeError):
    return False
  if array.dtype.kind not in "biuf" or array.shape != shape:
    return False
  numbers = array.astype(np.float64)
  return bool(np.isfinite(numbers).all() and (numbers >= low).all() and (numbers <= high).all())


def is_mask(value: Any) -> bool:
  return is_array(value, (2,), 0, 1) and set(np.asarray(value).tolist()) <= {0, 1} and any(np.asarray(value))


def is_integer(value: Any, low: int, high: int) -> bool:
  found = number(value)
  return found is not None and found.is_integer() and low <= found <= high


class OddGymnasium:
  """Makes a `gymnasium.Env` of episodes of three steps with an observation of a given space."""

  places: ClassVar = (
    "reset",
    "reset_observation",
    "reset_info",
    "step",
    "observation",
    "reward",
    "terminated",
    "truncated",
    "info",
    "mask",
    "close",
  )

  @staticmethod
  def make(odd: _Odd, space: str = "box") -> Any:
    import gymnasium
    from gymnasium import spaces

    own = {
      "box": (spaces.Box(-np.inf, np.inf, (2,), np.float32), np.array([1.0, 2.0], np.float32)),
      "bytes": (spaces.Box(0, 255, (2,), np.uint8), np.array([1, 2], np.uint8)),
      "discrete": (spaces.Discrete(3, start=1), 2),
      "multi_discrete": (spaces.MultiDiscrete([2, 3]), np.array([1, 2])),
      "multi_binary": (spaces.MultiBinary(2), np.array([0, 1], np.int8)),
      "dict": (
        spaces.Dict(a=spaces.Discrete(2), b=spaces.MultiBinary(1)),
        {"a": 1, "b": np.array([1], np.int8)},
      ),
    }[space]

    class Env(gymnasium.Env):  # type: ignore[misc]
      observation_space, action_space, observation = own[0], spaces.Discrete(2), own[1]

      def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        info = {"action_mask": odd("mask", np.array([True, True]))}
        return odd("reset", (odd("reset_observation", self.observation), odd("reset_info", info)))

      def step(self, action: int) -> Any:
        self.time += 1
        out = (
          odd("observation", self.observation),
          odd("reward", 1.0),
          odd("terminated", self.time == 3),
          odd("truncated", False),
          odd("info", {"action_mask": odd("mask", np.array([True, True]))}),
        )
        return odd("step", out)

      def close(self) -> None:
        odd("close", None)

    return Env()

  @staticmethod
  def is_right(place: str, value: Any, space: str = "box") -> bool:
    match place:
      case "reward":
        return (found := number(value)) is not None and math.isfinite(np.float32(found))
      case "terminated" | "truncated":
        return is_flag(value)
      case "info" | "reset_info":
        return isinstance(value, dict)
      case "mask":
        return value is None or is_mask(value)
      case "observation" | "reset_observation":
        match space:
          case "discrete":
            return is_integer(value, 1, 3)
          case "multi_discrete":
            return is_array(value, (2,), 0, 2) and np.asarray(value).tolist() in [
              [a, b] for a in (0, 1) for b in (0, 1, 2)
            ]
          case "bytes" | "multi_binary":
            high = 255 if space == "bytes" else 1
            return is_array(value, (2,), 0, high) and not (np.asarray(value, float) % 1).any()
          case "dict":
            return False
        return is_array(value, (2,))
    return place == "close" and not isinstance(value, Raises)


class _Steps:
  """The steps of an environment with dm_env's interface."""

  _odd: _Odd
  _observation: Callable[[], Any]

  def reset(self) -> Any:
    self._time = 0
    return self._odd("reset", dm_env.restart(self._observation()))

  def step(self, action: Any) -> Any:
    self._time += 1
    is_end = self._time == 3
    kind = self._odd("step_type", dm_env.StepType.LAST if is_end else dm_env.StepType.MID)
    discount = self._odd("discount", 0.0 if is_end else 1.0)
    own = dm_env.TimeStep(kind, self._odd("reward", 1.0), discount, self._observation())
    return self._odd("step", own)


class OddDmEnv(_Steps, dm_env.Environment):  # type: ignore[misc]
  """A `dm_env.Environment` of one player, of episodes of three steps."""

  places: ClassVar = (
    "reset",
    "step",
    "step_type",
    "observation",
    "frame",
    "mask",
    "reward",
    "discount",
    "close",
  )

  def __init__(self, odd: _Odd) -> None:
    self._odd = odd

  def action_spec(self) -> Any:
    return specs.DiscreteArray(2)

  def observation_spec(self) -> Any:
    return {"frame": specs.Array((2,), np.float32), "legal_actions_mask": specs.Array((2,), bool)}

  def _observation(self) -> Any:
    frame, mask = np.array([1.0, 2.0], np.float32), np.array([True, True])
    own = {"frame": self._odd("frame", frame), "legal_actions_mask": self._odd("mask", mask)}
    return self._odd("observation", own)

  def close(self) -> None:
    self._odd("close", None)

  @staticmethod
  def is_right(place: str, value: Any) -> bool:
    match place:
      case "reward":
        return OddGymnasium.is_right("reward", value)
      case "discount":
        return is_flag(value)
      case "step_type":
        return is_integer(value, 1, 2)
      case "mask":
        return value is None or is_mask(value)
      case "frame":
        return is_array(value, (2,))
    return place == "close" and not isinstance(value, Raises)


class _OddGame(Game):
  def __init__(self, odd: _Odd) -> None:
    self._odd, self._time = odd, 0

  def seed(self, seed: int) -> None:
    self._odd("seed", None)

  def reset(self) -> None:
    self._time = 0

  def step(self, action: int) -> Any:
    self._time += 1
    return self._odd(
      "step", (self._odd("reward", 1.0), self._odd("terminal", self._time == 3), self._odd("cut", False))
    )

  def frame(self) -> Any:
    return self._odd("frame", np.full((1, 1, 2), self._time, np.float32))

  def legal_actions_mask(self) -> Any:
    return self._odd("mask", np.array([True, True]))

  def to_play(self) -> Any:
    return self._odd("to_play", self._time % 2)

  @property
  def is_continued(self) -> Any:  # type: ignore[override]
    return self._odd("is_continued", False)

  @property
  def will_continue(self) -> Any:  # type: ignore[override]
    return self._odd("will_continue", False)

  def close(self) -> None:
    self._odd("close", None)


GAME_SPEC = EnvSpec(
  name="own", frame_shape=(1, 1, 2), frame_dtype="float32", num_env_actions=2, num_players=2
)


class OddGame:
  """Makes an `Environment` from a `moozi.Game` of two players."""

  places: ClassVar = (
    "seed",
    "step",
    "reward",
    "terminal",
    "cut",
    "frame",
    "mask",
    "to_play",
    "is_continued",
    "will_continue",
    "close",
  )

  @staticmethod
  def make(odd: _Odd) -> Environment:
    return GameEnvironment(_OddGame(odd), GAME_SPEC)

  @staticmethod
  def is_right(place: str, value: Any) -> bool:
    match place:
      case "reward":
        return OddGymnasium.is_right("reward", value)
      case "terminal" | "cut" | "is_continued" | "will_continue":
        return is_flag(value)
      case "mask":
        return value is None or is_mask(value)
      case "frame":
        return isinstance(value, np.ndarray) and value.dtype == np.float32 and is_array(value, (1, 1, 2))
    return place in ("close", "seed") and not isinstance(value, Raises)


class OddEnvironment(_Steps, Environment):
  """A `moozi.Environment` of two players. Numbers that are not finite are left to the replay buffer."""

  places: ClassVar = (
    "seed",
    "reset",
    "step",
    "step_type",
    "reward",
    "discount",
    "observation",
    "frame",
    "mask",
    "to_play",
    "is_continued",
    "will_continue",
    "close",
  )
  env_spec = GAME_SPEC

  def __init__(self, odd: _Odd) -> None:
    self._odd, self._time = odd, 3

  def seed(self, seed: int) -> None:
    self._odd("seed", None)

  def _observation(self) -> Any:
    own = Observation(
      self._odd("frame", np.full((1, 1, 2), self._time, np.float32)),
      self._odd("mask", np.array([True, True])),
      self._odd("to_play", self._time % 2),
      self._odd("is_continued", False),
    )
    return self._odd("observation", own)

  @property
  def will_continue(self) -> Any:
    return self._odd("will_continue", False)

  def close(self) -> None:
    self._odd("close", None)

  @staticmethod
  def is_right(place: str, value: Any) -> bool:
    match place:
      case "reward":
        return number(value) is not None
      case "discount":
        return is_flag(value)
      case "step_type":
        return isinstance(value, dm_env.StepType)
      case "frame":
        return isinstance(value, np.ndarray) and value.dtype == np.float32 and value.shape == (1, 1, 2)
    return OddGame.is_right(place, value)

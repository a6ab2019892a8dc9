"""Adapts a user's `dm_env.Environment`."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from moozi.core.errors import UserError
from moozi.core.frame_parts import make_parts
from moozi.core.spec import EnvSpec
from moozi.envs.action_spaces import dm_env_factors, joint_names, num_actions_of, own_bins
from moozi.envs.game import Game, GameEnvironment
from moozi.envs.names import MAX_NAMED, action_names, array_entries, frame_names
from moozi.envs.observations import FrameFormat, OwnObservations, array_format, check_array
from moozi.envs.validation import check_integer, check_mask, one_line, short
from moozi.ops.history import normalize_frame

# Names of a record's mask, of which the first that there is counts; the second is that of other libraries.
_MASKS = ("legal_actions_mask", "action_mask")


def wrap(name: str, env: dm_env.Environment, action_bins: int | None = None) -> GameEnvironment:
  """Wraps a `dm_env.Environment` as an `Environment`.

  Actions are a DiscreteArray, a BoundedArray of numbers with finite bounds, or a dict or tuple of these.
  Observations are one array; a record with an attribute or a key `frame`; or a dict of arrays, which become
  one vector. A record or a dict may also have `legal_actions_mask` or `action_mask` ([mask_size] bool) and
  `to_play`. If `to_play` is a DiscreteArray of 2, there are two players, who must alternate strictly; rewards
  belong to the player who moved. Frames, and the arrays of a vector, follow `array_format`. A LAST step with
  discount 0 is terminal; with discount 1 it is truncated. The environment's method `seed(int)`, if it has
  one, receives seeds of 31 bits.

  Args:
    action_bins: number of values of each dimension of a continuous action space, or 0; None: the
      environment's attribute `action_bins`, or 7.

  Raises: UserError: unsupported actions or observations.
  """
  where = f"env.name={name}"
  actions = env.action_spec()
  factors = dm_env_factors(where, actions, own_bins(where, env) if action_bins is None else action_bins)
  start = int(actions.minimum) if factors is None else 0
  num_actions = num_actions_of(where, actions, factors)
  observation_spec = env.observation_spec()
  seen = _seen(observation_spec)
  if isinstance(seen, specs.Array):
    frames = _format_of(where, seen)
  elif isinstance(seen, Mapping) and seen and all(isinstance(x, specs.Array) for x in seen.values()):
    frames = _vector_format(where, seen)
  else:
    raise UserError(
      f"{where}: its observations are {short(observation_spec)}; must be one array, a record with an array "
      "called frame, or a dict of arrays"
    )
  is_record = seen is not observation_spec
  to_play = _part(observation_spec, "to_play") if is_record else None
  num_players = 1 if to_play is None else int(getattr(to_play, "num_values", 0))
  if num_players not in (1, 2):
    raise UserError(f"{where}: to_play is {short(to_play)}; must be a DiscreteArray of 1 or 2 players")
  spec = EnvSpec(
    name=name,
    frame_shape=frames.shape,
    frame_dtype=frames.dtype,
    num_env_actions=num_actions,
    num_players=num_players,
    factors=factors,
    action_names=action_names(where, env, num_actions, start) if factors is None else joint_names(factors),
    frame_names=frame_names(where, env, frames.shape[2]) or frames.names,
    frame_parts=frames.parts,
  )
  to_own = (lambda action: actions.dtype.type(start + action)) if factors is None else factors.own_action
  return GameEnvironment(_DmEnvGame(env, frames, spec, to_own, is_record), spec)


class _DmEnvGame(Game):
  def __init__(
    self,
    env: dm_env.Environment,
    frames: FrameFormat,
    spec: EnvSpec,
    to_own: Callable[[Any], Any],
    is_record: bool,
  ) -> None:
    self._where, self._env, self._encode = f"env.name={spec.name}", env, frames.encode
    self._spec, self._to_own, self._is_record = spec, to_own, is_record
    self._seen_spec = _seen(env.observation_spec())
    self._mask: np.ndarray | None = None
    self._to_play = 0
    self.own_observations = OwnObservations(self._convert, self._split)

  def seed(self, seed: int) -> None:
    seed_env = getattr(self._env, "seed", None)
    if callable(seed_env):
      # 31 bits, which any generator accepts.
      seed_env(int(np.random.SeedSequence(seed).generate_state(1)[0] >> 1))

  def reset(self) -> None:
    step = self._checked(self._env.reset())
    if not step.first():
      raise UserError(f"{self._where}: reset returns a {step.step_type} step; it must be FIRST")
    self._read(step)

  def step(self, action: int) -> tuple[float, bool, bool]:
    step = self._checked(self._env.step(self._to_own(action)))
    if step.first():
      raise UserError(f"{self._where}: step returns a FIRST step in the middle of an episode")
    if step.discount not in ((0.0, 1.0) if step.last() else (1.0,)):
      raise UserError(
        f"{self._where}: a {step.step_type.name} step of discount {step.discount}; it must be 1, or 0 at an "
        "end; set the task's own discount with targets.discount"
      )
    self._read(step)
    return step.reward, step.last() and step.discount == 0.0, step.last() and step.discount != 0.0

  def _checked(self, step: Any) -> dm_env.TimeStep:
    if not isinstance(step, dm_env.TimeStep):
      raise UserError(f"{self._where}: a step is {one_line(step, 80)}; must be a dm_env.TimeStep")
    kind = check_integer(self._where, "integer step_type", step.step_type, 0, 2)
    return step._replace(step_type=dm_env.StepType(kind))

  def _read(self, step: dm_env.TimeStep) -> None:
    observation = step.observation
    if not self._is_record:
      self._frame = self._encode(observation)
      return
    is_terminal = bool(step.last() and step.discount == 0.0)
    self._frame = self._encode(self._seen(observation))
    self._to_play = self._player(_part(observation, "to_play"), is_terminal)
    for name in _MASKS:
      mask = _part(observation, name)
      if mask is not None:
        self._mask = check_mask(self._where, name, mask, self._spec.mask_size, is_terminal)
        return
    self._mask = None

  def _convert(self, observation: Any) -> tuple[np.ndarray, np.ndarray | None, int]:
    """Returns the frame, the mask and the player to move of a user's observation, as `_read` reads them."""
    frame, mask, to_play = observation, None, 0
    if self._is_record:
      frame = self._seen(observation)
      to_play = self._player(_part(observation, "to_play"), is_terminal=False)
      for name in _MASKS:
        if mask is None and (found := _part(observation, name)) is not None:
          mask = check_mask(self._where, name, found, self._spec.mask_size, is_end=False)
    name, spec = f"{self._where}: observation", self._seen_spec
    if isinstance(spec, Mapping):
      for key, part in spec.items():
        check_array(f"{name}[{key!r}]", frame[key], part.shape, part.dtype)
    else:
      check_array(name, frame, spec.shape, spec.dtype)
    return self._encode(frame), mask, to_play

  def _seen(self, observation: Any) -> Any:
    """Returns the array of the frame in a record, or the arrays of the vector in a dict."""
    if not isinstance(self._seen_spec, Mapping):
      return _part(observation, "frame")
    found = {key: _part(observation, key) for key in self._seen_spec}
    for key, array in found.items():
      if array is None:
        raise UserError(f"{self._where}: an observation without {key!r}, an array of its spec")
    return found

  def _split(self, observations: Any) -> list[Any] | None:
    is_batch = not self._is_record and np.ndim(observations) == len(self._seen_spec.shape) + 1
    return list(observations) if is_batch and len(observations) else None

  def _player(self, to_play: Any, is_terminal: bool) -> int:
    """Returns the player to move; at a terminal frame of two players, the next one, whatever `to_play` is."""
    if self._spec.num_players == 1:
      return 0
    if is_terminal:
      return 1 - self._to_play
    if np.ndim(to_play) or to_play not in (0, 1):
      raise UserError(f"{self._where}: to_play={to_play}; its spec says 0 or 1")
    return int(to_play)

  def frame(self) -> np.ndarray:
    return self._frame

  def legal_actions_mask(self) -> np.ndarray | None:
    return self._mask

  def to_play(self) -> int:
    return self._to_play

  def close(self) -> None:
    self._env.close()


def _seen(observation_spec: Any) -> Any:
  """Returns the spec of the frame's array; of a dict without `frame`, those of the arrays of its vector."""
  if not isinstance(observation_spec, Mapping) or "frame" in observation_spec:
    return _part(observation_spec, "frame")
  return {key: part for key, part in observation_spec.items() if key not in (*_MASKS, "to_play")}


def _format_of(where: str, spec: specs.Array) -> FrameFormat:
  low, high = getattr(spec, "minimum", -np.inf), getattr(spec, "maximum", np.inf)
  return array_format(where, spec.shape, spec.dtype, low, high)


def _vector_format(where: str, arrays: Mapping[str, specs.Array]) -> FrameFormat:
  """Returns the format of a dict of arrays: one float32 vector, in the order of the spec; bytes in [0, 1]."""
  formats = {key: _format_of(f"{where}: {key}", part) for key, part in arrays.items()}
  shapes = {
    key: formats[key].shape if len(part.shape) == 3 else part.shape or (1,) for key, part in arrays.items()
  }

  def encode(observation: Any) -> np.ndarray:
    vectors = [normalize_frame(own.encode(observation[key]), own.dtype) for key, own in formats.items()]
    return np.concatenate([np.ravel(vector) for vector in vectors]).reshape(1, 1, -1)

  parts = make_parts([(str(key), shapes[key], False, own.dtype == "uint8") for key, own in formats.items()])
  size = sum(math.prod(shape) for shape in shapes.values())
  names: tuple[str, ...] = ()
  if size <= MAX_NAMED:
    names = tuple(name for key, shape in shapes.items() for name in array_entries(key, shape))
  is_text = all(name.isprintable() for name in names)
  return FrameFormat((1, 1, size), "float32", encode, names if is_text else (), parts)


def _part(record: Any, key: str) -> Any:
  """Returns a record's attribute or entry `key`, or None. For an array, `frame` is the array itself."""
  if isinstance(record, specs.Array):
    return record if key == "frame" else None
  if isinstance(record, Mapping):
    return record.get(key)
  return getattr(record, key, None)

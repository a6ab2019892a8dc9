"""The environments of the package `gymnasium`, and any `gymnasium.Env`.

Departures from Gymnasium: each episode is reset with its own seed, so it does not depend on earlier episodes.
An action that is out of range or masked is an error. Observations become frames (`envs.observations`).
"""

import contextlib
import functools
import importlib
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from pydantic import Field

from moozi.core.config import PositiveInt, Section
from moozi.core.errors import UserError, as_exceptions
from moozi.core.spec import EnvSpec
from moozi.core.text import missing_package, pip_install, shell_command
from moozi.envs.action_spaces import (
  BINS,
  DEFAULT_BINS,
  ActionBins,
  gymnasium_factors,
  joint_names,
  num_actions_of,
  own_bins,
)
from moozi.envs.environment import Environment
from moozi.envs.game import ActionRepeat, Game, GameEnvironment
from moozi.envs.names import action_names, frame_names
from moozi.envs.observations import FrameFormat
from moozi.envs.own_rewards import counting_own_rewards, record_rewards
from moozi.envs.suite import Suite
from moozi.envs.suites import mujoco
from moozi.envs.suites.gymnasium_masks import MaskReader
from moozi.envs.trial import check_picture, spec_of_variants
from moozi.envs.validation import (
  check_flag,
  one_line,
  warn_once,
)
from moozi.envs.wrappers import apply_wrappers, depend_on_testing, wrapper_of

_log = logging.getLogger("moozi.envs")

# The listed environments, by name without version. Others that are registered can be made too.
_BOX2D = f"needs {shell_command('pip', 'install', 'swig', 'gymnasium[box2d]')}"
_MUJOCO = f"continuous; needs {pip_install('mujoco')}"
_LISTED = {
  "Acrobot": "swing a two-link arm up; -1 per step",
  "Ant": f"run on four legs; {_MUJOCO}",
  "BipedalWalker": f"walk on two legs; continuous; {_BOX2D}",
  "BipedalWalkerHardcore": f"the same over obstacles; continuous; {_BOX2D}",
  "Blackjack": "draw cards against a dealer",
  "CarRacing": f"a race track in colour; continuous, or env.kwargs.kwargs={{continuous: false}}; {_BOX2D}",
  "CartPole": "balance a pole; 1 per step, at most 500",
  "CliffWalking": "walk along a cliff; -1 per step, -100 for a fall",
  "CliffWalkingSlippery": "the same on slippery ground",
  "FrozenLake": "cross a slippery lake of 4 by 4; 1 for the far side",
  "FrozenLake8x8": "the same, 8 by 8",
  "HalfCheetah": f"run on two legs in a plane; {_MUJOCO}",
  "Hopper": f"hop on one leg in a plane; {_MUJOCO}",
  "InvertedDoublePendulum": f"balance two poles on a cart; {_MUJOCO}",
  "InvertedPendulum": f"balance a pole on a cart; {_MUJOCO}",
  "LunarLander": f"land between two flags; {_BOX2D}",
  "LunarLanderContinuous": f"the same with two continuous engines; {_BOX2D}",
  "MountainCar": "rock a car up a hill; -1 per step",
  "MountainCarContinuous": "the same with a continuous force, which costs reward; 100 for the top",
  "Pendulum": "swing a pendulum up; continuous; the reward is from -16.3 to 0",
  "Pusher": f"push a puck to a target with an arm; {_MUJOCO}",
  "Reacher": f"reach a target with two links; {_MUJOCO}",
  "Swimmer": f"swim with three links; {_MUJOCO}",
  "Taxi": "carry passengers; masks actions without an effect",
  "Walker2d": f"walk on two legs in a plane; {_MUJOCO}",
}
# These environments load an environment of another package; their options name it.
_LOADERS = frozenset({"GymV21Environment-v0", "GymV26Environment-v0"})


class GymnasiumOptions(Section):
  kwargs: dict[str, Any] = Field({}, description="keyword arguments of gymnasium.make")
  max_episode_steps: PositiveInt | None = Field(
    None,
    description="truncate an episode after this number of actions instead of at the environment's own limit",
  )
  action_bins: ActionBins = Field(DEFAULT_BINS, description=BINS)
  action_repeat: PositiveInt = Field(
    1,
    description="number of the environment's steps that each action is played for; a step of the agent has "
    "the sum of their rewards",
  )


class _AllOptions(GymnasiumOptions):
  """The options, with two that are not keys of env.kwargs."""

  wrappers: tuple[str, ...] = ()
  is_testing: bool = False


def list_games() -> dict[str, str]:
  """Returns the newest version of each listed environment in the installed gymnasium, with its summary."""
  newest: dict[str, tuple[int, str]] = {}
  for game in _import("…").registry:
    name, _, version = game.rpartition("-v")
    if name in _LISTED and version.isdigit():
      newest[name] = max(newest.get(name, (-1, "")), (int(version), game))
  return {game: _LISTED[name] for name, (_, game) in newest.items()}


def is_game(game: str) -> bool:
  """Returns whether an unlisted environment can be made: `ID`, or `MODULE:ID` where MODULE registers it.

  Raises: UserError: MODULE is not a module's name, cannot be imported or does not register ID; or ID's
    namespace is not registered.
  """
  where = f"env.name=gymnasium:{game}"
  registry = _import(game).registry
  module, _, game_id = game.rpartition(":")
  if module:
    if not re.fullmatch(r"\w+(\.\w+)*", module):
      raise UserError(
        f"{where}: {module!r} is not a module name; MODULE:ID names the module that registers ID"
      )
    try:
      with _quietly(), as_exceptions():
        importlib.import_module(module)
    except Exception as error:
      raise UserError(f"{where}: the module {module} cannot be imported: {one_line(error)}") from error
    if game_id not in registry:
      raise UserError(f"{where}: the module {module} registers no {game_id} in gymnasium")
  namespace, _, _ = game_id.rpartition("/")
  if namespace and not any(known.startswith(f"{namespace}/") for known in registry):
    raise UserError(
      f"{where}: no environment of {namespace}/ is registered; name the module that registers it, "
      f"gymnasium:MODULE:{game_id}"
    )
  return game_id in registry and game_id not in _LOADERS


def make_spec(game: str, options: GymnasiumOptions) -> EnvSpec:
  """Reads the specification of an environment with these options from a temporary one.

  With a `render_mode`, the temporary environment also draws its picture. With wrappers, each variant of the
  environment plays a trial episode, and the specification is not cached, because a notebook may change a
  registered wrapper. Without wrappers, it is cached.
  """
  if wrappers := _all(options).wrappers:
    spec = spec_of_variants(
      lambda is_testing: make_environment(game, _all(options, is_testing=is_testing)),
      wrapper_of(wrappers[-1], len(wrappers) - 1)[0],
      has_variants=depend_on_testing(wrappers),
      draws=False,
    )
    _draw_and_close(game, options)
    return spec
  return _make_spec(game, options.model_dump_json())


@functools.lru_cache(maxsize=64)
def _make_spec(game: str, options: str) -> EnvSpec:
  return _draw_and_close(game, GymnasiumOptions.model_validate_json(options))


def _draw_and_close(game: str, options: GymnasiumOptions) -> EnvSpec:
  """Returns the spec of an environment; with a `render_mode`, first resets it and draws its picture."""
  environment = make_environment(game, options)
  with contextlib.ExitStack() as at_end:
    at_end.callback(_close, environment)
    if options.kwargs.get("render_mode") is not None:
      where, given = f"env.name=gymnasium:{game}", f" with env.kwargs.kwargs={options.kwargs}"
      try:
        with as_exceptions():
          environment.reset()  # with render_mode=human, Gymnasium draws here
      except Exception as error:
        raise UserError(f"{where}: its picture cannot be drawn{given}: {one_line(error)}") from error
      check_picture(environment, where, given)
    return environment.env_spec


def _close(environment: Any) -> None:
  """Closes an environment that is not used, and ignores errors."""
  with contextlib.suppress(Exception), as_exceptions():
    environment.close()


def make_environment(game: str, options: GymnasiumOptions) -> Environment:
  name = f"gymnasium:{game}"
  gymnasium = _import(game)
  kwargs: dict[str, Any] = dict(options.kwargs)
  if options.max_episode_steps is not None:
    kwargs["max_episode_steps"] = options.max_episode_steps * options.action_repeat
  if game in gymnasium.registry and "mujoco" in str(gymnasium.registry[game].entry_point):
    mujoco.prepare()
  try:
    with _quietly(), as_exceptions():
      # MooZi makes the same checks. gymnasium's checker would warn at the first steps of each environment.
      env = gymnasium.make(game, disable_env_checker=True, **kwargs)
  except Exception as error:
    given = f" with env.kwargs.kwargs={options.kwargs}" if options.kwargs else ""
    raise UserError(f"env.name={name}: cannot be made{given}: {one_line(error)}") from error
  try:
    wrappers, is_testing = _all(options).wrappers, _all(options).is_testing
    rewards = record_rewards(f"env.name={name}", env, has_wrappers=bool(wrappers))
    wrapped = apply_wrappers(env, wrappers, is_testing)
    if not isinstance(wrapped, gymnasium.Env):
      raise UserError(f"env.wrappers: return {type(wrapped).__name__}; must return a gymnasium.Env")
    made = wrap(name, wrapped, options.action_bins, options.action_repeat)
    return counting_own_rewards(made, rewards, is_testing)
  except UserError:
    _close(env)
    raise


def _all(options: GymnasiumOptions, **changes: Any) -> _AllOptions:
  return _AllOptions(**(dict(options) | changes))


def wrap(name: str, env: Any, action_bins: int | None = None, action_repeat: int = 1) -> GameEnvironment:
  """Wraps a `gymnasium.Env` as an `Environment`.

  Args:
    env: its actions are Discrete with any `start`, a Box with finite bounds, MultiDiscrete, MultiBinary, or a
      Dict or Tuple of these; `MaskReader` reads which are legal. Observations that are Boxes become frames as
      in `array_format`; Discrete, MultiDiscrete and MultiBinary become booleans; a Dict or Tuple of these
      becomes one vector. `observed_space` first removes an entry `action_mask`.
    action_bins: number of values of each dimension of a continuous action space, or 0; None: the
      environment's attribute `action_bins`, or 7.
    action_repeat: number of steps for which each action is played.

  Raises: UserError: unsupported actions or observations.
  """
  from moozi.envs.suites.gymnasium_observations import frame_format

  where = f"env.name={name}"
  num_bins = own_bins(where, env) if action_bins is None else action_bins
  factors = gymnasium_factors(where, env.action_space, num_bins)
  if factors is not None:
    factors = mujoco.with_actuator_names(factors, getattr(env.unwrapped, "model", None))
  start = int(getattr(env.action_space, "start", 0)) if factors is None else 0
  num_actions = num_actions_of(where, env.action_space, factors)
  frames = frame_format(where, env.observation_space)
  _warn_of_statistics(where, env)
  spec = EnvSpec(
    name=name,
    frame_shape=frames.shape,
    frame_dtype=frames.dtype,
    num_env_actions=num_actions,
    factors=factors,
    action_names=action_names(where, env, num_actions, start) if factors is None else joint_names(factors),
    frame_names=frame_names(where, env, frames.shape[2]) or frames.names,
    frame_parts=frames.parts,
  )
  masks = MaskReader(where, env, spec.mask_size, start)
  to_own = (lambda action: start + action) if factors is None else factors.own_action
  game: Game = _GymnasiumGame(where, env, frames, masks, to_own)
  return GameEnvironment(game if action_repeat == 1 else ActionRepeat(game, spec, action_repeat), spec)


def _warn_of_statistics(where: str, env: Any) -> None:
  """Warns if a wrapper normalizes observations by running statistics, as NormalizeObservation does."""
  layer = env
  while layer is not None:
    if hasattr(layer, "obs_rms"):
      warn_once(
        f"{where}: {type(layer).__name__} has its own running statistics in each environment and new ones in "
        "each evaluation, so the agent is evaluated on other frames than it is trained on; leave it out and "
        "give the observation space bounds, or use TransformObservation with a constant mean and deviation"
      )
    layer = getattr(layer, "env", None) if layer is not env.unwrapped else None


class _GymnasiumGame(Game):
  def __init__(
    self, where: str, env: Any, frames: FrameFormat, masks: MaskReader, to_own: Callable[[Any], Any]
  ) -> None:
    from moozi.envs.suites.gymnasium_observations import own_observations

    self._where, self._env, self._encode, self._to_own = where, env, frames.encode, to_own
    self._masks = masks
    self.own_observations = own_observations(
      where, env.observation_space, frames.encode, masks.in_observation
    )
    self.seed(0)

  def seed(self, seed: int) -> None:
    self._seeds = np.random.default_rng(seed)

  def reset(self) -> None:
    # Each episode has its own seed, so it does not depend on earlier episodes.
    returned = self._env.reset(seed=int(self._seeds.integers(2**31)))
    observation, info = self._parts(returned, "reset", ("observation", "info"))
    self._read(observation, info, is_end=False)

  def step(self, action: int) -> tuple[float, bool, bool]:
    returned = self._env.step(self._to_own(action))
    observation, reward, terminated, truncated, info = self._parts(
      returned, "step", ("observation", "reward", "terminated", "truncated", "info")
    )
    terminated = check_flag(self._where, "terminated", terminated)
    truncated = check_flag(self._where, "truncated", truncated)
    self._read(observation, info, is_end=terminated or truncated)
    return reward, terminated, truncated

  def _parts(self, returned: Any, method: str, names: tuple[str, ...]) -> tuple[Any, ...]:
    """Returns what a method of the environment returned. Raises UserError if it is of another form."""
    is_tuple = isinstance(returned, tuple | list)
    if not is_tuple or len(returned) != len(names) or not isinstance(returned[-1], dict):
      kinds = [type(x).__name__ for x in returned] if is_tuple else type(returned).__name__
      raise UserError(
        f"{self._where}: {method} returns {one_line(kinds, 80)}; must return ({', '.join(names)}) with "
        "a dict as info; environments of the older gym need a wrapper, such as those of the package shimmy"
      )
    return tuple(returned)

  def _read(self, observation: Any, info: dict[str, Any], is_end: bool) -> None:
    self._frame = self._encode(observation)
    self._mask = self._masks.read(observation, info, is_end)

  def frame(self) -> np.ndarray:
    return self._frame

  def legal_actions_mask(self) -> np.ndarray | None:
    return self._mask

  def render(self) -> np.ndarray | None:
    picture: np.ndarray | None = self._env.render() if self._env.render_mode == "rgb_array" else None
    return picture

  def close(self) -> None:
    self._env.close()


def _import(game: str) -> Any:
  try:
    with _quietly():
      import gymnasium
  except ImportError as error:
    raise missing_package(f"env.name=gymnasium:{game}", "gymnasium") from error
  return gymnasium


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
  """Sends warnings to the log."""
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    yield
  for warning in caught:
    _log.info("%s", warning.message)


SUITE = Suite(
  summary="classic control and other single-agent environments",
  package="gymnasium",
  list_games=list_games,
  options=lambda game: GymnasiumOptions,
  make_spec=make_spec,
  make_environment=make_environment,
  is_game=is_game,
  for_testing=lambda options: _all(options, is_testing=True),
  with_wrappers=lambda options, wrappers: _all(options, wrappers=wrappers),
)

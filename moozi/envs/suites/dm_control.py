"""The DeepMind Control Suite of the package `dm_control`. Tasks have names such as `cartpole-swingup`.

A frame is the task's observation: its entries in the suite's order, each row by row, as one vector of
float32 without scaling. Actions are the task's bounded arrays, by default divided into bins. The reward of
each step of the suite is from 0 to 1. By default an episode is truncated after 1,000 steps of the suite; no
listed task has a terminal step.

Source: Tassa et al. 2018, DeepMind Control Suite. Departures: each episode has its own seed, so it does not
depend on earlier episodes.
"""

import functools
import importlib.util
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from pydantic import Field

from moozi.core.config import PositiveInt, Section
from moozi.core.errors import UserError, as_exceptions
from moozi.core.spec import EnvSpec
from moozi.core.text import missing_package, pip_install
from moozi.envs.action_spaces import DEFAULT_BINS, ActionBins, dm_env_factors, joint_names
from moozi.envs.environment import Environment
from moozi.envs.game import ActionRepeat, Game, GameEnvironment
from moozi.envs.names import array_entries
from moozi.envs.observations import OwnObservations, check_array
from moozi.envs.suite import Suite
from moozi.envs.suites import mujoco
from moozi.envs.validation import check_finite, one_line

GAMES = {
  "acrobot-swingup": "swing two links up with a motor between them",
  "acrobot-swingup_sparse": "the same with a reward only near the top",
  "ball_in_cup-catch": "catch a ball on a string",
  "cartpole-balance": "balance a pole on a cart",
  "cartpole-balance_sparse": "the same with a reward only near the top, with the cart near the middle",
  "cartpole-swingup": "swing a pole up and balance it",
  "cartpole-swingup_sparse": "the same with a reward only near the top, with the cart near the middle",
  "cartpole-three_poles": "balance three poles on top of each other",
  "cartpole-two_poles": "balance two poles on top of each other",
  "cheetah-run": "run on two legs in a plane",
  "finger-spin": "spin a body with a finger of two joints",
  "finger-turn_easy": "turn a body to a large target",
  "finger-turn_hard": "turn a body to a small target",
  "fish-swim": "swim to a target",
  "fish-upright": "stay upright in water",
  "hopper-hop": "hop on one leg",
  "hopper-stand": "stand on one leg",
  "humanoid-run": "run; 21 dimensions, so action_bins=2",
  "humanoid-run_pure_state": "the same from joints and velocities alone; action_bins=2",
  "humanoid-stand": "stand; 21 dimensions, so action_bins=2",
  "humanoid-walk": "walk; 21 dimensions, so action_bins=2",
  "manipulator-bring_ball": "bring a ball to a target with an arm",
  "manipulator-bring_peg": "bring a peg to a target with an arm",
  "manipulator-insert_ball": "put a ball into a basket",
  "manipulator-insert_peg": "put a peg into a slot",
  "pendulum-swingup": "swing a pendulum up with a weak motor",
  "point_mass-easy": "move a point to a target",
  "point_mass-hard": "the same with random directions of the motors",
  "quadruped-fetch": "push a ball to a target; 12 dimensions, so action_bins is at most 5",
  "quadruped-run": "run on four legs; 12 dimensions, so action_bins is at most 5",
  "quadruped-walk": "walk on four legs; 12 dimensions, so action_bins is at most 5",
  "reacher-easy": "reach a large target with two links",
  "reacher-hard": "reach a small target with two links",
  "stacker-stack_2": "stack two boxes with an arm",
  "stacker-stack_4": "stack four boxes with an arm",
  "swimmer-swimmer15": "swim to a target; 14 dimensions, so action_bins is at most 4",
  "swimmer-swimmer6": "swim to a target with six links",
  "walker-run": "run on two legs",
  "walker-stand": "stand on two legs",
  "walker-walk": "walk on two legs",
}
_TOO_MANY = "its actions have too many dimensions; must be at most 30"
_LQR = "its actions have no bounds"
REFUSED = {
  "dog-fetch": _TOO_MANY,
  "dog-run": _TOO_MANY,
  "dog-stand": _TOO_MANY,
  "dog-trot": _TOO_MANY,
  "dog-walk": _TOO_MANY,
  "humanoid_CMU-run": _TOO_MANY,
  "humanoid_CMU-stand": _TOO_MANY,
  "humanoid_CMU-walk": _TOO_MANY,
  "lqr-lqr_2_1": _LQR,
  "lqr-lqr_6_2": _LQR,
  "quadruped-escape": "it needs OpenGL for each new episode",
}
"""The suite's other tasks, each with the reason it is not offered."""

_PICTURE = (240, 320)


class DmControlOptions(Section):
  action_bins: ActionBins = Field(
    DEFAULT_BINS,
    description="number of values of each dimension of the action, from its lower to its upper bound; 0: "
    "none, actions are continuous",
  )
  action_repeat: PositiveInt = Field(
    1,
    description="number of the suite's steps that each action is played for; a step of the agent has the sum "
    "of their rewards",
  )
  max_episode_steps: PositiveInt | None = Field(
    None,
    description="truncate an episode after this number of actions; null: after the suite's 1,000 steps",
  )
  pictures: bool = Field(False, description="draw the suite's own pictures; needs OpenGL")


def listed_name(game: str) -> str:
  if game in REFUSED:
    raise UserError(f"env.name=dm_control:{game}: {REFUSED[game]}; `moozi envs dm_control` lists the tasks")
  return game


@functools.lru_cache(maxsize=64)
def make_spec(game: str, options: DmControlOptions) -> EnvSpec:
  """Reads the specification of a task with these options from a temporary environment, and caches it."""
  environment = make_environment(game, options)
  environment.close()
  return environment.env_spec


def make_environment(game: str, options: DmControlOptions) -> Environment:
  where = f"env.name=dm_control:{game}"
  domain, _, task = game.partition("-")
  # The seed of the task's own generator is set at each reset.
  kwargs: dict[str, Any] = {"random": 0}
  if options.max_episode_steps is not None:
    kwargs["time_limit"] = math.inf
  suite = _import(where)
  try:
    with mujoco.without_absl_logs(), as_exceptions():
      env = suite.load(domain, task, task_kwargs=kwargs)
  except Exception as error:
    raise UserError(
      f"{where}: cannot be made: {type(error).__name__}: {one_line(error)}; dm_control 1.0.50 needs "
      f"mujoco>=3.17,<4; {pip_install('dm_control')} installs it"
    ) from error
  observations, actions = env.observation_spec(), env.action_spec()
  factors = dm_env_factors(where, actions, options.action_bins)
  assert factors is not None, "actions are arrays"
  factors = mujoco.with_actuator_names(factors, env.physics.model.ptr)
  spec = EnvSpec(
    name=f"dm_control:{game}",
    frame_shape=(1, 1, sum(math.prod(part.shape) for part in observations.values())),
    frame_dtype="float32",
    num_env_actions=factors.num_joint_actions,
    factors=factors,
    action_names=joint_names(factors),
    frame_names=tuple(name for key, part in observations.items() for name in array_entries(key, part.shape)),
  )
  rules: Game = _Task(where, env, factors.own_action, has_pictures=options.pictures)
  if options.action_repeat > 1:
    rules = ActionRepeat(rules, spec, options.action_repeat)
  return GameEnvironment(rules, spec, options.max_episode_steps)


class _Task(Game):
  """A task of the suite, with a new seed for each episode."""

  def __init__(self, where: str, env: Any, to_own: Callable[[Any], Any], has_pictures: bool) -> None:
    self._where, self._env, self._to_own, self._has_pictures = where, env, to_own, has_pictures
    self.own_observations = _own_observations(where, env.observation_spec())
    self.seed(0)

  def seed(self, seed: int) -> None:
    self._seeds = np.random.default_rng(seed)

  def reset(self) -> None:
    self._env.task.random.seed(int(self._seeds.integers(2**31)))
    self._frame = _encode(self._where, self._env.reset().observation)

  def step(self, action: int) -> tuple[float, bool, bool]:
    step = self._env.step(self._to_own(action))
    self._frame = _encode(self._where, step.observation)
    is_terminal = bool(step.last() and step.discount == 0.0)
    return float(step.reward), is_terminal, bool(step.last() and not is_terminal)

  def frame(self) -> np.ndarray:
    return self._frame

  def render(self) -> np.ndarray | None:
    if not self._has_pictures or not mujoco.can_draw():
      return None
    with mujoco.without_absl_logs():
      picture: np.ndarray = self._env.physics.render(*_PICTURE, camera_id=0)
    return picture

  def close(self) -> None:
    self._env.close()


def _encode(where: str, observation: Mapping[str, Any]) -> np.ndarray:
  """Returns the frame of an observation: all its entries, row by row. Raises as `check_finite`."""
  vector = np.concatenate([np.ravel(part) for part in observation.values()])
  return check_finite(where, vector.astype(np.float32).reshape(1, 1, -1))


def _own_observations(where: str, observations: Mapping[str, Any]) -> OwnObservations:
  """Returns the form of a task's observations: dicts of arrays, single or with a leading batch axis."""

  def keys_of(given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping) or set(given) != set(observations):
      raise UserError(f"{where}: observation: must be a dict of {', '.join(observations)}")
    return given

  def read(given: Any) -> tuple[np.ndarray, None, int]:
    given = keys_of(given)
    for key, part in observations.items():
      check_array(f"{where}: observation[{key!r}]", given[key], part.shape, part.dtype)
    return _encode(where, {key: given[key] for key in observations}), None, 0

  def split(given: Any) -> list[Any] | None:
    given = keys_of(given)
    first, part = next(iter(observations.items()))
    if np.ndim(given[first]) != len(part.shape) + 1:
      return None
    counts = {len(np.atleast_1d(values)) for values in given.values()}
    if len(counts) > 1:
      raise UserError(f"{where}: observation: its entries are batches of {sorted(counts)} observations")
    return [{key: np.asarray(values)[i] for key, values in given.items()} for i in range(counts.pop())]

  return OwnObservations(read, split)


def _import(where: str) -> Any:
  if importlib.util.find_spec("dm_control") is None:
    raise missing_package(where, "dm_control")
  try:
    with mujoco.without_absl_logs(), as_exceptions():
      mujoco.prepare()
      from dm_control import suite

      mujoco.log_warnings()
  except Exception as error:
    raise UserError(
      f"{where}: dm_control cannot be imported: {one_line(error)}; where OpenGL is the cause, set "
      "MUJOCO_GL=disable, which draws no pictures"
    ) from error
  return suite


SUITE = Suite(
  summary="the DeepMind Control Suite: continuous control by MuJoCo",
  package="dm_control",
  list_games=lambda: GAMES,
  options=lambda game: DmControlOptions,
  make_spec=make_spec,
  make_environment=make_environment,
  listed_name=listed_name,
)

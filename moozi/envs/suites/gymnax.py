"""gymnax: MinAtar, classic control and a few small environments, written in JAX.

Source: Lange 2022, gymnax. docs/jax_environments.md lists how its MinAtar differs from the package `minatar`;
tests/envs/jax/test_minatar.py compares the two. Departures:
  - `max_episode_steps` replaces gymnax's own time limit. Both truncate.
  - The step after an end resets, so the last frame is shown.
  - In MinAtar, sticky actions are an option; by default there are none, as in gymnax.
"""

import importlib
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field

from moozi.core.config import PositiveInt, Probability, Section
from moozi.core.factors import ActionPart, Factors, Intervals, bins
from moozi.core.spec import MAX_ENUMERATED, EnvSpec
from moozi.envs.action_spaces import DEFAULT_BINS, check_bins, joint_names
from moozi.envs.jax.suite_parts import (
  MAX_EPISODE_STEPS,
  MINATAR_ACTION_NAMES,
  MINIMAL_ACTIONS,
  STICKY_ACTION_PROB,
  check_package,
  make_suite,
)
from moozi.envs.observations import frame_shape

GAMES = {
  "Acrobot-v1": "swing two links up; truncated after 500 steps",
  "Asterix-MinAtar": "collect treasure, avoid enemies; truncated after 1000 steps",
  "Breakout-MinAtar": "break bricks with a ball; truncated after 1000 steps",
  "CartPole-v1": "balance a pole on a cart; truncated after 500 steps",
  "Catch-bsuite": "catch a falling ball; optimal return 1",
  "DeepSea-bsuite": "go right eight times; optimal return 0.99",
  "FourRooms-misc": "walk through doors to a goal; truncated after 500 steps",
  "Freeway-MinAtar": "cross eight lanes of cars; truncated after 2500 steps",
  "MemoryChain-bsuite": "remember one bit for five steps; optimal return 1",
  "MountainCar-v0": "rock a car up a hill; truncated after 200 steps",
  "MountainCarContinuous-v0": "the same with a continuous force; truncated after 999 steps",
  "Pendulum-v1": "swing a pendulum up with a continuous torque; truncated after 200 steps",
  "Pong-misc": "keep a ball in play; truncated after 1000 steps",
  "Seaquest-MinAtar": "shoot, rescue divers, surface for air; truncated after 1000 steps",
  "SpaceInvaders-MinAtar": "shoot aliens before they land; truncated after 1000 steps",
  "UmbrellaChain-bsuite": "the first choice is rewarded ten steps later; other rewards are random",
}

_CONTINUOUS = "its actions have several continuous dimensions; gymnasium and dm_control have such tasks"
_BANDIT = "it is a bandit, with no state to plan in"
REFUSED = {
  "BernoulliBandit-misc": _BANDIT,
  "DiscountingChain-bsuite": "its only end is a clock, which is part of its observation",
  "FrozenLake-misc": "its observation is one number, an index, which is not a frame",
  "GaussianBandit-misc": _BANDIT,
  "MNISTBandit-bsuite": "it downloads its pictures",
  "MetaMaze-misc": "it needs memory over many trials, which a frame does not show",
  "PointRobot-misc": _CONTINUOUS,
  "Reacher-misc": _CONTINUOUS,
  "SimpleBandit-bsuite": _BANDIT,
  "Swimmer-misc": _CONTINUOUS,
}
"""gymnax's other environments, each with the reason it is not offered."""

_ACTION_NAMES = {
  "Acrobot-v1": ("back", "none", "forth"),
  "CartPole-v1": ("left", "right"),
  "Catch-bsuite": ("left", "stay", "right"),
  "FourRooms-misc": ("up", "right", "down", "left"),
  "MountainCar-v0": ("left", "none", "right"),
}
_CONTINUOUS_GAMES = frozenset({"MountainCarContinuous-v0", "Pendulum-v1"})
# Games other than MinAtar whose float32 observations contain only 0 and 1.
_BINARY = frozenset({"Catch-bsuite", "DeepSea-bsuite", "Pong-misc"})
# In earlier versions Space Invaders has other rules, Seaquest is missing, and `done` does not distinguish the
# kinds of end.
_OLDEST = "1.0"
_OWN_LIMIT = f"{MAX_EPISODE_STEPS}; null is gymnax's own limit"


class GymnaxOptions(Section):
  """Options of `gymnax:*` other than MinAtar."""

  max_episode_steps: PositiveInt | None = Field(None, description=_OWN_LIMIT)


class GymnaxContinuousOptions(GymnaxOptions):
  """Options of `gymnax:*` whose action is one float."""

  action_bins: Annotated[int, Field(ge=0, le=MAX_ENUMERATED), AfterValidator(check_bins)] = Field(
    DEFAULT_BINS,
    description=f"number of values of the action; 2 to {MAX_ENUMERATED}; 0: none, it is continuous",
  )


class GymnaxMinAtarOptions(Section):
  """Options of `gymnax:*-MinAtar`; defaults are gymnax's."""

  sticky_action_prob: Probability = Field(0.0, description=STICKY_ACTION_PROB)
  difficulty_ramping: bool = Field(
    True, description="Asterix, Seaquest and Space Invaders become harder with time"
  )
  minimal_actions: bool = Field(True, description=MINIMAL_ACTIONS)
  max_episode_steps: PositiveInt | None = Field(None, description=_OWN_LIMIT)


def make_env(game: str, options: Any) -> Any:
  check_package("gymnax", game, _OLDEST)
  import jax

  from moozi.envs.jax.rules import JaxEnvironment

  is_minatar = game.endswith("-MinAtar")
  kwargs = {"use_minimal_action_set": options.minimal_actions} if is_minatar else {}
  env, params = importlib.import_module("gymnax").make(game, **kwargs)
  factors = _factors(env, params, options) if isinstance(options, GymnaxContinuousOptions) else None
  num_actions = int(env.num_actions) if factors is None else factors.num_joint_actions
  if factors is not None:
    action_names = joint_names(factors)
  elif is_minatar:
    action_names = tuple(MINATAR_ACTION_NAMES[a] for a in np.asarray(env.action_set).tolist())
  else:
    action_names = _ACTION_NAMES.get(game, tuple(str(a) for a in range(num_actions)))
  if is_minatar and hasattr(params, "ramping"):
    params = params.replace(ramping=options.difficulty_ramping)
  observation, _ = jax.eval_shape(env.reset_env, jax.random.PRNGKey(0), params)
  spec = EnvSpec(
    name=f"gymnax:{game}",
    frame_shape=frame_shape(f"env.name=gymnax:{game}", observation.shape),
    frame_dtype="bool" if is_minatar or game in _BINARY else "float32",
    num_env_actions=num_actions,
    factors=factors,
    action_names=action_names,
  )
  limit = options.max_episode_steps or int(params.max_steps_in_episode)
  return JaxEnvironment(spec=spec, rules=_make_rules(env, params, options, spec), max_episode_steps=limit)


def _factors(env: Any, params: Any, options: GymnaxContinuousOptions) -> Factors | Intervals:
  space, num_bins = env.action_space(params), options.action_bins
  values = bins(float(space.low), float(space.high), num_bins or 2)
  part = ActionPart(path=(), shape=(1,), dtype="float32", values=(values,))
  return (Factors if num_bins else Intervals)(parts=(part,), names=("action",))


def _make_rules(env: Any, params: Any, options: Any, spec: EnvSpec) -> Any:
  """Makes JaxRules whose state is (gymnax's state, its observation as a frame, the last action)."""
  import jax
  import jax.numpy as jnp

  from moozi.envs.jax.rules import JaxRules

  sticky_action_prob = getattr(options, "sticky_action_prob", 0.0)
  is_ramped = getattr(options, "difficulty_ramping", True)
  values = jnp.array(spec.factors.values[0], jnp.float32) if isinstance(spec.factors, Factors) else None

  def as_frame(observation: Any) -> Any:
    return jnp.reshape(observation, spec.frame_shape).astype(spec.frame_dtype)

  def init(rng_key: Any) -> Any:
    observation, state = env.reset_env(rng_key, params)
    if not is_ramped and hasattr(state, "ramping"):
      state = state.replace(ramping=False)
    return state, as_frame(observation), jnp.zeros(spec.action_shape, spec.action_dtype)

  def step(game: Any, action: Any, rng_key: Any) -> Any:
    state, _, last_action = game
    if sticky_action_prob > 0.0:
      rng_key, sticky_key = jax.random.split(rng_key)
      action = jnp.where(jax.random.uniform(sticky_key) < sticky_action_prob, last_action, action)
    # gymnax's own `step` would also reset immediately and apply its time limit.
    own = action[0] if spec.is_continuous else action if values is None else values[action]
    observation, state, reward, is_terminal, _ = env.step_env(rng_key, state, own, params)
    return (state, as_frame(observation), action), reward, is_terminal, jnp.zeros((), bool)

  return JaxRules(
    init=init,
    step=step,
    frame=lambda game: game[1],
    legal_actions_mask=lambda game: jnp.ones(spec.mask_size, bool),
  )


def _options(game: str) -> type[Section]:
  if game.endswith("-MinAtar"):
    return GymnaxMinAtarOptions
  return GymnaxContinuousOptions if game in _CONTINUOUS_GAMES else GymnaxOptions


SUITE = make_suite(
  name="gymnax",
  summary="MinAtar, classic control and small environments, in JAX",
  games=GAMES,
  refused=REFUSED,
  options=_options,
  make_env=make_env,
)

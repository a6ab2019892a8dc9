"""Environments written in JAX: bare rules as pure functions, and the one step that every way to play them
shares.

What `GameEnvironment` and `SyncVectorEnvironment` do in Python for other environments, `JaxEnvironment` does
on the device:
the dummy action, the kinds of end, the step cap, and the reset on the step after an end. It knows one
environment;
the caller maps it over many (`jax.vmap`). `envs.jax.environment` plays it step by step behind the faces of
the other environments, `acting.rollout` inside one compiled scan.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moozi.core.pytree import record, register_records
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import DUMMY_ACTION, EnvSpec

Array = Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class JaxRules:
  """Bare rules of one environment, as pure functions without a batch axis.

  The caller gives legal actions and never shows a frame after an end; `step` from an end may return
  anything of the right form.

  Attributes:
    init: rng_key → game, a pytree of arrays: a new episode.
    step: (game, action [] int32, rng_key) → (game, reward [] float, is_terminal [] bool, is_cut [] bool): the
      mover's reward, whether the task ended, whether a clock ran out. An end of the task wins over a clock.
    frame: game → [H, W, C] of the spec's dtype.
    legal_actions_mask: game → [num_env_actions] bool.
  """

  init: Callable[[Array], Any]
  step: Callable[[Any, Array, Array], tuple[Any, Array, Array, Array]]
  frame: Callable[[Any], Array]
  legal_actions_mask: Callable[[Any], Array]


@record
class EnvState:
  """All that one environment carries from step to step; mapped over B environments each field has a leading
  axis B.

  Attributes:
    game: the rules' own state.
    num_steps: [] int32, steps made in this episode.
    rng_key: [2] uint32; what is still left to chance follows from it, later episodes too.
    timestep: one row of BatchedTimeStep: what is shown now.
  """

  game: Any
  num_steps: Array
  rng_key: Array
  timestep: BatchedTimeStep


@dataclasses.dataclass(frozen=True, kw_only=True)
class JaxEnvironment:
  """One environment in the agent's terms, as two pure functions, `reset` and `step`.

  Two players alternate strictly: the one to move is the number of steps modulo 2, so that 0 moves first.

  Attributes:
    spec: the facts of the environment.
    rules: its rules.
    max_episode_steps: an episode is truncated after so many steps; None leaves it to the rules.
  """

  spec: EnvSpec
  rules: JaxRules
  max_episode_steps: int | None = None

  def __post_init__(self) -> None:
    register_records()

  def reset(self, rng_key: Array) -> EnvState:
    """A new episode, which with all that follows it is a function of `rng_key` [2] uint32."""
    rng_key, init_key = jax.random.split(rng_key)
    # Rules begin with plain numbers now and then: their weak types would change inside a scan.
    game = jax.tree.map(_strongly_typed, self.rules.init(init_key))
    never = jnp.zeros((), bool)
    timestep = self._show(game, jnp.int32(0), jnp.float32(0), never, never, ~never)
    return EnvState(game=game, num_steps=jnp.int32(0), rng_key=rng_key, timestep=timestep)

  def step(self, state: EnvState, action: Array) -> EnvState:
    """Plays one action of the agent's, [] int32; after an end it is discarded and a new episode begins.

    Actions are not checked here: who plays step by step checks before, `acting.rollout` after.

    Raises: TypeError: when it is traced, where the rules make a number of another kind of a leaf of the game:
      a float where it was an integer.
    """
    # Inside a map both branches are computed whatever is chosen, and one is used: they may share a key. So a
    # reset here is the same as one that the caller asks for.
    fresh = self.reset(state.rng_key)
    rng_key, step_key = jax.random.split(state.rng_key)
    was_last = state.timestep.is_last
    env_action = jnp.maximum(action - 1, 0).astype(jnp.int32)
    # The barrier keeps the choice of a reset below out of the rules' own expressions: fused into some of them
    # (gymnax's Space Invaders) it takes XLA minutes to compile.
    game, reward, is_terminal, is_cut = jax.lax.optimization_barrier(
      self.rules.step(state.game, env_action, step_key)
    )
    game = jax.tree.map(_as_before, game, state.game)
    num_steps = state.num_steps + 1
    if self.max_episode_steps is not None:
      is_cut = is_cut | (num_steps >= self.max_episode_steps)
    is_cut = is_cut & ~is_terminal
    timestep = self._show(game, num_steps, reward, is_terminal, is_cut, jnp.zeros((), bool))
    moved = EnvState(game=game, num_steps=num_steps, rng_key=rng_key, timestep=timestep)
    return jax.tree.map(lambda new, on: jnp.where(was_last, new, on), fresh, moved)

  def _show(
    self, game: Any, num_steps: Array, reward: Array, is_terminal: Array, is_cut: Array, is_first: Array
  ) -> BatchedTimeStep:
    legal = jnp.zeros(self.spec.num_actions, bool).at[1:].set(self.rules.legal_actions_mask(game))
    only_dummy = jnp.arange(self.spec.num_actions) == DUMMY_ACTION
    row: dict[str, Array] = {
      "frame": self.rules.frame(game).astype(self.spec.frame_dtype),
      "last_reward": jnp.asarray(reward, jnp.float32),
      "last_discount": jnp.where(is_terminal, 0.0, 1.0).astype(jnp.float32),
      "is_first": is_first,
      "is_last": is_terminal | is_cut,
      "is_truncated": is_cut,
      "to_play": (num_steps % self.spec.num_players).astype(jnp.int32),
      "legal_actions_mask": jnp.where(is_terminal, only_dummy, legal),
    }
    return BatchedTimeStep(**row)


def env_key(seed: int) -> np.ndarray:
  """[2] uint32: the key that follows from a non-negative seed of any size."""
  return np.random.SeedSequence(seed).generate_state(2, np.uint32)


def env_keys(seeds: list[int]) -> np.ndarray:
  """[B, 2] uint32, `env_key` of each seed."""
  return np.stack([env_key(seed) for seed in seeds])


def _as_before(new: Any, old: Array) -> Array:
  """A leaf of the game in the type that it had, which a scan asks for."""
  if not np.can_cast(new.dtype, old.dtype, casting="same_kind"):
    raise TypeError(f"the rules' step makes {new.dtype} of a leaf of the game that was {old.dtype}")
  return jax.lax.convert_element_type(new, old.dtype)


def _strongly_typed(x: Any) -> Array:
  x = jnp.asarray(x)
  return jax.lax.convert_element_type(x, x.dtype)

"""Environments written in JAX: bare rules as pure functions, and the step that all callers share.

`JaxEnvironment` does on the device what `GameEnvironment` and `SyncVectorEnvironment` do in Python: the dummy
action, the kinds of end, the step cap, and the reset on the step after an end. It is one environment; the
caller maps it over many with `jax.vmap`. `envs.jax.adapters` plays it step by step, and `acting.rollout`
plays it in one compiled scan.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num, PyTree, Shaped, UInt32

from moozi.core.pytree import record, register_records
from moozi.core.records import BatchedTimeStep
from moozi.core.spec import DUMMY_ACTION, EnvSpec

Key = UInt32[Array | np.ndarray, "2"]
"""A JAX random key."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class JaxRules:
  """Bare rules of one environment, as pure functions without a batch axis.

  The caller passes legal actions, and discards the result of `step` after an end.

  Attributes:
    init: rng_key → game: starts an episode; game is a pytree of arrays.
    step: (game, action, rng_key) → (game, reward, is_terminal, is_cut): action is a number, or the row [D] of
      a continuous action; reward is the mover's; is_terminal is whether the task ended, is_cut whether a time
      limit cut it. If both are true, the frame is terminal.
    frame: game → [H, W, C] of the spec's dtype.
    legal_actions_mask: game → [mask_size] bool.
    is_deterministic: whether `step` ignores its random key, as a search with the true rules requires.
  """

  init: Callable[[Key], PyTree]
  step: Callable[
    [PyTree, Num[Array, "*D"], Key], tuple[PyTree, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]
  ]
  frame: Callable[[PyTree], Shaped[Array, "H W C"]]
  legal_actions_mask: Callable[[PyTree], Bool[Array, "E"]]
  is_deterministic: bool = False


@record
class EnvState:
  """The state of one environment between steps. Mapped over B environments, each field has a leading axis B.

  Attributes:
    game: the rules' own state.
    num_steps: [] int32, the number of steps in this episode.
    rng_key: [2] uint32; all later random draws follow from it, including those of later episodes.
    timestep: one row of BatchedTimeStep: the current step.
  """

  game: Any
  num_steps: Any
  rng_key: Any
  timestep: BatchedTimeStep


@dataclasses.dataclass(frozen=True, kw_only=True)
class JaxEnvironment:
  """One environment in the agent's terms, as two pure functions, `reset` and `step`.

  Two players alternate strictly, and player 0 moves first.

  Attributes:
    spec: the environment's specification.
    rules: its rules.
    max_episode_steps: truncates an episode after this number of steps; None: no cap.
  """

  spec: EnvSpec
  rules: JaxRules
  max_episode_steps: int | None = None

  def __post_init__(self) -> None:
    register_records()

  def reset(self, rng_key: Key) -> EnvState:
    """Starts an episode. This episode and all later ones depend only on `rng_key` and the actions."""
    rng_key, init_key = jax.random.split(rng_key)
    # Some rules start with Python numbers, whose weak types would change inside a scan.
    game = jax.tree.map(_strongly_typed, self.rules.init(init_key))
    false = jnp.zeros((), bool)
    timestep = self._show(game, jnp.int32(0), jnp.float32(0), false, false, ~false)
    return EnvState(game=game, num_steps=jnp.int32(0), rng_key=rng_key, timestep=timestep)

  def step(self, state: EnvState, action: Num[Array, "*D"]) -> EnvState:
    """Plays one of the agent's actions. After an end, discards the action and starts an episode.

    Actions are not checked here. Callers that play step by step check them before; `acting.rollout` checks
    them afterwards.

    Raises: TypeError: the rules change a leaf of the game to a kind of number that its dtype cannot hold,
      such as from integer to float (raised when traced).
    """
    # Under vmap both branches are computed and one is selected, so both may use the same key. The result of a
    # reset in `step` therefore equals that of `reset`.
    fresh = self.reset(state.rng_key)
    rng_key, step_key = jax.random.split(state.rng_key)
    was_last = state.timestep.is_last
    if self.spec.is_continuous:
      env_action = action.astype(jnp.float32)
    else:
      env_action = jnp.maximum(action - 1, 0).astype(jnp.int32)
    # The barrier keeps XLA from fusing the selection below with the rules' own expressions. Fused, some rules
    # (gymnax's Space Invaders) take minutes to compile.
    game, reward, is_terminal, is_cut = jax.lax.optimization_barrier(
      self.rules.step(state.game, env_action, step_key)
    )
    game = jax.tree.map(as_before, game, state.game)
    num_steps = state.num_steps + 1
    if self.max_episode_steps is not None:
      is_cut = is_cut | (num_steps >= self.max_episode_steps)
    is_cut = is_cut & ~is_terminal
    timestep = self._show(game, num_steps, reward, is_terminal, is_cut, jnp.zeros((), bool))
    moved = EnvState(game=game, num_steps=num_steps, rng_key=rng_key, timestep=timestep)
    return jax.tree.map(lambda new, old: jnp.where(was_last, new, old), fresh, moved)

  def _show(
    self,
    game: PyTree,
    num_steps: Int[Array, ""],
    reward: Shaped[Array, ""] | float,
    is_terminal: Bool[Array, ""],
    is_cut: Bool[Array, ""],
    is_first: Bool[Array, ""],
  ) -> BatchedTimeStep:
    legal = jnp.zeros(self.spec.policy_size, bool).at[1:].set(self.rules.legal_actions_mask(game))
    only_dummy = jnp.arange(self.spec.policy_size) == DUMMY_ACTION
    row: dict[str, Any] = {
      "frame": self.rules.frame(game).astype(self.spec.frame_dtype),
      "last_reward": jnp.asarray(reward, jnp.float32),
      "is_first": is_first,
      "is_last": is_terminal | is_cut,
      "is_truncated": is_cut,
      "to_play": (num_steps % self.spec.num_players).astype(jnp.int32),
      "legal_actions_mask": jnp.where(is_terminal, only_dummy, legal),
    }
    return BatchedTimeStep(**row)


def env_key(seed: int) -> UInt32[np.ndarray, "2"]:
  """Returns the key that follows from a non-negative seed of any size."""
  return np.random.SeedSequence(seed).generate_state(2, np.uint32)


def env_keys(seeds: list[int]) -> UInt32[np.ndarray, "B 2"]:
  """Returns the `env_key` of each seed."""
  return np.stack([env_key(seed) for seed in seeds])


def as_before(
  new: Shaped[Array, "*shape"], old: Shaped[Array | np.ndarray, "*shape"]
) -> Shaped[Array, "*shape"]:
  """Converts a leaf of the game back to its dtype before the step, because a scan requires equal dtypes.

  Raises: TypeError: the dtype cannot hold the leaf's kind of number, such as a float that was an integer.
  """
  if not np.can_cast(new.dtype, old.dtype, casting="same_kind"):
    raise TypeError(f"the rules' step changes a leaf of the game from {old.dtype} to {new.dtype}")
  return jax.lax.convert_element_type(new, old.dtype)


def _strongly_typed(x: Any) -> Shaped[Array, "..."]:
  x = jnp.asarray(x)
  return jax.lax.convert_element_type(x, x.dtype)

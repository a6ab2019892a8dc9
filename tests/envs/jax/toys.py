"""Toy environments in JAX for tests."""

import jax
import jax.numpy as jnp

from moozi.core.spec import EnvSpec
from moozi.envs.jax.rules import JaxEnvironment, JaxRules


def make_walk(max_episode_steps=None, clock=None, length=5) -> JaxEnvironment:
  """Returns a walk on 0 … length - 1 that starts at a random inner place.

  The reward is 1 at the right end and -1 at the left end. Next to the left end, only left is
  legal. `clock` is a time limit that the rules themselves apply.
  """

  def init(rng_key):
    # Like gymnax, the state contains Python numbers.
    return {"place": jax.random.randint(rng_key, (), 1, length - 1), "steps": 0, "total": 0.0}

  def step(game, action, rng_key):
    del rng_key
    place, steps = game["place"] + 2 * action - 1, game["steps"] + 1
    reward = jnp.where(place == length - 1, 1.0, jnp.where(place == 0, -1.0, 0.0))
    is_cut = jnp.asarray(False) if clock is None else steps >= clock
    game = {"place": place, "steps": steps, "total": game["total"] + reward}
    return game, reward, (place == 0) | (place == length - 1), is_cut

  return JaxEnvironment(
    spec=EnvSpec(
      name="test:walk",
      frame_shape=(1, length, 1),
      frame_dtype="bool",
      num_env_actions=2,
      action_names=("left", "right"),
    ),
    rules=JaxRules(
      init=init,
      step=step,
      frame=lambda game: (jnp.arange(length) == game["place"])[None, :, None],
      legal_actions_mask=lambda game: jnp.stack([jnp.asarray(True), game["place"] != 1]),
    ),
    max_episode_steps=max_episode_steps,
  )


def make_nim(num_sticks=7) -> JaxEnvironment:
  """Returns the game of `tests.envs.environments.Nim` as a JAX environment."""

  def step(left, action, rng_key):
    del rng_key
    left = left - action - 1
    return left, jnp.where(left == 0, 1.0, 0.0), left == 0, jnp.asarray(False)

  return JaxEnvironment(
    spec=EnvSpec(
      name="test:nim",
      frame_shape=(1, 1, 1),
      frame_dtype="float32",
      num_env_actions=3,
      num_players=2,
      action_names=("take 1", "take 2", "take 3"),
    ),
    rules=JaxRules(
      init=lambda rng_key: num_sticks,
      step=step,
      frame=lambda left: jnp.reshape(left, (1, 1, 1)),
      legal_actions_mask=lambda left: jnp.arange(3) < left,
    ),
  )

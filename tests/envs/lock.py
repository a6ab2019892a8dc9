"""A deterministic game of 36 joint actions, in Python and in JAX, for tests of searches with true rules."""

import jax.numpy as jnp
import numpy as np

from moozi.core.factors import ActionPart, Factors
from moozi.core.spec import EnvSpec
from moozi.envs.game import Game, GameEnvironment
from moozi.envs.jax.rules import JaxEnvironment, JaxRules

SIZE = 6
"""Number of values of each of the two dimensions."""
NUM_MOVES = 3
"""An episode has at most this number of steps."""
DIALS = ActionPart(path=(), shape=(2,), dtype="int64", values=(tuple(range(SIZE)),) * 2)
SPEC = EnvSpec(
  name="test:lock",
  frame_shape=(1, 1, 3),
  frame_dtype="float32",
  num_env_actions=SIZE * SIZE,
  factors=Factors(parts=(DIALS,), names=("first", "second")),
)


def turned(xp, state, action):
  """Returns the state (time, first, second) after a joint action, the reward, and whether the game ends."""
  time, first, second = state
  first = (first + action // SIZE) % SIZE
  second = (second + first * (action % SIZE) + 1) % SIZE
  time, reward = time + 1, (first == second) * 1.0
  return xp.stack([time, first, second]), reward, (time == NUM_MOVES) | (first == 0)


class Lock(Game):
  """Turns two dials; equal ones give a reward of 1. It ends after three steps, or if the first dial is 0."""

  max_moves = NUM_MOVES

  def __init__(self):
    self.reset()

  def seed(self, seed):
    pass

  def reset(self):
    self._state = np.array([0, 1, 2])

  def step(self, action):
    self._state, reward, is_over = turned(np, self._state, action)
    return float(reward), bool(is_over), False

  def frame(self):
    return (self._state / SIZE).astype(np.float32).reshape(1, 1, 3)


def make_lock(max_episode_steps=None):
  return GameEnvironment(Lock(), SPEC, max_episode_steps)


def make_jax_lock(spec=SPEC):
  """Returns the same game in JAX. A spec without factors must have as many actions."""

  def step(state, action, rng_key):
    state, reward, is_over = turned(jnp, state, action)
    return state, reward, is_over, jnp.zeros((), bool)

  rules = JaxRules(
    init=lambda rng_key: jnp.array([0, 1, 2], jnp.int32),
    step=step,
    frame=lambda state: (state / SIZE).reshape(1, 1, 3),
    legal_actions_mask=lambda state: jnp.ones(spec.mask_size, bool),
    is_deterministic=True,
  )
  return JaxEnvironment(spec=spec, rules=rules)

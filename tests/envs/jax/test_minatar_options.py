"""Tests of sticky actions and difficulty ramping in the JAX versions of MinAtar."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moozi.core.pytree import replace
from moozi.envs import registry
from moozi.envs.jax.rules import env_key
from tests.envs.environments import need
from tests.envs.suites.minatar_states import GYMNAX_NAMES, PGX_NAMES, Fork, make_rules

need("minatar")
need("pgx")
need("gymnax")

pytestmark = pytest.mark.slow

NUM_STEPS = 2000
UP = 2


@pytest.mark.parametrize("name", [GYMNAX_NAMES["breakout"], PGX_NAMES["breakout"]])
def test_sticky_actions_are_as_frequent_as_configured(name):
  fork = Fork(name, sticky_action_prob=0.3)
  rules = make_rules("breakout")
  fields, *_ = fork.step([fork.fields(rules)] * NUM_STEPS, [1] * NUM_STEPS)
  places = fields["pos" if name.startswith("gymnax") else "_pos"]
  assert set(places.tolist()) == {3, 4}
  assert np.mean(places == 4) == pytest.approx(0.3, abs=0.05)


@functools.cache
def compiled_breakout(name):
  """Returns compiled functions: reset, step without sticky actions, and step with all actions sticky."""
  free, sticky = (registry.make_jax_env(name, sticky_action_prob=p) for p in (0.0, 1.0))
  return jax.jit(free.reset), jax.jit(free.step), jax.jit(sticky.step)


def paddle(state):
  (place,) = np.flatnonzero(state.timestep.frame[9, :, 0])
  return int(place)


NOOP, LEFT, RIGHT = 1, 2, 3  # agent actions


@pytest.mark.parametrize("name", [GYMNAX_NAMES["breakout"], PGX_NAMES["breakout"]])
def test_sticky_step_repeats_the_played_action(name):
  """A sticky step repeats the last played action, not the last requested one: the paddle moves left."""
  reset, step, sticky_step = compiled_breakout(name)
  state = step(reset(env_key(0)), LEFT)
  assert paddle(state) == 3
  for action, place in ((NOOP, 2), (RIGHT, 1), (RIGHT, 0)):
    state = sticky_step(state, action)
    assert paddle(state) == place


@pytest.mark.parametrize("name", [GYMNAX_NAMES["breakout"], PGX_NAMES["breakout"]])
def test_reset_clears_the_sticky_action(name):
  reset, step, sticky_step = compiled_breakout(name)
  state = step(reset(env_key(0)), LEFT)
  ended = replace(state, timestep=replace(state.timestep, is_last=jnp.asarray(True)))
  for fresh in (reset(env_key(1)), sticky_step(ended, LEFT)):
    assert fresh.timestep.is_first
    assert paddle(fresh) == 4
    assert paddle(sticky_step(fresh, LEFT)) == 4  # after a reset, the last action is the no-op


# The first field that difficulty ramping changes in each game.
RAMPED = {"asterix": "spawn_speed", "seaquest": "e_spawn_speed", "space_invaders": "enemy_move_interval"}


def before_a_ramp(game, is_ramped):
  """Returns the package's game one step before its difficulty increases, and the action of this step."""
  rules = make_rules(game)
  rules.ramping = is_ramped
  if game == "asterix":
    rules.ramp_timer = -1
  elif game == "seaquest":
    rules.sub_y, rules.surface, rules.diver_count = 1, False, 1
  else:
    rules.alien_map[:], rules.alien_map[5, 3], rules.f_bullet_map[6, 3] = 0, 1, 1
  return rules, UP


@pytest.mark.parametrize("game", RAMPED)
def test_difficulty_ramping_of_gymnax(game):
  speeds = {}
  for is_ramped in (True, False):
    fork = Fork(GYMNAX_NAMES[game], difficulty_ramping=is_ramped)
    rules, action = before_a_ramp(game, is_ramped)
    fields, *_ = fork.step([fork.fields(rules)], [action])
    rules.act(action)
    after = fork.fields(rules)
    for name in (RAMPED[game], "ramp_index"):
      assert fields[name][0] == after[name], name
    speeds[is_ramped] = int(after[RAMPED[game]])
  assert speeds[True] == speeds[False] - 1

"""Converts states of the package minatar to its JAX versions, to compare single steps."""

import dataclasses

import jax
import numpy as np

from moozi.envs import registry
from moozi.envs.suites import minatar

GAMES = sorted(minatar.GAMES)
GYMNAX_NAMES = {
  "asterix": "gymnax:Asterix-MinAtar",
  "breakout": "gymnax:Breakout-MinAtar",
  "freeway": "gymnax:Freeway-MinAtar",
  "seaquest": "gymnax:Seaquest-MinAtar",
  "space_invaders": "gymnax:SpaceInvaders-MinAtar",
}
PGX_NAMES = {game: f"pgx:minatar-{game}" for game in GAMES}

# The package's lists, which JAX stores as arrays of fixed size, and the length of one entry.
_LISTS = {"f_bullets": 3, "e_bullets": 3, "e_fish": 4, "e_subs": 5, "divers": 4}
# gymnax's fields with the lengths of the lists.
_COUNTS = {
  "f_bullet_count": "f_bullets",
  "e_bullet_count": "e_bullets",
  "e_fish_count": "e_fish",
  "e_subs_count": "e_subs",
  "divers_count": "divers",
}
_EMPTY_SLOT = 99  # pgx's value for an empty slot in Asterix


def make_rules(game, seed=0):
  rules = minatar.load_game(game).Env(ramping=True)
  rules.random = np.random.RandomState(seed)
  rules.reset()
  return rules


def settle_spawns(rules):
  """Spawns what the next step would spawn, so that this step draws no random numbers."""
  if hasattr(rules, "_spawn_entity") and rules.spawn_timer == 0:
    rules._spawn_entity()
    rules.spawn_timer = rules.spawn_speed
  if hasattr(rules, "_spawn_enemy"):
    if rules.e_spawn_timer == 0:
      rules._spawn_enemy()
      rules.e_spawn_timer = rules.e_spawn_speed
    if rules.d_spawn_timer == 0:
      rules._spawn_diver()
      rules.d_spawn_timer = 30


class Fork:
  """One JAX version of a game, whose compiled rules are applied to converted states of the package."""

  def __init__(self, name, **options):
    self.env = registry.make_jax_env(name, minimal_actions=False, **options)
    self._is_pgx = name.startswith("pgx:")
    rules = self.env.rules
    self._template = jax.device_get(jax.jit(rules.init)(jax.random.PRNGKey(0)))

    def step(game, action, key):
      game, reward, is_terminal, is_cut = rules.step(game, action, key)
      return game, reward, is_terminal, is_cut, rules.frame(game)

    self._step = jax.jit(jax.vmap(step))

  @property
  def _state(self):
    return self._template if self._is_pgx else self._template[0]

  def fields(self, rules):
    """Returns the package's state with the fork's field names and shapes."""
    out = {}
    for field in dataclasses.fields(self._state):
      name = field.name.lstrip("_")
      old = np.asarray(getattr(self._state, field.name))
      if name == "entities":
        out[field.name] = self._entities(rules)
      elif name in _LISTS:
        out[field.name] = self._padded(getattr(rules, name), old)
      elif name in _COUNTS:
        out[field.name] = np.asarray(len(getattr(rules, _COUNTS[name])), old.dtype)
      elif name not in ("time", "last_action", "step_count", "ramping") and hasattr(rules, name) and old.size:
        out[field.name] = np.array(getattr(rules, name)).astype(old.dtype).reshape(old.shape)
    return out

  def step(self, fields, actions, seed=0):
    """Makes one step from each of N states.

    Args:
      fields: list of N results of the method `fields`.
      actions: [N], indices into MinAtar's six actions.

    Returns: ({field: values} of the next states, rewards, is_terminal, is_cut, frames), NumPy arrays with
      leading axis N.
    """
    num = len(fields)
    many = jax.tree.map(lambda x: np.broadcast_to(x, (num, *np.shape(x))), self._template)
    stacked = {name: np.stack([f[name] for f in fields]) for name in fields[0]}
    game = many.replace(**stacked) if self._is_pgx else (many[0].replace(**stacked), *many[1:])
    keys = jax.random.split(jax.random.PRNGKey(seed), num)
    game, *results = jax.device_get(self._step(game, np.asarray(actions, np.int32), keys))
    state = game if self._is_pgx else game[0]
    return {name: np.asarray(getattr(state, name)) for name in stacked}, *results

  def _entities(self, rules):
    if self._is_pgx:
      rows = [[_EMPTY_SLOT] * 4 if e is None else e for e in rules.entities]
    else:
      rows = [[0] * 5 if e is None else [*e, 1] for e in rules.entities]
    return np.array(rows, np.int32)

  def _padded(self, rows, old):
    fill = -1 if self._is_pgx else 0
    out = np.full(old.shape, fill, old.dtype)
    for i, row in enumerate(rows):
      out[i] = row
    return out


def differences(expected, actual):
  """Returns the names of the fields that differ; empty rows and the order of a list's rows do not count."""
  out = []
  for name, value in expected.items():
    plain = name.lstrip("_")
    if plain == "terminal":
      continue
    if plain in _LISTS:
      if _as_set(value) != _as_set(actual[name]):
        out.append(plain)
    elif not np.array_equal(value, actual[name]):
      out.append(plain)
  return out


def _as_set(rows):
  # Empty rows are all -1 (pgx) or all 0 (gymnax). No entity is all 0, because none stands still in row 0.
  return sorted(tuple(row) for row in rows.tolist() if any(v not in (0, -1) for v in row))

"""The table of tabular Q-learning: a hash table in arrays of fixed size, as pure functions.

An entry belongs to an observation and its legal actions. Its key is a hash of 63 bits; with a million
entries, two of them have the same key with a probability below 1e-6. An entry is stored in the first free of
the `WINDOW` slots that its key allows, and is never removed.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int32, Shaped, UInt32

from moozi.core.pytree import record
from moozi.core.types import AnyArray

WINDOW = 64
"""Number of slots in which an entry may be stored."""
NO_SLOT = -1
_SEEDS = (0x9E3779B9, 0x85EBCA6B)


@record
class Table:
  """N entries; a free slot has the key 0, values of 0 and no visits.

  Attributes:
    keys: the hash of each entry's observation and legal actions.
    values: Q, in environment units, for the player to move.
    visits: number of updates of each value.
  """

  keys: UInt32[AnyArray, "N 2"]
  values: Float32[AnyArray, "N A"]
  visits: Int32[AnyArray, "N A"]


def empty_table(capacity: int, num_actions: int) -> Table:
  return Table(
    keys=jnp.zeros((capacity, 2), jnp.uint32),
    values=jnp.zeros((capacity, num_actions), jnp.float32),
    visits=jnp.zeros((capacity, num_actions), jnp.int32),
  )


def keys_of(
  frames: Shaped[AnyArray, "B L H W C"], legal_actions_mask: Bool[AnyArray, "B A"]
) -> UInt32[Array, "B 2"]:
  """Returns the keys of observations; 0.0 and -0.0 have the same key."""
  frames, mask = jnp.asarray(frames), jnp.asarray(legal_actions_mask)
  if frames.dtype == jnp.float32:
    words = jax.lax.bitcast_convert_type(frames + 0.0, jnp.uint32)
  else:
    words = frames.astype(jnp.uint32)
  words = jnp.concatenate([words.reshape(len(frames), -1), mask.astype(jnp.uint32)], axis=-1)
  # As in Zobrist hashing, a key is the sum of a pseudo-random number for each position and its content.
  position = jnp.arange(words.shape[-1], dtype=jnp.uint32)
  sums = [
    _mix(jnp.sum(_mix(words ^ _mix(position + jnp.uint32(seed))), axis=-1, dtype=jnp.uint32))
    for seed in _SEEDS
  ]
  return jnp.stack([sums[0], sums[1] | jnp.uint32(1)], axis=-1)  # no key is 0


def _mix(x: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
  """Returns a permutation of the 32-bit numbers in which every bit depends on every bit.

  Source: Wellons 2018, "Prospecting for Hash Functions" (lowbias32). Departures: none.
  """
  x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
  x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
  return x ^ (x >> 16)


def find(table: Table, key: UInt32[Array, "2"]) -> tuple[Int32[Array, ""], Bool[Array, ""]]:
  """Returns the slot of a key, and whether its entry exists.

  If it does not, the slot is the free one that it would take, or NO_SLOT.
  """
  capacity = len(table.keys)
  offsets = jnp.arange(min(WINDOW, capacity), dtype=jnp.uint32)
  slots = ((key[0] + offsets) % jnp.uint32(capacity)).astype(jnp.int32)
  keys = table.keys[slots]
  is_hit, is_free = (keys == key).all(axis=-1), keys[:, 1] == 0
  slot = jnp.where(is_hit.any(), slots[jnp.argmax(is_hit)], slots[jnp.argmax(is_free)])
  return jnp.where(is_hit.any() | is_free.any(), slot, NO_SLOT), is_hit.any()


def values_of(table: Table, key: UInt32[Array, "2"]) -> Float[Array, "A"]:
  """Returns the values of a key's actions; 0 if it has no entry."""
  slot, is_known = find(table, key)
  return jnp.where(is_known, table.values[slot], 0.0)


def put(
  table: Table,
  key: UInt32[Array, "2"],
  action: Int32[Array, ""],
  target: Float[Array, ""],
  step_size: float,
  is_live: Bool[Array, ""],
) -> tuple[Table, Float[Array, ""], Bool[Array, ""]]:
  """Moves Q(key, action) towards the target by the step size max(step_size, 1 / n) of its n-th update.

  Adds the entry if it does not exist.

  Args:
    is_live: whether to change the table.

  Returns: the table, the error target - Q before the update, and whether the entry found no free slot.
  """
  slot, _ = find(table, key)
  visits = table.visits[slot, action] + 1
  error = target - table.values[slot, action]
  value = table.values[slot, action] + jnp.maximum(step_size, 1.0 / visits) * error
  # An index beyond the end changes nothing.
  row = jnp.where(is_live & (slot != NO_SLOT), slot, len(table.keys))
  changed = Table(
    keys=table.keys.at[row].set(key, mode="drop"),
    values=table.values.at[row, action].set(value, mode="drop"),
    visits=table.visits.at[row, action].set(visits, mode="drop"),
  )
  return changed, error, is_live & (slot == NO_SLOT)

"""The table of tabular Q-learning: a hash table in arrays of fixed size, as pure functions.

There is one entry per observation and set of legal actions. Its key is a hash of 63 bits; with a million
entries, the probability that two of them have the same key is below 1e-6. An entry is stored in the first
free one of `WINDOW` consecutive cells, which the key determines, and is never removed.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int32, Shaped, UInt32

from moozi.core.pytree import record, replace
from moozi.core.types import AnyArray

WINDOW = 64
"""Number of cells in which an entry may be stored."""
_SEEDS = (0x9E3779B9, 0x85EBCA6B)


@record
class QTable:
  """N cells for entries; a free cell has the key 0, values of 0 and no visits.

  Attributes:
    keys: the hash of each entry's observation and legal actions.
    values: Q, in environment units, for the player to move.
    visits: number of updates of each value.
  """

  keys: UInt32[AnyArray, "N 2"]
  values: Float32[AnyArray, "N A"]
  visits: Int32[AnyArray, "N A"]


def empty_table(capacity: int, num_actions: int) -> QTable:
  return QTable(
    keys=jnp.zeros((capacity, 2), jnp.uint32),
    values=jnp.zeros((capacity, num_actions), jnp.float32),
    visits=jnp.zeros((capacity, num_actions), jnp.int32),
  )


def keys_of(
  frames: Shaped[AnyArray, "B L H W C"], legal_actions_mask: Bool[AnyArray, "B A"]
) -> UInt32[Array, "B 2"]:
  """Returns the keys of observations; 0.0 and -0.0 count as equal."""
  frames, mask = jnp.asarray(frames), jnp.asarray(legal_actions_mask)
  if frames.dtype == jnp.float32:
    words = jax.lax.bitcast_convert_type(jnp.where(frames == 0, 0.0, frames), jnp.uint32)
  else:
    words = frames.astype(jnp.uint32)
  words = jnp.concatenate([words.reshape(len(frames), -1), mask.astype(jnp.uint32)], axis=-1)
  # As in Zobrist hashing, a key combines a pseudo-random number for each index and the content there.
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


def find(
  keys: UInt32[AnyArray, "N 2"], key: UInt32[AnyArray, "2"]
) -> tuple[Int32[Array, ""], Bool[Array, ""]]:
  """Returns the cell of a key, and whether its entry exists.

  If it does not exist, the cell is the free one in which it would be stored, or N if there is none.
  """
  capacity = len(keys)
  offsets = jnp.arange(min(WINDOW, capacity), dtype=jnp.uint32)
  cells = ((key[0] + offsets) % jnp.uint32(capacity)).astype(jnp.int32)
  near = jnp.asarray(keys)[cells]
  is_hit, is_free = (near == key).all(axis=-1), near[:, 1] == 0
  cell = jnp.where(is_hit.any(), cells[jnp.argmax(is_hit)], cells[jnp.argmax(is_free)])
  return jnp.where(is_hit.any() | is_free.any(), cell, capacity), is_hit.any()


def cells_of(table: QTable, keys: UInt32[AnyArray, "B 2"]) -> Int32[Array, "B"]:
  """Returns the cells of the keys' entries; N where there is no entry."""
  cells, is_known = jax.vmap(find, (None, 0))(table.keys, keys)
  return jnp.where(is_known, cells, len(table.keys))


def values_at(table: QTable, cells: Int32[Array, "*B"]) -> Float[Array, "*B A"]:
  """Returns the values of the actions in cells; 0 in cell N."""
  return jnp.asarray(table.values).at[cells].get(mode="fill", fill_value=0.0)


def insert(table: QTable, keys: UInt32[AnyArray, "B 2"], is_wanted: Bool[AnyArray, "B"]) -> QTable:
  """Adds entries for the wanted keys that have none; a key that finds no free cell is left out."""
  is_missing = is_wanted & (cells_of(table, keys) == len(table.keys))
  order = jnp.argsort(~is_missing)

  def add(i: Int32[Array, ""], stored: UInt32[Array, "N 2"]) -> UInt32[Array, "N 2"]:
    key = keys[order[i]]
    return stored.at[find(stored, key)[0]].set(key, mode="drop")  # cell N changes nothing

  # The loop is over the missing keys only, of which there are few later in training.
  return replace(table, keys=jax.lax.fori_loop(0, jnp.sum(is_missing), add, table.keys))


def take(table: QTable, cells: Int32[AnyArray, "M"]) -> tuple[QTable, Int32[Array, "M"]]:
  """Returns the entries in cells as a table of M entries, and the index of each cell's entry in it.

  Equal cells have the same index. XLA copies a table in every step of a loop that changes it, so a loop over
  this smaller table is faster.
  """
  index = jnp.argmax(cells[:, None] == cells[None, :], axis=1)
  return jax.tree_util.tree_map(lambda x: x.at[cells].get(mode="fill", fill_value=0), table), index


def put_back(table: QTable, cells: Int32[AnyArray, "M"], taken: QTable, index: Int32[Array, "M"]) -> QTable:
  """Returns the table with the entries of `taken`, a result of `take`, written back to their cells."""
  return jax.tree_util.tree_map(lambda x, new: x.at[cells].set(new[index], mode="drop"), table, taken)


def learn(
  table: QTable, cell: Int32[Array, ""], action: Int32[Array, ""], target: Float[Array, ""], step_size: float
) -> tuple[QTable, Float[Array, ""]]:
  """Makes the n-th update of an action's value: adds max(step_size, 1 / n) times (target - Q).

  Returns: the table, and the error target - Q before the update. An index beyond the end changes nothing.
  """
  index = (cell, action)
  visits = table.visits.at[index].get(mode="fill", fill_value=0) + 1
  value = table.values.at[index].get(mode="fill", fill_value=0.0)
  error = target - value
  changed = QTable(
    keys=table.keys,
    values=table.values.at[index].set(value + jnp.maximum(step_size, 1.0 / visits) * error, mode="drop"),
    visits=table.visits.at[index].set(visits, mode="drop"),
  )
  return changed, error

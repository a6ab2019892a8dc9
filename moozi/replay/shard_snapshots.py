"""Snapshots of replay in shards: joined for one checkpoint, and divided among other shards. Imports no JAX.

A joined snapshot has the heads of its parts as entries `shard/I/…`, and block b of part i as block 64·i + b.
The snapshot of one buffer has one part, itself.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from moozi.core.flat_state import Snapshot, State, part, prefixed
from moozi.replay.storage import NUM_BLOCKS

SHARD, DRAWS = "shard", "draws"
_ADDED = "counter/added"
_SHAPE = ("lane_capacity", "sampling", "window")


def joined(parts: Sequence[Snapshot]) -> Snapshot:
  """Returns one snapshot of all parts; a single part is returned unchanged."""
  if len(parts) == 1:
    return parts[0]
  head: State = {}
  blocks: dict[int, State] = {}
  for i, each in enumerate(parts):
    head |= prefixed(f"{SHARD}/{i}", each.head)
    blocks |= {i * NUM_BLOCKS + number: block for number, block in each.blocks.items()}
  return Snapshot(head=head, generations=np.concatenate([x.generations for x in parts]), blocks=blocks)


def parts_of(snapshot: Snapshot) -> list[Snapshot]:
  """Returns the parts of a joined snapshot; inverts `joined`."""
  count = len({name.split("/")[1] for name in snapshot.head if name.startswith(f"{SHARD}/")})
  if not count:
    return [snapshot]
  out = []
  for i in range(count):
    first = i * NUM_BLOCKS
    own = range(first, first + NUM_BLOCKS)
    blocks = {number - first: block for number, block in snapshot.blocks.items() if number in own}
    head, generations = part(snapshot.head, f"{SHARD}/{i}"), snapshot.generations[first : own.stop]
    out.append(Snapshot(head=head, generations=generations, blocks=blocks))
  return out


def known_of(known: Int[np.ndarray, "N"] | None, index: int, num_shards: int) -> Int[np.ndarray, "M"] | None:
  """Returns the known generations of one shard's blocks; None if `known` is of another number of shards."""
  if num_shards == 1 or known is None:
    return known
  own = known[index * NUM_BLOCKS : (index + 1) * NUM_BLOCKS]
  return own if len(known) == num_shards * NUM_BLOCKS else None


def divided(snapshot: Snapshot, lanes: Sequence[range], index: int) -> Snapshot:
  """Returns what shard `index` restores from a snapshot.

  If there is one part and one shard, or if the parts have as many lanes as the shards, this is the shard's
  part. Otherwise lane i of the snapshot goes to lane i modulo the number of lanes, and the result has the
  steps of the shard's lanes. It has no random state, so a buffer appends the steps. The counters of the
  snapshot's shards are divided so that their sums stay.

  Args:
    lanes: the lanes of each shard.
  """
  parts = parts_of(snapshot)
  if _is_division(parts, lanes):
    return parts[index]
  taken = _lanes_taken(parts, lanes, index)
  blocks: dict[int, State] = {}
  generations = np.zeros(NUM_BLOCKS, np.int64)
  for number in range(NUM_BLOCKS):
    found = [each.blocks.get(number) for each in parts]
    like = next((block for block in found if block is not None), None)
    if like is None:
      continue
    rings = [
      block or {name: _unwritten(name, array, _num_lanes(each)) for name, array in like.items()}
      for block, each in zip(found, parts, strict=True)
    ]
    blocks[number] = {name: np.concatenate([ring[name] for ring in rings])[taken] for name in like}
    generations[number] = max(int(each.generations[number]) for each in parts)
  return Snapshot(head=_divided_head(parts, lanes, index), generations=generations, blocks=blocks)


def added_by_shard(snapshot: Snapshot, lanes: Sequence[range]) -> list[int]:
  """Returns the number of steps ever added to each shard that is restored from a snapshot."""
  parts = parts_of(snapshot)
  if _is_division(parts, lanes):
    return [int(each.head[_ADDED]) for each in parts]
  return [_divided_head(parts, lanes, index)[_ADDED] for index in range(len(lanes))]


def _num_lanes(snapshot: Snapshot) -> int:
  return len(snapshot.head["storage/newest"])


def _is_division(parts: Sequence[Snapshot], lanes: Sequence[range]) -> bool:
  if len(lanes) == 1 == len(parts):
    return True  # one buffer restores a snapshot of any lanes itself
  return [_num_lanes(each) for each in parts] == [len(own) for own in lanes]


def _lanes_taken(parts: Sequence[Snapshot], lanes: Sequence[range], index: int) -> Int[np.ndarray, "N"]:
  """Returns the lanes of the parts, numbered over all parts, that go to a shard.

  Their order is such that the i-th goes to the shard's lane i modulo its number of lanes.
  """
  lane = np.arange(sum(_num_lanes(each) for each in parts)) % lanes[-1].stop
  own = lanes[index]
  return np.flatnonzero((lane >= own.start) & (lane < own.stop))


def _divided_head(parts: Sequence[Snapshot], lanes: Sequence[range], index: int) -> State:
  newest = np.concatenate([each.head["storage/newest"] for each in parts])
  own = newest[_lanes_taken(parts, lanes, index)]
  counters = [part(each.head, "counter") for each in parts]
  # Other counters than that of the steps are of no lane.
  sums = {name: sum(int(each[name]) for each in counters) for name in counters[0]}
  # Steps that were added before those of the lanes' numbers, as to a buffer that was restored.
  before = sums["added"] - int((newest + 1).sum())
  first, stop = (before * lane // lanes[-1].stop for lane in (lanes[index].start, lanes[index].stop))
  head = {name: parts[0].head[name] for name in _SHAPE}
  head |= prefixed("counter", {name: count if index == 0 else 0 for name, count in sums.items()})
  return head | {"storage/newest": own, _ADDED: int((own + 1).sum()) + stop - first}


def _unwritten(name: str, like: np.ndarray, num_lanes: int) -> np.ndarray:
  """Returns an array of a block that was never written, for `num_lanes` lanes."""
  return np.full((num_lanes, *like.shape[1:]), -1 if name == "sequence" else 0, like.dtype)

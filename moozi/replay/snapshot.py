"""Snapshots of replay for checkpoints: a small head, and the stored steps in blocks. Imports no JAX.

A block is a range of ring positions in all lanes. A snapshot copies only the blocks that have changed since
the previous one.
"""

import dataclasses

import numpy as np
from jaxtyping import Int

from moozi.core.config import TargetsConfig
from moozi.core.flat_state import State, part, prefixed
from moozi.core.pytree import map_fields
from moozi.core.spec import EnvSpec
from moozi.replay.buffer import ReplayBuffer, window_of
from moozi.replay.mixture import MixedReplay
from moozi.replay.storage import LaneStorage, empty_block

_RINGS = "storage/"
STORED = "stored"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplaySnapshot:
  """A copy of a buffer's state.

  Attributes:
    head: the flat state without the steps: newest indices, priorities, sampler, random state and counters.
    generations: generation of each of the N blocks, as in LaneStorage; 0 for a block that was never written.
    blocks: blocks by number. `take` copies the changed blocks; `restore` needs all blocks ever written.
  """

  head: State
  generations: Int[np.ndarray, "N"]
  blocks: dict[int, State]

  @property
  def num_added(self) -> int:
    return int(self.head["counter/added"])


def take(replay: ReplayBuffer, known: Int[np.ndarray, "N"] | None = None) -> ReplaySnapshot:
  """Returns a copy of a buffer's state, without the blocks that the caller already has.

  Args:
    replay: the buffer. The steps of stored trajectories are on disk and not copied; the head has their
      priorities and search results.
    known: the generation of each block that the caller has; None if it has none.
  """
  storage, head = replay.storage, replay.get_state(with_rings=False)
  if isinstance(replay, MixedReplay):
    head |= prefixed(STORED, replay.get_stored_state())
  generations = storage.generations.copy()
  wanted = generations > 0
  if known is not None and known.shape == generations.shape:
    wanted &= known != generations
  return ReplaySnapshot(
    head=head,
    generations=generations,
    blocks={int(number): storage.block(int(number)) for number in np.flatnonzero(wanted)},
  )


def restore(replay: ReplayBuffer, snapshot: ReplaySnapshot) -> int:
  """Restores a snapshot into a buffer that has no steps, except those of stored trajectories.

  A buffer with the same lanes, capacity, sampling and window is restored bit for bit, except that priorities
  are computed again if their settings have changed. In any other buffer, the steps are appended lane by lane,
  with new priorities. Stored trajectories may be added before or after.

  Returns: number of steps of the snapshot that the buffer does not hold.
  Raises: ValueError: a block is missing, or the snapshot is from another environment.
  """
  if isinstance(replay, MixedReplay):
    replay.set_stored_state(part(snapshot.head, STORED))
  state = snapshot.head | _rings(snapshot, replay.spec)
  own = replay.get_state(with_rings=False)
  old = _shape_of(snapshot.head)
  if old == _shape_of(own) and window_of(snapshot.head) == window_of(own):
    replay.set_state(state)
    replay.storage.generations[:] = snapshot.generations
    return 0
  return _repack(replay, state, old)


def _shape_of(head: State) -> tuple[int, int, int]:
  """Returns (number of lanes, lane capacity, sampling)."""
  return len(head["storage/newest"]), int(head["lane_capacity"]), int(head["sampling"])


def _rings(snapshot: ReplaySnapshot, spec: EnvSpec) -> State:
  num_lanes, lane_capacity, _ = _shape_of(snapshot.head)
  width = -(-lane_capacity // len(snapshot.generations))
  parts = []
  for number, generation in enumerate(snapshot.generations):
    stop = min((number + 1) * width, lane_capacity)
    size = stop - number * width
    if size <= 0:
      continue
    if generation and number not in snapshot.blocks:
      raise ValueError(f"replay: block {number} is missing")
    parts.append(snapshot.blocks[number] if generation else empty_block(spec, num_lanes, size))
  names = {name for block in parts for name in block}
  for number, block in enumerate(parts):
    missing = names - set(block)
    if missing:
      raise ValueError(f"replay: block {number} has no {min(missing)}")
  return {_RINGS + name: np.concatenate([block[name] for block in parts], axis=1) for name in sorted(names)}


def _repack(replay: ReplayBuffer, state: State, old: tuple[int, int, int]) -> int:
  num_lanes, lane_capacity, _ = old
  # This storage is only read, not sampled. With these short targets, lanes of any capacity are long enough.
  targets = TargetsConfig(history_length=1, unroll_steps=1, n_step=1)
  source = LaneStorage(targets, replay.spec, num_lanes, max(lane_capacity, 4))
  source.set_state({name.removeprefix(_RINGS): x for name, x in state.items() if name.startswith(_RINGS)})
  kept: list[tuple[int, int, int]] = []
  for lane in range(num_lanes):
    stop = int(source.newest[lane]) + 1
    index = np.arange(max(0, stop - lane_capacity, stop - replay.lane_capacity), stop)
    # Starts at the first episode start: steps of an episode whose start was overwritten have no history.
    starts = index[source.arrays["is_first"][source.slots(lane, index)]]
    if starts.size:
      kept.append((lane, int(starts[0]), stop))
  # Before the steps are added, because a step that has left the window never returns to it.
  num_added = part(state, "counter")["added"]
  replay.count_steps_before(int(num_added) - sum(stop - first for _, first, stop in kept))
  for lane, first, stop in kept:
    steps = source.trajectory(lane, first, stop)
    replay.add(map_fields(lambda x: x[:, None], steps), lane % replay.num_lanes)
  replay.set_counters(state)
  return source.num_steps - replay.storage.num_steps

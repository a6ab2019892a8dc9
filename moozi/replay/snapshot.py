"""Replay as a checkpoint keeps it: a small head, and the rings in blocks, of which only changed ones travel.

A block is a stretch of ring positions of all lanes together. Acting writes few of them between two
checkpoints, so what has not changed is neither copied nor written again. No JAX.
"""

import dataclasses

import numpy as np

from moozi.core.config import TargetsConfig
from moozi.core.flat_state import State, part, prefixed
from moozi.core.spec import EnvSpec
from moozi.replay.buffer import ReplayBuffer
from moozi.replay.mixture import MixedReplay
from moozi.replay.storage import LaneStorage, empty_block

_RINGS = "storage/"
_STORED = "stored"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplaySnapshot:
  """What `take` gives and `restore` takes.

  Attributes:
    head: all but the rings, flat: newest, priorities, sampler, generator, counters.
    generations: [N] int64, which content each block has; 0: none yet, and it is in no file.
    blocks: the blocks that the asker did not have, by number; all that were ever written before `restore`.
  """

  head: State
  generations: np.ndarray
  blocks: dict[int, State]

  @property
  def num_added(self) -> int:
    """Steps ever added."""
    return int(self.head["counter/added"])


def take(replay: ReplayBuffer | MixedReplay, known: np.ndarray | None = None) -> ReplaySnapshot:
  """A copy of a buffer's state, without the blocks that the asker has.

  Args:
    replay: the buffer; of stored steps, which lie on disk as they are, the head has what goes on changing.
    known: [N] int64, the generation of each block that the asker has; None: none.
  """
  storage, head = replay.acted.storage, replay.acted.get_state(with_rings=False)
  if isinstance(replay, MixedReplay):
    head |= prefixed(_STORED, replay.get_stored_state())
  generations = storage.generations.copy()
  wanted = generations > 0
  if known is not None and known.shape == generations.shape:
    wanted &= known != generations
  return ReplaySnapshot(
    head=head,
    generations=generations,
    blocks={int(number): storage.block(int(number)) for number in np.flatnonzero(wanted)},
  )


def restore(replay: ReplayBuffer | MixedReplay, snapshot: ReplaySnapshot) -> int:
  """Puts a snapshot into a buffer in which nothing was acted.

  A buffer of the same lanes, capacity and sampling goes on to the bit. Into another one the steps are laid
  anew, lane after lane, with new priorities. Stored steps may be there or come later.

  Returns: steps that were in the snapshot and are not in the buffer.
  Raises: ValueError: a block is missing, or a snapshot of another environment.
  """
  if isinstance(replay, MixedReplay):
    replay.set_stored_state(part(snapshot.head, _STORED))
    replay = replay.acted
  state = snapshot.head | _rings(snapshot, replay.spec)
  old = _shape_of(snapshot.head)
  if old == _shape_of(replay.get_state(with_rings=False)):
    replay.set_state(state)
    replay.storage.generations[:] = snapshot.generations
    return 0
  return _repack(replay, state, old)


def _shape_of(head: State) -> tuple[int, int, int]:
  """(lanes, steps of each, sampling)."""
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
  # Nothing is sampled from it: the shortest reach lets any old capacity pass.
  targets = TargetsConfig(history_length=1, unroll_steps=1, n_step=1)
  source = LaneStorage(targets, replay.spec, num_lanes, max(lane_capacity, 4))
  source.set_state({name.removeprefix(_RINGS): x for name, x in state.items() if name.startswith(_RINGS)})
  for lane in range(num_lanes):
    stop = int(source.newest[lane]) + 1
    first = max(0, stop - lane_capacity, stop - replay.lane_capacity)
    if first >= stop:
      continue
    whole = source.trajectory(lane, first, stop)
    # An episode whose beginning is gone has no history to begin with.
    starts = np.flatnonzero(whole.is_first)
    if starts.size:
      replay.add(
        source.trajectory(lane, first + int(starts[0]), stop, is_batched=True), lane % replay.num_lanes
      )
  replay.set_counters(state)
  return source.num_steps - replay.num_steps

"""Snapshots of replay for checkpoints: a head, and the stored steps in blocks. Imports no JAX.

The head has the rest of the state: newest indices, priorities, the sampler, the reanalyze queue, the random
state and counters. A block is a range of ring positions in all lanes. `take` copies only the blocks that the
caller does not have; `ReplayBuffer.restore` needs all blocks that were ever written.
"""

import numpy as np
from jaxtyping import Int, UInt64

from moozi.core.config import TargetsConfig
from moozi.core.flat_state import Snapshot, State
from moozi.core.spec import EnvSpec
from moozi.replay.shard_snapshots import parts_of
from moozi.replay.storage import LaneStorage

STORED = "stored"
_WORD = (1 << 64) - 1


def num_added(snapshot: Snapshot) -> int:
  """Returns the number of steps ever added to replay (to all shards) before the snapshot."""
  return sum(int(each.head["counter/added"]) for each in parts_of(snapshot))


def rng_words(rng: np.random.Generator) -> UInt64[np.ndarray, "6"]:
  """Returns the state of a generator with PCG64."""
  state = rng.bit_generator.state
  words = [state["state"][key] >> shift & _WORD for key in ("state", "inc") for shift in (64, 0)]
  return np.array([*words, state["has_uint32"], state["uinteger"]], np.uint64)


def set_rng(rng: np.random.Generator, state: UInt64[np.ndarray, "6"]) -> None:
  """Restores a state that `rng_words` returned."""
  words = [int(x) for x in state]
  rng.bit_generator.state = {
    "bit_generator": "PCG64",
    "state": {"state": words[0] << 64 | words[1], "inc": words[2] << 64 | words[3]},
    "has_uint32": words[4],
    "uinteger": words[5],
  }


def take(head: State, storage: LaneStorage, known: Int[np.ndarray, "N"] | None) -> Snapshot:
  """Returns a snapshot with copies of the blocks that are not `known`, as `ReplayPart.snapshot` does."""
  generations = storage.generations.copy()
  wanted = generations > 0
  if known is not None and known.shape == generations.shape:
    wanted &= known != generations
  return Snapshot(
    head=head,
    generations=generations,
    blocks={int(number): storage.block(int(number)) for number in np.flatnonzero(wanted)},
  )


def shape_of(state: State) -> tuple[int, int, int, list[float]]:
  """Returns (number of lanes, lane capacity, sampling, [window_share, window_min])."""
  window = [float(x) for x in state["window"]]
  return len(state["storage/newest"]), int(state["lane_capacity"]), int(state["sampling"]), window


def kept_ranges(
  snapshot: Snapshot, spec: EnvSpec, max_steps: int
) -> tuple[LaneStorage, list[tuple[int, int, int]]]:
  """Returns a storage with the steps, and (lane, first, stop) of those that another buffer can append.

  Args:
    max_steps: capacity of the other buffer's lanes.
  """
  num_lanes, lane_capacity = shape_of(snapshot.head)[:2]
  # This storage is only read, not sampled. With these short targets, lanes of any capacity are long enough.
  targets = TargetsConfig(history_length=1, unroll_steps=1, n_step=1)
  source = LaneStorage(targets, spec, num_lanes, max(lane_capacity, 4))
  source.set_blocks(snapshot.head["storage/newest"], snapshot.blocks)
  kept: list[tuple[int, int, int]] = []
  for lane in range(num_lanes):
    stop = int(source.newest[lane]) + 1
    index = np.arange(max(0, stop - lane_capacity, stop - max_steps), stop)
    # Starts at the first episode start: steps of an episode whose start was overwritten have no history.
    starts = index[source.arrays["is_first"][source.slots(lane, index)]]
    if starts.size:
      kept.append((lane, int(starts[0]), stop))
  return source, kept

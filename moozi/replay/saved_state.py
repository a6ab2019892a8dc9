"""Checks a loaded snapshot of replay before it is restored. Imports no JAX.

The checks use the snapshot's own number of lanes and capacity: a resumed run may change both.
"""

import numpy as np
from jaxtyping import Bool, Int, Shaped, UInt64

from moozi.core.flat_state import Entry, Snapshot, State, check_state, counter, entries_like, part, prefixed
from moozi.core.records import SEARCH_FIELDS
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.replay.buffer import COUNTERS, SAMPLINGS
from moozi.replay.frame_rows import FrameRows
from moozi.replay.shard_snapshots import DRAWS, SHARD, parts_of
from moozi.replay.snapshot import STORED, shape_of
from moozi.replay.storage import NUM_BLOCKS, empty_block
from moozi.replay.validation import check_numbers

_LARGE = 2**53


def check_snapshot(snapshot: Snapshot, spec: EnvSpec) -> None:
  """Checks that `Replay.restore` and the sampling after it can use a snapshot.

  Raises: ValueError: an entry is missing, not expected, or has another kind, dtype or shape; it is out of
    range, contradicts another one, or is a step that breaks a convention of the records. The message names
    the entry.
  """
  parts = parts_of(snapshot)
  if len(parts) == 1:
    head = {name: x for name, x in snapshot.head.items() if not name.startswith(f"{STORED}/")}
    sequence = _check_head(head, "replay/")
    stored = part(snapshot.head, STORED)
    if stored:
      _check_stored(stored, spec)
    _check_blocks(snapshot, sequence, spec)
    return
  rest = {name: x for name, x in snapshot.head.items() if not name.startswith(f"{SHARD}/")}
  # With Ray, the driver draws the shards, and its random state is not saved.
  check_state(rest, {name: Entry("uint64", (6,)) for name in rest if name == DRAWS}, "replay/")
  _check_rng(rest.get(DRAWS), f"replay/{DRAWS}")
  if len(snapshot.generations) != len(parts) * NUM_BLOCKS:
    raise ValueError(f"replay has {len(snapshot.generations)} blocks; must be {len(parts) * NUM_BLOCKS}")
  for i, each in enumerate(parts):
    _check_blocks(each, _check_head(each.head, f"replay/{SHARD}/{i}/"), spec, f"shard {i}, ")
  if len({shape_of(each.head)[1:3] for each in parts}) > 1:
    raise ValueError(f"replay/{SHARD}/1/lane_capacity or sampling differs from that of another shard")


def _check_head(state: State, where: str) -> Int[np.ndarray, "N C"]:
  """Checks a buffer's state without its steps; returns the index of the step in each slot, -1 for none."""
  dims = {
    "lane_capacity": counter(1),
    "sampling": counter(0, len(SAMPLINGS) - 1),
    "storage/newest": Entry("int64", (None,), low=-1, high=_LARGE),
  }
  check_state({name: state[name] for name in dims if name in state}, dims, where)
  newest, lane_capacity = np.asarray(state["storage/newest"]), int(state["lane_capacity"])
  num_lanes, sampling = len(newest), SAMPLINGS[int(state["sampling"])]
  size = num_lanes * lane_capacity
  if not size:
    raise ValueError(f"{where}storage/newest has no lane")
  sampler = {
    "uniform": {},
    "proportional": {"weights": Entry("float64", (size,), low=0, high=1e300)},
    "rank": {
      "order": Entry("int64", (None,), low=0, high=size - 1),
      "rank_of": Entry("int32", (size,), low=-1, high=size - 1),
      "numbers": Entry("int64", (2,), low=0, high=_LARGE),
      "mass": Entry("float64", low=-1, high=1e300),
    },
  }[sampling]
  entries = dims | {
    "delta": Entry("float32", (size,), low=0),
    "window": Entry("float64", (2,), low=0, high=1e300),
    "delta_settings": Entry("float64", (4,), low=0, high=1e300),
    "weight_settings": Entry("float64", (2,), low=0, high=1e300),
    "waits": Entry("bool", (num_lanes,)),
    "rng": Entry("uint64", (6,)),
    "roots/pool": Entry("int64", (2, None), low=0, high=_LARGE),
    "roots/pool_for": counter(-1, 1),
    "roots/num_scans": counter(),
  }
  entries |= prefixed("counter", dict.fromkeys(COUNTERS, counter())) | prefixed("sampler", sampler)
  check_state(state, entries, where)
  sequence = _sequence(newest, lane_capacity)
  for name, is_valid in (
    ("counter/added", int(state["counter/added"]) >= int((newest + 1).sum())),
    ("waits", state["waits"][newest < 0].all()),
    ("roots/pool", (state["roots/pool"][0] < size).all()),
    ("sampler", _is_sampler_valid(part(state, "sampler"), sequence.reshape(-1) >= 0)),
  ):
    if not is_valid:
      raise ValueError(f"{where}{name} contradicts other entries of the state")
  _check_rng(state["rng"], f"{where}rng")
  return sequence


def _check_rng(words: UInt64[np.ndarray, "6"] | None, where: str) -> None:
  # The increment of PCG64 is odd; the last two entries are a flag and a word of 32 bits.
  if words is not None and not (words[3] % 2 == 1 and words[4] <= 1 and words[5] < 1 << 32):
    raise ValueError(f"{where} is not a state of PCG64")


def _sequence(newest: Int[np.ndarray, "N"], lane_capacity: int) -> Int[np.ndarray, "N C"]:
  """Returns the index of the step in each slot: the newest one that maps to it; -1 if there is none."""
  index = newest[:, None] - (newest[:, None] - np.arange(lane_capacity)) % lane_capacity
  return np.maximum(index, -1)


def _is_sampler_valid(state: State, is_written: Bool[np.ndarray, "S"]) -> bool:
  """Returns whether draws end, and only at written slots."""
  if "weights" in state:
    return not state["weights"][~is_written].any()
  if "order" not in state:
    return True
  order, rank_of, count = state["order"], state["rank_of"], int(state["numbers"][0])
  ranked = np.flatnonzero(rank_of >= 0)
  if len(ranked) != count or len(order) > len(is_written) or not is_written[ranked].all():
    return False
  rank = rank_of[ranked]
  # A draw of a rank whose slot has another rank is repeated.
  is_inverse = (rank < len(order)).all() and (order[rank] == ranked).all()
  return bool(is_inverse and (count == 0 or state["mass"] > 0))


def _check_stored(state: State, spec: EnvSpec) -> None:
  """Checks the state of the part of stored trajectories, whose steps are read from their files."""
  where = f"replay/{STORED}/"
  searched = part(state, "searched")
  own = {"content": counter()}
  check_state({name: state[name] for name in own if name in state}, own, where)
  head = {name: x for name, x in state.items() if name not in own and not name.startswith("searched/")}
  size = _check_head(head, where).size
  if not searched:
    return
  empty = empty_block(spec, 1, size)
  rows = entries_like({name: empty[name][0] for name in SEARCH_FIELDS})
  check_state(searched, rows, f"{where}searched/")
  if not all(np.isfinite(x).all() for x in searched.values()):
    raise ValueError(f"{where}searched is not finite")


def _check_blocks(
  snapshot: Snapshot, sequence: Int[np.ndarray, "N C"], spec: EnvSpec, shard: str = ""
) -> None:
  num_lanes, lane_capacity = sequence.shape
  if len(snapshot.generations) != NUM_BLOCKS:
    raise ValueError(f"replay has {len(snapshot.generations)} blocks; must be {NUM_BLOCKS}")
  width = -(-lane_capacity // NUM_BLOCKS)
  is_first, is_last = np.zeros(sequence.shape, bool), np.zeros(sequence.shape, bool)
  for number in range(NUM_BLOCKS):
    where = f"replay {shard}block {number}: "
    columns = slice(number * width, min((number + 1) * width, lane_capacity))
    index = sequence[:, columns]
    block = snapshot.blocks.get(number)
    if block is None:
      if snapshot.generations[number] or (index >= 0).any():
        raise ValueError(f"{where}is missing")
      continue
    if not index.size or not snapshot.generations[number]:
      raise ValueError(f"{where}is not expected")
    check_state(block, entries_like(empty_block(spec, num_lanes, index.shape[1])), where)
    if (block["sequence"] != index).any():
      raise ValueError(f"{where}sequence contradicts replay/storage/newest")
    try:
      # Frames of integers may hold anything, and would take the most time to copy.
      names = block.keys() - ({"sequence"} if spec.frame_dtype == "float32" else {"sequence", "frame"})
      steps = {name: block[name][index >= 0] for name in names}
      if "frame" in steps:
        steps["frame"] = FrameRows(spec).decode(steps["frame"])
      _check_steps(steps, spec)
    except ValueError as error:
      raise ValueError(f"{where}{error}") from None
    is_first[:, columns], is_last[:, columns] = block["is_first"], block["is_last"]
  # The step before each slot's is in the slot before it, unless it was overwritten.
  follows = (sequence > 0) & (np.roll(sequence, 1, axis=1) == sequence - 1)
  if (is_first & follows & ~np.roll(is_last, 1, axis=1)).any() or (~is_first & (sequence == 0)).any():
    raise ValueError(f"replay {shard}blocks: is_first contradicts is_last")


def _check_steps(steps: dict[str, Shaped[np.ndarray, "M ..."]], spec: EnvSpec) -> None:
  """Checks stored steps in the form of `LaneStorage.block`, without their order."""
  mask = np.unpackbits(steps["legal_actions_mask"], axis=-1, count=spec.policy_size)
  check_numbers(steps | {"legal_actions_mask": mask.astype(bool)}, spec)
  if (steps["is_truncated"] & ~steps["is_last"]).any():
    raise ValueError("is_truncated on a frame that is not is_last")
  if (steps["action"][steps["is_last"]] != DUMMY_ACTION).any():
    raise ValueError("action on an episode's last frame must be the dummy")

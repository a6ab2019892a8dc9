"""Random lanes for tests of replay, as `Step`s for the oracles and as segments for the buffer."""

import dataclasses
from typing import Any

import numpy as np

from moozi.core.config import ReplayConfig, TargetsConfig
from moozi.core.frame_parts import make_parts
from moozi.core.records import TrainTarget, TrajectorySample
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.replay.buffer import ReplayBuffer
from moozi.replay.protocol import Replay
from moozi.replay.sampling import ProportionalSampler, RankSampler
from tests.ops.oracles import Step, oracle_history, oracle_target, random_lane

PARTS = make_parts(
  (
    ("speed", (2,), False, False),
    ("camera", (2, 2, 2), False, True),
    ("heat", (1,), False, False),
    ("more", (1,), False, True),
  )
)
SAMPLINGS = ("uniform", "proportional", "rank")


class Disk:
  """Stands in for a run directory: keeps the newest version of each block."""

  def __init__(self) -> None:
    self.blocks: dict[int, Any] = {}
    self.known: Any = None
    self.written: list[list[int]] = []

  def save(self, replay: Replay) -> Any:
    taken = replay.snapshot(self.known)
    self.written.append(sorted(taken.blocks))
    self.blocks |= taken.blocks
    self.known = taken.generations
    return dataclasses.replace(taken, blocks=dict(self.blocks))


def make_spec(frame_dtype: str = "bool", num_players: int = 1) -> EnvSpec:
  """Returns a spec; `frame_dtype` "parts" is float32 with `PARTS`."""
  has_parts = frame_dtype == "parts"
  return EnvSpec(
    name="test:lanes",
    frame_shape=(1, 1, 12) if has_parts else (2, 3, 2),
    frame_dtype="float32" if has_parts else frame_dtype,
    frame_parts=PARTS if has_parts else (),
    num_env_actions=2,
    num_players=num_players,
  )


def make_buffer(
  spec: EnvSpec | None = None,
  *,
  lanes: int = 2,
  lane_capacity: int = 40,
  seed: int = 0,
  frames_ahead: int = 1,
  **options,
) -> ReplayBuffer:
  """Returns a small buffer; `options` are fields of TargetsConfig or ReplayConfig."""
  targets = {name: options.pop(name) for name in tuple(options) if name in TargetsConfig.model_fields}
  targets = {"history_length": 2, "unroll_steps": 2, "n_step": 3, "discount": 0.9} | targets
  options = {"sampling": "uniform", "min_steps_to_learn": 1} | options
  return ReplayBuffer(
    ReplayConfig(capacity=lanes * lane_capacity, **options),
    TargetsConfig(**targets),
    spec or make_spec(),
    lanes,
    seed,
    frames_ahead,
  )


def assert_valid(buffer: ReplayBuffer) -> None:
  """Asserts that the storage and the sampler are consistent."""
  storage, sampler = buffer.storage, buffer._sampler
  index = storage.sequence.reshape(storage.num_lanes, storage.lane_capacity)
  newest = storage.newest[:, None]
  # The largest index that has this ring position and is not above the newest index.
  expected = newest - (newest - np.arange(storage.lane_capacity)) % storage.lane_capacity
  newest_steps = np.where(expected >= 0, expected, -1)
  assert (index == newest_steps).all(), "sequence: slots do not hold the newest steps of their lanes"
  is_priority = np.isfinite(storage.delta) & (storage.delta >= 0)
  assert is_priority.all(), "delta: a priority is negative or not finite"
  stored = {name: array[storage.sequence >= 0] for name, array in storage.arrays.items()}
  assert (stored["is_last"] | ~stored["is_truncated"]).all(), "is_truncated on a step that is not is_last"
  is_dummy = stored["action"][stored["is_last"]] == DUMMY_ACTION
  assert is_dummy.all(), "action: an episode's last step holds an action other than the dummy"
  for name in ("last_reward", "root_value", "action_probs"):
    assert np.isfinite(stored[name]).all(), f"{name} is not finite"
  follows = (index[:, :-1] >= 0) & (index[:, 1:] == index[:, :-1] + 1)
  first = storage.arrays["is_first"].reshape(index.shape)[:, 1:]
  last = storage.arrays["is_last"].reshape(index.shape)[:, :-1]
  assert (last | ~first | ~follows).all(), "is_first after a step that is not is_last"
  if isinstance(sampler, ProportionalSampler):
    with_weight = np.flatnonzero(sampler._tree.leaves)
    assert np.array_equal(with_weight, storage.eligible_slots()), "sum tree: not exactly the eligible slots"
  if isinstance(sampler, RankSampler):
    ranked = np.flatnonzero(sampler._rank_of >= 0)
    assert storage.is_eligible(ranked).all(), "rank table: a ranked step is not eligible"
    assert len(ranked) == sampler._count, "rank table: a ranked step is not counted"
    mass = sampler._weights[sampler._rank_of[ranked]].sum()
    assert np.isclose(mass, sampler._mass), "rank table: the mass is not the sum of its weights"


def random_frame(rng: np.random.Generator, spec: EnvSpec) -> np.ndarray:
  """Returns a random frame that is not all zeros."""
  if spec.frame_dtype == "bool":
    frame = rng.random(spec.frame_shape) < 0.4
    frame.flat[rng.integers(frame.size)] = True
    return frame
  if spec.frame_dtype == "uint8":
    return rng.integers(1, 256, spec.frame_shape).astype(np.uint8)
  frame = rng.normal(size=spec.frame_shape).astype(np.float32)
  for part in spec.frame_parts:
    if part.is_bytes:
      numbers = frame[..., part.start : part.stop]
      numbers[...] = rng.integers(0, 256, numbers.shape).astype(np.float32) * np.float32(1 / 255)
  return frame


def random_lanes(
  seed: int, count: int, length: int, spec: EnvSpec, end_probability: float = 0.1
) -> list[list[Step]]:
  rng = np.random.default_rng(seed)
  lanes = [
    random_lane(rng, length, spec.num_players, spec.num_actions, end_probability) for _ in range(count)
  ]
  for lane in lanes:
    for step in lane:
      step.frame = random_frame(rng, spec)
  return lanes


def segment_of(lanes: list[list[Step]], first: int, stop: int, spec: EnvSpec) -> TrajectorySample:
  """Returns steps first … stop-1 of the lanes, [T, B, ...]; the versions are the step and the lane."""

  def field(fn, dtype) -> np.ndarray:
    return np.asarray([[fn(lane[t]) for lane in lanes] for t in range(first, stop)], dtype)

  shape = (stop - first, len(lanes))
  is_last, is_truncated = field(lambda s: s.is_last, bool), field(lambda s: s.is_truncated, bool)
  terminal = is_last & ~is_truncated
  legal = np.ones((*shape, spec.num_actions), bool)
  legal[..., 0] = False
  legal[terminal] = np.arange(spec.num_actions) == 0
  return TrajectorySample(
    frame=field(lambda s: s.frame, spec.frame_dtype),
    last_reward=field(lambda s: s.reward, np.float32),
    is_first=field(lambda s: s.is_first, bool),
    is_last=is_last,
    is_truncated=is_truncated,
    to_play=field(lambda s: s.player, np.int32),
    legal_actions_mask=legal,
    root_value=field(lambda s: s.value, np.float32),
    action_probs=field(lambda s: s.probs, np.float32),
    action=field(lambda s: s.action, np.int32),
    acted_version=np.broadcast_to(np.arange(first, stop, dtype=np.int32)[:, None], shape),
    searched_version=np.broadcast_to(np.arange(len(lanes), dtype=np.int32), shape),
  )


def fill(buffer: ReplayBuffer, lanes: list[list[Step]], spec: EnvSpec, cuts: list[int]) -> None:
  """Adds the lanes to the buffer in segments that end at the cuts."""
  for first, stop in zip([0, *cuts[:-1]], cuts, strict=True):
    buffer.add(segment_of(lanes, first, stop, spec), 0)


def work(buffer: Replay, lanes: list[list[Step]], spec: EnvSpec, first: int, stop: int) -> list[TrainTarget]:
  """Adds steps, samples, updates priorities and writes searches back; returns the batches."""
  out = []
  for t in range(first, stop, 5):
    buffer.add(segment_of(lanes, t, min(t + 5, stop), spec), 0)
    if not buffer.can_sample(5):
      continue
    for _ in range(3):
      batch = buffer.sample_many(3, 5)  # odd, so that the generator buffers half of a 64-bit word
      out.append(batch)
      gap = np.abs(batch.root_values[..., 0] - batch.n_step_returns[..., 1])
      buffer.update_priorities(batch.slot, batch.sequence, gap)
    slot, sequence = batch.slot[0], batch.sequence[0]
    buffer.write_back(slot, sequence, batch.n_step_returns[0, :, 0], batch.action_probs[0, :, 0], t)
  return out


def filled_buffer(
  seed: int = 0, length: int = 30, lanes: int = 2, end_probability: float = 0.1, **options
) -> tuple[ReplayBuffer, list[list[Step]], EnvSpec]:
  """Returns a buffer filled with random lanes in segments of five steps, the lanes, and the spec."""
  spec = make_spec()
  steps = random_lanes(seed, lanes, length, spec, end_probability)
  buffer = make_buffer(spec, lanes=lanes, **options)
  fill(buffer, steps, spec, [*list(range(5, length, 5)), length])
  return buffer, steps, spec


def drawn_positions(buffer: ReplayBuffer, batch: TrainTarget) -> list[tuple[int, int]]:
  """Returns (lane, index) of each drawn start index, from the batch's slots and sequence numbers."""
  lane = np.ravel(batch.slot) // buffer.lane_capacity
  return list(zip(lane.tolist(), np.ravel(batch.sequence).tolist(), strict=True))


def assert_is_oracle(
  buffer: ReplayBuffer, batch: TrainTarget, lanes: list[list[Step]], targets: TargetsConfig
) -> None:
  """Asserts that each drawn target equals the oracles'; frames and integers must be equal to the bit."""
  length = targets.history_length
  for row, (lane, i) in enumerate(drawn_positions(buffer, batch)):
    steps = lanes[lane]
    expected = oracle_target(steps, i, targets.unroll_steps, targets.n_step, targets.discount)
    for name, value in expected.items():
      np.testing.assert_allclose(getattr(batch, name)[row], value, rtol=1e-5, atol=1e-5, err_msg=name)
    num = batch.frames.shape[1]
    kept_frames, kept_actions = oracle_history(steps, i, length, num - length)
    for j in range(num):
      k = kept_frames[j]
      frame = np.zeros_like(steps[0].frame) if k is None else steps[k].frame
      np.testing.assert_array_equal(batch.frames[row, j], frame)
      k = kept_actions[j]
      assert batch.history_actions[row, j] == (0 if k is None else steps[k].action)
    assert batch.acted_version[row] == i
    assert batch.searched_version[row] == lane


def stored_range(buffer, lane):
  """Returns (first, stop), the range of the lane's indices that are still stored."""
  stop = int(buffer.storage.newest[lane]) + 1
  return max(0, stop - buffer.lane_capacity), stop

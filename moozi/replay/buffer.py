"""The replay buffer: stores steps, draws them with a sampler, and makes training targets. Imports no JAX.

Source: thesis 4.3.14; docs/rules.md describes segments, lanes and targets.
"""

import math

import numpy as np
from jaxtyping import Float, Int, Num

from moozi.core.config import ReplayConfig, TargetsConfig
from moozi.core.config.reanalyze import ReanalyzeConfig
from moozi.core.flat_state import Snapshot, State, part, prefixed
from moozi.core.histogram import Histogram, histogram_of
from moozi.core.pytree import fields_of, map_fields
from moozi.core.records import NStepTransition, RootSpan, SearchRoots, TrainTarget, TrajectorySample
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.core.symmetry import SymmetryTables, tables_of
from moozi.ops.sampling import importance_ratio
from moozi.ops.symmetry import turn_targets
from moozi.replay.protocol import Supply
from moozi.replay.reanalyze_queue import ReanalyzeQueue
from moozi.replay.sampling import make_sampler
from moozi.replay.shard_snapshots import divided
from moozi.replay.snapshot import kept_ranges, num_added, rng_words, set_rng, shape_of, take
from moozi.replay.storage import LaneStorage
from moozi.replay.validation import AddResult, Refusals, check_segment

SAMPLINGS = ("uniform", "proportional", "rank")
COUNTERS = (
  *("added", "drawn", "renewed", "stale", "refused", "rewritten", "cut"),
  *("refused_segments", "lost_steps"),
)
# Maximum number of eligible steps from which `stats` and `histograms` are computed.
_STATS_STEPS = 4096


class ReplayBuffer:
  """A `Replay` of the steps of its lanes; `replay.protocol` describes the methods.

  A target can start at step i of a lane if i is in the window (`replay.window_share`) and the lane has K + n
  steps after i. The L steps before i must be stored too, unless they never existed.

  Attributes:
    storage: the steps of all lanes and their priorities.
    reanalyze_queue: chooses the positions that reanalyze searches next.
  """

  def __init__(
    self,
    config: ReplayConfig,
    targets: TargetsConfig,
    spec: EnvSpec,
    num_lanes: int,
    seed: int,
    frames_ahead: int = 1,
    turns_targets: bool = False,
    first_lane: int = 0,
  ) -> None:
    """Makes an empty buffer; each lane can store `config.capacity // num_lanes` steps.

    Args:
      turns_targets: whether each target is transformed by a random symmetry of the environment.
      frames_ahead: number of frames after the start step in a target (F of TrainTarget); at most K + n.
      first_lane: number of the buffer's first lane in the arguments of `add`, `add_or_refuse` and
        `await_first`.

    Raises: ValueError: there is no lane, a lane or its smallest window would be too short for one target, or
      replay would be too small for `replay.min_steps_to_learn`.
    """
    if num_lanes < 1:
      raise ValueError(f"num_lanes={num_lanes}: must be at least 1")
    self._config, self.spec, self._frames_ahead = config, spec, frames_ahead
    self._first_lane = first_lane
    self.storage = LaneStorage(
      targets,
      spec,
      num_lanes,
      config.capacity // num_lanes,
      config.window_share,
      config.window_min // num_lanes,
    )
    if config.min_steps_to_learn > self.storage.size:
      raise ValueError(
        f"replay.min_steps_to_learn={config.min_steps_to_learn}: must be at most {self.storage.size}, the "
        "number of steps that replay holds"
      )
    self._window = np.array([config.window_share, config.window_min if config.window_share < 1 else 0])
    # What eligible steps and their δ depend on, and what their probabilities depend on besides.
    self._delta_settings = np.array(
      [targets.history_length, targets.unroll_steps, targets.n_step, targets.discount]
    )
    self._weight_settings = np.array([config.priority_exponent, config.priority_epsilon])
    self.reanalyze_queue = ReanalyzeQueue(self.storage, seed)
    self._sampler = make_sampler(config, self.storage)
    self._rng = np.random.Generator(np.random.PCG64(seed))
    self._symmetries: SymmetryTables | None = None
    if turns_targets:
      self._symmetries = tables_of(spec.symmetries, math.prod(spec.frame_shape), spec.num_actions)
    # True for lanes that are empty or miss a segment: they drop steps until an episode starts.
    self._awaits_first = np.ones(num_lanes, np.bool_)
    self._refusals = Refusals(config.max_refused_segments)
    self._counters = dict.fromkeys(COUNTERS, 0)

  @property
  def num_lanes(self) -> int:
    return self.storage.num_lanes

  @property
  def lane_capacity(self) -> int:
    return self.storage.lane_capacity

  @property
  def num_slots(self) -> int:
    return self.storage.size

  @property
  def num_steps(self) -> int:
    return self.storage.num_steps

  @property
  def num_added(self) -> int:
    return self._counters["added"]

  @property
  def num_eligible(self) -> int:
    """Number of steps at which a target can start now."""
    return self.storage.num_eligible

  def can_sample(self, batch_size: int) -> bool:
    return self.storage.num_steps >= self._config.min_steps_to_learn and self.num_eligible >= batch_size

  def supply(self) -> Supply:
    return Supply(self.num_steps, *self._sampler.mass())

  def add_or_refuse(
    self, segment: TrajectorySample, first_lane: int, num_lanes: int, num_steps: int
  ) -> AddResult:
    lane = self._lanes(first_lane, num_lanes)
    try:
      check_segment(segment, self.spec, num_lanes=num_lanes, max_steps=self.lane_capacity)
    except ValueError as error:
      self._awaits_first[lane] = True
      self._counters["refused_segments"] += 1
      self._counters["lost_steps"] += num_steps
      self._refusals.add(first_lane // num_lanes, str(error))
      return AddResult(num_lost=num_steps, refused=str(error))
    self._refusals.end(first_lane // num_lanes)
    is_first = np.asarray(segment.is_first)
    if not (self._awaits_first[lane] & ~is_first[0]).any():
      self._store(segment, lane)
      return AddResult(num_lost=0)
    # Index of the first step that each lane stores; T if it stores none.
    begin = np.where(
      self._awaits_first[lane], np.where(is_first.any(axis=0), is_first.argmax(axis=0), len(is_first)), 0
    )
    for i in np.flatnonzero(begin < len(is_first)):
      self._store(map_fields(lambda x, i=i: x[begin[i] :, i : i + 1], segment), lane[i : i + 1])
    num_lost = int(begin.sum())
    self._counters["lost_steps"] += num_lost
    return AddResult(num_lost=num_lost)

  def await_first(self, first_lane: int, num_lanes: int) -> None:
    self._awaits_first[self._lanes(first_lane, num_lanes)] = True

  def add(self, segment: TrajectorySample, first_lane: int) -> None:
    num_lanes = np.shape(segment.last_reward)[1] if np.ndim(segment.last_reward) == 2 else 0
    lane = self._lanes(first_lane, num_lanes)
    check_segment(segment, self.spec, max_steps=self.lane_capacity, is_empty=self.storage.is_empty[lane])
    self._store(segment, lane)

  def _lanes(self, first_lane: int, num_lanes: int) -> Int[np.ndarray, "B"]:
    own = first_lane - self._first_lane
    if own < 0 or own + num_lanes > self.num_lanes:
      raise ValueError(
        f"first_lane={first_lane} with {num_lanes} lanes: there are lanes {self._first_lane} … "
        f"{self._first_lane + self.num_lanes - 1}"
      )
    return np.arange(own, own + num_lanes)

  def _store(self, segment: TrajectorySample, lane: Int[np.ndarray, "B"]) -> None:
    """Appends a valid segment to its lanes, and sets the priorities of the steps that become eligible."""
    old_first, old_stop = self.storage.eligible_range(lane)
    self._counters["cut"] += self.storage.append(segment, lane)
    self._counters["added"] += int(np.size(segment.last_reward))
    self._awaits_first[lane] = False
    first, stop = self.storage.eligible_range(lane)
    # Slots are removed before others are added: after a long segment, a removed slot may be eligible again.
    self._sampler.remove(self.storage.range_slots(lane, old_first, np.minimum(first, old_stop)))
    fresh = self.storage.range_slots(lane, np.maximum(old_stop, first), stop)
    if fresh.size:
      self.storage.refresh_delta(fresh)
      self._sampler.update(fresh)

  def set_discount(self, discount: float) -> None:
    if discount != self.storage.discount:
      self.storage.discount = self._delta_settings[-1] = discount
      slot = self.storage.eligible_slots()
      self.storage.refresh_delta(slot)
      self._sampler.update(slot)

  def sample(self, batch_size: int) -> TrainTarget:
    """Returns one batch drawn as by `sample_many`, a TrainTarget [B, ...]."""
    return map_fields(lambda x: x[0], self.sample_many(1, batch_size))

  def sample_many(self, num_batches: int, batch_size: int) -> TrainTarget:
    if self.num_eligible == 0:
      raise ValueError(f"nothing to sample: none of {self.storage.num_steps} stored steps is eligible yet")
    slot, probability, count = self._sampler.draw(self._rng, num_batches, batch_size)
    shape = (num_batches, batch_size)
    ratio = importance_ratio(
      probability.reshape(shape), count, self._config.importance_exponent, self._config.normalize_importance
    )
    frames, history_actions = self.storage.histories(slot, self._frames_ahead)
    fields = fields_of(self.storage.unroll(slot)) | {
      "frames": frames,
      "history_actions": history_actions,
      "slot": slot,
      "sequence": self.storage.sequence[slot],
      "acted_version": self.storage.arrays["acted_version"][slot],
      "searched_version": self.storage.arrays["searched_version"][slot],
    }
    self._counters["drawn"] += slot.size
    batched = {name: np.ascontiguousarray(x).reshape(shape + x.shape[1:]) for name, x in fields.items()}
    target = TrainTarget(**batched, importance_ratio=ratio)
    if self._symmetries is None:
      return target
    return turn_targets(
      target, self._symmetries, self._rng.integers(len(self._symmetries.actions), size=shape)
    )

  def transitions(self, slot: Int[np.ndarray, "M"]) -> NStepTransition:
    storage = self.storage
    next_slot, bootstrap = storage.bootstraps(slot)
    return NStepTransition(
      legal_actions_mask=storage.legal_actions_mask(slot),
      is_live=~storage.arrays["is_last"][slot],
      bootstrap=bootstrap,
      next_frames=storage.histories(next_slot)[0][:, : storage.history],
      next_legal_actions_mask=storage.legal_actions_mask(next_slot),
    )

  def update_priorities(
    self, slot: Int[np.ndarray, "*M"], sequence: Int[np.ndarray, "*M"], delta: Num[np.ndarray, "*M"]
  ) -> int:
    slot, sequence = np.ravel(slot).astype(np.int64), np.ravel(sequence)
    delta = np.abs(np.ravel(delta)).astype(np.float32)
    is_fresh = (self.storage.sequence[slot] == sequence) & self.storage.is_eligible(slot)
    is_finite = np.isfinite(delta)
    self._counters["stale"] += int((~is_fresh).sum())
    self._counters["refused"] += int((is_fresh & ~is_finite).sum())
    applied = slot[is_fresh & is_finite]
    self.storage.set_delta(applied, delta[is_fresh & is_finite])
    self._sampler.update(applied)
    self._counters["renewed"] += applied.size
    return int(applied.size)

  def write_back(
    self,
    slot: Int[np.ndarray, "M"],
    sequence: Int[np.ndarray, "M"],
    root_value: Float[np.ndarray, "M"],
    action_probs: Float[np.ndarray, "M A"],
    searched_version: Num[np.ndarray, "M"] | int,
  ) -> int:
    if not (np.isfinite(root_value).all() and np.isfinite(action_probs).all()):
      raise ValueError("write_back: root_value and action_probs must be finite")
    slot, arrays = np.ravel(slot).astype(np.int64), self.storage.arrays
    version = np.broadcast_to(searched_version, slot.shape)
    is_fresh = (self.storage.sequence[slot] == np.ravel(sequence)) & (
      version >= arrays["searched_version"][slot]
    )
    self._counters["stale"] += int((~is_fresh).sum())
    slot = slot[is_fresh]
    is_terminal = (arrays["is_last"][slot] & ~arrays["is_truncated"][slot])[:, None]
    dummy = np.arange(self.spec.policy_size) == DUMMY_ACTION
    value = np.asarray(root_value, np.float32).reshape(-1)[is_fresh]
    probs = np.asarray(action_probs, np.float32).reshape(-1, self.spec.policy_size)[is_fresh]
    arrays["root_value"][slot] = np.where(is_terminal[:, 0], 0, value)
    arrays["action_probs"][slot] = np.where(is_terminal, dummy, probs)
    arrays["searched_version"][slot] = version[is_fresh]
    self._counters["rewritten"] += slot.size
    self.storage.touch(slot)
    if slot.size:
      changed = np.union1d(slot[self.storage.is_eligible(slot)], self.storage.bootstrapping_slots(slot))
      self.storage.refresh_delta(changed)
      self._sampler.update(changed)
    return int(slot.size)

  def positions(self, config: ReanalyzeConfig, version: int) -> SearchRoots | list[RootSpan]:
    queue = self.reanalyze_queue
    slot = queue.choose(config.batch_size, config.order, version)
    return queue.gather(slot) if config.mode == "gather" else queue.spans(slot)

  def stats(self) -> dict[str, float]:
    delta = self.storage.delta[self._spread_slots()]
    return {
      "replay/steps": float(self.storage.num_steps),
      "replay/fill": self.storage.num_steps / self.storage.size,
      "replay/eligible": float(self.num_eligible),
      "replay/delta_mean": float(delta.mean()) if delta.size else 0.0,
      "replay/delta_max": float(delta.max()) if delta.size else 0.0,
      "replay/mib": sum(x.nbytes for x in self.storage.arrays.values()) / 2**20,
    } | {f"replay/{name}": float(count) for name, count in self._counters.items()}

  def histograms(self) -> dict[str, Histogram]:
    slot = self._spread_slots()
    if not slot.size:
      return {}
    found = {
      "replay/delta": histogram_of(self.storage.delta[slot]),
      "replay/priority": histogram_of(self._sampler.probability(slot) * self.num_eligible),
    }
    return {name: histogram for name, histogram in found.items() if histogram is not None}

  def _spread_slots(self) -> Int[np.ndarray, "N"]:
    """Returns up to 4096 eligible slots, spread evenly over all of them."""
    count = self.num_eligible
    spread = np.linspace(0, count, min(count, _STATS_STEPS), endpoint=False).astype(np.int64)
    return self.storage.nth_eligible(spread)

  def snapshot(self, known: Int[np.ndarray, "N"] | None = None) -> Snapshot:
    return take(self.get_state(), self.storage, known)

  def restore(self, snapshot: Snapshot) -> int:
    snapshot = divided(snapshot, [range(self.num_lanes)], 0)  # of a run whose replay was in shards
    state, given = snapshot.head, snapshot.blocks.keys()
    if missing := set(np.flatnonzero(snapshot.generations).tolist()) - given:
      raise ValueError(f"replay: block {min(missing)} is missing")
    # A snapshot that was divided in another way has no random state.
    if "rng" in state and shape_of(state) == shape_of(self.get_state()):
      self.storage.set_blocks(state["storage/newest"], snapshot.blocks)
      self.storage.generations[:] = snapshot.generations
      self.set_state(state)
      return 0
    source, kept = kept_ranges(snapshot, self.spec, self.lane_capacity)
    # Before the steps are added, because a step that has left the window never returns to it.
    self._count_steps_before(num_added(snapshot) - sum(stop - first for _, first, stop in kept))
    for lane, first, stop in kept:
      steps = source.trajectory(lane, first, stop)
      self.add(map_fields(lambda x: x[:, None], steps), self._first_lane + lane % self.num_lanes)
    self._set_counters(state)
    return source.num_steps - self.num_steps

  def get_state(self) -> State:
    """Returns a copy of the state without the stored steps, as a flat dict of NumPy arrays and ints."""
    own = {
      "sampling": SAMPLINGS.index(self._config.sampling),
      "lane_capacity": self.lane_capacity,
      "delta": self.storage.delta.copy(),
      "window": self._window,
      "delta_settings": self._delta_settings.copy(),
      "weight_settings": self._weight_settings,
      "waits": self._awaits_first.copy(),
      "rng": rng_words(self._rng),
    }
    return (
      own
      | prefixed("counter", self._counters)
      | prefixed("storage", {"newest": self.storage.newest.copy()})
      | prefixed("sampler", self._sampler.get_state())
      | prefixed("roots", self.reanalyze_queue.get_state())
    )

  def set_state(self, state: State) -> None:
    """Restores the state of a buffer of the same shape, whose steps are already stored.

    Priorities are computed again if the settings that they depend on have changed.
    """
    if self.storage.targets.discount_schedule:
      # The saved δ belong to this γ. `set_discount` changes both if the schedule has another value by now.
      self.storage.discount = self._delta_settings[-1] = float(state["delta_settings"][-1])
    self.storage.set_delta(np.arange(self.storage.size), state["delta"])
    self._awaits_first[:] = state["waits"]
    has_deltas, has_weights = (
      np.array_equal(state[name], own)
      for name, own in (("delta_settings", self._delta_settings), ("weight_settings", self._weight_settings))
    )
    if has_deltas and has_weights:
      self._sampler.set_state(part(state, "sampler"))
    else:
      slot = self.storage.eligible_slots()
      if not has_deltas:
        self.storage.delta[:] = 0
        self.storage.refresh_delta(slot)
      self._sampler.update(slot)
    self.reanalyze_queue.set_state(part(state, "roots"))
    self._set_counters(state)
    set_rng(self._rng, state["rng"])

  def _set_counters(self, state: State) -> None:
    """Restores the counters of a state, of which the last `num_steps` steps ever added are stored already."""
    self._counters = {name: int(count) for name, count in part(state, "counter").items()}
    self._count_steps_before(self.num_added - int((self.storage.newest + 1).sum()))

  def _count_steps_before(self, num_steps: int) -> None:
    """Counts `num_steps` steps in the window that were added before those that are stored or will be."""
    self.storage.steps_before = num_steps // self.storage.num_lanes

"""The replay buffer: keeps steps, makes targets at sampling time, draws by priority. No JAX.

Thesis 4.3.14; frames, lanes and priorities as docs/architecture.md has them.
"""

import dataclasses

import numpy as np

from moozi.core.config import ReplayConfig, TargetsConfig
from moozi.core.flat_state import State, part, prefixed
from moozi.core.histogram import Histogram
from moozi.core.pytree import map_fields
from moozi.core.reanalyze_config import ReanalyzeConfig
from moozi.core.records import RootSpan, SearchRoots, TrainTarget, TrajectorySample
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.ops.sampling import importance_ratio
from moozi.replay.reanalyze_queue import ReanalyzeQueue
from moozi.replay.sampling import make_sampler
from moozi.replay.stats import replay_histograms, replay_stats
from moozi.replay.storage import LaneStorage
from moozi.replay.validation import AddResult, Refusals

_SAMPLINGS = ("uniform", "proportional", "rank")
_WORD = (1 << 64) - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddStats:
  """What one `add` did.

  Attributes:
    num_steps: steps stored.
    num_terminal: terminal frames among them.
    num_truncated: truncated frames among them.
    num_cut: unfinished episodes that a restarted lane left behind; now truncated.
    num_newly_eligible: steps that a target can start at since now.
  """

  num_steps: int
  num_terminal: int
  num_truncated: int
  num_cut: int
  num_newly_eligible: int


class ReplayBuffer:
  """Steps of many lanes, sampled as training targets.

  Lanes are numbered over all workers: worker w with B environments adds to lanes w*B … w*B+B-1. A target
  can start at step i of a lane once the lane has K + n steps after it, and as long as the L steps before
  it are kept (or there never were that many).
  """

  def __init__(
    self, config: ReplayConfig, targets: TargetsConfig, spec: EnvSpec, num_lanes: int, seed: int
  ) -> None:
    """Makes an empty buffer of `config.capacity // num_lanes` steps a lane.

    Raises: ValueError: when a lane would be too short to hold one target, or training could never start.
    """
    if num_lanes < 1:
      raise ValueError(f"num_lanes={num_lanes}: must be at least 1")
    self._config, self._targets, self.spec = config, targets, spec
    self._storage = LaneStorage(targets, spec, num_lanes, config.capacity // num_lanes)
    if config.min_steps_to_learn > self._storage.size:
      raise ValueError(
        f"replay.min_steps_to_learn={config.min_steps_to_learn}: replay never holds more than "
        f"{self._storage.size} steps"
      )
    self._delta = np.zeros(self._storage.size, np.float32)
    self._sampler = make_sampler(config, self._storage, self._delta)
    self._roots = ReanalyzeQueue(self._storage, self._delta)
    self._rng = np.random.Generator(np.random.PCG64(seed))
    # Lanes that wait for an episode's first step: what follows their newest step did not come, or is none.
    self._waits = np.ones(num_lanes, np.bool_)
    self._refusals = Refusals(config.max_refused_segments)
    names = (
      "added",
      "drawn",
      "renewed",
      "stale",
      "refused",
      "rewritten",
      "cut",
      "refused_segments",
      "lost_steps",
    )
    self._counters = dict.fromkeys(names, 0)

  @property
  def storage(self) -> LaneStorage:
    """Where the steps lie."""
    return self._storage

  @property
  def acted(self) -> "ReplayBuffer":
    """The part that acting fills: all of it, but in a MixedReplay."""
    return self

  @property
  def num_lanes(self) -> int:
    """Lanes."""
    return self._storage.num_lanes

  @property
  def lane_capacity(self) -> int:
    """Steps that each lane keeps."""
    return self._storage.lane_capacity

  @property
  def num_steps(self) -> int:
    """Steps stored now."""
    return self._storage.num_steps

  @property
  def num_added(self) -> int:
    """Steps ever added."""
    return self._counters["added"]

  @property
  def num_eligible(self) -> int:
    """Steps that a target can start at now."""
    return self._storage.num_eligible

  def can_sample(self, batch_size: int) -> bool:
    """Whether training may start: `min_steps_to_learn` are stored, and a batch's worth is eligible."""
    return self.num_steps >= self._config.min_steps_to_learn and self.num_eligible >= batch_size

  def take(self, segment: TrajectorySample, first_lane: int, num_lanes: int, num_steps: int) -> AddResult:
    """`add` for what may be broken: a bad segment is refused whole, and changes nothing that is stored.

    It leaves a gap in its lanes: no history, return or unroll may reach over it. So each lane drops what
    comes until its environment begins an episode (who calls has the worker begin new games); there the one
    before the gap is cut off, as a restarted worker's is.

    Args:
      segment: [T, B, ...] of one worker.
      first_lane, num_lanes: the worker's lanes, B of them.
      num_steps: environment steps that were acted for it, whatever it holds.

    Raises: ValueError: no such lane. SegmentError: `replay.max_refused_segments` were refused in a row.
    """
    lane = self._lanes(first_lane, num_lanes)
    try:
      self._storage.check(segment, lane)
    except ValueError as error:
      self._waits[lane] = True
      self._counters["refused_segments"] += 1
      self._counters["lost_steps"] += num_steps
      self._refusals.add(first_lane // num_lanes, str(error))
      return AddResult(num_lost=num_steps, refused=str(error))
    self._refusals.end(first_lane // num_lanes)
    is_first = np.asarray(segment.is_first)
    if not (self._waits[lane] & ~is_first[0]).any():
      self.add(segment, first_lane)
      return AddResult(num_lost=0)
    # The first step of each lane that is stored; T where none is.
    begin = np.where(
      self._waits[lane], np.where(is_first.any(axis=0), is_first.argmax(axis=0), len(is_first)), 0
    )
    for i in np.flatnonzero(begin < len(is_first)):
      self.add(map_fields(lambda x, i=i: x[begin[i] :, i : i + 1], segment), first_lane + int(i))
    num_lost = int(begin.sum())
    self._counters["lost_steps"] += num_lost
    return AddResult(num_lost=num_lost)

  def _lanes(self, first_lane: int, num_lanes: int) -> np.ndarray:
    if first_lane < 0 or first_lane + num_lanes > self.num_lanes:
      raise ValueError(
        f"first_lane={first_lane} with {num_lanes} lanes: there are lanes 0 … {self.num_lanes - 1}"
      )
    return np.arange(first_lane, first_lane + num_lanes)

  def add(self, segment: TrajectorySample, first_lane: int) -> AddStats:
    """Appends a segment [T, B, ...] to lanes first_lane … first_lane+B-1, and makes new priorities.

    Raises: ValueError: when there is no such lane, or the segment breaks a convention of the records.
    """
    num_new_lanes = np.shape(segment.last_reward)[1] if np.ndim(segment.last_reward) == 2 else 0
    lane = self._lanes(first_lane, num_new_lanes)
    old_first, old_stop = self._storage.eligible_range(lane)
    num_cut = self._storage.append(segment, lane)
    self._waits[lane] = False
    first, stop = self._storage.eligible_range(lane)
    # A long segment may make a slot eligible again in the same call: remove before insert.
    self._sampler.remove(self._storage.span_slots(lane, old_first, np.minimum(first, old_stop)))
    fresh = self._storage.span_slots(lane, np.maximum(old_stop, first), stop)
    # Steps that wait for n more have no δ yet: that of what lay in their slots before is another step's.
    newest = self._storage.newest[lane] + 1
    self._delta[self._storage.span_slots(lane, newest - len(segment.is_last), newest)] = 0
    if fresh.size:
      self._delta[fresh] = self._storage.value_gap(fresh)
      self._sampler.insert(fresh)
    num_last, num_truncated = int(np.sum(segment.is_last)), int(np.sum(segment.is_truncated))
    num_steps = int(np.size(segment.last_reward))
    self._counters["added"] += num_steps
    self._counters["cut"] += num_cut
    return AddStats(
      num_steps=num_steps,
      num_terminal=num_last - num_truncated,
      num_truncated=num_truncated,
      num_cut=num_cut,
      num_newly_eligible=len(fresh),
    )

  def sample(self, batch_size: int) -> TrainTarget:
    """One batch: a TrainTarget [B, ...].

    Raises: ValueError: when no step is eligible.
    """
    return map_fields(lambda x: x[0], self.sample_many(1, batch_size))

  def sample_many(self, num_batches: int, batch_size: int) -> TrainTarget:
    """U batches at once: a TrainTarget [U, B, ...], drawn with replacement.

    Importance ratios are made here, and normalised (where set) within each batch of B.

    Raises: ValueError: when no step is eligible.
    """
    if self.num_eligible == 0:
      raise ValueError(f"nothing to sample: none of {self.num_steps} stored steps is eligible yet")
    slot, probability, count = self._sampler.draw(self._rng, num_batches, batch_size)
    shape = (num_batches, batch_size)
    ratio = importance_ratio(
      probability.reshape(shape), count, self._config.importance_exponent, self._config.normalize_importance
    )
    storage, arrays = self._storage, self._storage.arrays
    unroll = storage.unroll(slot)
    frames, history_actions = storage.histories(slot)
    self._counters["drawn"] += slot.size

    def batched(x: np.ndarray) -> np.ndarray:
      return np.ascontiguousarray(x).reshape(shape + x.shape[1:])

    return TrainTarget(
      frames=batched(frames),
      history_actions=batched(history_actions),
      actions=batched(unroll.actions),
      rewards=batched(unroll.rewards),
      action_probs=batched(unroll.action_probs),
      root_values=batched(unroll.root_values),
      n_step_returns=batched(unroll.n_step_returns),
      unroll_mask=batched(unroll.unroll_mask),
      consistency_mask=batched(unroll.consistency_mask),
      importance_ratio=ratio,
      slot=batched(slot),
      sequence=batched(storage.sequence[slot]),
      acted_version=batched(arrays["acted_version"][slot]),
      searched_version=batched(arrays["searched_version"][slot]),
    )

  def update_priorities(self, slot: np.ndarray, sequence: np.ndarray, delta: np.ndarray) -> int:
    """Takes new δ for drawn steps; arrays of one shape, any. Returns how many were applied.

    Dropped are those whose slot was written anew or whose step is eligible no more, and (a skipped
    update's) δ that are not finite. Where a step is named twice the last δ stays.
    """
    slot, sequence = np.ravel(slot).astype(np.int64), np.ravel(sequence)
    delta = np.abs(np.ravel(delta)).astype(np.float32)
    is_fresh = (self._storage.sequence[slot] == sequence) & self._storage.is_eligible(slot)
    is_sound = np.isfinite(delta)
    self._counters["stale"] += int((~is_fresh).sum())
    self._counters["refused"] += int((is_fresh & ~is_sound).sum())
    applied = slot[is_fresh & is_sound]
    self._delta[applied] = delta[is_fresh & is_sound]
    self._sampler.renew(applied)
    self._counters["renewed"] += applied.size
    return int(applied.size)

  def write_back(
    self,
    slot: np.ndarray,
    sequence: np.ndarray,
    root_value: np.ndarray,
    action_probs: np.ndarray,
    searched_version: np.ndarray,
  ) -> int:
    """Takes a newer search's value [M] and policy [M, A] of steps; returns how many were applied.

    Those whose slot was written anew are dropped. Terminal frames keep value 0 and the dummy policy.
    The priorities of the steps, and of those that bootstrap from them, are made anew.

    Raises: ValueError: when a value or a policy is not finite.
    """
    if not (np.isfinite(root_value).all() and np.isfinite(action_probs).all()):
      raise ValueError("write_back: root_value and action_probs must be finite")
    slot, arrays = np.ravel(slot).astype(np.int64), self._storage.arrays
    is_fresh = self._storage.sequence[slot] == np.ravel(sequence)
    self._counters["stale"] += int((~is_fresh).sum())
    slot = slot[is_fresh]
    is_terminal = (arrays["is_last"][slot] & ~arrays["is_truncated"][slot])[:, None]
    dummy = np.arange(self.spec.num_actions) == DUMMY_ACTION
    value = np.asarray(root_value, np.float32).reshape(-1)[is_fresh]
    probs = np.asarray(action_probs, np.float32).reshape(-1, self.spec.num_actions)[is_fresh]
    arrays["root_value"][slot] = np.where(is_terminal[:, 0], 0, value)
    arrays["action_probs"][slot] = np.where(is_terminal, dummy, probs)
    arrays["searched_version"][slot] = np.broadcast_to(searched_version, is_fresh.shape)[is_fresh]
    self._counters["rewritten"] += slot.size
    self._storage.touch(slot)
    if slot.size:
      touched = np.union1d(slot[self._storage.is_eligible(slot)], self._storage.bootstrapping_slots(slot))
      self._delta[touched] = self._storage.value_gap(touched)
      self._sampler.renew(touched)
    return int(slot.size)

  def positions(self, config: ReanalyzeConfig, version: int) -> SearchRoots | list[RootSpan]:
    """Up to `config.batch_size` positions to search again, in the form of `config.mode`; see ReanalyzeQueue.

    Args:
      config: which first, how many, in which form.
      version: learner step of the parameters that will search.
    """
    slot = self._roots.choose(config.batch_size, config.order, version)
    return self._roots.gather(slot) if config.mode == "gather" else self._roots.spans(slot)

  def stored_range(self, lane: int) -> tuple[int, int]:
    """(first, stop) index of the steps of a lane that are stored now."""
    stop = int(self._storage.newest[lane]) + 1
    return max(0, stop - self.lane_capacity), stop

  def trajectory(self, lane: int, first: int, stop: int) -> TrajectorySample:
    """Steps first … stop-1 of a lane as they were added, with the newest search values and policies.

    Raises: ValueError: when one of them is not stored (any more).
    """
    return self._storage.trajectory(lane, first, stop)

  def stats(self) -> dict[str, float]:
    """Figures for each tick; see `replay_stats`."""
    return replay_stats(self._storage, self._delta, self._counters)

  def histograms(self) -> dict[str, Histogram]:
    """How priorities are spread; see `replay_histograms`."""
    return replay_histograms(self._storage, self._delta, self._sampler)

  def check_valid(self) -> None:
    """Raises ValueError where the buffer contradicts itself."""
    self._storage.check_valid()
    if not np.isfinite(self._delta).all() or (self._delta < 0).any():
      raise ValueError("delta: a priority is negative or not finite")
    self._sampler.check_valid()

  def get_state(self, with_rings: bool = True) -> State:
    """Everything, as a flat dict of NumPy arrays and ints; later samples are the same to the bit.

    Args:
      with_rings: false leaves out the steps themselves (`replay_snapshot` takes them block by block).
    """
    storage = self._storage.get_state() if with_rings else {"newest": self._storage.newest.copy()}
    rng = self._rng.bit_generator.state
    words = [rng["state"][key] >> shift & _WORD for key in ("state", "inc") for shift in (64, 0)]
    own = {
      "sampling": _SAMPLINGS.index(self._config.sampling),
      "lane_capacity": self.lane_capacity,
      "delta": self._delta.copy(),
      "waits": self._waits.copy(),
      "rng": np.array([*words, rng["has_uint32"], rng["uinteger"]], np.uint64),
    }
    return (
      own
      | prefixed("counter", self._counters)
      | prefixed("storage", storage)
      | prefixed("sampler", self._sampler.get_state())
      | prefixed("roots", self._roots.get_state())
    )

  def set_state(self, state: State, with_rings: bool = True) -> None:
    """Takes the state of a buffer of the same configuration; without the rings the steps are there already.

    Raises: ValueError: when the state is of a buffer of another shape or sampling; nothing changes then.
    """
    for name, mine in (
      ("sampling", _SAMPLINGS.index(self._config.sampling)),
      ("lane_capacity", self.lane_capacity),
    ):
      if int(state[name]) != mine:
        raise ValueError(f"replay state: {name} is {int(state[name])}: this buffer's is {mine}")
    if with_rings:
      self._storage.set_state(part(state, "storage"))
    self._delta[:] = state["delta"]
    self._waits[:] = state["waits"]
    self._sampler.set_state(part(state, "sampler"))
    self._roots.set_state(part(state, "roots"))
    self.set_counters(state)
    words = [int(x) for x in state["rng"]]
    self._rng.bit_generator.state = {
      "bit_generator": "PCG64",
      "state": {"state": words[0] << 64 | words[1], "inc": words[2] << 64 | words[3]},
      "has_uint32": words[4],
      "uinteger": words[5],
    }

  def set_counters(self, state: State) -> None:
    """Takes the counts since the start from a state."""
    self._counters = {name: int(count) for name, count in part(state, "counter").items()}

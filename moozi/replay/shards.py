"""Replay in shards. Each stores the steps of some workers, and a batch is drawn from all shards. No JAX.

A shard is a `Replay` of its own lanes, in a process of its own with Ray. Its lanes and slots have the numbers
that they have in one buffer of all lanes. A draw has three parts, which run where their data is:

- `plan_draws` chooses the shard of each row of the batches, in proportion to the shards' masses.
- `ReplayShard.draw` draws the rows of one shard.
- `join` puts the rows of all shards in their places.

`ShardedReplay` does all three in one process.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int, Int64, Num

from moozi.core.config import Config
from moozi.core.config.reanalyze import ReanalyzeConfig
from moozi.core.flat_state import Snapshot
from moozi.core.histogram import Histogram, merged
from moozi.core.pytree import map_fields, record, replace
from moozi.core.records import (
  NStepTransition,
  RootSpan,
  SearchRoots,
  TrainTarget,
  TrajectorySample,
  num_roots,
)
from moozi.core.seeds import child_seed
from moozi.core.spec import EnvSpec
from moozi.replay.buffer import ReplayBuffer
from moozi.replay.protocol import Supply, total
from moozi.replay.shard_snapshots import DRAWS, divided, joined, known_of
from moozi.replay.snapshot import rng_words, set_rng
from moozi.replay.validation import AddResult

# Seeds of the role replay: 0 and 1 are those of the run's own steps and of stored trajectories.
PLAN_SEED, _FIRST_SHARD_SEED = 2, 3


@record
class DrawRequest:
  """The rows that a shard draws.

  Attributes:
    rows: [M], their places among the U·B rows of the batches.
    share: probability with which a row is drawn from this shard.
    num_drawable: N of the importance ratios, the number of steps of all shards that can be drawn.
  """

  rows: Int64[np.ndarray, "M"]
  share: float
  num_drawable: int


@record
class DrawnRows:
  """The rows that a shard has drawn: their places `rows` [M], and their targets, a TrainTarget [M, …]."""

  rows: Int64[np.ndarray, "M"]
  targets: TrainTarget


def workers_of(config: Config) -> list[range]:
  """Returns the workers of each shard: consecutive ones. Their numbers differ by at most one."""
  num_workers, num_shards = config.max_workers, config.ray.replay_shards
  return [
    range(i * num_workers // num_shards, (i + 1) * num_workers // num_shards) for i in range(num_shards)
  ]


def lanes_of(config: Config) -> list[range]:
  """Returns the lanes of each shard; one range without shards."""
  num_envs = config.workers.num_envs
  return [range(workers.start * num_envs, workers.stop * num_envs) for workers in workers_of(config)]


def can_sample(config: Config, supplies: Sequence[Supply], batch_size: int) -> bool:
  """Returns whether a batch can be drawn from shards with these supplies."""
  num_steps, num_drawable, _ = total(supplies)
  return num_steps >= config.replay.min_steps_to_learn and num_drawable >= batch_size


def plan_draws(supplies: Sequence[Supply], num_rows: int, rng: np.random.Generator) -> dict[int, DrawRequest]:
  """Chooses the shard of each row, independently and in proportion to the masses; returns requests by shard.

  Raises: ValueError: no step is eligible.
  """
  mass = np.array([supply.mass for supply in supplies], np.float64)
  if not mass.sum() > 0:
    raise ValueError("nothing to sample: no stored step is eligible yet")
  share = mass / mass.sum()
  shard_of_row = rng.choice(len(supplies), size=num_rows, p=share)
  num_drawable = total(supplies).num_drawable
  return {
    shard: DrawRequest(
      rows=np.flatnonzero(shard_of_row == shard), share=float(share[shard]), num_drawable=num_drawable
    )
    for shard in np.unique(shard_of_row).tolist()
  }


def choose_shard(num_steps: Sequence[int], rng: np.random.Generator) -> int:
  """Returns a shard to reanalyze, drawn in proportion to the numbers of steps; at least one must not be 0."""
  ends = np.cumsum(num_steps)
  return int(np.searchsorted(ends, rng.integers(ends[-1]), side="right"))


def join(parts: Sequence[DrawnRows], batch_size: int, normalizes: bool) -> TrainTarget:
  """Returns the rows that the shards have drawn as U batches of B, a TrainTarget [U, B, …].

  Args:
    batch_size: B.
    normalizes: whether to divide the importance ratios of each batch by their maximum.
  """
  num_rows = sum(len(part.rows) for part in parts)

  def place(*arrays: np.ndarray) -> np.ndarray:
    out = np.empty((num_rows, *arrays[0].shape[1:]), arrays[0].dtype)
    for part, array in zip(parts, arrays, strict=True):
      out[part.rows] = array
    return out.reshape((-1, batch_size, *out.shape[1:]))

  targets = map_fields(place, *(part.targets for part in parts))
  if normalizes:
    ratio = targets.importance_ratio
    targets = replace(targets, importance_ratio=ratio / ratio.max(axis=1, keepdims=True))
  return targets


class ReplayShard:
  """A `Replay` of the lanes of one shard. It ignores new priorities and searches of other shards' slots.

  Attributes:
    buffer: the steps of the shard's lanes.
    lanes: numbers of the lanes.
    first_slot: number of the shard's first slot.
  """

  def __init__(self, config: Config, spec: EnvSpec, index: int) -> None:
    """Makes shard `index` empty. Its lanes have the capacity and the window that they have in one buffer."""
    lanes, replay, targets = lanes_of(config)[index], config.replay, config.targets
    num_lanes = config.max_workers * config.workers.num_envs
    lane_capacity, lane_window = replay.capacity // num_lanes, replay.window_min // num_lanes
    settings = replay.model_copy(
      update={
        "capacity": lane_capacity * len(lanes),
        "window_min": lane_window * len(lanes),
        # Only the steps of all shards together say when training starts.
        "min_steps_to_learn": 1,
        # The ratios of a whole batch have one maximum.
        "normalize_importance": False,
        # The rows of the U batches of a call are one batch here.
        "rank_refresh_updates": -(-replay.rank_refresh_updates // config.learner.updates_per_call),
      }
    )
    if targets.search_value_age is not None:
      # A buffer measures ages in steps of all its lanes.
      age = -(-targets.search_value_age // num_lanes) * len(lanes)
      targets = targets.model_copy(update={"search_value_age": age})
    self.buffer = buffer = ReplayBuffer(
      settings,
      targets,
      spec,
      len(lanes),
      child_seed(config.seed, "replay", _FIRST_SHARD_SEED + index),
      config.frames_ahead,
      config.learner.symmetries,
      first_lane=lanes.start,
    )
    self.lanes, self.first_slot = lanes, lanes.start * lane_capacity
    self._importance_exponent = replay.importance_exponent
    self.can_sample, self.supply, self.set_discount = buffer.can_sample, buffer.supply, buffer.set_discount
    self.add, self.add_or_refuse, self.await_first = buffer.add, buffer.add_or_refuse, buffer.await_first
    self.stats, self.histograms = buffer.stats, buffer.histograms
    self.snapshot, self.restore = buffer.snapshot, buffer.restore

  @property
  def num_slots(self) -> int:
    return self.buffer.num_slots

  @property
  def num_steps(self) -> int:
    return self.buffer.num_steps

  def _own(self, slot: Int[np.ndarray, "M"]) -> tuple[Bool[np.ndarray, "M"], Int[np.ndarray, "N"]]:
    """Returns which of the slots are this shard's, and these as its buffer numbers them."""
    own = slot - self.first_slot
    is_own = (own >= 0) & (own < self.num_slots)
    return is_own, own[is_own]

  def _numbered(self, targets: TrainTarget) -> TrainTarget:
    return replace(targets, slot=targets.slot + self.first_slot)

  def sample_many(self, num_batches: int, batch_size: int) -> TrainTarget:
    """Draws from this shard alone. The importance ratios are those of its own steps, not normalized."""
    return self._numbered(self.buffer.sample_many(num_batches, batch_size))

  def draw(self, request: DrawRequest) -> DrawnRows:
    """Draws the rows of a request.

    The importance ratios use the probability with which each step was drawn, which is the share of the
    request times the probability among the steps of this shard.

    Raises: ValueError: no step is eligible.
    """
    own = self.supply().num_drawable
    targets = self._numbered(self.buffer.sample(len(request.rows)))
    # The buffer's ratio is (n P)^-β for its own number of steps n and probability P.
    factor = (request.num_drawable * request.share / own) ** -self._importance_exponent
    ratio = (targets.importance_ratio * factor).astype(np.float32)
    return DrawnRows(rows=request.rows, targets=replace(targets, importance_ratio=ratio))

  def transitions(self, slot: Int[np.ndarray, "M"]) -> NStepTransition:
    return self.buffer.transitions(slot - self.first_slot)

  def update_priorities(
    self, slot: Int[np.ndarray, "*M"], sequence: Int[np.ndarray, "*M"], delta: Num[np.ndarray, "*M"]
  ) -> int:
    is_own, own = self._own(np.ravel(slot))
    return self.buffer.update_priorities(own, np.ravel(sequence)[is_own], np.ravel(delta)[is_own])

  def positions(self, config: ReanalyzeConfig, version: int) -> SearchRoots | list[RootSpan]:
    found, first = self.buffer.positions(config, version), self.first_slot
    if isinstance(found, SearchRoots):
      return replace(found, slot=found.slot + first)
    return [replace(span, slot=span.slot + first) for span in found]

  def write_back(
    self,
    slot: Int[np.ndarray, "M"],
    sequence: Int[np.ndarray, "M"],
    root_value: Float[np.ndarray, "M"],
    action_probs: Float[np.ndarray, "M A"],
    searched_version: Num[np.ndarray, "M"] | int,
  ) -> int:
    is_own, own = self._own(slot)
    version = np.broadcast_to(searched_version, slot.shape)[is_own]
    return self.buffer.write_back(own, sequence[is_own], root_value[is_own], action_probs[is_own], version)


class ShardedReplay:
  """A Replay of all shards in one process.

  With uniform and proportional sampling, a step has the same probability as in one buffer. With rank-based
  sampling, the ranks are those within a shard (`RankSampler.mass`).
  """

  def __init__(self, config: Config, spec: EnvSpec) -> None:
    self._config = config
    self.shards = [ReplayShard(config, spec, index) for index in range(config.ray.replay_shards)]
    self._rng = np.random.Generator(np.random.PCG64(child_seed(config.seed, "replay", PLAN_SEED)))

  @property
  def num_slots(self) -> int:
    return sum(shard.num_slots for shard in self.shards)

  @property
  def num_steps(self) -> int:
    return sum(shard.num_steps for shard in self.shards)

  def supply(self) -> Supply:
    return total([shard.supply() for shard in self.shards])

  def can_sample(self, batch_size: int) -> bool:
    return can_sample(self._config, [shard.supply() for shard in self.shards], batch_size)

  def set_discount(self, discount: float) -> None:
    for shard in self.shards:
      shard.set_discount(discount)

  def _pieces(self, first_lane: int, num_lanes: int) -> Iterator[tuple[ReplayShard, range]]:
    """Yields the shards that have some of the lanes, and these lanes.

    Raises: ValueError: there are no such lanes.
    """
    stop = self.shards[-1].lanes.stop
    if first_lane < 0 or first_lane + num_lanes > stop:
      raise ValueError(f"first_lane={first_lane} with {num_lanes} lanes: there are lanes 0 … {stop - 1}")
    for shard in self.shards:
      lanes = shard.lanes
      own = range(max(lanes.start, first_lane), min(lanes.stop, first_lane + num_lanes))
      if own:
        yield shard, own

  def add(self, segment: TrajectorySample, first_lane: int) -> None:
    num_lanes = np.shape(segment.last_reward)[1] if np.ndim(segment.last_reward) == 2 else 0
    for shard, lanes in self._pieces(first_lane, num_lanes):
      columns = slice(lanes.start - first_lane, lanes.stop - first_lane)
      shard.add(map_fields(lambda x, columns=columns: x[:, columns], segment), lanes.start)

  def add_or_refuse(
    self, segment: TrajectorySample, first_lane: int, num_lanes: int, num_steps: int
  ) -> AddResult:
    """Adds as `Replay.add_or_refuse`. The lanes must be in one shard, as those of a worker are."""
    pieces = list(self._pieces(first_lane, num_lanes))
    if len(pieces) != 1:
      raise ValueError(f"first_lane={first_lane} with {num_lanes} lanes: must be lanes of one shard")
    return pieces[0][0].add_or_refuse(segment, first_lane, num_lanes, num_steps)

  def await_first(self, first_lane: int, num_lanes: int) -> None:
    for shard, lanes in self._pieces(first_lane, num_lanes):
      shard.await_first(lanes.start, len(lanes))

  def sample_many(self, num_batches: int, batch_size: int) -> TrainTarget:
    supplies = [shard.supply() for shard in self.shards]
    requests = plan_draws(supplies, num_batches * batch_size, self._rng)
    drawn = [self.shards[index].draw(request) for index, request in requests.items()]
    return join(drawn, batch_size, self._config.replay.normalize_importance)

  def transitions(self, slot: Int[np.ndarray, "M"]) -> NStepTransition:
    owner = np.searchsorted([shard.first_slot for shard in self.shards], slot, side="right") - 1
    parts = [shard.transitions(slot[owner == i]) for i, shard in enumerate(self.shards)]
    place = np.argsort(np.argsort(owner, kind="stable"))  # of each slot, with those of the first shard first
    return map_fields(lambda *arrays: np.concatenate(arrays)[place], *parts)

  def update_priorities(
    self, slot: Int[np.ndarray, "*M"], sequence: Int[np.ndarray, "*M"], delta: Num[np.ndarray, "*M"]
  ) -> int:
    return sum(shard.update_priorities(slot, sequence, delta) for shard in self.shards)

  def positions(self, config: ReanalyzeConfig, version: int) -> SearchRoots | list[RootSpan]:
    """Chooses positions of one shard, which is drawn in proportion to the number of steps that it stores.

    If this shard has too few, the next ones add theirs.
    """
    num_steps = [shard.num_steps for shard in self.shards]
    first = choose_shard(num_steps, self._rng) if any(num_steps) else 0
    found: list[SearchRoots | list[RootSpan]] = []
    left = config.batch_size
    for shard in (*self.shards[first:], *self.shards[:first]):
      if left:
        found.append(shard.positions(config.model_copy(update={"batch_size": left}), version))
        left -= num_roots(found[-1])
    roots = [each for each in found if isinstance(each, SearchRoots)]
    if roots:
      return map_fields(lambda *arrays: np.concatenate(arrays), *roots)
    return [span for spans in found if isinstance(spans, list) for span in spans]

  def write_back(
    self,
    slot: Int[np.ndarray, "M"],
    sequence: Int[np.ndarray, "M"],
    root_value: Float[np.ndarray, "M"],
    action_probs: Float[np.ndarray, "M A"],
    searched_version: Num[np.ndarray, "M"] | int,
  ) -> int:
    results = slot, sequence, root_value, action_probs, searched_version
    return sum(shard.write_back(*results) for shard in self.shards)

  def stats(self) -> dict[str, float]:
    return merged_stats(self._config, {i: shard.stats() for i, shard in enumerate(self.shards)})

  def histograms(self) -> dict[str, Histogram]:
    """Returns histograms of all shards; draw probabilities are those within a shard."""
    return merged([shard.histograms() for shard in self.shards])

  def snapshot(self, known: Int[np.ndarray, "N"] | None = None) -> Snapshot:
    parts = [shard.snapshot(known_of(known, i, len(self.shards))) for i, shard in enumerate(self.shards)]
    out = joined(parts)
    out.head[DRAWS] = rng_words(self._rng)
    return out

  def restore(self, snapshot: Snapshot) -> int:
    lanes = lanes_of(self._config)
    lost = sum(shard.restore(divided(snapshot, lanes, i)) for i, shard in enumerate(self.shards))
    if DRAWS in snapshot.head:
      set_rng(self._rng, snapshot.head[DRAWS])
    return lost


def merged_stats(config: Config, stats: Mapping[int, dict[str, float]]) -> dict[str, float]:
  """Returns the metrics of all shards together: sums, means over all lanes or eligible steps, and a maximum.

  Args:
    stats: metrics by shard. With one entry, its metrics are returned unchanged.
  """
  first = next(iter(stats.values()))
  if len(stats) == 1:
    return dict(first)
  lanes = lanes_of(config)
  num_lanes = {shard: float(len(lanes[shard])) for shard in stats}
  num_eligible = {shard: each["replay/eligible"] for shard, each in stats.items()}
  out = {name: sum(each[name] for each in stats.values()) for name in first}
  for name, weight in (("replay/fill", num_lanes), ("replay/delta_mean", num_eligible)):
    sum_of_weights = max(sum(weight.values()), 1.0)
    out[name] = sum(weight[shard] * each[name] for shard, each in stats.items()) / sum_of_weights
  out["replay/delta_max"] = max(each["replay/delta_max"] for each in stats.values())
  return out

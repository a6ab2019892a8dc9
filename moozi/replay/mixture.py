"""Replay of two parts: the run's own steps, and those of stored trajectories. Imports no JAX."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from jaxtyping import Bool, Float, Int, Num

from moozi.core.config import Config
from moozi.core.config.reanalyze import ReanalyzeConfig
from moozi.core.errors import UserError
from moozi.core.flat_state import Snapshot, State, part, prefixed
from moozi.core.histogram import Histogram
from moozi.core.pytree import map_fields, replace
from moozi.core.records import NStepTransition, RootSpan, SearchRoots, TrainTarget, TrajectorySample
from moozi.core.seeds import child_seed
from moozi.core.spec import EnvSpec
from moozi.replay.buffer import ReplayBuffer
from moozi.replay.protocol import Replay, ReplayPart, Supply, total
from moozi.replay.shards import ShardedReplay
from moozi.replay.snapshot import STORED, shape_of
from moozi.replay.validation import split_at_gaps

# Acted and searched version of all stored steps; they are older than this run's first parameters.
_STORED_VERSION = -1


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredTrajectories:
  """Trajectories on disk, with a function that reads their steps.

  Attributes:
    where: name of the trajectories in error messages.
    lane_steps: number of steps of each lane, by lane.
    read: yields (lane, steps [T, …]); the steps of each lane are in time order.
  """

  where: str
  lane_steps: Mapping[int, int]
  read: Callable[[], Iterator[tuple[int, TrajectorySample]]]


def make_replay(config: Config, spec: EnvSpec, stored: ReplayPart | None) -> Replay:
  """Makes the replay of a run. The part of the run's own steps is empty.

  This part has one lane for each environment of each worker. With `ray.replay_shards` above 1, the replay is
  a composite of shards.

  Args:
    stored: the part of stored trajectories, whose importance ratios are not normalized; None without them.
      Must be None with several shards.
  """
  if config.ray.replay_shards > 1:
    assert stored is None, "the configuration allows no stored trajectories with shards"
    return ShardedReplay(config, spec)
  settings = config.replay
  if stored is not None:
    settings = settings.model_copy(update={"normalize_importance": False})
  acted = ReplayBuffer(
    settings,
    config.targets,
    spec,
    config.max_workers * config.workers.num_envs,
    child_seed(config.seed, "replay"),
    config.frames_ahead,
    config.learner.symmetries,
  )
  if stored is None:
    return acted
  return MixedReplay(acted, stored, config.offline.share_of, config.replay.normalize_importance)


class MixedReplay:
  """A Replay of two parts: workers add to the first, and a fixed share of each batch is from the second.

  The slots of the second part follow those of the first.
  """

  def __init__(
    self, acted: Replay, stored: ReplayPart, share_of: Callable[[int], int], normalizes: bool
  ) -> None:
    """Composes two parts.

    Args:
      acted: the part of the run's own steps; not drawn from if the stored steps fill the batch.
      stored: the part of stored trajectories; snapshots leave out its steps.
      share_of: returns the number of a batch's targets that are stored steps, from the batch size.
      normalizes: whether to normalize the importance ratios of each batch. The ratios of a whole batch have
        one maximum, so the parts must not normalize theirs.
    """
    self._acted, self._stored, self._share_of, self._normalizes = acted, stored, share_of, normalizes
    self.add, self.add_or_refuse, self.await_first = acted.add, acted.add_or_refuse, acted.await_first

  @property
  def num_slots(self) -> int:
    return self._acted.num_slots + self._stored.num_slots

  @property
  def num_steps(self) -> int:
    return self._acted.num_steps + self._stored.num_steps

  def can_sample(self, batch_size: int) -> bool:
    num_acted = batch_size - self._share_of(batch_size)
    return (num_acted == 0 or self._acted.can_sample(num_acted)) and self._stored.can_sample(1)

  def supply(self) -> Supply:
    """Returns the sums over both parts."""
    return total([self._acted.supply(), self._stored.supply()])

  def sample_many(self, num_batches: int, batch_size: int) -> TrainTarget:
    """Draws from both parts. In each batch, the targets of stored steps are the first ones."""
    num_stored = self._share_of(batch_size)
    targets = self._stored.sample_many(num_batches, num_stored)
    targets = replace(targets, slot=targets.slot + self._acted.num_slots)
    if num_stored < batch_size:
      acted = self._acted.sample_many(num_batches, batch_size - num_stored)
      targets = map_fields(lambda a, b: np.concatenate([a, b], axis=1), targets, acted)
    if self._normalizes:
      ratio = targets.importance_ratio
      targets = replace(targets, importance_ratio=ratio / ratio.max(axis=1, keepdims=True))
    return targets

  def _split(
    self, slot: Int[np.ndarray, "M"]
  ) -> Iterator[tuple[ReplayPart, Bool[np.ndarray, "M"], Int[np.ndarray, "N"]]]:
    """Yields each part, which of the slots are its own, and these as the part numbers them."""
    is_stored = slot >= self._acted.num_slots
    yield self._acted, ~is_stored, slot[~is_stored]
    yield self._stored, is_stored, slot[is_stored] - self._acted.num_slots

  def set_discount(self, discount: float) -> None:
    self._acted.set_discount(discount)
    self._stored.set_discount(discount)

  def transitions(self, slot: Int[np.ndarray, "M"]) -> NStepTransition:
    (acted, is_acted, own), (stored, _, other) = self._split(slot)
    place = np.argsort(np.argsort(~is_acted, kind="stable"))  # of each slot, with those of `acted` first
    return map_fields(
      lambda a, b: np.concatenate([a, b])[place], acted.transitions(own), stored.transitions(other)
    )

  def update_priorities(
    self, slot: Int[np.ndarray, "*M"], sequence: Int[np.ndarray, "*M"], delta: Num[np.ndarray, "*M"]
  ) -> int:
    slot, sequence, delta = np.ravel(slot), np.ravel(sequence), np.ravel(delta)
    parts = self._split(slot)
    return sum(part.update_priorities(own, sequence[rows], delta[rows]) for part, rows, own in parts)

  def write_back(
    self,
    slot: Int[np.ndarray, "M"],
    sequence: Int[np.ndarray, "M"],
    root_value: Float[np.ndarray, "M"],
    action_probs: Float[np.ndarray, "M A"],
    searched_version: Num[np.ndarray, "M"] | int,
  ) -> int:
    version = np.broadcast_to(searched_version, slot.shape)
    return sum(
      part.write_back(own, sequence[rows], root_value[rows], action_probs[rows], version[rows])
      for part, rows, own in self._split(slot)
    )

  def positions(self, config: ReanalyzeConfig, version: int) -> SearchRoots | list[RootSpan]:
    count = self._share_of(config.batch_size)
    stored = self._stored.positions(config.model_copy(update={"batch_size": count}), version)
    count = config.batch_size - count
    acted = self._acted.positions(config.model_copy(update={"batch_size": count}), version)
    begin = self._acted.num_slots
    if isinstance(stored, SearchRoots):
      assert isinstance(acted, SearchRoots)
      stored = replace(stored, slot=stored.slot + begin)
      return map_fields(lambda a, b: np.concatenate([a, b]), stored, acted)
    assert isinstance(acted, list)
    return [replace(span, slot=span.slot + begin) for span in stored] + acted

  def stats(self) -> dict[str, float]:
    """Returns the metrics of both parts, whose names differ."""
    return self._acted.stats() | self._stored.stats()

  def histograms(self) -> dict[str, Histogram]:
    return self._acted.histograms() | self._stored.histograms()

  def snapshot(self, known: Int[np.ndarray, "N"] | None = None) -> Snapshot:
    acted = self._acted.snapshot(known)
    return dataclasses.replace(acted, head=acted.head | prefixed(STORED, self._stored.snapshot().head))

  def restore(self, snapshot: Snapshot) -> int:
    stored = dataclasses.replace(snapshot, head=part(snapshot.head, STORED), blocks={})
    return self._stored.restore(stored) + self._acted.restore(snapshot)


class StoredReplay:
  """A ReplayPart of stored trajectories, which `add_stored` adds once and no later step replaces.

  Importance ratios are not normalized. The names of metrics start with offline/.
  """

  def __init__(self, config: Config, spec: EnvSpec, lane_steps: Mapping[int, int]) -> None:
    """Makes the part empty. `lane_steps` has the number of steps by lane, which sets the capacity.

    Raises: UserError: the steps do not fit in memory.
    """
    self._lanes_of = {lane: i for i, lane in enumerate(sorted(lane_steps))}
    # Stored lanes do not grow, so a window would leave out their older steps for good.
    settings = config.replay.model_copy(
      update={
        "capacity": len(lane_steps) * max(lane_steps.values()),
        "min_steps_to_learn": 1,
        "window_share": 1.0,
        "normalize_importance": False,
      }
    )
    age = config.targets.search_value_age
    # All stored steps are old, however near to the end of the recording.
    targets = config.targets if age is None else config.targets.model_copy(update={"search_value_age": 1})
    try:
      self._buffer = buffer = ReplayBuffer(
        settings,
        targets,
        spec,
        len(lane_steps),
        # A separate seed: with that of the run's own steps, both would draw the same random numbers.
        child_seed(config.seed, "replay", 1),
        config.frames_ahead,
        config.learner.symmetries,
      )
    except MemoryError as e:
      raise UserError(
        f"offline.trajectories={config.offline.trajectories}: do not fit in memory: {e}"
      ) from None
    self.can_sample, self.supply, self.sample_many = buffer.can_sample, buffer.supply, buffer.sample_many
    self.set_discount = buffer.set_discount
    self.positions, self.transitions = buffer.positions, buffer.transitions
    self.update_priorities, self.write_back = buffer.update_priorities, buffer.write_back
    self._num_missing = sum(lane_steps.values())
    self._pending_state: State = {}

  @property
  def num_slots(self) -> int:
    return self._buffer.num_slots

  @property
  def num_steps(self) -> int:
    return self._buffer.num_steps

  def add_stored(self, lane: int, steps: TrajectorySample, where: str) -> None:
    """Appends stored steps [T, …] to their lane.

    Truncates an episode that has no last step if another episode follows in the lane.

    Raises: UserError: the steps break a convention of the records. The message starts with `where`.
    """
    is_first = np.array(steps.is_first)
    own_lane = self._lanes_of[lane]
    # A lane's first stored step counts as a first step, even in the middle of an episode: it has no history.
    is_first[0] |= self._buffer.storage.is_empty[own_lane]
    version = np.full(len(is_first), _STORED_VERSION, np.int32)
    steps = replace(steps, is_first=is_first, acted_version=version, searched_version=version)
    try:
      for segment in split_at_gaps(steps):
        self._buffer.add(segment, own_lane)
      self._num_missing -= len(is_first)
      self._restore_pending()
    except ValueError as e:
      raise UserError(f"{where}: lane {lane}: {e}") from None

  def stats(self) -> dict[str, float]:
    return {name.replace("replay/", "offline/", 1): x for name, x in self._buffer.stats().items()}

  def histograms(self) -> dict[str, Histogram]:
    return {name.replace("replay/", "offline/", 1): x for name, x in self._buffer.histograms().items()}

  def snapshot(self, known: Int[np.ndarray, "N"] | None = None) -> Snapshot:
    """Returns the state without blocks: a resumed run reads the steps from disk again.

    Includes the search values and policies if any step was searched again.
    """
    state = self._head()
    if state["counter/rewritten"]:
      state |= prefixed("searched", self._buffer.storage.get_searched())
    return Snapshot(head=state)

  def restore(self, snapshot: Snapshot) -> int:
    """Restores the state as soon as all steps are added; drops it if the steps or the sampling have changed.

    Returns: 0.
    """
    self._pending_state = snapshot.head
    self._restore_pending()
    return 0

  def _head(self) -> State:
    return self._buffer.get_state() | {"content": self._buffer.storage.checksum()}

  def _restore_pending(self) -> None:
    if self._num_missing or not self._pending_state:
      return
    state, self._pending_state = self._pending_state, {}
    own = self._head()
    if shape_of(state) != shape_of(own) or int(state["content"]) != own["content"]:
      return
    # The search values come first, because the priorities may be computed from them again.
    searched = part(state, "searched")
    if searched:
      self._buffer.storage.set_searched(searched)
    self._buffer.set_state(state)

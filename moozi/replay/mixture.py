"""A replay buffer with two parts: this run's own steps, and stored trajectories. Imports no JAX."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from jaxtyping import Float, Int, Num

from moozi.core.config import Config, ReplayConfig, TargetsConfig
from moozi.core.config.reanalyze import ReanalyzeConfig
from moozi.core.errors import UserError
from moozi.core.flat_state import State, part, prefixed
from moozi.core.histogram import Histogram
from moozi.core.pytree import map_fields, replace
from moozi.core.records import RootSpan, SearchRoots, TrainTarget, TrajectorySample
from moozi.core.seeds import child_seed
from moozi.core.spec import EnvSpec
from moozi.replay.buffer import ReplayBuffer
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


def make_replay(config: Config, spec: EnvSpec, stored: Mapping[int, int] | None) -> ReplayBuffer:
  """Makes the empty replay buffer, with one lane for each (worker, environment) and one for each stored lane.

  Args:
    stored: number of steps of each lane of the trajectories on disk; None without trajectories.

  Raises: UserError: the stored steps do not fit in memory.
  """
  if stored is not None:
    return MixedReplay(config, spec, stored)
  return ReplayBuffer(*_acted_part(config, spec))


def _acted_part(
  config: Config, spec: EnvSpec
) -> tuple[ReplayConfig, TargetsConfig, EnvSpec, int, int, int, bool]:
  """Returns the arguments of the ReplayBuffer for this run's own steps."""
  num_lanes = config.workers.num_workers * config.workers.num_envs
  return (
    config.replay,
    config.targets,
    spec,
    num_lanes,
    child_seed(config.seed, "replay"),
    config.frames_ahead,
    config.learner.symmetries,
  )


class MixedReplay(ReplayBuffer):
  """A ReplayBuffer of this run's own steps, with a second ReplayBuffer of steps from stored trajectories.

  A fixed share of each batch, `offline.fraction`, is drawn from the stored steps. Their slots follow the
  slots of the run's own steps. With `offline.fraction=1`, the run has no steps of its own.
  """

  def __init__(self, config: Config, spec: EnvSpec, stored: Mapping[int, int]) -> None:
    """Makes both parts empty. `stored` has the number of stored steps by lane, which sets the capacity."""
    # The ratios of a whole batch have one maximum, so this class normalizes them instead of its parts.
    self._normalizes = config.replay.normalize_importance
    config = config.model_copy(
      update={"replay": config.replay.model_copy(update={"normalize_importance": False})}
    )
    super().__init__(*_acted_part(config, spec))
    self._share = config.offline.share_of
    self._lanes_of = {lane: i for i, lane in enumerate(sorted(stored))}
    capacity = len(stored) * max(stored.values())
    # Stored lanes do not grow, so a window would leave out their older steps for good.
    settings = config.replay.model_copy(
      update={"capacity": capacity, "min_steps_to_learn": 1, "window_share": 1.0}
    )
    age = config.targets.search_value_age
    # All stored steps are old, however near to the end of the recording.
    targets = config.targets if age is None else config.targets.model_copy(update={"search_value_age": 1})
    # A separate seed: with the seed of the other part, both parts would draw the same random numbers.
    seed = child_seed(config.seed, "replay", 1)
    try:
      self._stored = ReplayBuffer(
        settings,
        targets,
        spec,
        len(stored),
        seed,
        config.frames_ahead,
        config.learner.symmetries,
      )
    except MemoryError as e:
      raise UserError(
        f"offline.trajectories={config.offline.trajectories}: do not fit in memory: {e}"
      ) from None
    self._first_stored_slot = self.storage.size
    self._num_missing = sum(stored.values())
    self._pending_state: State = {}

  @property
  def num_steps(self) -> int:
    return super().num_steps + self._stored.num_steps

  def add_stored(self, lane: int, steps: TrajectorySample, where: str) -> None:
    """Appends stored steps [T, …] to their lane; truncates an episode that has no last step.

    Raises: UserError: the steps break a convention of the records. The message starts with `where`.
    """
    is_first = np.array(steps.is_first)
    own_lane = self._lanes_of[lane]
    # A lane's first stored step counts as a first step, even in the middle of an episode: it has no history.
    is_first[0] |= self._stored.storage.is_empty[own_lane]
    version = np.full(len(is_first), _STORED_VERSION, np.int32)
    steps = replace(steps, is_first=is_first, acted_version=version, searched_version=version)
    try:
      for segment in split_at_gaps(steps):
        self._stored.add(segment, own_lane)
      self._num_missing -= len(is_first)
      self._restore_stored()
    except ValueError as e:
      raise UserError(f"{where}: lane {lane}: {e}") from None

  def get_stored_state(self) -> State:
    """Returns the state of the stored part without the steps, which a resumed run reads from disk again.

    Includes the search values and policies if any stored step was reanalyzed.
    """
    state = self._stored.get_state(with_rings=False) | {"content": self._stored.storage.checksum()}
    if state["counter/rewritten"]:
      state |= prefixed("searched", self._stored.storage.get_searched())
    return state

  def set_stored_state(self, state: State) -> None:
    """Restores the stored part as soon as all its steps are added, unless these steps have changed."""
    self._pending_state = state
    self._restore_stored()

  def _restore_stored(self) -> None:
    if self._num_missing or not self._pending_state:
      return
    state, self._pending_state = self._pending_state, {}
    own = self._stored.get_state(with_rings=False) | {"content": self._stored.storage.checksum()}
    is_same = len(state["storage/newest"]) == len(own["storage/newest"])
    if not is_same or any(int(state[name]) != own[name] for name in ("content", "sampling", "lane_capacity")):
      return
    # The search values come first, because the priorities may be computed from them again.
    searched = part(state, "searched")
    if searched:
      self._stored.storage.set_searched(searched)
    self._stored.set_state(state, with_rings=False)

  def can_sample(self, batch_size: int) -> bool:
    num_stored = self._share(batch_size)
    is_acted = num_stored == batch_size or super().can_sample(batch_size - num_stored)
    return is_acted and self._stored.can_sample(1)

  def sample_many(self, num_batches: int, batch_size: int) -> TrainTarget:
    """Draws U batches at once, and returns a TrainTarget [U, B, …]. In each batch, stored steps are first."""
    num_stored = self._share(batch_size)
    targets = self._stored.sample_many(num_batches, num_stored)
    targets = replace(targets, slot=targets.slot + self._first_stored_slot)
    if num_stored < batch_size:
      acted = super().sample_many(num_batches, batch_size - num_stored)
      targets = map_fields(lambda a, b: np.concatenate([a, b], axis=1), targets, acted)
    if self._normalizes:
      ratio = targets.importance_ratio
      targets = replace(targets, importance_ratio=ratio / ratio.max(axis=1, keepdims=True))
    return targets

  def update_priorities(
    self, slot: Int[np.ndarray, "*M"], sequence: Int[np.ndarray, "*M"], delta: Num[np.ndarray, "*M"]
  ) -> int:
    slot, sequence, delta = np.ravel(slot), np.ravel(sequence), np.ravel(delta)
    is_stored = slot >= self._first_stored_slot
    stored = slot[is_stored] - self._first_stored_slot
    return self._stored.update_priorities(
      stored, sequence[is_stored], delta[is_stored]
    ) + super().update_priorities(slot[~is_stored], sequence[~is_stored], delta[~is_stored])

  def write_back(
    self,
    slot: Int[np.ndarray, "M"],
    sequence: Int[np.ndarray, "M"],
    root_value: Float[np.ndarray, "M"],
    action_probs: Float[np.ndarray, "M A"],
    searched_version: Num[np.ndarray, "M"] | int,
  ) -> int:
    is_stored = slot >= self._first_stored_slot
    stored = slot[is_stored] - self._first_stored_slot
    searched_version = np.broadcast_to(searched_version, slot.shape)
    return self._stored.write_back(
      stored, sequence[is_stored], root_value[is_stored], action_probs[is_stored], searched_version[is_stored]
    ) + super().write_back(
      slot[~is_stored],
      sequence[~is_stored],
      root_value[~is_stored],
      action_probs[~is_stored],
      searched_version[~is_stored],
    )

  def positions(self, config: ReanalyzeConfig, version: int) -> SearchRoots | list[RootSpan]:
    num_stored = self._share(config.batch_size)
    stored = self._stored.positions(config.model_copy(update={"batch_size": num_stored}), version)
    num_acted = config.batch_size - num_stored
    acted = super().positions(config.model_copy(update={"batch_size": num_acted}), version)
    begin = self._first_stored_slot
    if isinstance(stored, SearchRoots):
      assert isinstance(acted, SearchRoots)
      stored = replace(stored, slot=stored.slot + begin)
      return map_fields(lambda a, b: np.concatenate([a, b]), stored, acted)
    assert isinstance(acted, list)
    return [replace(span, slot=span.slot + begin) for span in stored] + acted

  def stats(self) -> dict[str, float]:
    """Returns metrics of the run's own steps under replay/, and of the stored steps under offline/."""
    stored = {name.replace("replay/", "offline/", 1): x for name, x in self._stored.stats().items()}
    return super().stats() | stored

  def histograms(self) -> dict[str, Histogram]:
    stored = {name.replace("replay/", "offline/", 1): x for name, x in self._stored.histograms().items()}
    return super().histograms() | stored

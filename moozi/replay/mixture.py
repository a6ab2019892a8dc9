"""Replay of two parts: what is acted in this run, and trajectories that lay on disk when it began. No JAX."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.core.flat_state import State, part, prefixed
from moozi.core.histogram import Histogram
from moozi.core.pytree import map_fields, replace
from moozi.core.reanalyze_config import ReanalyzeConfig
from moozi.core.records import RootSpan, SearchRoots, TrainTarget, TrajectorySample
from moozi.core.seeds import child_seed
from moozi.core.spec import EnvSpec
from moozi.replay.buffer import AddStats, ReplayBuffer
from moozi.replay.validation import AddResult, stretches

# Stored steps were acted and searched in another run, before this one's first update.
_BEFORE = -1


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredTrajectories:
  """Trajectories on disk, as a run is given them: it knows no files.

  Attributes:
    where: what to call them in an error.
    lane_steps: steps by lane.
    read: the steps [T, …] of one lane after the other's, each lane's in order.
  """

  where: str
  lane_steps: Mapping[int, int]
  read: Callable[[], Iterator[tuple[int, TrajectorySample]]]


def make_replay(
  config: Config, spec: EnvSpec, stored: Mapping[int, int] | None
) -> "ReplayBuffer | MixedReplay":
  """The replay buffer, with one lane for each (worker, environment), and one for each stored lane.

  Args:
    config: the run's configuration.
    spec: the environment's facts.
    stored: steps by lane of the trajectories on disk; None: there are none.

  Raises: UserError: there is no memory for them.
  """
  num_lanes = config.workers.num_workers * config.workers.num_envs
  seed = child_seed(config.seed, "replay")
  acted = ReplayBuffer(config.replay, config.targets, spec, num_lanes, seed)
  if stored is None:
    return acted
  try:
    return MixedReplay(acted, config, spec, stored)
  except MemoryError as e:
    raise UserError(
      f"offline.trajectories={config.offline.trajectories}: do not fit in memory: {e}"
    ) from None


class MixedReplay:
  """Has the face of ReplayBuffer over two of them, and takes a fixed share of each batch from the stored one.

  Slots of stored steps lie behind all of the acted ones'. With `offline.fraction` 1 nothing is acted.

  Args:
    acted: for what is acted.
    config: the run's configuration.
    spec: the environment's facts.
    stored: steps by lane; room is made for all of them.
  """

  def __init__(self, acted: ReplayBuffer, config: Config, spec: EnvSpec, stored: Mapping[int, int]) -> None:
    self.acted, self._fraction = acted, config.offline.fraction
    self._lanes = {lane: i for i, lane in enumerate(sorted(stored))}
    capacity = len(stored) * max(stored.values())
    settings = config.replay.model_copy(update={"capacity": capacity, "min_steps_to_learn": 1})
    # Another generator than the acted part's, or both would draw the same numbers.
    seed = child_seed(config.seed, "replay", 1)
    self._stored = ReplayBuffer(settings, config.targets, spec, len(stored), seed)
    self._first_stored_slot = acted.storage.size
    self._num_missing = sum(stored.values())
    self._goes_on_from: State = {}

  @property
  def num_steps(self) -> int:
    """Steps of both parts."""
    return self.acted.num_steps + self._stored.num_steps

  def add(self, segment: TrajectorySample, first_lane: int) -> AddStats:
    """Appends what was acted; see ReplayBuffer."""
    return self.acted.add(segment, first_lane)

  def take(self, segment: TrajectorySample, first_lane: int, num_lanes: int, num_steps: int) -> AddResult:
    """Appends what was acted, or refuses it; see ReplayBuffer."""
    return self.acted.take(segment, first_lane, num_lanes, num_steps)

  def add_stored(self, lane: int, steps: TrajectorySample) -> None:
    """Appends stored steps [T, …] to their lane; an episode that was left without an end is cut off.

    Raises: ValueError: they break a convention of the records.
    """
    is_first = np.array(steps.is_first)
    slot = self._lanes[lane]
    # Where trajectories begin in the middle of an episode, the history begins there.
    is_first[0] |= self._stored.storage.newest[slot] < 0
    version = np.full(len(is_first), _BEFORE, np.int32)
    steps = replace(steps, is_first=is_first, acted_version=version, searched_version=version)
    for segment in stretches(steps):
      self._stored.add(segment, slot)
    self._num_missing -= len(is_first)
    self._go_on()

  def get_stored_state(self) -> State:
    """What the stored part goes on from: all but the steps themselves, which are read anew.

    Values and policies are in it where steps were searched again.
    """
    state = self._stored.get_state(with_rings=False) | {"content": self._stored.storage.content()}
    if state["counter/rewritten"]:
      state |= prefixed("searched", self._stored.storage.get_searches())
    return state

  def set_stored_state(self, state: State) -> None:
    """Goes on from there once all stored steps are here; where they are others than they were, from anew."""
    self._goes_on_from = state
    self._go_on()

  def _go_on(self) -> None:
    if self._num_missing or not self._goes_on_from:
      return
    state, self._goes_on_from = self._goes_on_from, {}
    mine = self._stored.get_state(with_rings=False) | {"content": self._stored.storage.content()}
    if any(int(state[name]) != mine[name] for name in ("content", "sampling", "lane_capacity")):
      return
    self._stored.set_state(state, with_rings=False)
    searched = part(state, "searched")
    if searched:
      self._stored.storage.set_searches(searched)

  def can_sample(self, batch_size: int) -> bool:
    """Whether training may start: both parts have their share of a batch."""
    num_stored = self._share(batch_size)
    is_acted = num_stored == batch_size or self.acted.can_sample(batch_size - num_stored)
    return is_acted and self._stored.can_sample(1)

  def sample_many(self, num_batches: int, batch_size: int) -> TrainTarget:
    """U batches at once: a TrainTarget [U, B, …], the stored part's share first."""
    num_stored = self._share(batch_size)
    targets = self._stored.sample_many(num_batches, num_stored)
    targets = replace(targets, slot=targets.slot + self._first_stored_slot)
    if num_stored == batch_size:
      return targets
    acted = self.acted.sample_many(num_batches, batch_size - num_stored)
    return map_fields(lambda a, b: np.concatenate([a, b], axis=1), targets, acted)

  def update_priorities(self, slot: np.ndarray, sequence: np.ndarray, delta: np.ndarray) -> int:
    """Takes new δ for drawn steps of either part; returns how many were applied."""
    slot, sequence, delta = np.ravel(slot), np.ravel(sequence), np.ravel(delta)
    is_stored = slot >= self._first_stored_slot
    stored = slot[is_stored] - self._first_stored_slot
    return self._stored.update_priorities(
      stored, sequence[is_stored], delta[is_stored]
    ) + self.acted.update_priorities(slot[~is_stored], sequence[~is_stored], delta[~is_stored])

  def write_back(
    self,
    slot: np.ndarray,
    sequence: np.ndarray,
    root_value: np.ndarray,
    action_probs: np.ndarray,
    searched_version: np.ndarray,
  ) -> int:
    """Takes a newer search's value [M] and policy [M, A] of steps of either part; see ReplayBuffer."""
    is_stored = slot >= self._first_stored_slot
    num_applied = 0
    for buffer, mine, begin in (
      (self._stored, is_stored, self._first_stored_slot),
      (self.acted, ~is_stored, 0),
    ):
      num_applied += buffer.write_back(
        slot[mine] - begin, sequence[mine], root_value[mine], action_probs[mine], searched_version[mine]
      )
    return num_applied

  def positions(self, config: ReanalyzeConfig, version: int) -> SearchRoots | list[RootSpan]:
    """Positions to search again, of each part its share; see ReplayBuffer."""
    num_stored = self._share(config.batch_size)
    stored = self._stored.positions(config.model_copy(update={"batch_size": num_stored}), version)
    num_acted = config.batch_size - num_stored
    acted = self.acted.positions(config.model_copy(update={"batch_size": num_acted}), version)
    begin = self._first_stored_slot
    if isinstance(stored, SearchRoots):
      assert isinstance(acted, SearchRoots)
      stored = replace(stored, slot=stored.slot + begin)
      return map_fields(lambda a, b: np.concatenate([a, b]), stored, acted)
    assert isinstance(acted, list)
    return [replace(span, slot=span.slot + begin) for span in stored] + acted

  def stats(self) -> dict[str, float]:
    """The acted part's figures under replay/, the stored one's under offline/."""
    stored = {name.replace("replay/", "offline/", 1): x for name, x in self._stored.stats().items()}
    return self.acted.stats() | stored

  def histograms(self) -> dict[str, Histogram]:
    """As `stats` has it."""
    stored = {name.replace("replay/", "offline/", 1): x for name, x in self._stored.histograms().items()}
    return self.acted.histograms() | stored

  def check_valid(self) -> None:
    """Raises ValueError where a part contradicts itself."""
    self.acted.check_valid()
    self._stored.check_valid()

  def _share(self, count: int) -> int:
    """How many of `count` come from the stored part; at least one from each that takes part."""
    if self._fraction == 1:
      return count
    return min(max(round(self._fraction * count), 1), count - 1)


def add_stored(replay: ReplayBuffer | MixedReplay, where: str, lane: int, steps: TrajectorySample) -> None:
  """Puts the next stored steps [T, …] of a lane into replay.

  Raises: UserError: they break a convention of the records.
  """
  assert isinstance(replay, MixedReplay), "made with the same trajectories"
  try:
    replay.add_stored(lane, steps)
  except ValueError as e:
    raise UserError(f"{where}: lane {lane}: {e}") from None

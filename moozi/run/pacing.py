"""Paces acting, learning and reanalyze: when training starts, sample reuse, and the reanalyze ratio.

This module only counts: it uses no clock and no processes. `run.local` and the Ray driver use it.
"""

import math

from moozi.core.config import Config
from moozi.core.flat_state import Entry, State, counter, number

_ANY_COUNT = -(2**53)  # with Ray, a replay buffer that restarts corrects a counter downwards

# The entries of `Pacer.get_state`.
PACER_STATE: dict[str, Entry] = {
  "env_steps": counter(),
  "steps_lost": counter(_ANY_COUNT),
  "samples_done": counter(_ANY_COUNT),
  "positions_done": counter(),
  "started_at": counter(-1),
  "samples_per_step": number(0),
  "positions_per_step": number(0),
  "since_steps": counter(_ANY_COUNT),
  "since_samples": number(-1e15, 1e15),
  "since_positions": number(-1e15, 1e15),
}


def without_replay(state: State) -> State:
  """Returns a pacer's state for a run whose replay is empty again: no count but the environment steps stays.

  Training starts again when replay has enough steps. With the former start, the calls for the steps that fill
  replay would all be due at once.
  """
  counts = ("steps_lost", "samples_done", "positions_done", "since_steps")
  sums = ("since_samples", "since_positions")
  return dict(state) | {"started_at": -1} | dict.fromkeys(counts, 0) | dict.fromkeys(sums, 0.0)


class Meter:
  """Counts the items that calls consume: at most `ratio` items per produced step.

  `request` counts a requested call, `finish` counts its result, `undo` cancels a request that was lost, and
  `waive` one for which there was nothing to consume.

  Args:
    ratio: items per step; with 0, no call may be requested.
    call_items: number of items of a call.

  Attributes:
    requested, done: number of items requested and consumed.
    since: number of items that former ratios allowed (see `Pacer.set_state`), less those of waived calls.
  """

  def __init__(self, ratio: float, call_items: int) -> None:
    self.ratio, self.call_items = ratio, call_items
    self.requested = self.done = 0
    self.since = 0.0

  def may_request(self, num_steps: int) -> bool:
    """Returns whether another call may be requested after `num_steps` steps with this ratio."""
    allowed = self.since + num_steps * self.ratio
    return self.ratio > 0 and self.requested + self.call_items <= allowed

  def request(self) -> None:
    self.requested += self.call_items

  def finish(self, num_items: int | None = None) -> None:
    """Counts a completed call, which may consume fewer items than requested; None: all of them."""
    num_items = self.call_items if num_items is None else num_items
    self.requested += num_items - self.call_items
    self.done += num_items

  def undo(self) -> None:
    self.requested -= self.call_items

  def waive(self) -> None:
    """Counts a call that found nothing: its items are neither consumed nor due any more."""
    self.undo()
    self.since -= self.call_items

  @property
  def steps_served(self) -> float:
    """The number of steps with this ratio whose items are consumed; infinite with ratio 0."""
    return (self.done - self.since) / self.ratio if self.ratio else math.inf


class Pacer:
  """Keeps the ratio of consumed targets to produced steps near `learner.samples_per_step` during training.

  No learner call is requested that needs more targets than the produced steps allow. Once replay can draw a
  batch, no segment is requested if acting is `slack_steps` or more ahead of the learner or of reanalyze.
  If `reanalyze.ratio` is above 0, reanalyze is paced in the same way, at ratio / (1 - ratio) positions per
  step.
  Lost steps, such as the steps of a segment that replay refused, count as environment steps but not as
  produced steps. If a resumed run changes a ratio, the new one applies to the steps from then on.

  Args:
    slack_steps: no segment is requested if acting is ahead by this number of environment steps. It is
      raised, if necessary, above one round of segments plus the steps that a learner or reanalyze call
      consumes. With less, acting and learning could wait for each other.

  Attributes:
    learn, reanalyze: meters of the targets that learning consumes, and of the positions that reanalyze
      searches.
    env_steps, env_steps_requested: environment steps received and requested.
    started_at: environment steps at the start of training; None before.
    steps_lost: environment steps that were not added to replay, since the start of training; before it, since
      the start of the run.
  """

  def __init__(self, config: Config, slack_steps: int) -> None:
    learner, share = config.learner, config.reanalyze.ratio
    self.learn = Meter(learner.samples_per_step, learner.batch_size * learner.updates_per_call)
    self.reanalyze = Meter(share / (1.0 - share), config.reanalyze.batch_size)
    self._min_steps = config.replay.min_steps_to_learn
    self._max_env_steps = config.max_env_steps
    self._round_steps = config.max_workers * config.workers.num_envs * config.workers.segment_length
    call_steps = max(meter.call_items / meter.ratio for meter in self._meters if meter.ratio)
    self._slack_steps = max(slack_steps, self._round_steps + int(call_steps) + 1)
    self.env_steps = self.env_steps_requested = 0
    self.started_at: int | None = None
    self.steps_lost = 0
    # The produced steps at which the ratios last changed.
    self._since_steps = 0

  @property
  def _meters(self) -> tuple[Meter, Meter]:
    return self.learn, self.reanalyze

  def may_act(self, can_sample: bool) -> bool:
    """Returns whether another segment may be requested.

    Args:
      can_sample: whether replay can draw a batch. Until then, acting is limited only by `max_env_steps`: the
        newest steps of a lane cannot be drawn yet, and a restarted replay may be empty.
    """
    if self.env_steps_requested >= self._max_env_steps:
      return False
    if not can_sample:
      return True
    if self.started_at is None:
      return self.env_steps_requested < self._min_steps + self._slack_steps
    served = min(meter.steps_served for meter in self._meters)
    in_flight = self.env_steps_requested - self.env_steps
    return self._steps_with_ratios + in_flight - served < self._slack_steps

  def may_learn(self, can_sample: bool) -> bool:
    """Returns whether another learner call may be requested.

    Marks the start of training when replay first has enough steps.

    Args:
      can_sample: whether replay can draw a batch.
    """
    if not can_sample:
      return False
    if self.started_at is None:
      if self.env_steps < self._min_steps:
        return False
      self.started_at = self.env_steps
      self.steps_lost = 0  # `started_at` already includes the steps lost before the start
    return self.learn.may_request(self._steps_with_ratios)

  def may_reanalyze(self) -> bool:
    """Returns whether another reanalyze call may be requested; false before training starts."""
    return self.started_at is not None and self.reanalyze.may_request(self._steps_with_ratios)

  def request_act(self, num_steps: int) -> None:
    """Counts a requested segment."""
    self.env_steps_requested += num_steps

  def done_act(self, num_steps: int, num_lost: int = 0) -> None:
    """Counts a received segment; `num_lost` of its steps were not stored in replay."""
    self.env_steps += num_steps
    self.steps_lost += num_lost

  def undo_act(self, num_steps: int) -> None:
    """Cancels a requested segment that was lost."""
    self.env_steps_requested -= num_steps

  def count_offline_steps(self, can_sample: bool) -> None:
    """Counts all steps that acting may take now; for a run that learns from stored trajectories only."""
    if not can_sample:
      return
    if self.started_at is None:
      # All steps are already in replay.
      self.started_at = self.env_steps
    while self.may_act(can_sample=True):
      self.request_act(self._round_steps)
      self.done_act(self._round_steps)

  def get_state(self) -> State:
    return {
      "env_steps": self.env_steps,
      "steps_lost": self.steps_lost,
      "samples_done": self.learn.done,
      "positions_done": self.reanalyze.done,
      "started_at": -1 if self.started_at is None else self.started_at,
      "samples_per_step": self.learn.ratio,
      "positions_per_step": self.reanalyze.ratio,
      "since_steps": self._since_steps,
      "since_samples": self.learn.since,
      "since_positions": self.reanalyze.since,
    }

  def set_state(self, state: State) -> None:
    """Restores a state. If a ratio has changed, the steps until now keep the former ones."""
    self.env_steps = self.env_steps_requested = int(state["env_steps"])
    self.steps_lost = int(state["steps_lost"])
    self.started_at = None if state["started_at"] < 0 else int(state["started_at"])
    self._since_steps = int(state["since_steps"])
    meters = (("samples", self.learn), ("positions", self.reanalyze))
    has_changed = any(float(state[f"{name}_per_step"]) != meter.ratio for name, meter in meters)
    steps = self._steps_with_ratios if has_changed else 0
    for name, meter in meters:
      meter.done = meter.requested = int(state[f"{name}_done"])
      meter.since = float(state[f"since_{name}"]) + steps * float(state[f"{name}_per_step"])
    self._since_steps += steps

  @property
  def has_all_steps(self) -> bool:
    return self.env_steps >= self._max_env_steps

  @property
  def is_complete(self) -> bool:
    """Whether all environment steps are taken, and learned from and reanalyzed with no such call in flight.

    If training has not started, whether all environment steps are taken.
    """
    if not self.has_all_steps or any(meter.requested != meter.done for meter in self._meters):
      return False
    if self.started_at is None:
      return True
    return not any(meter.may_request(self._steps_with_ratios) for meter in self._meters)

  @property
  def _steps_produced(self) -> int:
    """Steps that were added to replay since training started; 0 before."""
    return 0 if self.started_at is None else self.env_steps - self.started_at - self.steps_lost

  @property
  def _steps_with_ratios(self) -> int:
    """Produced steps since the ratios last changed."""
    return self._steps_produced - self._since_steps

  @property
  def reanalyze_ratio(self) -> float:
    """Reanalyzed positions / (reanalyzed positions + produced steps) since training started; 0 before."""
    done = self.reanalyze.done
    return done / (done + self._steps_produced) if done else 0.0

  @property
  def sample_reuse(self) -> float:
    """Consumed targets / produced steps since training started; 0 before."""
    return self.learn.done / self._steps_produced if self._steps_produced > 0 else 0.0


def slack_steps(config: Config) -> int:
  """Returns the number of steps by which acting must be ahead to keep all Ray actors' queues full.

  It is the number of steps in the workers' queues, plus the number of steps that the queued learner calls or
  the queued reanalyze calls need, whichever is larger.
  """
  workers, learner, ray, reanalyze = config.workers, config.learner, config.ray, config.reanalyze
  acting = config.max_workers * ray.segments_in_flight * workers.num_envs * workers.segment_length
  call_samples = learner.batch_size * learner.updates_per_call
  served = ray.batches_in_flight * call_samples / learner.samples_per_step
  if reanalyze.ratio:
    positions = reanalyze.num_workers * reanalyze.calls_in_flight * reanalyze.batch_size
    served = max(served, positions * (1 / reanalyze.ratio - 1))
  return int(acting + served)

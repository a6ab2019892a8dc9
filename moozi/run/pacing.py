"""Paces acting, learning and reanalyze: when training starts, sample reuse, and the reanalyze ratio.

This module only counts: it uses no clock and no processes. `run.local` and the Ray driver use it.
"""

from moozi.core.config import Config
from moozi.core.flat_state import State


class Pacer:
  """Keeps the ratio of consumed targets to produced steps at `learner.samples_per_step` during training.

  The learner never consumes more targets than the produced steps allow. Once replay can draw a batch, no
  segment is requested while acting is `slack_steps` or more ahead of the learner. If `reanalyze.ratio` is
  above 0, reanalyze is paced in the same way, at ratio / (1 - ratio) positions per step. Lost steps, such
  as the steps of a segment that replay refused, count as environment steps but not as produced steps. If a
  resumed run changes a ratio, the new one applies to the steps from then on.

  `ask_*` counts a requested call, `done_*` counts its result, and `undo_*` cancels a request that was lost.

  Args:
    slack_steps: maximum number of environment steps by which acting is ahead. It is raised, if necessary, to
      one round of segments plus the steps that one learner (or reanalyze) call consumes. With less, acting
      and learning could wait for each other.
  """

  def __init__(self, config: Config, slack_steps: int) -> None:
    self._ratio = config.learner.samples_per_step
    self._min_steps = config.replay.min_steps_to_learn
    self._call_samples = config.learner.batch_size * config.learner.updates_per_call
    self._max_env_steps = config.max_env_steps
    self._round_steps = config.workers.num_workers * config.workers.num_envs * config.workers.segment_length
    reanalyze = config.reanalyze
    self._positions_per_step = reanalyze.ratio / (1.0 - reanalyze.ratio)
    self._call_positions = reanalyze.batch_size
    call_steps = self._call_samples / self._ratio
    if reanalyze.ratio:
      call_steps = max(call_steps, self._call_positions / self._positions_per_step)
    self._slack_steps = max(slack_steps, self._round_steps + int(call_steps) + 1)
    self.env_steps = 0
    self.env_steps_asked = 0
    self.samples_done = 0
    self.samples_asked = 0
    self.positions_done = 0
    self.positions_asked = 0
    self.started_at: int | None = None
    self.steps_lost = 0
    # The produced steps at which the ratios last changed, and what the former ratios allowed until then.
    self._since_steps = 0
    self._since_samples = self._since_positions = 0.0

  def may_act(self, can_sample: bool) -> bool:
    """Returns whether another segment may be requested.

    Args:
      can_sample: whether replay can draw a batch. Until then, acting is limited only by `max_env_steps`: the
        newest n + K steps of a lane cannot be drawn, and a restarted replay may be empty.
    """
    if self.env_steps_asked >= self._max_env_steps:
      return False
    if not can_sample:
      return True
    if self.started_at is None:
      return self.env_steps_asked < self._min_steps + self._slack_steps
    served = (self.samples_done - self._since_samples) / self._ratio
    if self._positions_per_step:
      served = min(served, (self.positions_done - self._since_positions) / self._positions_per_step)
    produced = self.env_steps_asked - self.started_at - self.steps_lost - self._since_steps
    return produced - served < self._slack_steps

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
    return self.samples_asked + self._call_samples <= self._allowed_samples

  def may_reanalyze(self) -> bool:
    """Returns whether another reanalyze call may be requested; false before training starts."""
    if not self._positions_per_step:
      return False  # a resumed run without reanalyze drops the positions that the former ratio still allows
    left = self._allowed_positions - self.positions_asked
    return self.started_at is not None and left >= self._call_positions

  def ask_act(self, num_steps: int) -> None:
    self.env_steps_asked += num_steps

  def pass_steps(self, can_sample: bool) -> None:
    """Counts all steps that acting may take now; for a run that learns from stored trajectories only."""
    if not can_sample:
      return
    if self.started_at is None:
      # All steps are already in replay.
      self.started_at = self.env_steps
    while self.may_act(can_sample=True):
      self.ask_act(self._round_steps)
      self.done_act(self._round_steps)

  def done_act(self, num_steps: int, num_lost: int = 0) -> None:
    """Counts a received segment; `num_lost` of its steps were not stored in replay."""
    self.env_steps += num_steps
    self.steps_lost += num_lost

  def ask_learn(self) -> None:
    self.samples_asked += self._call_samples

  def done_learn(self) -> None:
    self.samples_done += self._call_samples

  def undo_act(self, num_steps: int) -> None:
    self.env_steps_asked -= num_steps

  def undo_learn(self) -> None:
    self.samples_asked -= self._call_samples

  def get_state(self) -> State:
    started_at = -1 if self.started_at is None else self.started_at
    names = ("env_steps", "steps_lost", "samples_done", "positions_done")
    return {name: getattr(self, name) for name in names} | {
      "started_at": started_at,
      "samples_per_step": self._ratio,
      "positions_per_step": self._positions_per_step,
      "since_steps": self._since_steps,
      "since_samples": self._since_samples,
      "since_positions": self._since_positions,
    }

  def set_state(self, state: State) -> None:
    self.env_steps = self.env_steps_asked = int(state["env_steps"])
    self.samples_done = self.samples_asked = int(state["samples_done"])
    self.steps_lost = int(state["steps_lost"])
    self.positions_done = self.positions_asked = int(state.get("positions_done", 0))
    self.started_at = None if state["started_at"] < 0 else int(state["started_at"])
    self._since_steps = int(state.get("since_steps", 0))
    self._since_samples = float(state.get("since_samples", 0.0))
    self._since_positions = float(state.get("since_positions", 0.0))
    ratios = self._ratio, self._positions_per_step
    # States of earlier versions have no ratios.
    names = "samples_per_step", "positions_per_step"
    before = tuple(float(state.get(name, ratio)) for name, ratio in zip(names, ratios, strict=True))
    if before != ratios:
      steps = self._steps_produced - self._since_steps
      self._since_samples += steps * before[0]
      self._since_positions += steps * before[1]
      self._since_steps += steps

  def ask_reanalyze(self) -> None:
    self.positions_asked += self._call_positions

  def undo_reanalyze(self) -> None:
    self.positions_asked -= self._call_positions

  def done_reanalyze(self, num_positions: int) -> None:
    """Counts a completed reanalyze call, which may search fewer positions than requested."""
    self.positions_asked += num_positions - self._call_positions
    self.positions_done += num_positions

  @property
  def has_all_steps(self) -> bool:
    return self.env_steps >= self._max_env_steps

  @property
  def is_complete(self) -> bool:
    """Whether all environment steps are taken, learned from and reanalyzed, with no call in flight."""
    is_pending = self.samples_asked != self.samples_done or self.positions_asked != self.positions_done
    if not self.has_all_steps or is_pending:
      return False
    if self.started_at is None:
      return True
    return self.samples_asked + self._call_samples > self._allowed_samples and not self.may_reanalyze()

  @property
  def _steps_produced(self) -> int:
    """Steps that were added to replay since training started; 0 before."""
    return 0 if self.started_at is None else self.env_steps - self.started_at - self.steps_lost

  @property
  def _allowed_samples(self) -> float:
    return self._since_samples + (self._steps_produced - self._since_steps) * self._ratio

  @property
  def _allowed_positions(self) -> float:
    return self._since_positions + (self._steps_produced - self._since_steps) * self._positions_per_step

  @property
  def reanalyze_ratio(self) -> float:
    """Reanalyzed positions / (reanalyzed positions + produced steps) since training started; 0 before."""
    return self.positions_done / (self.positions_done + self._steps_produced) if self.positions_done else 0.0

  @property
  def sample_reuse(self) -> float:
    """Consumed targets / produced steps since training started; 0 before."""
    return self.samples_done / self._steps_produced if self._steps_produced > 0 else 0.0


def slack_steps(config: Config) -> int:
  """Returns the number of steps by which acting must be ahead to keep all Ray actors' queues full.

  It is the number of steps in the workers' queues, plus the number of steps that the queued learner calls or
  the queued reanalyze calls need, whichever is larger.
  """
  workers, learner, ray, reanalyze = config.workers, config.learner, config.ray, config.reanalyze
  acting = workers.num_workers * ray.segments_in_flight * workers.num_envs * workers.segment_length
  call_samples = learner.batch_size * learner.updates_per_call
  served = ray.batches_in_flight * call_samples / learner.samples_per_step
  if reanalyze.ratio:
    positions = reanalyze.num_workers * reanalyze.calls_in_flight * reanalyze.batch_size
    served = max(served, positions * (1 / reanalyze.ratio - 1))
  return int(acting + served)

"""Who may work now: the start-of-training condition, sample reuse, reanalyze, and what is due when.

Pure bookkeeping without clocks or processes of its own; `loop` and the driver ask the same questions.
"""

from moozi.core.config import Config
from moozi.core.flat_state import State


class Pacer:
  """Holds targets consumed / steps produced at `learner.samples_per_step` from the start of training on.

  Steps that were acted and lost (a segment that replay refused) count as environment steps, since they were
  made, and give the learner nothing to consume: `env_steps` less those lost are the steps that replay got.

  Both sides are held: the learner never runs ahead of the data, and acting never runs ahead of the
  learner by more than `slack_steps`. In the same way positions searched again are held at
  ratio / (1 - ratio) a step, where `reanalyze.ratio` is above 0.

  Args:
    config: the run's configuration.
    slack_steps: environment steps that acting may be ahead; at least one round of segments and the
      steps one learner call consumes, or the two sides could wait for each other.
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

  def may_act(self, can_sample: bool) -> bool:
    """Whether another segment may be asked for.

    Args:
      can_sample: replay can draw a batch. Before training starts acting goes on until it can, however
        many steps that takes (a lane's newest n + K steps wait), and again where replay has lost its own.
    """
    if self.env_steps_asked >= self._max_env_steps:
      return False
    if not can_sample:
      return True
    if self.started_at is None:
      return self.env_steps_asked < self._min_steps + self._slack_steps
    served = self.samples_done / self._ratio
    if self._positions_per_step:
      served = min(served, self.positions_done / self._positions_per_step)
    return self.env_steps_asked - self.started_at - self.steps_lost - served < self._slack_steps

  def may_learn(self, can_sample: bool) -> bool:
    """Whether another call of the learner may be asked for; starts training when its condition is met.

    Args:
      can_sample: replay can draw a batch.
    """
    if not can_sample:
      return False
    if self.started_at is None:
      if self.env_steps < self._min_steps:
        return False
      self.started_at = self.env_steps
      self.steps_lost = 0  # from here on: the condition has counted the others
    return self.samples_asked + self._call_samples <= self._allowed_samples

  def may_reanalyze(self) -> bool:
    """Whether another call of a reanalyze worker may be asked for; never before training has begun."""
    return self.started_at is not None and self._positions_left >= self._call_positions

  def ask_act(self, num_steps: int) -> None:
    """A segment of so many environment steps was asked for."""
    self.env_steps_asked += num_steps

  def pass_steps(self, can_sample: bool) -> None:
    """Counts the steps that acting would have made by now; for a run in which nobody acts."""
    if not can_sample:
      return
    if self.started_at is None:
      # All that there is to learn from is there.
      self.started_at = self.env_steps
    while self.may_act(can_sample=True):
      self.ask_act(self._round_steps)
      self.done_act(self._round_steps)

  def done_act(self, num_steps: int, num_lost: int = 0) -> None:
    """A segment arrived; so many of its steps never reached replay."""
    self.env_steps += num_steps
    self.steps_lost += num_lost

  def ask_learn(self) -> None:
    """A learner call was asked for."""
    self.samples_asked += self._call_samples

  def done_learn(self) -> None:
    """A learner call is done."""
    self.samples_done += self._call_samples

  def undo_act(self, num_steps: int) -> None:
    """A segment that was asked for will not come."""
    self.env_steps_asked -= num_steps

  def undo_learn(self) -> None:
    """A learner call that was asked for will not be done."""
    self.samples_asked -= self._call_samples

  def get_state(self) -> State:
    """What is done. What was asked for and has not come is asked for again after `set_state`."""
    started_at = -1 if self.started_at is None else self.started_at
    names = ("env_steps", "steps_lost", "samples_done", "positions_done")
    return {name: getattr(self, name) for name in names} | {"started_at": started_at}

  def set_state(self, state: State) -> None:
    """Goes on from there."""
    self.env_steps = self.env_steps_asked = int(state["env_steps"])
    self.samples_done = self.samples_asked = int(state["samples_done"])
    self.steps_lost = int(state["steps_lost"])
    self.positions_done = self.positions_asked = int(state.get("positions_done", 0))
    self.started_at = None if state["started_at"] < 0 else int(state["started_at"])

  def ask_reanalyze(self) -> None:
    """A call of a reanalyze worker was asked for."""
    self.positions_asked += self._call_positions

  def undo_reanalyze(self) -> None:
    """A call of a reanalyze worker that was asked for will not be done."""
    self.positions_asked -= self._call_positions

  def done_reanalyze(self, num_positions: int) -> None:
    """A call of a reanalyze worker is done; so many positions were there to search."""
    self.positions_asked += num_positions - self._call_positions
    self.positions_done += num_positions

  @property
  def has_all_steps(self) -> bool:
    """All environment steps are in."""
    return self.env_steps >= self._max_env_steps

  @property
  def is_complete(self) -> bool:
    """All environment steps are in, and the learner and reanalyze have had their share of them."""
    is_under_way = self.samples_asked != self.samples_done or self.positions_asked != self.positions_done
    if not self.has_all_steps or is_under_way:
      return False
    if self.started_at is None:
      return True
    return self.samples_asked + self._call_samples > self._allowed_samples and not self.may_reanalyze()

  @property
  def _allowed_samples(self) -> float:
    assert self.started_at is not None
    return (self.env_steps - self.started_at - self.steps_lost) * self._ratio

  @property
  def _positions_left(self) -> float:
    assert self.started_at is not None
    produced = self.env_steps - self.started_at - self.steps_lost
    return produced * self._positions_per_step - self.positions_asked

  @property
  def reanalyze_ratio(self) -> float:
    """Positions searched again over those and the steps produced since training began; 0 before."""
    if not self.positions_done or self.started_at is None:
      return 0.0
    produced = self.env_steps - self.started_at - self.steps_lost
    return self.positions_done / (self.positions_done + produced)

  @property
  def sample_reuse(self) -> float:
    """Targets consumed over steps produced since training began; 0 before."""
    if self.started_at is None or self.env_steps - self.steps_lost <= self.started_at:
      return 0.0
    return self.samples_done / (self.env_steps - self.started_at - self.steps_lost)


def slack_steps(config: Config) -> int:
  """Steps that keep every queue full: the workers' and, in steps, the learner's or reanalyze's."""
  workers, learner, ray, reanalyze = config.workers, config.learner, config.ray, config.reanalyze
  acting = workers.num_workers * ray.segments_in_flight * workers.num_envs * workers.segment_length
  call_samples = learner.batch_size * learner.updates_per_call
  served = ray.batches_in_flight * call_samples / learner.samples_per_step
  if reanalyze.ratio:
    searches = reanalyze.num_workers * reanalyze.calls_in_flight * reanalyze.batch_size
    served = max(served, searches * (1 / reanalyze.ratio - 1))
  return int(acting + served)

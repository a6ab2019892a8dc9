"""The loop of an on-policy algorithm, in one process: act for one segment, check it, learn from it.

PPO and a user's own algorithm (`algorithm=module:function`) pass it their `OnPolicyParts`.

Source: Huang et al. 2022, core detail 1 (fixed-length segments of vectorized environments). Departure: the
step after an episode's end only resets the environment and gives no sample. It counts as an environment step,
as with MuZero.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from moozi.acting.collector import TrajectoryCollector
from moozi.acting.on_policy import Rollout, check_finite, make_rollout
from moozi.acting.rollout import RolloutCollector
from moozi.agent.agent import PureAgent
from moozi.agent.update import TrainingState
from moozi.core.actor_report import ActorReport
from moozi.core.config import Config
from moozi.core.errors import EnvError, NotFiniteError, SegmentError
from moozi.core.spec import EnvSpec
from moozi.evaluation.evaluator import EvaluationResult, Evaluator
from moozi.learning.learner import Learner
from moozi.replay.validation import AddResult, Refusals
from moozi.run import build
from moozi.run.events import Acted, Collected, Event, Faulted, Updated
from moozi.run.session import RunInputs, Session
from moozi.run.state import RunState

Collector = TrajectoryCollector | RolloutCollector


@dataclasses.dataclass(frozen=True)
class OnPolicyParts:
  """The parts of an on-policy algorithm.

  Attributes:
    message: the start of the message of the `Started` event.
    build_learner, build_evaluator: as in `run.build`.
    build_collectors: returns the only collector, restored from the state if there is one; see
      `build_collectors`.
    batch: (config, rollout, environment steps before it) → what the learner's updates learn from.
    num_epochs: config → number of times that each sample is used.
  """

  message: str
  build_learner: Callable[[Config, EnvSpec], Learner]
  build_collectors: Callable[[Config, EnvSpec, RunState | None], build.Collectors[Collector]]
  build_evaluator: Callable[[Config, EnvSpec], Evaluator]
  batch: Callable[[Config, Rollout, int], Any] = lambda config, rollout, env_steps: rollout
  num_epochs: Callable[[Config], int] = lambda config: 1


def build_collectors(
  config: Config, agent: PureAgent, num_envs: int, segment_length: int, state: RunState | None
) -> build.Collectors[Collector]:
  """Returns the only collector, which acts at temperature 1; restores that of `state`.

  Args:
    agent: the extras of its decisions have FRAMES (`acting.on_policy`).
  """

  def build_all(began_at: int) -> list[Collector]:
    sizes = num_envs, segment_length
    return [build.plain_collector(config, agent, lambda env_steps: 1.0, 0, began_at, *sizes, True)]

  return build.restore_collectors(build_all, state)


def run(inputs: RunInputs, parts: OnPolicyParts) -> Generator[Event, None, None]:
  """Trains, and yields events in order; the last is Finished. `runtime` and `stored` are not read.

  Raises: RunError: too many failures of one kind in a row.
  """
  with contextlib.closing(OnPolicyTrainer(inputs, parts)) as trainer:
    yield from trainer.session.run(trainer)


class OnPolicyTrainer:
  """A `Trainer` of `run.session`. Each round acts for one segment, checks the segment, and learns from it."""

  def __init__(self, inputs: RunInputs, parts: OnPolicyParts) -> None:
    self._parts = parts
    self.session = Session(inputs, self)
    self.session.phase("building the network and the environments")
    config, spec, state = inputs.config, inputs.spec, inputs.state
    self._config = config
    self.env_steps = inputs.env_steps
    self._num_epochs = parts.num_epochs(config)
    self.sample_reuse = float(self._num_epochs)
    self._learner = parts.build_learner(config, spec)
    if state is not None:
      self._learner.set_state(state.training)
    self._evaluator = parts.build_evaluator(config, spec)
    self._refusals = Refusals(config.replay.max_refused_segments)
    self._collectors = parts.build_collectors(config, spec, state)
    (self._collector,) = self._collectors.workers
    self.message = f"{parts.message}{self._collectors.message}"

  def close(self) -> None:
    self._collectors.close()

  @property
  def learner_steps(self) -> int:
    return self._learner.learner_step

  @property
  def is_complete(self) -> bool:
    return self.env_steps >= self._config.max_env_steps

  def step(self) -> Iterator[Event]:
    """Makes a round: acts for one segment, and makes the updates from it."""
    began_at = self.env_steps
    self.session.phase("compiling acting")
    try:
      self._collector.set_parameters(*self._learner.parameters())
      steps, acted = self._collector.run(self.env_steps)
      after, decision = self._collector.look_ahead(self.env_steps)
    except Exception:
      # The segment is lost. The saved state therefore has no environments, and a resumed run resets them.
      if self.env_steps:
        yield self.session.state_ready(self, is_final=True, has_envs=False)
      raise
    self.env_steps += acted.num_steps
    yield Acted(
      **self.session.counters(),
      metrics=acted.metrics,
      episode_returns=acted.episode_returns,
      episode_lengths=acted.episode_lengths,
      staleness=0.0,
    )

    # A segment that is not finite is refused, as in MuZero's replay, and the environments are reset.
    try:
      check_finite(steps, after)
    except ValueError as error:
      yield from self._refuse(str(error), acted.num_steps)
      return
    self._refusals.end(0)
    if self._config.trajectories.save:
      # After a refused segment the environments were reset, so the next one begins with first steps.
      yield Collected(**self.session.counters(), segment=steps, first_lane=0, follows=True)

    self.session.phase("compiling the update")
    try:
      rollout = make_rollout(steps, acted.extras, after, decision)
      num_samples = rollout.is_live.size * self._num_epochs
      batch = self._parts.batch(self._config, rollout, began_at)
      _, metrics = self._learner.advance(batch, num_samples)
    except NotFiniteError as error:
      yield from self.session.roll_back(self, error, self._learner.set_state)
      return
    yield Updated(
      **self.session.counters(),
      metrics=metrics,
      num_samples=num_samples,
      sample_reuse=self.sample_reuse,
    )

  def _refuse(self, reason: str, num_steps: int) -> Iterator[Event]:
    result = AddResult(num_lost=num_steps, refused=reason)
    yield Faulted(**self.session.counters(), counts=result.faults, message=result.describe(worker=0))
    try:
      self._refusals.add(0, reason)
      self._collector.reset()
    except (SegmentError, EnvError):
      yield self.session.state_ready(self, is_final=True, has_envs=False)
      raise

  def evaluate(self, num_episodes: int) -> EvaluationResult | None:
    return self.session.play(self._evaluator, self._learner.parameters(), num_episodes)

  def state(self, has_envs: bool = True) -> RunState:
    return RunState(
      training=self._learner.get_state(),
      progress={"env_steps": self.env_steps, "envs_began_at": self._collectors.began_at},
      collectors=(self._collector.get_state(),) if has_envs else (),
    )

  def training_state(self) -> TrainingState:
    return self._learner.get_state()

  def reports(self) -> Mapping[str, ActorReport]:
    return {}

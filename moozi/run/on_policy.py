"""The rounds of an on-policy algorithm: each worker acts for one segment, then the learner learns from all.

PPO with `runtime=local` and a user's own algorithm pass their `OnPolicyParts` to `run`, which makes the
rounds in one process.

Source: Huang et al. 2022, core detail 1 (fixed-length segments of vectorized environments). Departure: the
step after an episode's end only resets the environment and gives no sample. It counts as an environment step,
as with MuZero.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from moozi.acting.collector import TrajectoryCollector
from moozi.acting.lanes import ActingResult
from moozi.acting.on_policy import Rollout, check_finite, join_rollouts, make_rollout
from moozi.acting.past_selves import PastCollector, with_past
from moozi.acting.rollout import RolloutCollector
from moozi.agent.agent import PureAgent
from moozi.agent.update import TrainingState
from moozi.core.actor_report import ActorReport
from moozi.core.config import Config
from moozi.core.errors import EnvError, NotFiniteError, SegmentError
from moozi.core.flat_state import State, part, prefixed
from moozi.core.records import TrajectorySample
from moozi.core.spec import EnvSpec
from moozi.evaluation.evaluator import EvaluationResult, Evaluator
from moozi.learning.learner import Learner
from moozi.replay.validation import AddResult, Refusals
from moozi.run import build
from moozi.run.events import Acted, Collected, Event, Faulted, Updated
from moozi.run.past_selves import PastSelves
from moozi.run.session import RunInputs, Session
from moozi.run.state import RunState

Collector = TrajectoryCollector | RolloutCollector | PastCollector


def _whole_rollout(config: Config, rollout: Rollout, env_steps: int, time_share: float) -> Rollout:
  return rollout


def _one(config: Config) -> int:
  return 1


@dataclasses.dataclass(frozen=True)
class OnPolicyParts:
  """The parts of an on-policy algorithm. Its functions are those of modules, so that actors can receive them.

  Attributes:
    message: the start of the message of the `Started` event.
    build_learner, build_evaluator: as in `run.build`.
    build_collector: (config, spec, worker, began_at) → a worker's collector; see `build_collector`.
    num_workers: config → number of training workers.
    batch: (config, rollout, environment steps before it, share of max_wall_s that has passed) → what the
      learner's updates learn from.
    num_epochs: config → number of times that each sample is used.
  """

  message: str
  build_learner: Callable[[Config, EnvSpec], Learner]
  build_collector: Callable[[Config, EnvSpec, int, int], Collector]
  build_evaluator: Callable[[Config, EnvSpec], Evaluator]
  num_workers: Callable[[Config], int] = _one
  batch: Callable[[Config, Rollout, int, float], Any] = _whole_rollout
  num_epochs: Callable[[Config], int] = _one


def build_collector(config: Config, agent: PureAgent, worker: int, began_at: int) -> Collector:
  """Returns the collector of a training worker, which acts at temperature 1.

  With `opponents.past_share` it is a PastCollector.

  Args:
    agent: the extras of its decisions have FRAMES (`acting.on_policy`).
    worker, began_at: as in `run.build.make_collector`.
  """
  num_past, sizes = config.num_past_lanes, (config.worker_envs, config.segment_length)
  if num_past:
    agent = with_past(agent, num_past)
  collector = build.plain_collector(config, agent, lambda env_steps: 1.0, worker, began_at, *sizes, True)
  return PastCollector(collector, num_past) if num_past else collector


def build_collectors(
  parts: OnPolicyParts, config: Config, spec: EnvSpec, state: RunState | None
) -> build.Collectors[Collector]:
  """Returns the collectors of all training workers in one process; restores those of `state`."""

  def build_all(began_at: int) -> list[Collector]:
    return [parts.build_collector(config, spec, i, began_at) for i in range(parts.num_workers(config))]

  return build.restore_collectors(build_all, state)


# --- a round ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Part:
  """What a round knows of one worker's segment besides its Rollout.

  Attributes:
    acted: the result of acting, without the extras of decisions.
    refused: the reason why nothing can be learned from the segment; None if it is good.
    steps: the segment's steps, if they are kept (`trajectories.save`).
  """

  acted: ActingResult
  refused: str | None = None
  steps: TrajectorySample | None = None


def collect(
  config: Config,
  collector: Collector,
  parameters: tuple[Any, int],
  env_steps: int,
  past: tuple[Any, int] | None = None,
) -> tuple[Rollout, Part]:
  """Acts for one segment; returns its Rollout [T, B, …] and its Part.

  Args:
    parameters, past: (variables, version) of the current agent and of a past self.
    env_steps: environment steps before the round.
  """
  if past is not None:
    assert isinstance(collector, PastCollector)
    collector.set_opponent(*past)
  collector.set_parameters(*parameters)
  steps, acted = collector.run(env_steps)
  after, decision = collector.look_ahead(env_steps)
  refused = None
  try:
    check_finite(steps, after)
  except ValueError as error:
    refused = str(error)
  rollout = make_rollout(steps, acted.extras, after, decision)
  kept = steps if config.trajectories.save else None
  return rollout, Part(dataclasses.replace(acted, extras={}), refused, kept)


def refusal(parts: Sequence[Part], refusals: Refusals) -> tuple[dict[str, int], str] | None:
  """Returns the counts and the message of the fault of a refused round; None if all its segments are good.

  A segment that is not finite refuses its whole round; all environments must then be reset.

  Args:
    parts: of all workers, in their order.
    refusals: counts the consecutive refused segments of each worker. The caller adds those of this round,
      after it has reported the fault.
  """
  bad = {index: part.refused for index, part in enumerate(parts) if part.refused is not None}
  if not bad:
    for index in range(len(parts)):
      refusals.end(index)
    return None
  own = [
    AddResult(num_lost=parts[i].acted.num_steps, refused=reason).describe(i) for i, reason in bad.items()
  ]
  if len(parts) > 1:
    own.append("the round has no update")
  num_steps = sum(part.acted.num_steps for part in parts)
  return {"refused_segments": len(bad), "lost_steps": num_steps}, "; ".join(own)


def learn(
  parts: OnPolicyParts,
  config: Config,
  learner: Learner,
  rollouts: Sequence[Rollout],
  env_steps: int,
  time_share: float,
) -> tuple[int, dict[str, float]]:
  """Makes the updates of a round; returns the number of samples and the metrics.

  Args:
    rollouts: the segments of all workers, in their order.
    env_steps: environment steps before the round.
    time_share: `Session.time_share`.

  Raises: NotFiniteError: as `Learner.advance`.
  """
  rollout = join_rollouts(rollouts)
  num_samples = rollout.is_live.size * parts.num_epochs(config)
  _, metrics = learner.advance(parts.batch(config, rollout, env_steps, time_share), num_samples)
  return num_samples, metrics


# --- in one process -----------------------------------------------------------------------------------------


def run(inputs: RunInputs, parts: OnPolicyParts) -> Generator[Event, None, None]:
  """Trains in one process, and yields events in order; the last is Finished. `stored` is not read.

  Raises: RunError: an environment fails too often, too many segments of a worker are refused in a row, or the
    run cannot roll back after non-finite updates.
  """
  with contextlib.closing(OnPolicyTrainer(inputs, parts)) as trainer:
    yield from trainer.session.run(trainer)


class OnPolicyTrainer:
  """A `Trainer` of `run.session`. In each round the workers act in turn; then the learner learns."""

  def __init__(self, inputs: RunInputs, parts: OnPolicyParts) -> None:
    self._parts = parts
    self.session = Session(inputs, self)
    self.session.phase("building the network and the environments")
    config, spec, state = inputs.config, inputs.spec, inputs.state
    self._config = config
    self.env_steps = inputs.env_steps
    self.sample_reuse = float(parts.num_epochs(config))
    self._learner = parts.build_learner(config, spec)
    self._past = PastSelves(config) if config.num_past_lanes else None
    if state is not None:
      self._learner.set_state(state.training)
      if self._past is not None and state.progress:
        self._past.set_state(part(state.progress, "past_selves"), state.training.variables)
    self._evaluator = parts.build_evaluator(config, spec)
    self._refusals = Refusals(config.replay.max_refused_segments)
    self._collectors = build_collectors(parts, config, spec, state)
    self.message = f"{parts.message}, one process{self._collectors.message}{config.past_selves_text}"

  def close(self) -> None:
    self._collectors.close()

  @property
  def learner_steps(self) -> int:
    return self._learner.learner_step

  @property
  def is_complete(self) -> bool:
    return self.env_steps >= self._config.max_env_steps

  def step(self) -> Iterator[Event]:
    """Makes a round: each worker acts for one segment, and the learner makes the updates from all of them."""
    self.session.phase("compiling acting")
    try:
      collected = self._collect()
    except Exception:
      # Segments are lost. The saved state therefore has no environments, and a resumed run resets them.
      if self.env_steps:
        yield self.session.state_ready(self, is_final=True, has_envs=False)
      raise
    rollouts, parts = [rollout for rollout, _ in collected], [part for _, part in collected]
    for index, each in enumerate(parts):
      self.env_steps += each.acted.num_steps
      metrics = each.acted.metrics
      if self._past is not None and each.acted.past is not None:
        metrics = metrics | self._past.record(index, each.acted.past, self.learner_steps)
      yield Acted(
        **self.session.counters(),
        metrics=metrics,
        episode_returns=each.acted.episode_returns,
        episode_lengths=each.acted.episode_lengths,
        staleness=0.0,
      )
    fault = refusal(parts, self._refusals)
    if fault is not None:
      yield from self._refuse(parts, *fault)
      return
    for index, each in enumerate(parts):
      if each.steps is not None:
        # After a refused round the environments were reset, so the next one begins with first steps.
        first_lane = index * self._config.worker_envs
        yield Collected(**self.session.counters(), segment=each.steps, first_lane=first_lane, follows=True)

    self.session.phase("compiling the update")
    began_at = self.env_steps - sum(each.acted.num_steps for each in parts)
    time_share = self.session.time_share()
    try:
      num_samples, metrics = learn(self._parts, self._config, self._learner, rollouts, began_at, time_share)
    except NotFiniteError as error:
      yield from self.session.roll_back(self, error, self._learner.set_state)
      return
    yield Updated(
      **self.session.counters(),
      metrics=metrics,
      num_samples=num_samples,
      sample_reuse=self.sample_reuse,
    )

  def _collect(self) -> list[tuple[Rollout, Part]]:
    """Returns a segment of each worker."""
    parameters, out = self._learner.parameters(), []
    if self._past is not None:
      self._past.offer(*parameters)
    for index, collector in enumerate(self._collectors.workers):
      opponent = None if self._past is None else self._past.opponent(index)
      past = None if opponent is None else (opponent.variables, opponent.version)
      out.append(collect(self._config, collector, parameters, self.env_steps, past))
    return out

  def _refuse(self, parts: Sequence[Part], counts: dict[str, int], message: str) -> Iterator[Event]:
    yield Faulted(**self.session.counters(), counts=counts, message=message)
    try:
      for index, each in enumerate(parts):
        if each.refused is not None:
          self._refusals.add(index, each.refused)
      for collector in self._collectors.workers:
        collector.reset()
    except (SegmentError, EnvError):
      yield self.session.state_ready(self, is_final=True, has_envs=False)
      raise

  def evaluate(self, num_episodes: int) -> EvaluationResult | None:
    return self.session.play(self._evaluator, self._learner.parameters(), num_episodes)

  def state(self, has_envs: bool = True) -> RunState:
    progress: State = {"env_steps": self.env_steps, "envs_began_at": self._collectors.began_at}
    if self._past is not None:
      progress |= prefixed("past_selves", self._past.get_state())
    return RunState(
      training=self._learner.get_state(),
      progress=progress,
      collectors=tuple(each.get_state() for each in self._collectors.workers) if has_envs else (),
    )

  def training_state(self) -> TrainingState:
    return self._learner.get_state()

  def reports(self) -> Mapping[str, ActorReport]:
    return {}

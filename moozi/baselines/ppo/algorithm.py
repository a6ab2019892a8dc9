"""PPO in one process: its parts, and the trainer that `run.session` drives.

Source: Huang et al. 2022, core detail 1 (fixed-length segments of vectorized environments). Departure: the
step after an episode's end only resets the environment and gives no sample. It counts as an environment step,
as with MuZero.
"""

import contextlib
from collections.abc import Generator, Iterator, Mapping

import jax
import numpy as np

from moozi.acting.collector import TrajectoryCollector
from moozi.acting.rollout import RolloutCollector
from moozi.agent.agent import PureAgent
from moozi.agent.update import TrainingState
from moozi.baselines.checks import check_frame, check_players, refuse_search
from moozi.baselines.ppo.actor_critic import PPONetwork, make_network, make_ppo
from moozi.baselines.ppo.optimization import (
  KEPT,
  TERMS,
  init_state,
  learning_rate_at,
  make_round,
  make_segment,
)
from moozi.core.actor_report import ActorReport
from moozi.core.config import Config
from moozi.core.errors import EnvError, NotFiniteError, SegmentError
from moozi.core.records import BatchedTimeStep, TrajectorySample
from moozi.core.seeds import child_seed
from moozi.core.spec import EnvSpec
from moozi.evaluation.evaluator import EvaluationResult, Evaluator
from moozi.learning.learner import Learner
from moozi.learning.non_finite import NonFiniteGuard
from moozi.replay.validation import AddResult, Refusals
from moozi.run import build
from moozi.run.events import Acted, Collected, Event, Faulted, Updated
from moozi.run.session import RunInputs, Session
from moozi.run.state import RunState


def check_env(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if PPO cannot play the environment."""
  check_players(config, spec)
  check_frame(config.ppo.network, "ppo", config, spec)


def network_of(config: Config, spec: EnvSpec) -> PPONetwork:
  ppo = config.ppo
  transform = build.scalar_transform(config) if ppo.value_loss == "categorical" else None
  return make_network(
    ppo.network, spec, ppo.scale_frames, ppo.initial_bias, ppo.conv_stride, ppo.layer_norm, transform
  )


def initial_training_state(config: Config, spec: EnvSpec) -> TrainingState:
  """Returns the TrainingState with which the run's learner begins."""
  key = jax.random.PRNGKey(child_seed(config.seed, "learner"))
  return init_state(network_of(config, spec), config.ppo, spec, key)


def build_agent(config: Config, spec: EnvSpec) -> PureAgent:
  return make_ppo(network_of(config, spec), spec, config.ppo.history_length)


def build_evaluator(config: Config, spec: EnvSpec, num_simulations: int | None = None) -> Evaluator:
  """Builds an evaluator of the most probable actions, or of sampled ones if `evaluation.noise_free` is false.

  Raises: UserError: `num_simulations` is given; PPO does not search.
  """
  refuse_search(config, num_simulations)
  temperature = 0.0 if config.evaluation.noise_free else 1.0
  return Evaluator(build_agent(config, spec), temperature, config, spec, build.make_test_env(config))


def build_learner(config: Config, spec: EnvSpec) -> Learner:
  # All updates of a round use the same samples, so the limit counts rounds.
  limit = config.ppo.max_skipped_rounds
  guard = NonFiniteGuard(TERMS, limit * config.ppo.round_updates, f"ppo.max_skipped_rounds={limit}")
  updates = make_round(network_of(config, spec), config.ppo)
  return Learner(initial_training_state(config, spec), updates, guard, config, spec)


def run(inputs: RunInputs) -> Generator[Event, None, None]:
  """Trains, and yields events in order; the last is Finished. `runtime` and `stored` are not read.

  Raises: RunError: too many failures of one kind in a row.
  """
  with contextlib.closing(PPO(inputs)) as trainer:
    yield from trainer.session.run(trainer)


class PPO:
  """A `Trainer` of `run.session`. Each round acts for one segment, checks the segment, and learns from it."""

  def __init__(self, inputs: RunInputs) -> None:
    self.session = Session(inputs, self)
    self.session.phase("building the network and the environments")
    config, spec, state = inputs.config, inputs.spec, inputs.state
    self._config = config
    self.env_steps = inputs.env_steps
    self.sample_reuse = float(config.ppo.num_epochs)
    self._num_samples = config.ppo.round_steps * config.ppo.num_epochs
    self._learner = build_learner(config, spec)
    if state is not None:
      self._learner.set_state(state.training)
    self._evaluator = build_evaluator(config, spec)
    self._refusals = Refusals(config.replay.max_refused_segments)
    self._collectors = build_collectors(config, spec, state)
    (self._collector,) = self._collectors.workers
    self.message = f"PPO, one process{self._collectors.message}"

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
    learning_rate = learning_rate_at(self._config.ppo, self.env_steps, self._config.max_env_steps)
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
      check(steps, after)
    except ValueError as error:
      yield from self._refuse(str(error), acted.num_steps)
      return
    self._refusals.end(0)
    if self._config.trajectories.save:
      # After a refused segment the environments were reset, so the next one begins with first steps.
      yield Collected(**self.session.counters(), segment=steps, first_lane=0, follows=True)

    self.session.phase("compiling the update")
    try:
      segment = make_segment(steps, acted.extras, after, decision.extras)
      _, metrics = self._learner.advance((segment, np.float32(learning_rate)), self._num_samples)
    except NotFiniteError as error:
      yield from self.session.roll_back(self, error, self._learner.set_state)
      return
    yield Updated(
      **self.session.counters(),
      metrics=metrics,
      num_samples=self._num_samples,
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


Collector = TrajectoryCollector | RolloutCollector


def build_collectors(config: Config, spec: EnvSpec, state: RunState | None) -> build.Collectors[Collector]:
  """Returns the only collector, in `ppo.num_envs` environments; restores that of `state`."""
  agent, ppo = build_agent(config, spec), config.ppo

  def build_all(began_at: int) -> list[Collector]:
    sizes = ppo.num_envs, ppo.segment_length
    return [build.plain_collector(config, agent, lambda env_steps: 1.0, 0, began_at, *sizes, KEPT)]

  return build.restore_collectors(build_all, state)


def check(steps: TrajectorySample, after: BatchedTimeStep) -> None:
  """Validates the newest steps, from which all updates of a round learn, and the step after them.

  The bootstrap value is computed from the frame after the segment. Raises: ValueError: a reward or a frame is
  not finite.
  """
  for name in ("last_reward", "frame"):
    arrays = [np.asarray(getattr(part, name)) for part in (steps, after)]
    if any(x.dtype.kind == "f" and not np.isfinite(x).all() for x in arrays):
      raise ValueError(f"{name} is not finite")

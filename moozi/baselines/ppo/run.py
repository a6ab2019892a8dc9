"""PPO in one process: what holds state, and the loop, which yields the events of `run.local`.

Source: Huang et al. 2022, core detail 1 (fixed-length segments of environments side by side). Departures: the
  step
after an end only resets, so a few environment steps carry no sample; they count, as they do for MuZero.
"""

import contextlib
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moozi.baselines.ppo.collector import Collector
from moozi.baselines.ppo.network import MIN_NATURE_FRAME, PPONetwork, make_network, make_policy
from moozi.baselines.ppo.update import TERMS, PPOState, Segment, init_state, learning_rate_at, make_round
from moozi.core.config import Config
from moozi.core.errors import EnvError, NotFiniteError, SegmentError, UserError
from moozi.core.seeds import child_seed
from moozi.core.spec import EnvSpec
from moozi.envs.vector import make_vector
from moozi.evaluation.evaluator import EvaluationResult, Evaluator
from moozi.learning.non_finite import NonFiniteGuard
from moozi.replay.validation import AddResult, Refusals
from moozi.run.build import make_test_env
from moozi.run.evaluation_schedule import Evaluations
from moozi.run.events import (
  Acted,
  Event,
  Faulted,
  Finished,
  Started,
  StateReady,
  Updated,
)
from moozi.run.rollback import Rollback
from moozi.run.schedules import CheckpointSchedule, reason_to_end
from moozi.run.state import RunState


def check_env(config: Config, spec: EnvSpec) -> None:
  """Raises UserError where PPO cannot play the environment."""
  if spec.num_players != 1:
    raise UserError(
      f"algorithm=ppo: plays environments of one player, and env.name={config.env.name} has "
      f"{spec.num_players}"
    )
  if config.ppo.network.kind == "nature_conv" and min(spec.frame_shape[:2]) < MIN_NATURE_FRAME:
    height, width, _ = spec.frame_shape
    raise UserError(
      f"ppo.network.kind=nature_conv: needs frames of at least {MIN_NATURE_FRAME}×{MIN_NATURE_FRAME}, and "
      f"those of {config.env.name} are {height}×{width}; allowed for it are mlp and conv"
    )


def network_of(config: Config, spec: EnvSpec) -> PPONetwork:
  """The run's network."""
  return make_network(config.ppo.network, spec, config.ppo.scale_frames, config.ppo.initial_bias)


def training_state_template(config: Config, spec: EnvSpec) -> PPOState:
  """The shapes and dtypes of the run's PPOState, as a checkpoint is restored with; no arrays."""
  network = network_of(config, spec)
  return jax.eval_shape(lambda: init_state(network, config.ppo, spec, jax.random.PRNGKey(0)))


def build_evaluator(config: Config, spec: EnvSpec, num_simulations: int | None = None) -> Evaluator:
  """Plays test episodes with the policy: the most probable action, or one drawn where evaluation has noise.

  Raises: UserError: a number of simulations; PPO does not search.
  """
  if num_simulations is not None:
    raise UserError(f"--simulations={num_simulations}: this run's algorithm is ppo, which does not search")
  policy = make_policy(network_of(config, spec))
  temperature = 0.0 if config.evaluation.noise_free else 1.0
  return Evaluator(policy, temperature, config.ppo.history_length, config, spec, make_test_env(config))


class Learner:
  """Holds the PPOState and updates it.

  Args:
    network: what is trained.
    config: the run's configuration.
    spec: the environment's facts.
    state: begin with this one, in NumPy, instead of a fresh one.
  """

  def __init__(self, network: PPONetwork, config: Config, spec: EnvSpec, state: PPOState | None) -> None:
    self._updates = make_round(network, config.ppo)
    self._num_epochs = config.ppo.num_epochs
    # All updates of a round see the same samples: what is wrong with one is wrong with most of them.
    limit = config.ppo.max_skipped_rounds
    bound = f"ppo.max_skipped_rounds={limit}"
    self._skipped = NonFiniteGuard(TERMS, limit * config.ppo.round_updates, bound)
    if state is None:
      key = jax.random.PRNGKey(child_seed(config.seed, "learner"))
      self.state = init_state(network, config.ppo, spec, key)
    else:
      self.set_state(state)

  @property
  def learner_step(self) -> int:
    """Updates made, skipped ones too."""
    return int(self.state.learner_step)

  def update(self, segment: Segment, learning_rate: float) -> dict[str, float]:
    """Makes a round of updates.

    Returns: `make_round`'s scalars, those of `NonFiniteGuard.count`, and `learner/samples_per_s`.
    Raises: NotFiniteError: every update of `ppo.max_skipped_rounds` rounds was skipped; the parameters are
      those before them.
    """
    start, first_step = time.perf_counter(), self.learner_step
    self.state, metrics, bad_term = self._updates(self.state, segment, jnp.float32(learning_rate))
    out = {name: float(value) for name, value in jax.device_get(metrics).items()}
    num_samples = segment.is_live.size * self._num_epochs
    out["learner/samples_per_s"] = num_samples / (time.perf_counter() - start)
    return out | self._skipped.count(np.asarray(bad_term), first_step)

  def set_state(self, state: PPOState) -> None:
    """Goes on from a PPOState in NumPy."""
    self._skipped.reset()
    # Copied, since the update donates its buffers and must not donate the caller's.
    self.state = jax.tree_util.tree_map(lambda x: jnp.array(x, copy=True), state)

  def get_state(self) -> PPOState:
    """The whole PPOState in NumPy."""
    # A copy, since the update donates the buffers that a view would look into.
    return jax.tree_util.tree_map(lambda x: np.array(x), self.state)


def run(
  config: Config,
  spec: EnvSpec,
  should_stop: Callable[[], bool] = lambda: False,
  state: RunState | None = None,
  latest: Callable[[], RunState | None] = lambda: None,
) -> Generator[Event, None, None]:
  """Trains, and yields what happened: `run.local.run` for PPO, with the same events.

  Args:
    config: the run's configuration; `PPOConfig` says what is read.
    spec: the environment's facts.
    should_stop: asked between segments; true ends the run with a last checkpoint.
    state: go on from here; without its progress a new run begins with its training state.
    latest: reads the newest whole state that was saved; None: there is none yet.

  Yields:
    Events in order; the last is Finished. `sample_reuse` is ppo.num_epochs: samples used over steps made.
  Raises: UserError: PPO cannot play the environment. RunError: too much of one kind went wrong in a row.
  """
  check_env(config, spec)
  start = time.monotonic() - (0.0 if state is None else state.wall_s)
  env_steps = 0 if state is None else int(state.progress.get("env_steps", 0))
  network = network_of(config, spec)
  collector, began_at, told = _restore(network, config, state, env_steps)
  with contextlib.closing(collector):
    learner = Learner(network, config, spec, None if state is None else state.training)
    loop = _Loop(config, spec, should_stop, state, latest, collector, learner, began_at, env_steps, start)
    yield from loop.run(f"PPO, one process{told}")


class _Loop:
  """The environments, the learner, and the rounds: act, check, learn."""

  def __init__(
    self,
    config: Config,
    spec: EnvSpec,
    should_stop: Callable[[], bool],
    state: RunState | None,
    latest: Callable[[], RunState | None],
    collector: Collector,
    learner: Learner,
    worlds_began_at: int,
    env_steps: int,
    start: float,
  ) -> None:
    self._config, self._should_stop, self._start = config, should_stop, start
    self._collector, self._learner = collector, learner
    self._worlds_began_at, self._env_steps = worlds_began_at, env_steps
    self._evaluator = build_evaluator(config, spec)
    progress = {} if state is None else state.progress
    self._evaluations = Evaluations(config.evaluation, self._counters, progress)
    self._checkpoints = CheckpointSchedule(config.checkpoint, self._wall_s(), env_steps)
    self._rollback, self._refusals = Rollback(latest), Refusals(config.replay.max_refused_segments)

  def run(self, message: str) -> Iterator[Event]:
    yield Started(**self._counters(), message=message)
    while True:
      if self._evaluations.is_due(self._env_steps):
        yield from self._evaluate(self._config.evaluation.episodes, is_final=False)
      if self._checkpoints.is_due(self._wall_s(), self._env_steps):
        yield self._whole_state(is_final=False)
      if (reason := self._reason_to_end()) is not None:
        break
      yield from self._round()

    yield self._whole_state(is_final=True)
    if reason != "stopped":
      yield from self._evaluate(self._config.evaluation.final_episodes, is_final=True)
      reason = self._evaluations.reason_at_end(reason)
    yield Finished(**self._counters(), reason=reason, sample_reuse=float(self._config.ppo.num_epochs))

  def _round(self) -> Iterator[Event]:
    """A segment, and the updates from it."""
    ppo = self._config.ppo
    learning_rate = learning_rate_at(ppo, self._env_steps, self._config.max_env_steps)
    try:
      segment, acted = self._collector.run(self._learner.state)
    except Exception:
      # The environments stand amid a segment that is lost: whoever goes on from here begins new games.
      if self._env_steps:
        yield self._whole_state(is_final=True, has_envs=False)
      raise
    self._env_steps += acted.num_steps
    yield Acted(
      **self._counters(),
      metrics=acted.metrics,
      episode_returns=acted.episode_returns,
      episode_lengths=acted.episode_lengths,
      staleness=0.0,
    )

    # The door that replay is for MuZero: what cannot be learned from is refused whole, and new games begin.
    try:
      self._collector.check(segment)
    except ValueError as error:
      yield from self._refuse(str(error), acted.num_steps)
      return
    self._refusals.end(0)

    try:
      metrics = self._learner.update(segment, learning_rate)
    except NotFiniteError as error:
      yield self._go_back(error)
      return
    yield Updated(
      **self._counters(),
      metrics=metrics,
      num_samples=acted.num_steps * ppo.num_epochs,
      sample_reuse=float(ppo.num_epochs),
    )

  def _refuse(self, why: str, num_steps: int) -> Iterator[Event]:
    taken = AddResult(num_lost=num_steps, refused=why)
    yield Faulted(**self._counters(), counts=taken.faults, message=taken.describe(worker=0))
    try:
      self._refusals.add(0, why)
    except SegmentError:
      yield self._whole_state(is_final=True, has_envs=False)
      raise
    self._collector.reset()

  def _go_back(self, error: NotFiniteError) -> Faulted:
    back = self._rollback.take(error, self._learner.learner_step)
    lost_updates = self._learner.learner_step - back.found
    self._learner.set_state(back.training)
    return Faulted(**self._counters(), **back.told(lost_updates))

  def _evaluate(self, num_episodes: int, is_final: bool) -> Iterator[Event]:
    outcome: EvaluationResult | EnvError | None
    try:
      outcome = self._evaluator.run(
        self._learner.state.params,
        {},
        num_episodes=num_episodes,
        version=self._learner.learner_step,
        env_steps=self._env_steps,
        record=self._config.evaluation.gif,
        should_stop=self._should_stop,
      )
    except EnvError as error:
      outcome = error
    yield from self._evaluations.tell(outcome, is_final, self._learner.get_state)

  def _whole_state(self, is_final: bool, has_envs: bool = True) -> StateReady:
    progress = {
      "env_steps": self._env_steps,
      "worlds_began_at": self._worlds_began_at,
      "wall_s": self._wall_s(),
    }
    state = RunState(
      training=self._learner.get_state(),
      progress=progress | self._evaluations.get_state(),
      collectors=(self._collector.get_state(),) if has_envs else (),
    )
    return StateReady(**self._counters(), state=state, is_final=is_final)

  def _reason_to_end(self) -> str | None:
    is_complete = self._env_steps >= self._config.max_env_steps
    return reason_to_end(is_complete, self._should_stop(), self._wall_s(), self._config.max_wall_s)

  def _counters(self) -> dict[str, Any]:
    return {"env_steps": self._env_steps, "learner_steps": self._learner.learner_step}

  def _wall_s(self) -> float:
    return time.monotonic() - self._start


def _restore(
  network: PPONetwork, config: Config, state: RunState | None, env_steps: int
) -> tuple[Collector, int, str]:
  """The collector, anew or where a run's state has it; when its environments began; what to tell of them."""

  def build(began_at: int) -> Collector:
    env_seed = child_seed(config.seed, "training_env", 0, began_at)
    workers = config.workers
    env = make_vector(
      config.env.name,
      config.env.kwargs,
      config.ppo.num_envs,
      env_seed,
      workers.max_env_faults,
      workers.env_timeout_s,
    )
    return Collector(network, config, env, child_seed(config.seed, "training_search", 0, began_at))

  if state is None or not state.progress:
    return build(0), 0, ""
  began_at = int(state.progress["worlds_began_at"])
  collector = build(began_at)
  try:
    num_new = sum(c.set_state(own) for c, own in zip([collector], state.collectors, strict=True))
  except ValueError:
    collector.close()
    return build(env_steps), env_steps, "; new games begin in all environments"
  return (
    collector,
    began_at,
    f"; new games begin in {num_new} environments that cannot be taken back" if num_new else "",
  )

"""Builds the parts of a run from its configuration, such as model, agent, learner, collectors and replay."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import jax

from moozi.acting.collector import Schedule, TrajectoryCollector
from moozi.acting.holding import with_holding
from moozi.acting.past_selves import PastCollector, with_past
from moozi.acting.reanalyzer import Reanalyzer
from moozi.acting.rollout import RolloutCollector
from moozi.acting.served import BatchedAct, InferenceClient, ServedCollector
from moozi.acting.temperature_drop import with_temperature_drop
from moozi.agent.agent import PureAgent
from moozi.agent.muzero import make_muzero
from moozi.agent.update import TrainingState, init_training_state, make_update_many, terms_of
from moozi.core.config import Config, PlannerConfig
from moozi.core.errors import UserError
from moozi.core.flat_state import State
from moozi.core.seeds import child_seed
from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.envs.environment import Environment, VectorEnvironment
from moozi.envs.jax.adapters import JaxVectorEnvironment
from moozi.envs.true_rules import TrueRules
from moozi.envs.vector import make_vector
from moozi.evaluation.evaluator import Evaluator, evaluation_planner
from moozi.learning.learner import Learner
from moozi.learning.non_finite import guard_of
from moozi.nn.horizon import with_discount
from moozi.nn.model import Model, make_model
from moozi.ops.scalar_transform import ScalarTransform
from moozi.ops.schedules import temperature_at
from moozi.replay.mixture import StoredReplay, StoredTrajectories, make_replay
from moozi.replay.protocol import Replay
from moozi.run.collector_state import check_collector, have_same_settings
from moozi.run.state import RunState


def env_spec(config: Config) -> EnvSpec:
  """Returns the specification of the run's environment. Raises UserError as `registry.env_spec` does."""
  return registry.env_spec(config.env.name, **config.env.arguments)


def scalar_transform(config: Config) -> ScalarTransform:
  """Returns the transform between scalars in env units and categories."""
  return ScalarTransform(**config.scalar_transform.model_dump())


def build_model(config: Config, spec: EnvSpec) -> Model:
  """Returns the model of the section `network`; with AlphaZero, without dynamics and projection.

  With `targets.discount_schedule`, its state carries the discount.
  """
  transform, length = scalar_transform(config), config.targets.history_length
  has_dynamics = not config.plans_with_rules
  model = make_model(config.network, spec, length, transform, config.chance, has_dynamics)
  return with_discount(model, config.targets.discount) if config.targets.discount_schedule else model


def build_rules(config: Config) -> TrueRules | None:
  """Returns the true rules that searches use; None if they use the learned model.

  Raises: UserError: a search cannot use the rules of the environment (`registry.true_rules`).
  """
  if not config.plans_with_rules:
    return None
  rules: TrueRules = registry.true_rules(config.env.name, **config.env.arguments)
  return rules


def build_agent(config: Config, spec: EnvSpec, planner: PlannerConfig) -> PureAgent:
  """Returns the agent of MuZero or AlphaZero; the caller compiles it."""
  model, rules = build_model(config, spec), build_rules(config)
  return make_muzero(model, planner, config.targets, spec, rules=rules)


def build_learner(config: Config, spec: EnvSpec) -> Learner:
  """Returns the learner, with a seed derived from the run's seed."""
  update_many = make_update_many(build_model(config, spec), config, spec)
  guard = guard_of(config.learner, terms_of(config))
  return Learner(initial_training_state(config, spec), update_many, guard, config, spec)


def initial_training_state(config: Config, spec: EnvSpec) -> TrainingState:
  """Returns the TrainingState with which the learner of a new run starts."""
  key = jax.random.PRNGKey(child_seed(config.seed, "learner"))
  return init_training_state(build_model(config, spec), config, spec, key)


def variables_template(config: Config, spec: EnvSpec) -> Any:
  """Returns the shapes and dtypes of the agent's variables."""
  return jax.eval_shape(lambda: initial_training_state(config, spec)).variables


AnyCollector = TrajectoryCollector | RolloutCollector | PastCollector


def build_collector(
  config: Config, spec: EnvSpec, worker: int, began_at: int = 0, client: InferenceClient | None = None
) -> AnyCollector:
  """Returns the collector of a training worker of MuZero or AlphaZero; see `make_collector`."""
  temperature = functools.partial(temperature_at, config.planners.train.temperature)
  return make_collector(config, _training_agent(config, spec), temperature, worker, began_at, client)


def build_inference(config: Config, spec: EnvSpec) -> BatchedAct:
  """Returns what an inference server of MuZero or AlphaZero decides with."""
  return BatchedAct(_explorer(config, _training_agent(config, spec)))


def _training_agent(config: Config, spec: EnvSpec) -> PureAgent:
  """Returns the agent of MuZero or AlphaZero with the search of training."""
  planner = config.planners.train
  agent = build_agent(config, spec, planner)
  if planner.temperature_drop is not None:
    agent = with_temperature_drop(agent, planner.temperature_drop, planner.dropped_temperature)
  return agent


def make_collector(
  config: Config,
  agent: PureAgent,
  temperature: Schedule,
  worker: int,
  began_at: int,
  client: InferenceClient | None = None,
) -> AnyCollector:
  """Returns the collector of a training worker of an algorithm that learns from replay.

  `workers.num_holding_envs` and `opponents.past_share` wrap the agent; with the latter, the collector is a
  PastCollector. A worker that starts after `workers.holding_env_steps` repeats no action.

  Args:
    agent, temperature: as in `TrajectoryCollector`.
    worker: index of the worker.
    began_at: part of the collector's seeds: the environment steps of the run when it starts, with Ray plus
      the number of actors that have ended, so that a restarted worker plays different episodes.
    client: asks an inference server for the decisions; None: the collector decides itself.

  Raises: UserError: as `plain_collector`.
  """
  agent, num_past = _explorer(config, agent, began_at), config.num_past_lanes
  sizes = config.workers.num_envs, config.workers.segment_length
  collector = plain_collector(config, agent, temperature, worker, began_at, *sizes, client=client)
  return PastCollector(collector, num_past) if num_past else collector


def _explorer(config: Config, agent: PureAgent, began_at: int = 0) -> PureAgent:
  """Returns the agent with the wrappers with which it acts in training from `began_at` on."""
  workers, num_past = config.workers, config.num_past_lanes
  if workers.num_holding_envs:
    # The environments of all workers step at about the same rate.
    num_envs = config.num_acting_workers * workers.num_envs
    until = workers.holding_env_steps
    num_steps = None if until is None else math.ceil(until / num_envs)
    num_holding = min(workers.num_holding_envs, workers.num_envs)
    agent = with_holding(agent, num_holding, num_steps, began_at // num_envs)
  return with_past(agent, num_past) if num_past else agent


def plain_collector(
  config: Config,
  agent: PureAgent,
  temperature: Schedule,
  worker: int,
  began_at: int,
  num_envs: int,
  segment_length: int,
  keeps_extras: bool = False,
  client: InferenceClient | None = None,
) -> TrajectoryCollector | RolloutCollector:
  """Returns a collector of `agent` in new environments of the run.

  With a `client`, it is a ServedCollector. Else, if the environment is written in JAX and `workers.rollout`
  is not "step", it is a RolloutCollector.

  Raises: UserError: `workers.rollout=scan` is set, and the environment is not written in JAX.
  """
  env = make_training_env(config, num_envs, worker, began_at)
  seed = child_seed(config.seed, "training_search", worker, began_at)
  if client is not None:
    return ServedCollector(agent, env, segment_length, temperature, seed, client)
  if config.workers.rollout != "step" and isinstance(env, JaxVectorEnvironment):
    return RolloutCollector(agent, env, segment_length, temperature, seed, keeps_extras)
  if config.workers.rollout == "scan":
    env.close()
    raise UserError(f"workers.rollout=scan: {config.env.name} is not written in JAX; must be auto or step")
  return TrajectoryCollector(agent, env, segment_length, temperature, seed, keeps_extras)


def make_training_env(config: Config, num_envs: int, worker: int, began_at: int) -> VectorEnvironment:
  """Returns the environments of a training worker; the arguments are as in `plain_collector`."""
  workers = config.workers
  return make_vector(
    config.env.name,
    config.env.arguments,
    num_envs,
    child_seed(config.seed, "training_env", worker, began_at),
    workers.max_env_faults,
    workers.env_timeout_s,
    workers.max_random_starts,
  )


def build_evaluator(config: Config, spec: EnvSpec, num_simulations: int | None = None) -> Evaluator:
  """Returns the evaluator; `num_simulations` overrides that of `planners.test`."""
  planner = evaluation_planner(config, num_simulations)
  agent = build_agent(config, spec, planner)
  return Evaluator(agent, temperature_at(planner.temperature, 0), config, spec, make_test_env(config))


def make_test_env(config: Config) -> Callable[[int], Environment]:
  """Returns a function that makes the run's environment for evaluation from a seed."""
  return lambda seed: registry.make(config.env.name, seed, is_testing=True, **config.env.arguments)


def build_replay(config: Config, spec: EnvSpec, stored: StoredTrajectories | None = None) -> Replay:
  """Returns replay with one lane per (worker, environment), and adds the trajectories `stored`.

  Raises: UserError: the trajectories do not fit in memory, or break a convention of the records.
  """
  if stored is None:
    return make_replay(config, spec, None)
  stored_part = StoredReplay(config, spec, stored.lane_steps)
  for lane, steps in stored.read():
    stored_part.add_stored(lane, steps, stored.where)
  return make_replay(config, spec, stored_part)


class Collector(Protocol):
  """The methods of a training worker's collector that `Collectors` uses."""

  def get_state(self) -> State:
    """Returns the state of the environments and of acting."""

  def set_state(self, state: State) -> int:
    """Restores a saved state, and returns the number of environments that had to be reset instead."""

  def close(self) -> None:
    """Closes the environments."""


C = TypeVar("C", bound=Collector)


@dataclasses.dataclass(frozen=True)
class Collectors(Generic[C]):
  """The collectors of all training workers in one process.

  Attributes:
    workers: one collector per training worker.
    began_at: environment steps of the run when the collectors' environments were built; part of their seeds.
    message: end of a log line about environments that are reset because they cannot be restored; empty if
      there are none.
  """

  workers: list[C]
  began_at: int = 0
  message: str = ""

  def close(self) -> None:
    for worker in self.workers:
      worker.close()


def restore_collectors(build_all: Callable[[int], list[C]], state: RunState | None) -> Collectors[C]:
  """Builds the collectors, and restores their state if there is one.

  Args:
    build_all: builds the collectors. Its argument is `began_at`: environment steps of the run, a part of the
      seeds.
    state: the state to resume from. If it is None or has no progress, the run is new. If it has no
      collectors, or was saved with other workers or environments, all environments are reset.

  Raises: UserError: a collector's state is invalid.
  """
  if state is None or not state.progress:
    return Collectors(build_all(0))
  began_at, reset = state.envs_began_at, "; all environments are reset"
  if not state.collectors:
    workers = build_all(state.env_steps)
    return Collectors(workers, state.env_steps, reset if workers else "")
  workers = build_all(began_at)
  own = [worker.get_state() for worker in workers]
  if not have_same_settings(state.collectors, own):
    # New seeds avoid repeating the run's first episodes.
    Collectors(workers).close()
    return Collectors(build_all(state.env_steps), state.env_steps, reset)
  try:
    for saved, like in zip(state.collectors, own, strict=True):
      check_collector(saved, like, state.env_steps)
    num_new = sum(worker.set_state(saved) for worker, saved in zip(workers, state.collectors, strict=True))
  except ValueError as error:
    Collectors(workers).close()
    raise UserError(
      f"the environments' part of the resume state cannot be used: {error}; remove the newest folder of "
      "resume/ to resume from an older state"
    ) from None
  return Collectors(workers, began_at, f"; {num_new} environments are reset" if num_new else "")


def build_collectors(config: Config, spec: EnvSpec, state: RunState | None) -> Collectors[AnyCollector]:
  """Returns the training workers' collectors, restored from `state` if it has collectors.

  Raises: UserError: as `make_collector` and `restore_collectors`.
  """

  def build_all(began_at: int) -> list[AnyCollector]:
    return [build_collector(config, spec, index, began_at) for index in range(config.num_acting_workers)]

  return restore_collectors(build_all, state)


def build_reanalyzer(config: Config, spec: EnvSpec, worker: int, began_at: int = 0) -> Reanalyzer:
  """Returns the reanalyzer of reanalyze worker `worker`; `began_at` is as in `make_collector`."""
  seed = child_seed(config.seed, "reanalyze", worker, began_at)
  return Reanalyzer(build_model(config, spec), config, spec, seed)

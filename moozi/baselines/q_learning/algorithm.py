"""Q-learning in one process: acting, and the `Parts` for the training loop of `run.local`."""

import dataclasses
import functools
from collections.abc import Generator
from typing import Any

import jax
import jax.numpy as jnp

from moozi.agent.agent import Carry, Decision, PureAgent
from moozi.agent.update import TrainingState
from moozi.baselines.checks import check_frame, check_players, make_evaluator
from moozi.baselines.q_learning.update import TERMS, init_state, make_update_many, sample
from moozi.baselines.q_learning.values import make_q_function, make_q_learning
from moozi.core.config import Config
from moozi.core.config.q_learning import QLearningConfig
from moozi.core.pytree import replace
from moozi.core.seeds import child_seed
from moozi.core.spec import EnvSpec
from moozi.evaluation.evaluator import Evaluator
from moozi.learning.learner import Learner
from moozi.learning.non_finite import guard_of
from moozi.run import build, local
from moozi.run.events import Event
from moozi.run.session import RunInputs
from moozi.run.state import RunState


def run(inputs: RunInputs) -> Generator[Event, None, None]:
  """Trains, and yields events in order; the last is Finished.

  Raises: RunError: too many failures of one kind in a row.
  """
  yield from local.run(inputs, PARTS)


def check_env(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if Q-learning cannot play the environment."""
  check_players(config, spec)
  if config.q_learning.kind == "network":
    check_frame(config.q_learning.network, "q_learning", config, spec)


def initial_training_state(config: Config, spec: EnvSpec) -> TrainingState:
  """Returns the TrainingState before the first update."""
  key = jax.random.PRNGKey(child_seed(config.seed, "learner"))
  return init_state(make_q_function(config, spec), config, spec, key)


def build_evaluator(config: Config, spec: EnvSpec, num_simulations: int | None = None) -> Evaluator:
  """Builds an evaluator of the greedy policy; if `evaluation.noise_free` is false, ε is `epsilon_end`.

  Raises: UserError: `num_simulations` is given; Q-learning does not search.
  """
  epsilon = config.q_learning.epsilon_end
  return make_evaluator(build_agent(config, spec), epsilon, config, spec, num_simulations)


def build_learner(config: Config, spec: EnvSpec) -> Learner:
  update_many = make_update_many(make_q_function(config, spec), config)
  guard = guard_of(config.learner, TERMS)
  return Learner(initial_training_state(config, spec), update_many, guard, config, spec)


def epsilon_at(config: QLearningConfig, env_steps: int) -> float:
  """Returns ε of the segment that starts after `env_steps`."""
  progress = min(1.0, env_steps / config.epsilon_decay_steps)
  return config.epsilon_start + progress * (config.epsilon_end - config.epsilon_start)


def build_agent(config: Config, spec: EnvSpec) -> PureAgent:
  return make_q_learning(make_q_function(config, spec), spec, config.targets.history_length)


def without_values(agent: PureAgent) -> PureAgent:
  """Returns an agent whose values are 0, so that n-step returns of replay are discounted sums of rewards."""

  def act(*args: Any, **kwargs: Any) -> tuple[Carry, Decision]:
    carry, decision = agent.act(*args, **kwargs)
    return carry, replace(decision, root_value=jnp.zeros_like(decision.root_value))

  return dataclasses.replace(agent, act=act)


def build_collectors(
  config: Config, spec: EnvSpec, state: RunState | None
) -> build.Collectors[build.AnyCollector]:
  """Returns the collectors of the workers, which act in turn, restored from `state` if it has them."""
  agent = without_values(build_agent(config, spec))
  epsilon = functools.partial(epsilon_at, config.q_learning)

  def build_all(began_at: int) -> list[build.AnyCollector]:
    workers = range(config.workers.num_workers)
    return [build.make_collector(config, agent, epsilon, index, began_at) for index in workers]

  return build.restore_collectors(build_all, state)


PARTS = local.Parts("Q-learning, one process", build_learner, build_collectors, build_evaluator, sample)

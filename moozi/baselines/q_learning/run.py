"""Q-learning in one process: acting, and the `Parts` for the training loop of `run.local`."""

from collections.abc import Generator

import jax
import jax.numpy as jnp
import numpy as np

from moozi.acting.collector import HeldParameters, cut_off
from moozi.acting.lanes import ActingResult, Lanes
from moozi.agent.update import TrainingState
from moozi.baselines.players import check_frame, check_players, refuse_search
from moozi.baselines.q_learning.update import TERMS, init_state, make_update_many, sample
from moozi.baselines.q_learning.values import make_q_function, make_q_learning
from moozi.core.config import Config
from moozi.core.config.q_learning import QLearningConfig
from moozi.core.pytree import fields_of, stack
from moozi.core.records import StepSample, TrajectorySample
from moozi.core.seeds import child_seed
from moozi.core.spec import EnvSpec
from moozi.envs.environment import VectorEnvironment
from moozi.evaluation.evaluator import Evaluator
from moozi.learning.learner import Learner
from moozi.run import build, local
from moozi.run.events import Event
from moozi.run.session import RunInputs
from moozi.run.state import RunState


def run(inputs: RunInputs) -> Generator[Event, None, None]:
  """Trains, and yields events in order; the last is Finished. `runtime` and `stored` are not read.

  Raises: RunError: too many failures of one kind in a row.
  """
  yield from local.run(inputs, PARTS)


def check_env(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if Q-learning cannot play the environment."""
  check_players(config, spec)
  if config.q_learning.kind == "network":
    check_frame(config.q_learning.network, "q_learning", config, spec)


def initial_training_state(config: Config, spec: EnvSpec) -> TrainingState:
  """Returns the TrainingState with which the run's learner begins."""
  key = jax.random.PRNGKey(child_seed(config.seed, "learner"))
  return init_state(make_q_function(config, spec), config, key)


def build_evaluator(config: Config, spec: EnvSpec, num_simulations: int | None = None) -> Evaluator:
  """Builds an evaluator of the greedy policy; if `evaluation.noise_free` is false, ε is `epsilon_end`.

  Raises: UserError: `num_simulations` is given; Q-learning does not search.
  """
  refuse_search(config, num_simulations)
  epsilon = 0.0 if config.evaluation.noise_free else config.q_learning.epsilon_end
  agent = make_q_learning(make_q_function(config, spec), spec, config.targets.history_length)
  return Evaluator(agent, epsilon, config, spec, build.make_test_env(config))


def build_learner(config: Config, spec: EnvSpec) -> Learner:
  update_many = make_update_many(make_q_function(config, spec), config)
  return Learner(initial_training_state(config, spec), update_many, TERMS, config, spec)


def epsilon_at(config: QLearningConfig, env_steps: int) -> float:
  """Returns ε of the segment that starts after `env_steps`."""
  progress = min(1.0, env_steps / config.epsilon_decay_steps)
  return config.epsilon_start + progress * (config.epsilon_end - config.epsilon_start)


class Collector(Lanes, HeldParameters):
  """Acts in B environments (lanes) with the ε-greedy policy. Environments, histories and random key persist.

  The root values of a segment are 0, so the n-step returns of replay are sums of rewards.
  """

  def __init__(self, config: Config, env: VectorEnvironment, seed: int) -> None:
    agent = make_q_learning(make_q_function(config, env.spec), env.spec, config.targets.history_length)
    super().__init__(env, agent.init(env.num_envs), seed)
    self._config = config
    self._policy = jax.jit(agent.act)

  def run(self, env_steps: int) -> tuple[TrajectorySample, ActingResult]:
    """Acts for `segment_length` vector steps.

    Args:
      env_steps: environment steps of the run so far, which determine ε.

    Returns: the segment, [T, B, …] in NumPy, and its metrics.
    """
    epsilon, samples = epsilon_at(self._config.q_learning, env_steps), []
    version = np.full(self._env.num_envs, self.version, np.int32)
    self.begin_segment()
    for _ in range(self._config.workers.segment_length):
      self.rng_key, key = jax.random.split(self.rng_key)
      now = self.timestep
      self.carry, output = self._policy(self.variables, self.carry, now, key, jnp.float32(epsilon))
      output = jax.device_get(output)
      step = StepSample(
        **fields_of(now),
        root_value=np.zeros_like(output.root_value),
        action_probs=output.action_probs,
        action=output.action,
        acted_version=version,
        searched_version=version,
      )
      is_cut = self.step(output.action)
      samples.append(cut_off(step, is_cut) if is_cut.any() else step)
    segment = TrajectorySample(**fields_of(stack(samples)))
    metrics = {
      "train/reward": float(segment.last_reward.mean()),
      "train/last_share": float(segment.is_last.mean()),
      "q_learning/epsilon": epsilon,
    }
    return segment, self.result(self.version, metrics)


def build_collectors(config: Config, spec: EnvSpec, state: RunState | None) -> build.Collectors[Collector]:
  """Returns the collectors of the training workers, which act in turn; restores those of `state`."""

  def build_all(began_at: int) -> list[Collector]:
    return [
      Collector(
        config,
        build.make_training_env(config, config.workers.num_envs, index, began_at),
        child_seed(config.seed, "training_search", index, began_at),
      )
      for index in range(config.workers.num_workers)
    ]

  return build.restore_collectors(build_all, state)


PARTS = local.Parts("Q-learning, one process", build_learner, build_collectors, build_evaluator, sample)

"""PPO: the parts that it passes to the loop of `run.on_policy`."""

from collections.abc import Generator
from typing import Any

import jax
import numpy as np

from moozi.acting.on_policy import Rollout
from moozi.agent.agent import PureAgent
from moozi.agent.update import TrainingState
from moozi.baselines.checks import check_frame, check_players, make_evaluator
from moozi.baselines.ppo.actor_critic import PPONetwork, make_network, make_ppo
from moozi.baselines.ppo.optimization import TERMS, init_state, make_round, rates_at
from moozi.core.config import Config
from moozi.core.seeds import child_seed
from moozi.core.spec import EnvSpec
from moozi.evaluation.evaluator import Evaluator
from moozi.learning.learner import Learner
from moozi.learning.non_finite import NonFiniteGuard
from moozi.ops.schedules import discount_at
from moozi.run import build, on_policy
from moozi.run.events import Event
from moozi.run.session import RunInputs


def run(inputs: RunInputs) -> Generator[Event, None, None]:
  """Trains, and yields events in order; see `run.on_policy.run`."""
  yield from on_policy.run(inputs, PARTS)


def check_env(config: Config, spec: EnvSpec) -> None:
  """Raises UserError if PPO cannot play the environment."""
  check_players(config, spec)
  check_frame(config.ppo.network, "ppo", config, spec)


def network_of(config: Config, spec: EnvSpec) -> PPONetwork:
  ppo = config.ppo
  transform = build.scalar_transform(config) if ppo.value_loss == "categorical" else None
  return make_network(
    ppo.network,
    spec,
    ppo.scale_frames,
    ppo.initial_bias,
    ppo.conv_stride,
    ppo.layer_norm,
    transform,
    ppo.network.lstm_size,
    ppo.network.lstm_forget_bias,
  )


def initial_training_state(config: Config, spec: EnvSpec) -> TrainingState:
  """Returns the TrainingState before the first update."""
  key = jax.random.PRNGKey(child_seed(config.seed, "learner"))
  return init_state(network_of(config, spec), config.ppo, spec, key)


def build_agent(config: Config, spec: EnvSpec) -> PureAgent:
  ppo = config.ppo
  return make_ppo(network_of(config, spec), spec, ppo.history_length, ppo.observation_clip)


def build_evaluator(config: Config, spec: EnvSpec, num_simulations: int | None = None) -> Evaluator:
  """Builds an evaluator of the most probable actions; with `evaluation.noise_free=false`, of drawn actions.

  Raises: UserError: `num_simulations` is given; PPO does not search.
  """
  return make_evaluator(build_agent(config, spec), 1.0, config, spec, num_simulations)


def build_learner(config: Config, spec: EnvSpec) -> Learner:
  # All updates of a round use the same samples, so the limit counts rounds.
  limit = config.ppo.max_skipped_rounds
  guard = NonFiniteGuard(TERMS, limit * config.ppo.round_updates, f"ppo.max_skipped_rounds={limit}")
  updates = make_round(network_of(config, spec), config.ppo)
  return Learner(initial_training_state(config, spec), updates, guard, config, spec)


def build_collector(config: Config, spec: EnvSpec, worker: int, began_at: int) -> on_policy.Collector:
  """Returns the collector of a training worker, in its share of `ppo.num_envs` environments."""
  return on_policy.build_collector(config, build_agent(config, spec), worker, began_at)


def num_workers(config: Config) -> int:
  return config.workers.num_workers


def num_epochs(config: Config) -> int:
  return config.ppo.num_epochs


def batch_of(config: Config, rollout: Rollout, env_steps: int, time_share: float = 0.0) -> tuple[Any, ...]:
  """Returns the arguments of `make_round`: the rollout, γ if it is scheduled, and the rates.

  γ and the rates are those of the round after `env_steps`, the rates also those at `time_share`.
  """
  ppo, points = config.ppo, config.ppo.discount_schedule
  discount = (discount_at(ppo.discount, points, env_steps),) if points else ()
  rates = rates_at(ppo, env_steps, config.max_env_steps, time_share)
  return rollout, *map(np.float32, (*discount, *rates))


PARTS = on_policy.OnPolicyParts(
  "PPO", build_learner, build_collector, build_evaluator, num_workers, batch_of, num_epochs
)

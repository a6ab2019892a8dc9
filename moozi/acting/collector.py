"""Acts in a vectorized environment with a search policy, and collects segments of trajectories.

Source: the thesis §4.3.11, Algorithm 2. Departure: fixed-length segments, not whole episodes.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from moozi.acting.lanes import ActingResult, Lanes
from moozi.agent.planner import SearchOutput
from moozi.agent.policy import Policy
from moozi.core.config import Config, PlannerConfig
from moozi.core.pytree import fields_of, replace, stack
from moozi.core.records import BatchedTimeStep, StepSample, TrajectorySample
from moozi.core.spec import DUMMY_ACTION
from moozi.core.types import AnyArray
from moozi.envs.environment import VectorEnvironment
from moozi.ops.history import HistoryState
from moozi.ops.schedules import temperature_at
from moozi.ops.xp import array_namespace


class HeldParameters:
  """Base class of objects that search with parameters on the device.

  Attributes:
    params, net_state: the model's parameters and state; None before the first `set_parameters`.
    version: learner step of the parameters; -1 before the first `set_parameters`.
  """

  params: Any = None
  net_state: Any = None
  version = -1

  def set_parameters(self, params: Any, net_state: Any, version: int) -> None:
    """Sets the parameters (NumPy or JAX arrays). If `version` is the current one, sets only `net_state`.

    The running averages in `net_state` change at every update, also between copies of the target network.
    """
    if version != self.version:
      self.params, self.net_state = jax.device_put((params, net_state))
      self.version = version
    elif self.has_averages:
      self.net_state = jax.device_put(net_state)

  @property
  def has_averages(self) -> bool:
    """Whether `net_state` has running averages (batch norm, `network.center_frames`)."""
    return bool(jax.tree_util.tree_leaves(self.net_state))

  def set_zeros(self, template: tuple[Any, Any]) -> None:
    """Sets parameters of zeros, with which the search can be compiled. The version stays -1.

    Args:
      template: the shapes and dtypes of (params, net_state).
    """
    zeros = jax.tree_util.tree_map(lambda x: np.zeros(x.shape, x.dtype), template)
    self.params, self.net_state = jax.device_put(zeros)


class TrajectoryCollector(Lanes, HeldParameters):
  """Acts in B environments (lanes) with a search policy. The environments' state persists between calls.

  Args:
    seed: seeds the search's noise and the choice of actions.
    policy: the policy before `jax.jit`.
  """

  def __init__(
    self,
    config: Config,
    planner: PlannerConfig,
    env: VectorEnvironment,
    seed: int,
    policy: Policy,
  ) -> None:
    super().__init__(env, config.targets.history_length, seed)
    self._planner = planner
    self._segment_length = config.workers.segment_length
    self._plans_with_rules = config.plans_with_rules
    self._policy = jax.jit(policy)

  def warm_up(self, template: tuple[Any, Any]) -> None:
    """Compiles the search. Does not act, and does not change the environments or the random key.

    Args:
      template: the shapes and dtypes of (params, net_state).
    """
    self.set_zeros(template)
    key = jax.random.split(self.rng_key)[1]
    self._decide(key, jnp.float32(1))

  def run(self, env_steps: int) -> tuple[TrajectorySample, ActingResult]:
    """Acts for `segment_length` vector steps.

    Args:
      env_steps: environment steps of the run so far, for the temperature schedule.

    Returns: the segment, [T, B, …] in NumPy, and its metrics.
    """
    temperature = jnp.float32(temperature_at(self._planner.temperature, env_steps))
    samples = []
    totals: dict[str, float] = {}
    self.begin_segment()
    for _ in range(self._segment_length):
      sample, output = self._act(temperature)
      for name, value in search_metrics(sample, output).items():
        totals[name] = totals.get(name, 0.0) + float(value)
      is_cut = self.step(sample.action)
      samples.append(cut_off(sample, is_cut) if is_cut.any() else sample)
    metrics = {name: total / self._segment_length for name, total in totals.items()}
    metrics["train/temperature"] = float(temperature)
    return TrajectorySample(**fields_of(stack(samples))), self.result(self.version, metrics)

  def _decide(self, key: Array, temperature: Float[Array, ""]) -> tuple[HistoryState, SearchOutput]:
    position = {"position": self._env.positions()} if self._plans_with_rules else {}
    return self._policy(
      self.params, self.net_state, self.history, self.timestep, key, temperature, **position
    )

  def _act(self, temperature: Float[Array, ""]) -> tuple[StepSample, SearchOutput]:
    self.rng_key, key = jax.random.split(self.rng_key)
    self.history, output = self._decide(key, temperature)
    output = jax.device_get(output)
    version = np.full(len(output.action), self.version, np.int32)
    sample = StepSample(
      **fields_of(self.timestep),
      root_value=output.root_value,
      action_probs=output.action_probs,
      action=output.action,
      acted_version=version,
      searched_version=version,
    )
    return sample, output


def search_metrics(
  step: BatchedTimeStep | StepSample, output: SearchOutput
) -> dict[str, Float[AnyArray, ""]]:
  """Returns metrics of the search, of its difference from the prior, and of the frames, by name.

  The search's metrics are means over the frames that are not terminal; they are 0 if all frames are terminal.
  Accepts NumPy arrays, and traced arrays inside a rollout. Entropies and the divergence are in nats; values
  are in environment units.
  """
  probs, prior = output.action_probs, output.prior_probs
  xp = array_namespace(probs, prior)
  is_live = ~(step.is_last & ~step.is_truncated)
  num_live = xp.maximum(xp.sum(is_live), 1)

  def mean(x: AnyArray) -> AnyArray:
    return xp.sum(xp.where(is_live, x, 0.0)) / num_live

  def log(x: AnyArray) -> AnyArray:
    return xp.log(xp.maximum(x, 1e-12))

  return {
    "search/policy_entropy": mean(-xp.sum(probs * log(probs), axis=-1)),
    "search/prior_entropy": mean(-xp.sum(prior * log(prior), axis=-1)),
    "search/policy_kl_prior": mean(xp.sum(probs * (log(probs) - log(prior)), axis=-1)),
    "search/policy_max": mean(xp.max(probs, axis=-1)),
    "search/depth_mean": mean(output.depth_mean),
    "search/depth_max": mean(output.depth_max),
    "search/root_value": mean(output.root_value),
    "search/root_value_gain": mean(output.root_value - output.prior_value),
    "train/reward": xp.mean(step.last_reward),
    "train/last_share": xp.mean(step.is_last),
  }


def cut_off(sample: StepSample, is_cut: Bool[np.ndarray, "B"]) -> StepSample:
  """Returns `sample` with the frames where `is_cut` is true truncated. Their root value is the bootstrap."""
  return replace(
    sample,
    is_last=sample.is_last | is_cut,
    is_truncated=sample.is_truncated | is_cut,
    action=np.where(is_cut, np.int32(DUMMY_ACTION), sample.action),
  )

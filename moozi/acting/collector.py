"""Acting: a policy and a vectorized environment, stepped together into segments of trajectories.

Source: the thesis §4.3.11, Algorithm 2. Departure: fixed-length segments, not whole episodes.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moozi.acting.lanes import ActingResult, Lanes
from moozi.acting.search_metrics import search_metrics
from moozi.agent.policy import Policy, make_policy
from moozi.core.config import Config, PlannerConfig
from moozi.core.flat_state import State
from moozi.core.pytree import fields_of, replace, stack
from moozi.core.records import StepSample, TrajectorySample
from moozi.core.spec import DUMMY_ACTION
from moozi.envs.environment import VectorEnvironment
from moozi.nn.model import Model
from moozi.ops.schedules import temperature_at


class HeldParameters:
  """The parameters that a collector acts with, on the device.

  Attributes:
    params, net_state: of the model; None before the first.
    version: learner step of them; -1 before the first.
  """

  def __init__(self) -> None:
    self.params: Any = None
    self.net_state: Any = None
    self.version = -1

  def set(self, params: Any, net_state: Any, version: int) -> None:
    """Takes parameters (arrays or NumPy); a version already in use costs nothing."""
    if version != self.version:
      self.params, self.net_state = jax.device_put((params, net_state))
      self.version = version


class TrajectoryCollector:
  """Steps B environments with a search policy; keeps environments, histories and random state between calls.

  Args:
    model: the network.
    config: the run's configuration.
    planner: which of its searches to act with.
    env: the vectorized environment.
    seed: of the search's noise and the choice of actions.
    policy: acts in place of `planner`'s search, which is the default.
  """

  def __init__(
    self,
    model: Model,
    config: Config,
    planner: PlannerConfig,
    env: VectorEnvironment,
    seed: int,
    policy: Policy | None = None,
  ) -> None:
    self._planner, self._num_envs = planner, env.num_envs
    self._segment_length = config.workers.segment_length
    self._policy = jax.jit(policy or make_policy(model, planner, config.targets, env.spec))
    self._lanes = Lanes(env, config.targets.history_length, seed)
    self._held = HeldParameters()

  @property
  def version(self) -> int:
    """Learner step of the parameters in use; -1 before the first."""
    return self._held.version

  def set_parameters(self, params: Any, net_state: Any, version: int) -> None:
    """Takes parameters (arrays or NumPy); a version already in use costs nothing."""
    self._held.set(params, net_state, version)

  def run(self, env_steps: int) -> tuple[TrajectorySample, ActingResult]:
    """Acts `segment_length` vector steps.

    Args:
      env_steps: environment steps of the whole run so far, for the temperature schedule.

    Returns:
      The segment, [T, B, …] in NumPy, and what is worth telling about it.
    """
    temperature = jnp.float32(temperature_at(self._planner.temperature, env_steps))
    samples = []
    totals: dict[str, float] = {}
    self._lanes.begin_segment()
    for _ in range(self._segment_length):
      sample, output = self._act(temperature)
      for name, value in search_metrics(sample, output).items():
        totals[name] = totals.get(name, 0.0) + float(value)
      is_cut = self._lanes.step(sample.action)
      samples.append(_cut_off(sample, is_cut) if is_cut.any() else sample)
    metrics = {name: total / self._segment_length for name, total in totals.items()}
    metrics["train/temperature"] = float(temperature)
    return TrajectorySample(**fields_of(stack(samples))), self._lanes.result(self.version, metrics)

  def get_state(self) -> State:
    """Environments, histories and random state, as `set_state` takes them; the parameters are not among
    them.
    """
    return self._lanes.get_state()

  def set_state(self, state: State) -> int:
    """Goes on from where another collector of the same configuration was; see `Lanes.set_state`."""
    return self._lanes.set_state(state)

  def reset(self) -> None:
    """Begins a new game in every environment."""
    self._lanes.reset()

  def close(self) -> None:
    """Closes the environments; nothing can be run afterwards."""
    self._lanes.close()

  def _act(self, temperature: jax.Array) -> tuple[StepSample, Any]:
    lanes = self._lanes
    lanes.rng_key, key = jax.random.split(lanes.rng_key)
    lanes.history, output = self._policy(
      self._held.params, self._held.net_state, lanes.history, lanes.timestep, key, temperature
    )
    output = jax.device_get(output)
    version = np.full(self._num_envs, self.version, np.int32)
    sample = StepSample(
      **fields_of(lanes.timestep),
      root_value=output.root_value,
      action_probs=output.action_probs,
      action=output.action,
      acted_version=version,
      searched_version=version,
    )
    return sample, output


def _cut_off(sample: StepSample, is_cut: np.ndarray) -> StepSample:
  """The step with the frame of some lanes truncated: its action led nowhere, its value is the bootstrap."""
  return replace(
    sample,
    is_last=sample.is_last | is_cut,
    is_truncated=sample.is_truncated | is_cut,
    action=np.where(is_cut, np.int32(DUMMY_ACTION), sample.action),
  )

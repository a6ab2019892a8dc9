"""Acts in a vectorized environment with an agent, and collects segments of trajectories.

Source: the thesis §4.3.1 (Algorithm 2), §4.3.11. Departure: fixed-length segments, not whole episodes.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from moozi.acting.lanes import ActingResult, Lanes
from moozi.agent.agent import Carry, Decision, KeyedAct, PureAgent, keyed
from moozi.core.pytree import fields_of, replace, stack
from moozi.core.records import BatchedTimeStep, StepSample, TrajectorySample
from moozi.core.spec import DUMMY_ACTION
from moozi.core.types import AnyArray
from moozi.envs.environment import VectorEnvironment
from moozi.ops.actions import Groups, split_groups
from moozi.ops.xp import array_namespace

Schedule = Callable[[int], float]
"""Environment steps of the run so far → the temperature of acting."""

# The extras of decisions that `acting_metrics` reads.
_METRIC_EXTRAS = ("prior_probs", "prior_value", "depth_mean", "depth_max", "effective_samples")


class HeldParameters:
  """Base class of objects that act or search with an agent's variables on the device.

  Attributes:
    variables: see `agent.agent.Act`; None before they are first set.
    version: learner step of the parameters; -1 before the first `set_parameters`.
  """

  variables: PyTree = None
  version = -1

  def set_parameters(self, variables: PyTree, version: int) -> None:
    """Sets the variables (NumPy or JAX arrays).

    Two calls with the same version may set different variables: the version of the target network changes
    when its parameters are copied, but its running averages change at every update.
    """
    self.variables, self.version = jax.device_put(variables), version

  def set_zeros(self, template: PyTree) -> None:
    """Sets variables of zeros, with which acting can be compiled. The version does not change.

    Args:
      template: the variables' shapes and dtypes.
    """
    self.variables = jax.device_put(jax.tree_util.tree_map(lambda x: np.zeros(x.shape, x.dtype), template))


class TrajectoryCollector(Lanes, HeldParameters):
  """Acts in B environments (lanes) with an agent. The environments' state persists between calls.

  Args:
    agent: chooses the actions; `warm_up` or the first segment compiles it.
    env: the environments; the constructor resets them.
    segment_length: number of vector steps of a segment.
    temperature: maps the environment steps before a segment to its temperature.
    seed: seeds the agent's noise and the choice of actions.
    keeps_extras: whether `ActingResult.extras` has the extras of the decisions.
  """

  def __init__(
    self,
    agent: PureAgent,
    env: VectorEnvironment,
    segment_length: int,
    temperature: Schedule,
    seed: int,
    keeps_extras: bool = False,
  ) -> None:
    super().__init__(env, agent.init(env.num_envs), seed)
    self._segment_length, self._temperature, self._keeps_extras = segment_length, temperature, keeps_extras
    self._plans_with_rules = agent.plans_with_rules
    # On the processor, an array is read where it is; `device_get` would take several times as long.
    is_on_host = jax.default_backend() == "cpu"
    self._to_numpy = functools.partial(jax.tree.map, np.asarray) if is_on_host else jax.device_get
    self._compiled: KeyedAct = jax.jit(keyed(agent))

  def warm_up(self, template: PyTree) -> None:
    """Compiles the agent, and sets its variables to zeros.

    Does not act, and does not change the environments or the random key.

    Args:
      template: the shapes and dtypes of the variables.
    """
    self.set_zeros(template)
    self._decide(jnp.float32(1))

  def run(self, env_steps: int) -> tuple[TrajectorySample, ActingResult]:
    """Acts for `segment_length` vector steps.

    Args:
      env_steps: environment steps of the run so far, for the temperature schedule.

    Returns: the segment, [T, B, …] in NumPy, and the result with its metrics.
    """
    temperature = jnp.float32(self._temperature(env_steps))
    samples, rows, cuts = [], [], []
    self.begin_segment()
    for _ in range(self._segment_length):
      sample, extras = self._act(temperature)
      samples.append(sample)
      rows.append(extras)
      cuts.append(self.step(sample.action))
    # Functions of the whole segment take much less time than those of each step.
    segment = TrajectorySample(**fields_of(stack(samples)))
    extras = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    decisions = Decision(
      action=segment.action, action_probs=segment.action_probs, root_value=segment.root_value, extras=extras
    )
    means = acting_metrics(segment, decisions, self._env.spec.policy_groups)
    metrics = {name: float(np.mean(values, dtype=np.float64)) for name, values in means.items()}
    metrics |= {"train/temperature": float(temperature)} | self._own_metrics()
    # Between two decisions of a segment, an inference server may get new parameters.
    result = self.result(int(segment.acted_version[0, 0]), metrics)
    is_cut = np.stack(cuts)
    return (
      cut_off(segment, is_cut) if is_cut.any() else segment,
      dataclasses.replace(result, extras=extras) if self._keeps_extras else result,
    )

  def look_ahead(self, env_steps: int) -> tuple[BatchedTimeStep, Decision]:
    """Returns the frames after the last segment and the decision on them, in NumPy; changes nothing.

    The next segment begins with these frames. With the same parameters and temperature, its first decision is
    this one.
    """
    *_, decision = self._decide(jnp.float32(self._temperature(env_steps)))
    return self.timestep, jax.device_get(decision)

  def _own_metrics(self) -> dict[str, float]:
    """Returns further metrics of the segment, by name; for subclasses."""
    return {}

  def _decide(self, temperature: Float[Array, ""]) -> tuple[Array, Carry, Decision]:
    position = self._env.positions() if self._plans_with_rules else None
    return self._compiled(
      self.variables, self.carry, self.timestep, self.rng_key, temperature, None, position
    )

  def _act(self, temperature: Float[Array, ""]) -> tuple[StepSample, dict[str, np.ndarray]]:
    """Returns the acted step and the extras of its decision that the segment needs."""
    self.rng_key, self.carry, decision = self._decide(temperature)
    decision = self._to_numpy(decision if self._keeps_extras else decision.only(_METRIC_EXTRAS))
    version = np.full(len(decision.action), self.version, np.int32)
    sample = StepSample(
      **fields_of(self.timestep),
      root_value=decision.root_value,
      action_probs=decision.action_probs,
      action=decision.action,
      acted_version=version,
      searched_version=version,
    )
    return sample, decision.extras


def acting_metrics(
  step: BatchedTimeStep | StepSample, decision: Decision, groups: Groups
) -> dict[str, Float[AnyArray, "*T"]]:
  """Returns metrics by name: those of the frames, and those of the search if the decision has its extras.

  The search's metrics are means over the frames that are not terminal; they are 0 if all frames of a step are
  terminal. Entropies and the divergence are in nats; values are in environment units.

  Args:
    step, decision: of B lanes, in NumPy or traced inside a rollout; or of T steps, with a leading axis T.
    groups: the groups of the policies' entries (`EnvSpec.policy_groups`). With several, an entropy or a
      divergence is the sum of those of the dimensions, and each dimension has a metric of its own.

  Returns: means over the lanes, one for each step.
  """
  xp = array_namespace(decision.action_probs)
  frames = {
    "train/reward": xp.mean(step.last_reward, axis=-1),
    "train/last_share": xp.mean(step.is_last, axis=-1),
  }
  if "depth_mean" not in decision.extras:
    return frames
  probs, found = decision.action_probs, decision.extras
  prior = found["prior_probs"]
  is_live = ~(step.is_last & ~step.is_truncated)
  num_live = xp.maximum(xp.sum(is_live, axis=-1), 1)

  def mean(x: AnyArray) -> AnyArray:
    return xp.sum(xp.where(is_live, x, 0.0), axis=-1) / num_live

  def log(x: AnyArray) -> AnyArray:
    return xp.log(xp.maximum(x, 1e-12))

  def entropy(x: AnyArray) -> AnyArray:
    return -xp.sum(x * log(x), axis=-1)

  sampled = {}
  if "effective_samples" in found:
    sampled["search/sampled_actions"] = mean(found["effective_samples"])
    for d, part in enumerate(split_groups(prior, groups)):
      sampled[f"search/prior_entropy_{d}"] = mean(entropy(part))
  return {
    "search/policy_entropy": mean(entropy(probs)),
    "search/prior_entropy": mean(entropy(prior)),
    "search/policy_kl_prior": mean(xp.sum(probs * (log(probs) - log(prior)), axis=-1)),
    "search/policy_max": mean(xp.max(probs, axis=-1)),
    **sampled,
    "search/depth_mean": mean(found["depth_mean"]),
    "search/depth_max": mean(found["depth_max"]),
    "search/root_value": mean(decision.root_value),
    "search/root_value_gain": mean(decision.root_value - found["prior_value"]),
    **frames,
  }


def cut_off(segment: TrajectorySample, is_cut: Bool[np.ndarray, "T B"]) -> TrajectorySample:
  """Returns a segment [T, B, …] in which the frames where `is_cut` is true are marked as truncated.

  Their action is the dummy, and their root value is the bootstrap value.
  """
  action = segment.action.copy()
  action[is_cut] = DUMMY_ACTION
  return replace(
    segment, is_last=segment.is_last | is_cut, is_truncated=segment.is_truncated | is_cut, action=action
  )

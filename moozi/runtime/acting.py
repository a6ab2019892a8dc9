"""Acting: a policy and a vectorized world, stepped together into segments of trajectories.

Source: the thesis §4.3.11, Algorithm 2. Departure: fixed-length segments, not whole episodes.
"""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moozi.agent.policy import Policy, make_policy
from moozi.core.config import Config, PlannerConfig
from moozi.core.flat_state import State, part, prefixed, tree_of_state, tree_state
from moozi.core.pytree import fields_of, replace, stack
from moozi.core.records import StepSample, TrajectorySample
from moozi.core.spec import DUMMY_ACTION
from moozi.envs.vector import cut_lanes
from moozi.envs.vector_protocol import VectorWorlds
from moozi.nn.model import Model
from moozi.ops.history import init_history
from moozi.ops.players import player_sign
from moozi.ops.schedules import temperature_at
from moozi.runtime.search_metrics import search_metrics


@dataclasses.dataclass(frozen=True)
class ActingResult:
  """One call of `TrajectoryCollector.run`.

  Attributes:
    num_steps: environment steps made, T·B.
    version: learner step of the parameters that acted.
    episode_returns, episode_lengths: [E] of the games that ended, told when the next one begins; where a life
      lost ends an episode in training, of the whole game. With two players, player 0's returns. One that the
      world's own failure cut off is not among them.
    metrics: scalars about the search and the world; `faults/env_errors` where worlds failed.
  """

  num_steps: int
  version: int
  episode_returns: np.ndarray
  episode_lengths: np.ndarray
  metrics: dict[str, float]


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
  """Steps B worlds with a search policy; keeps worlds, histories and random state between calls.

  Args:
    model: the network.
    config: the run's configuration.
    planner: which of its searches to act with.
    env: the vectorized world.
    seed: of the search's noise and the choice of actions.
    policy: acts in place of `planner`'s search, which is the default.
  """

  def __init__(
    self,
    model: Model,
    config: Config,
    planner: PlannerConfig,
    env: VectorWorlds,
    seed: int,
    policy: Policy | None = None,
  ) -> None:
    self._env = env
    self._planner = planner
    self._segment_length = config.workers.segment_length
    self._policy = jax.jit(policy or make_policy(model, planner, config.targets, env.spec))
    self._rng_key = jax.random.PRNGKey(seed)
    self._history = init_history(env.num_envs, config.targets.history_length, env.spec)
    self._timestep = env.reset()
    self._held = HeldParameters()
    self._returns = np.zeros(env.num_envs, np.float64)
    self._lengths = np.zeros(env.num_envs, np.int64)

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
    samples, ended_returns, ended_lengths = [], [], []
    totals: dict[str, float] = {}
    world_s, start, num_faults = 0.0, time.perf_counter(), self._env.num_faults
    for _ in range(self._segment_length):
      sample, output = self._act(temperature)
      samples.append(sample)
      for name, value in search_metrics(sample, output).items():
        totals[name] = totals.get(name, 0.0) + float(value)
      before_world = time.perf_counter()
      self._timestep = self._env.step(sample.action)
      world_s += time.perf_counter() - before_world
      is_cut = cut_lanes(sample, self._timestep)
      if is_cut.any():
        samples[-1] = _cut_off(sample, is_cut)
      ended = np.flatnonzero(self._timestep.is_first & ~is_cut)
      ended_returns.append(self._returns[ended])
      ended_lengths.append(self._lengths[ended])
      self._count_step(sample)
    segment = stack(samples)
    elapsed = time.perf_counter() - start
    metrics = {name: total / self._segment_length for name, total in totals.items()}
    metrics |= {
      "train/temperature": float(temperature),
      "train/world_share": world_s / elapsed,
      "train/worker_steps_per_s": self._segment_length * self._env.num_envs / elapsed,
    }
    if self._env.num_faults > num_faults:
      metrics["faults/env_errors"] = float(self._env.num_faults - num_faults)
    result = ActingResult(
      self._segment_length * self._env.num_envs,
      self.version,
      np.concatenate(ended_returns),
      np.concatenate(ended_lengths),
      metrics,
    )
    return TrajectorySample(**fields_of(segment)), result

  def get_state(self) -> State:
    """Worlds, histories and random state, as `set_state` takes them; the parameters are not among them."""
    return lanes_state(self._env, self._lanes())

  def set_state(self, state: State) -> int:
    """Goes on from where another collector of the same configuration was.

    Returns: how many worlds had to begin a new game, because theirs cannot be taken back.
    Raises: ValueError: a state of another configuration.
    """
    lanes, num_new = lanes_of_state(self._env, self._lanes(), state)
    self._rng_key, self._history, self._timestep = lanes["rng_key"], lanes["history"], lanes["timestep"]
    self._returns, self._lengths = lanes["returns"], lanes["lengths"]
    return num_new

  def _lanes(self) -> dict[str, Any]:
    return {
      "rng_key": self._rng_key,
      "history": self._history,
      "timestep": self._timestep,
      "returns": self._returns,
      "lengths": self._lengths,
    }

  def begin_anew(self) -> None:
    """Begins a new game in every world."""
    self._timestep = self._env.reset()
    self._returns, self._lengths = np.zeros_like(self._returns), np.zeros_like(self._lengths)

  def close(self) -> None:
    """Closes the worlds; nothing can be run afterwards."""
    self._env.close()

  def _act(self, temperature: jax.Array) -> tuple[StepSample, Any]:
    self._rng_key, key = jax.random.split(self._rng_key)
    self._history, output = self._policy(
      self._held.params, self._held.net_state, self._history, self._timestep, key, temperature
    )
    output = jax.device_get(output)
    version = np.full(self._env.num_envs, self.version, np.int32)
    sample = StepSample(
      **fields_of(self._timestep),
      root_value=output.root_value,
      action_probs=output.action_probs,
      action=output.action,
      acted_version=version,
      searched_version=version,
    )
    return sample, output

  def _count_step(self, sample: StepSample) -> None:
    """Adds the newest rewards and actions to each lane's game; a game that begins here has none yet."""
    is_first = self._timestep.is_first
    reward = player_sign(sample.to_play, 0) * self._timestep.last_reward
    # What follows an end is no action of the agent's, be it a new game or the same one after a life lost.
    self._returns = np.where(is_first, 0.0, self._returns + reward)
    self._lengths = np.where(is_first, 0, self._lengths + ~sample.is_last)


def _cut_off(sample: StepSample, is_cut: np.ndarray) -> StepSample:
  """The step with the frame of some lanes truncated: its action led nowhere, its value is the bootstrap."""
  return replace(
    sample,
    is_last=sample.is_last | is_cut,
    is_truncated=sample.is_truncated | is_cut,
    action=np.where(is_cut, np.int32(DUMMY_ACTION), sample.action),
  )


def lanes_state(env: VectorWorlds, lanes: Any) -> State:
  """What a collector keeps between calls: its worlds and, by name, what it holds for each of them."""
  return prefixed("env", env.get_state()) | prefixed("lanes", tree_state(lanes))


def lanes_of_state(env: VectorWorlds, lanes: Any, state: State) -> tuple[dict[str, Any], int]:
  """Takes the worlds back to where `lanes_state` found them.

  Args:
    env: the worlds.
    lanes: timestep, history, returns, lengths, rng_key, of the same shapes as then.
    state: what `lanes_state` gave.

  Returns: the same as then, but for worlds that cannot be taken back; how many those are.
  Raises: ValueError: a state of other shapes; nothing has changed then.
  """
  out = dict(tree_of_state(lanes, part(state, "lanes")))
  out["timestep"], is_new = env.set_state(part(state, "env"), out["timestep"])
  out["returns"], out["lengths"] = np.where(is_new, 0.0, out["returns"]), np.where(is_new, 0, out["lengths"])
  return out, int(is_new.sum())

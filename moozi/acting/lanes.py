"""The environments that a collector acts in, with the agent's carry and the episodes in progress."""

import dataclasses
import time
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, Num, Shaped

from moozi.agent.agent import Carry
from moozi.core.flat_state import State, part, prefixed, tree_of_state, tree_state
from moozi.envs.environment import VectorEnvironment
from moozi.envs.vector import cut_lanes
from moozi.ops.signs import player_sign


@dataclasses.dataclass(frozen=True)
class PastResult:
  """The games against a past self that are counted in one call; `acting.past_selves` describes the rounds.

  Attributes:
    version: learner step of the past self's parameters.
    is_complete: whether a round is complete: in every lane of the past self, a game that started in the round
      has ended.
    wins, draws, losses: numbers of games that the current parameters won, drew and lost, without truncated
      games.
  """

  version: int
  is_complete: bool
  wins: int
  draws: int
  losses: int


@dataclasses.dataclass(frozen=True)
class ActingResult:
  """The result of one call of a collector's `run`.

  Attributes:
    num_steps: number of environment steps, T·B.
    version: learner step of the parameters that acted at the first step.
    episode_returns, episode_lengths: [E], one entry for each ended episode, in the call in which the next one
      begins. If the loss of a life ends an episode in training, the entries cover whole games. With two
      players, the returns are those of player 0. Episodes that a failure of the environment cut off are
      excluded.
    metrics: scalars about the policy and the environment; has `faults/env_errors` if environments failed.
    past: the games against a past self; None without past selves.
    extras: the extras of the decisions, [T, B, …] by name; empty unless the collector keeps them.
  """

  num_steps: int
  version: int
  episode_returns: Float[np.ndarray, "E"]
  episode_lengths: Int[np.ndarray, "E"]
  metrics: dict[str, float]
  past: PastResult | None = None
  extras: dict[str, Shaped[np.ndarray, "T B ..."]] = dataclasses.field(default_factory=dict)


class Lanes:
  """Holds B environments, the agent's carry, and the episodes' returns and lengths.

  Args:
    env: the environments; the constructor resets them.
    carry: the agent's carry before the first frame.
    seed: seeds the random key.

  Attributes:
    timestep: the environments' current step.
    carry: the agent's carry after the last action; the caller updates it.
    rng_key: the random key of the agent's noise and the choice of actions; the caller updates it.
  """

  def __init__(self, env: VectorEnvironment, carry: Carry, seed: int) -> None:
    self._env = env
    self.rng_key: Any = jax.random.PRNGKey(seed)
    self.carry = carry
    self.timestep = env.reset()
    self._returns = np.zeros(env.num_envs, np.float64)
    self._lengths = np.zeros(env.num_envs, np.int64)
    self._num_reported_faults = 0  # those of resets between segments are reported with the next segment
    self.begin_segment()

  def begin_segment(self) -> None:
    """Resets the counts that `result` reports."""
    self._ended: list[tuple[np.ndarray, np.ndarray]] = []
    self._num_steps, self._env_s = 0, 0.0
    self._since = time.perf_counter()

  def step(self, action: Num[np.ndarray, "B *D"]) -> Bool[np.ndarray, "B"]:
    """Steps every environment; the action on the last frame of an episode is discarded.

    Returns: [B] bool, whether each environment failed. The caller marks the frame before a failure as
      truncated (`collector.cut_off`).
    """
    before, start = self.timestep, time.perf_counter()
    self.timestep = step = self._env.step(action)
    self._env_s += time.perf_counter() - start
    self._num_steps += self._env.num_envs
    is_cut = cut_lanes(before, step)
    ended = np.flatnonzero(step.is_first & ~is_cut)
    self._ended.append((self._returns[ended], self._lengths[ended]))
    reward = player_sign(before.to_play, 0) * step.last_reward
    # The agent does not act on a last frame, of a game or of a life, so the step after it adds no length.
    self._returns = np.where(step.is_first, 0.0, self._returns + reward)
    self._lengths = np.where(step.is_first, 0, self._lengths + ~before.is_last)
    return is_cut

  def result(self, version: int, metrics: dict[str, float]) -> ActingResult:
    """Returns the result of the current segment; its parameters are those of learner step `version`.

    Its metrics are `metrics`, `train/env_share` (the environments' share of the time),
    `train/worker_steps_per_s` and, if environments failed since the last result, the number of failures
    `faults/env_errors`.
    """
    elapsed = time.perf_counter() - self._since
    metrics = metrics | {
      "train/env_share": self._env_s / elapsed,
      "train/worker_steps_per_s": self._num_steps / elapsed,
    }
    if num_faults := self._env.num_faults - self._num_reported_faults:
      metrics["faults/env_errors"] = float(num_faults)
      self._num_reported_faults = self._env.num_faults
    returns, lengths = (np.concatenate(parts) for parts in zip(*self._ended, strict=True))
    return ActingResult(self._num_steps, version, returns, lengths, metrics)

  def reset(self) -> None:
    """Starts a new episode in every environment."""
    self.timestep = self._env.reset()
    self._returns, self._lengths = np.zeros_like(self._returns), np.zeros_like(self._lengths)

  def close(self) -> None:
    """Closes the environments, which cannot be used afterwards."""
    self._env.close()

  def get_state(self) -> State:
    """Returns the state between two segments: of the environments, the agent and the episodes in progress."""
    return prefixed("env", self._env.get_state()) | prefixed("lanes", tree_state(self._state()))

  def set_state(self, state: State) -> int:
    """Restores a state; its arrays must have the shapes and dtypes of these lanes.

    Returns: number of environments that could not be restored and start a new episode.
    Raises: ValueError: an array is missing or differs in shape or dtype; the lanes stay unchanged.
    """
    own = tree_of_state(self._state(), part(state, "lanes"))
    self.timestep, is_new = self._env.set_state(part(state, "env"), own["timestep"])
    self.rng_key, self.carry = own["rng_key"], own["carry"]
    self._returns = np.where(is_new, 0.0, own["returns"])
    self._lengths = np.where(is_new, 0, own["lengths"])
    return int(is_new.sum())

  def _state(self) -> dict[str, Any]:
    return {
      "rng_key": self.rng_key,
      "carry": self.carry,
      "timestep": self.timestep,
      "returns": self._returns,
      "lengths": self._lengths,
    }

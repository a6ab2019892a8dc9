"""The environments that a collector acts in, and what it keeps for each of them between its calls."""

import dataclasses
import time
from typing import Any

import jax
import numpy as np

from moozi.core.flat_state import State, part, prefixed, tree_of_state, tree_state
from moozi.envs.environment import VectorEnvironment
from moozi.envs.vector import cut_lanes
from moozi.ops.history import init_history
from moozi.ops.players import player_sign


@dataclasses.dataclass(frozen=True)
class ActingResult:
  """One call of a collector's `run`.

  Attributes:
    num_steps: environment steps made, T·B.
    version: learner step of the parameters that acted.
    episode_returns, episode_lengths: [E] of the games that ended, told when the next one begins; where a life
      lost ends an episode in training, of the whole game. With two players, player 0's returns. One that the
      environment's own failure cut off is not among them.
    metrics: scalars about the policy and the environment; `faults/env_errors` where environments failed.
  """

  num_steps: int
  version: int
  episode_returns: np.ndarray
  episode_lengths: np.ndarray
  metrics: dict[str, float]


class Lanes:
  """B environments side by side, the history that the policy sees, and the games under way in them.

  Args:
    env: the environments; they are reset here.
    history_length: frames of the history.
    seed: of the random state.

  Attributes:
    timestep: what the environments show now.
    history: as it was left after the last action; whoever acts renews it.
    rng_key: of the choice of actions; whoever draws renews it.
  """

  def __init__(self, env: VectorEnvironment, history_length: int, seed: int) -> None:
    self._env = env
    self.rng_key: Any = jax.random.PRNGKey(seed)
    self.history: Any = init_history(env.num_envs, history_length, env.spec)
    self.timestep = env.reset()
    self._returns = np.zeros(env.num_envs, np.float64)
    self._lengths = np.zeros(env.num_envs, np.int64)
    self.begin_segment()

  def begin_segment(self) -> None:
    """What `result` tells is counted from here."""
    self._ended: list[tuple[np.ndarray, np.ndarray]] = []
    self._num_steps, self._env_s, self._num_faults = 0, 0.0, self._env.num_faults
    self._since = time.perf_counter()

  def step(self, action: np.ndarray) -> np.ndarray:
    """Steps every environment with an action [B], discarded where its last frame was an end.

    Returns: [B] bool, where an environment failed: its episode is cut off at the frame before (`cut_lanes`).
    """
    seen, start = self.timestep, time.perf_counter()
    self.timestep = step = self._env.step(action)
    self._env_s += time.perf_counter() - start
    self._num_steps += self._env.num_envs
    is_cut = cut_lanes(seen, step)
    ended = np.flatnonzero(step.is_first & ~is_cut)
    self._ended.append((self._returns[ended], self._lengths[ended]))
    reward = player_sign(seen.to_play, 0) * step.last_reward
    # What follows an end is no action of the agent's, be it a new game or the same one after a life lost.
    self._returns = np.where(step.is_first, 0.0, self._returns + reward)
    self._lengths = np.where(step.is_first, 0, self._lengths + ~seen.is_last)
    return is_cut

  def result(self, version: int, metrics: dict[str, float]) -> ActingResult:
    """What came of the segment that ends here.

    Args:
      version: learner step of the parameters that acted.
      metrics: told besides `train/env_share`, the environments' share of the time, and
        `train/worker_steps_per_s`, environment steps a second of acting alone.
    """
    elapsed = time.perf_counter() - self._since
    metrics = metrics | {
      "train/env_share": self._env_s / elapsed,
      "train/worker_steps_per_s": self._num_steps / elapsed,
    }
    if self._env.num_faults > self._num_faults:
      metrics["faults/env_errors"] = float(self._env.num_faults - self._num_faults)
    returns, lengths = (np.concatenate(parts) for parts in zip(*self._ended, strict=True))
    return ActingResult(self._num_steps, version, returns, lengths, metrics)

  def reset(self) -> None:
    """Begins a new game in every environment."""
    self.timestep = self._env.reset()
    self._returns, self._lengths = np.zeros_like(self._returns), np.zeros_like(self._lengths)

  def close(self) -> None:
    """Closes the environments; nothing can be done with them afterwards."""
    self._env.close()

  def get_state(self) -> State:
    """Environments, histories and random state between two segments, as `set_state` takes them."""
    return prefixed("env", self._env.get_state()) | prefixed("lanes", tree_state(self._held()))

  def set_state(self, state: State) -> int:
    """Goes on from where others of the same shapes were.

    Returns: how many environments had to begin a new game, because theirs cannot be taken back.
    Raises: ValueError: a state of other shapes; nothing has changed then.
    """
    held = tree_of_state(self._held(), part(state, "lanes"))
    self.timestep, is_new = self._env.set_state(part(state, "env"), held["timestep"])
    self.rng_key, self.history = held["rng_key"], held["history"]
    self._returns = np.where(is_new, 0.0, held["returns"])
    self._lengths = np.where(is_new, 0, held["lengths"])
    return int(is_new.sum())

  def _held(self) -> dict[str, Any]:
    return {
      "rng_key": self.rng_key,
      "history": self.history,
      "timestep": self.timestep,
      "returns": self._returns,
      "lengths": self._lengths,
    }

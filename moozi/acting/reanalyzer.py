"""Reanalyze: stored positions searched again with newer parameters, in two ways that say the same.

Source: the thesis §2.7.1, §4.3.10, §4.3.13. Departures: positions are gathered with their histories by
default; the thesis replays trajectories in a vectorized environment, which is the other way.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moozi.acting.collector import HeldParameters
from moozi.agent.planner import plan
from moozi.agent.policy import make_policy
from moozi.core.config import Config, PlannerConfig, TargetsConfig
from moozi.core.errors import RunError
from moozi.core.flat_state import State
from moozi.core.pytree import map_fields
from moozi.core.records import RootSpan, SearchedRoots, SearchRoots
from moozi.core.spec import EnvSpec
from moozi.envs.replayed import VectorReplayedEnvironment
from moozi.nn.model import Model
from moozi.ops.history import init_history, normalize_frame, stack_history

# Temperature chooses actions, and reanalyze plays none.
_TEMPERATURE = 1.0

RootSearch = Callable[..., tuple[jax.Array, jax.Array]]


def make_root_search(
  model: Model, planner: PlannerConfig, targets: TargetsConfig, spec: EnvSpec
) -> RootSearch:
  """Returns search(params, net_state, frames, actions, mask, rng_key) -> (root_value, action_probs).

  To be compiled. Arrays are those of SearchRoots and SearchedRoots.
  """

  def search(
    params: Any, net_state: Any, frames: jax.Array, actions: jax.Array, mask: jax.Array, rng_key: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    stacked = stack_history(normalize_frame(frames, spec.frame_dtype), actions, spec.num_actions)
    discount, players = targets.discount, spec.num_players
    output = plan(model, planner, discount, players, params, net_state, rng_key, stacked, mask, _TEMPERATURE)
    return output.root_value, output.action_probs

  return search


class Reanalyzer:
  """Searches stored positions again.

  Args:
    model: the network.
    config: the run's configuration; `planners.reanalyze` is the search.
    spec: the environment's facts.
    seed: of the search's noise.
  """

  def __init__(self, model: Model, config: Config, spec: EnvSpec, seed: int) -> None:
    planner, self._spec = config.planners.reanalyze, spec
    self._batch_size = config.reanalyze.batch_size
    self._num_envs = min(config.workers.num_envs, self._batch_size)
    self._history_length = config.targets.history_length
    root_search = make_root_search(model, planner, config.targets, spec)

    # The key is split in there too: as a call of its own that is half a millisecond.
    def search(rng_key: jax.Array, *args: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
      rng_key, key = jax.random.split(rng_key)
      return rng_key, *root_search(*args, key)

    self._search = jax.jit(search)
    self._policy = jax.jit(make_policy(model, planner, config.targets, spec))
    self._rng_key = jax.random.PRNGKey(seed)
    self._held = HeldParameters()

  @property
  def version(self) -> int:
    """Learner step of the parameters in use; -1 before the first."""
    return self._held.version

  def set_parameters(self, params: Any, net_state: Any, version: int) -> None:
    """Takes parameters (arrays or NumPy); a version already in use costs nothing."""
    self._held.set(params, net_state, version)

  def drop_parameters(self) -> None:
    """The next ones are taken whatever their version is: the run has gone back to others of the same."""
    self._held = HeldParameters()

  def get_state(self) -> State:
    """What its searches' noise goes on from."""
    return {"rng_key": np.array(self._rng_key)}

  def set_state(self, state: State) -> None:
    """Goes on from there; from its own beginning where a state has none."""
    if "rng_key" in state:
      self._rng_key = jnp.asarray(state["rng_key"])

  def run(self, positions: SearchRoots | Sequence[RootSpan]) -> tuple[SearchedRoots, dict[str, float]]:
    """Searches positions in the way that their form asks for: gathered, or replayed in spans.

    Returns: what replay writes back, and metrics: how far values and policies went, and the rate.
    Raises: RunError: there are none.
    """
    if not len(positions.slot if isinstance(positions, SearchRoots) else positions):
      raise RunError("reanalyze: replay holds no position to search, only ends of episodes")
    start = time.perf_counter()
    if isinstance(positions, SearchRoots):
      old_value, old_probs, old_version = (
        positions.root_value,
        positions.action_probs,
        positions.searched_version,
      )
      searched = self.search_roots(positions)
    else:
      old = [
        (s.steps.root_value[s.at], s.steps.action_probs[s.at], s.steps.searched_version[s.at])
        for s in positions
      ]
      old_value, old_probs, old_version = (np.concatenate(part) for part in zip(*old, strict=True))
      searched = self.search_spans(positions)
    elapsed = time.perf_counter() - start
    metrics = search_change(old_value, old_probs, searched) | {
      "reanalyze/renewed_age_updates": float(np.mean(searched.searched_version - old_version)),
      "reanalyze/worker_positions_per_s": len(searched.slot) / elapsed,
    }
    return searched, metrics

  def search_roots(self, roots: SearchRoots) -> SearchedRoots:
    """Searches gathered positions [M, …], `reanalyze.batch_size` at a time."""
    parts = []
    for first in range(0, len(roots.slot), self._batch_size):
      part = map_fields(lambda x, a=first: x[a : a + self._batch_size], roots)
      count = len(part.slot)
      if count < self._batch_size:
        # One width for all calls, or each would be compiled anew.
        row = np.arange(self._batch_size) % count
        part = map_fields(lambda x, row=row: x[row], part)
      self._rng_key, value, probs = self._search(
        self._rng_key,
        self._held.params,
        self._held.net_state,
        part.frames,
        part.history_actions,
        part.legal_actions_mask,
      )
      parts.append((np.asarray(value)[:count], np.asarray(probs)[:count]))
    value, probs = (np.concatenate(x) for x in zip(*parts, strict=True))
    return self._searched(value, probs, roots.slot, roots.sequence)

  def search_spans(self, spans: Sequence[RootSpan]) -> SearchedRoots:
    """Replays spans side by side, and keeps what the search says at their positions.

    The environments show what was seen and the history takes what was done, so that the policy searches where
    it
    once did. Lanes that have nothing to show are searched in vain.
    """
    env = VectorReplayedEnvironment(self._num_envs, self._spec)
    env.refill([span.steps for span in spans])
    step, history = env.reset(), init_history(self._num_envs, self._history_length, self._spec)
    # Rows of the result, by span and step of it; -1 is a step on the way.
    begins = np.cumsum([0, *(len(span.at) for span in spans)])
    rows = [np.full(len(span.steps.action), -1, np.int64) for span in spans]
    for row, span, begin in zip(rows, spans, begins[:-1], strict=True):
      row[span.at] = begin + np.arange(len(span.at))
    value = np.zeros(begins[-1], np.float32)
    probs = np.zeros((begins[-1], self._spec.num_actions), np.float32)
    while env.active.any():
      lanes = np.flatnonzero(env.active)
      shown = [
        (int(k), int(t)) for k, t in zip(env.trajectory_index[lanes], env.step_index[lanes], strict=True)
      ]
      actions = np.zeros(self._num_envs, np.int32)
      actions[lanes] = [spans[k].steps.action[t] for k, t in shown]
      self._rng_key, key = jax.random.split(self._rng_key)
      history, output = self._policy(
        self._held.params, self._held.net_state, history, step, key, jnp.float32(_TEMPERATURE), actions
      )
      row = np.array([rows[k][t] for k, t in shown])
      value[row[row >= 0]] = np.asarray(output.root_value)[lanes[row >= 0]]
      probs[row[row >= 0]] = np.asarray(output.action_probs)[lanes[row >= 0]]
      step = env.step(actions)
    slot, sequence = (np.concatenate([getattr(s, name) for s in spans]) for name in ("slot", "sequence"))
    return self._searched(value, probs, slot, sequence)

  def _searched(
    self, value: np.ndarray, probs: np.ndarray, slot: np.ndarray, sequence: np.ndarray
  ) -> SearchedRoots:
    version = np.full(len(slot), self.version, np.int32)
    return SearchedRoots(
      root_value=value, action_probs=probs, searched_version=version, slot=slot, sequence=sequence
    )


def search_change(old_value: np.ndarray, old_probs: np.ndarray, new: SearchedRoots) -> dict[str, float]:
  """How far a new search went from the old one: scalars by name, means over the positions.

  Args:
    old_value: [M] float32.
    old_probs: [M, A] float32.
    new: of the same positions.

  The divergence of the policies is Jensen and Shannon's, in nats: 0 where they agree, ln 2 where they share
  no action. It stays finite where one of them is 0, as visit counts often are.
  """
  middle = (old_probs + new.action_probs) / 2
  divergence = (_relative_entropy(old_probs, middle) + _relative_entropy(new.action_probs, middle)) / 2
  change = new.root_value - old_value
  return {
    "reanalyze/value_change": float(change.mean()),
    "reanalyze/value_change_abs": float(np.abs(change).mean()),
    "reanalyze/policy_divergence": float(divergence.mean()),
  }


def _relative_entropy(p: np.ndarray, q: np.ndarray) -> np.ndarray:
  """Σ p ln(p / q) over the last axis; 0 where p is."""
  ratio = np.divide(p, q, out=np.ones_like(p), where=p > 0)
  return np.sum(p * np.log(ratio), axis=-1)

"""Reanalyze: searches stored positions again with newer parameters.

Source: the thesis §2.7.1, §4.3.10, §4.3.13. Departure: by default, replay gathers the positions with their
histories. With `reanalyze.mode=replayed`, mock environments replay trajectories, as in the thesis.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt32

from moozi.acting.collector import HeldParameters
from moozi.agent.agent import keyed
from moozi.agent.muzero import make_muzero
from moozi.agent.planner import plan
from moozi.agent.symmetry_average import averaged
from moozi.core.config import Config, PlannerConfig, TargetsConfig
from moozi.core.errors import RunError
from moozi.core.flat_state import State
from moozi.core.pytree import map_fields
from moozi.core.records import SEARCH_FIELDS, RootSpan, SearchedRoots, SearchRoots, num_roots
from moozi.core.spec import EnvSpec
from moozi.envs.replayed import ReplayedEnvironment
from moozi.nn.model import Model
from moozi.ops.history import network_input

# The temperature affects only the choice of an action, and reanalyze does not choose actions.
_TEMPERATURE = 1.0

RootSearch = Callable[..., tuple[jax.Array, jax.Array]]


def make_root_search(
  model: Model, planner: PlannerConfig | None, targets: TargetsConfig, spec: EnvSpec
) -> RootSearch:
  """Returns search(variables, frames, actions, mask, rng_key) -> (root_value, action_probs).

  The caller compiles the function. Positions and results have the shapes of SearchRoots and SearchedRoots.

  Args:
    planner: the search. None: no search; the value is the network's, and `action_probs` has no rows, [0, A].
  """
  model = model if planner is None else averaged(model, planner, targets, spec)

  def search(
    variables: Any,
    frames: Shaped[Array, "M L H W C"],
    actions: Int[Array, "M L"],
    mask: Bool[Array, "M A"],
    rng_key: UInt32[Array, "2"],
  ) -> tuple[Float[Array, "M"], Float[Array, "_ A"]]:
    params, net_state = variables
    stacked = network_input(frames, actions, spec)
    if planner is None:
      root, _ = model.root_inference(params, net_state, stacked, False)
      return model.transform.to_scalar(root.value_logits), jnp.zeros((0, spec.policy_size))
    discount, players = targets.discount, spec.num_players
    output = plan(model, planner, discount, players, params, net_state, rng_key, stacked, mask, _TEMPERATURE)
    return output.root_value, output.action_probs

  return search


class Reanalyzer(HeldParameters):
  """Searches stored positions again; with `reanalyze.search=false`, replaces only their values.

  Args:
    config: the run's configuration; `planners.reanalyze` configures the search.
  """

  def __init__(self, model: Model, config: Config, spec: EnvSpec, seed: int) -> None:
    planner, self._spec = config.planners.for_reanalyze, spec
    self._batch_size = config.reanalyze.batch_size
    self._num_envs = min(config.workers.num_envs, self._batch_size)
    searched_with = planner if config.reanalyze.search else None
    root_search = make_root_search(model, searched_with, config.targets, spec)

    # Splits the key inside the compiled function: a separate call takes half a millisecond.
    def search(rng_key: jax.Array, *args: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
      rng_key, key = jax.random.split(rng_key)
      return rng_key, *root_search(*args, key)

    self._search = jax.jit(search)
    self._agent = make_muzero(model, planner, config.targets, spec)
    self._act = jax.jit(keyed(self._agent))
    self._rng_key = jax.random.PRNGKey(seed)

  def get_state(self) -> State:
    return {"rng_key": np.array(self._rng_key)}

  def set_state(self, state: State) -> None:
    """Restores the random key if `state` contains it."""
    if "rng_key" in state:
      self._rng_key = jnp.asarray(state["rng_key"])

  def run(self, positions: SearchRoots | Sequence[RootSpan]) -> tuple[SearchedRoots, dict[str, float]]:
    """Searches gathered positions in batches, or replays spans and searches their positions.

    Returns: the results to write back, and metrics: how much values and policies change, the age of the
    replaced searches, and the rate.
    Raises: RunError: there are no positions.
    """
    start = time.perf_counter()
    if not num_roots(positions):
      raise RunError("reanalyze: no position to search: all are ends, or were searched with newer parameters")
    if isinstance(positions, SearchRoots):
      old = [getattr(positions, name) for name in SEARCH_FIELDS]
      searched = self.search_roots(positions)
    else:
      old = [
        np.concatenate([getattr(span.steps, name)[span.at] for span in positions]) for name in SEARCH_FIELDS
      ]
      searched = self.search_spans(positions)
    elapsed = time.perf_counter() - start
    metrics = search_change(old[0], old[1], searched) | {
      "reanalyze/renewed_age_updates": float(np.mean(searched.searched_version - old[2])),
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
        # All calls have the same width, so that the search compiles once.
        row = np.arange(self._batch_size) % count
        part = map_fields(lambda x, row=row: x[row], part)
      self._rng_key, value, probs = self._search(
        self._rng_key,
        self.variables,
        part.frames,
        part.history_actions,
        part.legal_actions_mask,
      )
      parts.append((np.asarray(value)[:count], np.asarray(probs)[:count]))
    value, probs = (np.concatenate(x) for x in zip(*parts, strict=True))
    probs = probs if len(probs) else roots.action_probs  # without a search, the policies are kept
    return self._searched(value, probs, roots.slot, roots.sequence)

  def search_spans(self, spans: Sequence[RootSpan]) -> SearchedRoots:
    """Replays spans in parallel lanes, and returns the search results of their positions.

    The environments return the recorded steps, and the recorded actions are forced. The agent therefore
    searches the recorded positions.
    """
    env = ReplayedEnvironment([span.steps for span in spans], self._num_envs, self._spec)
    step, carry = env.reset(), self._agent.init(self._num_envs)
    # For each concatenated step: its action, and its row in the result (-1 if it is not a position).
    begin = np.cumsum([0, *(len(span.steps.action) for span in spans)])
    recorded = np.concatenate([span.steps.action for span in spans])
    positions = np.concatenate([span.at + first for span, first in zip(spans, begin, strict=False)])
    row = np.full(len(recorded), -1, np.int64)
    row[positions] = np.arange(len(positions))
    value = np.zeros(len(positions), np.float32)
    probs = np.zeros((len(positions), self._spec.policy_size), np.float32)
    while env.active.any():
      lanes = np.flatnonzero(env.active)
      at = begin[env.trajectory_index[lanes]] + env.step_index[lanes]
      actions = np.zeros(self._num_envs, np.int32)
      actions[lanes] = recorded[at]
      self._rng_key, carry, decision = self._act(
        self.variables, carry, step, self._rng_key, jnp.float32(_TEMPERATURE), actions
      )
      found = row[at]
      lanes, found = lanes[found >= 0], found[found >= 0]
      value[found] = np.asarray(decision.root_value)[lanes]
      probs[found] = np.asarray(decision.action_probs)[lanes]
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


def search_change(
  old_value: Float[np.ndarray, "M"], old_probs: Float[np.ndarray, "M A"], new: SearchedRoots
) -> dict[str, float]:
  """Compares new searches of positions with the old ones; returns scalars by name, means over positions.

  The divergence of the policies is the Jensen-Shannon divergence in nats: 0 where they agree, ln 2 where they
  share no action. It is finite even where one policy gives an action probability 0, as visit counts often do.
  With sampled joint actions, it is the sum over the dimensions.
  """
  middle = (old_probs + new.action_probs) / 2
  divergence = (_relative_entropy(old_probs, middle) + _relative_entropy(new.action_probs, middle)) / 2
  change = new.root_value - old_value
  return {
    "reanalyze/value_change": float(change.mean()),
    "reanalyze/value_change_abs": float(np.abs(change).mean()),
    "reanalyze/policy_divergence": float(divergence.mean()),
  }


def _relative_entropy(p: Float[np.ndarray, "M A"], q: Float[np.ndarray, "M A"]) -> Float[np.ndarray, "M"]:
  """Returns Σ p ln(p / q) over actions, with 0 ln 0 = 0."""
  ratio = np.divide(p, q, out=np.ones_like(p), where=p > 0)
  return np.sum(p * np.log(ratio), axis=-1)

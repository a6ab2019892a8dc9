"""The pool of past selves: chooses the past parameters that play against the current ones.

Source: Berner et al. 2019 (OpenAI Five), opponent sampling. There, 20% of the games are against past selves,
which are drawn with probabilities proportional to exp(quality). A new past self starts with the largest
quality in the pool. If the current agent beats past self i, that self's quality falls by η / (N · p_i).
Departures: the size of the pool is limited; each draw is for one round, in which one game counts in each of a
worker's lanes with a past self.
"""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from moozi.acting.lanes import PastResult
from moozi.core.config import Config
from moozi.core.flat_state import (
  Entry,
  State,
  check_state,
  entries_like,
  part,
  prefixed,
  tree_of_state,
  tree_state,
)
from moozi.core.seeds import child_seed

_NONE = -1


@dataclasses.dataclass(eq=False)
class PastSelf:
  """Past parameters: an agent's variables. `version` is their learner step."""

  variables: Any
  version: int
  quality: float


class PastSelves:
  """Past parameters with their qualities, and the one that each training worker plays against.

  Attributes:
    pool: the past selves, oldest first.
  """

  def __init__(self, config: Config) -> None:
    self._config, self._seed = config.opponents, child_seed(config.seed, "past_selves")
    self.pool: list[PastSelf] = []
    num_workers = config.max_workers
    # By worker: the version of its opponent, N · p of its draw, the number of draws so far.
    self._drawn = np.full(num_workers, _NONE, np.int64)
    self._weight = np.ones(num_workers, np.float64)
    self._num_draws = np.zeros(num_workers, np.int64)

  def offer(self, variables: Any, version: int) -> None:
    """Adds a copy of the current parameters if the pool is empty or its newest entry is old enough.

    If the pool is full, removes the past self of lowest quality among those that no worker plays against. If
    workers play against every past self, the pool exceeds `pool_size`.
    """
    if self.pool and version < self.pool[-1].version + self._config.period_updates:
      return
    import jax

    variables = jax.tree_util.tree_map(np.array, variables)
    quality = max((past.quality for past in self.pool), default=0.0)
    free = [past for past in self.pool if past.version not in self._drawn]
    free.sort(key=lambda past: past.quality)
    for past in free[: max(0, len(self.pool) + 1 - self._config.pool_size)]:
      self.pool.remove(past)
    self.pool.append(PastSelf(variables, version, quality))

  def probabilities(self) -> Float[np.ndarray, "N"]:
    """Returns the probabilities of the draw: the softmax of the qualities."""
    quality = np.array([past.quality for past in self.pool])
    weight = np.exp(quality - quality.max())
    return weight / weight.sum()

  def opponent(self, worker: int) -> PastSelf:
    """Returns the past self that a training worker plays against; draws one if it has none."""
    if self._drawn[worker] == _NONE:
      random = np.random.default_rng([self._seed, worker, int(self._num_draws[worker])])
      probabilities = self.probabilities()
      i = random.choice(len(self.pool), p=probabilities)
      self._drawn[worker] = self.pool[i].version
      self._weight[worker] = len(self.pool) * probabilities[i]
      self._num_draws[worker] += 1
    return next(past for past in self.pool if past.version == self._drawn[worker])

  def record(self, worker: int, result: PastResult, learner_steps: int) -> dict[str, float]:
    """Updates the quality of a worker's opponent; after a complete round, the worker gets a new opponent.

    Games against an earlier opponent do not count.

    Returns: metrics.
    """
    past, num_games = self.opponent(worker), 0
    if past.version == result.version:
      num_games = result.wins + result.draws + result.losses
      past.quality -= result.wins * self._config.quality_rate / float(self._weight[worker])
      if result.is_complete:
        self._drawn[worker] = _NONE
    quality = [past.quality for past in self.pool]
    score = {"past/score": (result.wins + 0.5 * result.draws) / num_games} if num_games else {}
    return score | {
      "past/games": float(num_games),
      "past/pool_size": float(len(self.pool)),
      "past/quality_min": min(quality),
      "past/quality_max": max(quality),
      "past/opponent_age_updates": float(learner_steps - result.version),
    }

  def get_state(self) -> State:
    state: State = {
      "versions": np.array([past.version for past in self.pool], np.int64),
      "qualities": np.array([past.quality for past in self.pool], np.float64),
      "drawn": self._drawn.copy(),
      "weight": self._weight.copy(),
      "num_draws": self._num_draws.copy(),
    }
    for i, past in enumerate(self.pool):
      state |= prefixed(str(i), tree_state(past.variables))
    return state

  def set_state(self, state: State, template: Any) -> None:
    """Restores a state. If the number of workers has changed, every worker gets a new opponent.

    Args:
      template: the variables of the same network.
    """
    if not state:
      return  # the run had no past selves
    rows = enumerate(zip(state["versions"], state["qualities"], strict=True))
    self.pool = [
      PastSelf(tree_of_state(template, part(state, str(i))), int(version), float(quality))
      for i, (version, quality) in rows
    ]
    if np.shape(state["drawn"]) == self._drawn.shape:
      self._drawn[:], self._weight[:] = state["drawn"], state["weight"]
      self._num_draws[:] = state["num_draws"]


def finite_variables(template: Any) -> dict[str, Entry]:
  """Returns the entries of variables whose values are finite, with the shapes and dtypes of `template`."""
  own = entries_like(tree_state(template))
  return {
    name: dataclasses.replace(entry, low=-1e300, high=1e300, may_be_nan=False) for name, entry in own.items()
  }


def check_past_selves(state: State, template: Any) -> None:
  """Checks a state that `PastSelves.get_state` may have returned, with any number of workers.

  Args:
    template: the variables of the same network.

  Raises: ValueError: an entry is missing, not expected or invalid; the message names it.
  """
  num_workers, num_past = (np.size(state.get(name, ())) for name in ("drawn", "versions"))
  entries = {
    "versions": Entry("int64", (None,), low=0),
    "qualities": Entry("float64", (num_past,), low=-1e300, high=1e300),
    "drawn": Entry("int64", (None,), low=_NONE),
    "weight": Entry("float64", (num_workers,), low=0, high=1e300),
    "num_draws": Entry("int64", (num_workers,), low=0),
  }
  finite = finite_variables(template)
  # The number of entries is compared first: it bounds the work if `versions` is too long.
  if num_past > len(state):
    raise ValueError(f"past_selves/versions has {num_past} entries; must have one for each past self")
  for i in range(num_past):
    entries |= prefixed(str(i), finite)
  check_state(state, entries, "past_selves/")
  unknown = set(state["drawn"].tolist()) - {_NONE, *state["versions"].tolist()}
  if unknown:
    raise ValueError(f"past_selves/drawn is {min(unknown)}; must be -1 or one of past_selves/versions")

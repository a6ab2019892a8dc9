"""Acting in which a past self plays one side of some games.

In the last lanes of a worker, past parameters play one side; in every other one of these lanes the past self
moves first. The current parameters search every position of these lanes too, and the past self's action
replaces theirs where it is to move. So all policy targets and values are from searches of the current
parameters.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from moozi.acting.collector import TrajectoryCollector
from moozi.acting.lanes import ActingResult, PastResult
from moozi.acting.rollout import RolloutCollector
from moozi.agent.planner import SearchOutput
from moozi.agent.policy import Policy
from moozi.core.flat_state import State, part, prefixed
from moozi.core.pytree import map_fields
from moozi.core.records import BatchedTimeStep, TrajectorySample
from moozi.ops.history import HistoryState
from moozi.ops.players import player_sign

# Folded into the random key of the search, this gives the key of the past self's search.
_PAST = 2
# The status of a lane in a round: no game has started, one is in progress, one has ended.
_WAITING, _PLAYING, _ENDED = 0, 1, 2


def with_past(policy: Policy, num_past: int) -> Policy:
  """Returns a policy in which a second set of parameters plays one side in the last `num_past` lanes.

  Its arguments `params` and `net_state` are pairs: of the current parameters and of the past self's.
  """

  def play(
    params: tuple[Any, Any],
    net_state: tuple[Any, Any],
    history: HistoryState,
    timestep: BatchedTimeStep,
    rng_key: Array,
    temperature: Any,
  ) -> tuple[HistoryState, SearchOutput]:
    num_own = len(timestep.to_play) - num_past
    lanes, step = map_fields(lambda x: x[num_own:], history), map_fields(lambda x: x[num_own:], timestep)
    past_key = jax.random.fold_in(rng_key, _PAST)
    _, output = policy(params[1], net_state[1], lanes, step, past_key, temperature)
    is_past = step.to_play == past_seats(num_past)
    forced = jnp.concatenate([jnp.full(num_own, -1), jnp.where(is_past, output.action, -1)])
    return policy(params[0], net_state[0], history, timestep, rng_key, temperature, forced)

  return play


def past_seats(num_past: int) -> np.ndarray:
  """Returns the past self's seat in each of the lanes that it plays in."""
  return np.arange(num_past) % 2


class PastCollector:
  """A collector whose last lanes play against a past self.

  Games are counted in rounds: the first whole game of each of these lanes. If every game counted, short games
  would have more weight. A new round starts with a new opponent, and after a complete round.

  A truncated game is its lane's game of the round, but has no result. If the lane waited for another game, a
  round in which every game reaches a limit of steps would never be complete.

  Args:
    collector: acts with a policy of `with_past`.
    num_past: number of lanes in which a past self plays.
  """

  def __init__(self, collector: TrajectoryCollector | RolloutCollector, num_past: int) -> None:
    self._collector, self._num_past = collector, num_past
    self._own_seat = 1 - past_seats(num_past)
    self._past: tuple[Any, Any] | None = None
    self._state: dict[str, np.ndarray] = {
      "version": np.array(-1, np.int64),
      "status": np.full(num_past, _WAITING, np.int8),
      "returns": np.zeros(num_past, np.float64),
      "mover": np.zeros(num_past, np.int32),
    }

  def set_opponent(self, params: Any, net_state: Any, version: int) -> None:
    """Sets the past self's parameters. Call it before `set_parameters`.

    Games in progress continue against the new opponent, and are not counted.
    """
    if self._past is None or version != self._state["version"]:
      self._past = jax.device_put((params, net_state))
      self._collector.version = -1  # so that `set_parameters` sets both sets of parameters
    if version != self._state["version"]:
      self._state["version"][...] = version
      self._state["status"][:] = _WAITING

  def set_parameters(self, params: Any, net_state: Any, version: int) -> None:
    """Sets the current parameters; see `HeldParameters`."""
    assert self._past is not None, "call set_opponent first"
    self._collector.set_parameters((params, self._past[0]), (net_state, self._past[1]), version)

  def warm_up(self, template: tuple[Any, Any]) -> None:
    params, net_state = template
    self._collector.warm_up(((params, params), (net_state, net_state)))

  def run(self, env_steps: int) -> tuple[TrajectorySample, ActingResult]:
    """Acts for one segment, as the collector does; the result includes the games against the past self."""
    segment, result = self._collector.run(env_steps)
    return segment, dataclasses.replace(result, past=self._count(segment))

  def _count(self, segment: TrajectorySample) -> PastResult:
    state, counts = self._state, {"wins": 0, "draws": 0, "losses": 0}
    status, returns, mover = state["status"], state["returns"], state["mover"]
    lanes = slice(-self._num_past, None)
    names = ("is_first", "is_last", "is_truncated", "last_reward", "to_play")
    for is_first, is_last, is_truncated, reward, to_play in zip(
      *(np.asarray(getattr(segment, name))[:, lanes] for name in names), strict=True
    ):
      status[is_first & (status == _WAITING)] = _PLAYING
      returns[:] = np.where(is_first, 0.0, returns + player_sign(mover, self._own_seat) * reward)
      ended = is_last & (status == _PLAYING)
      for name, is_result in (("wins", returns > 0), ("draws", returns == 0), ("losses", returns < 0)):
        counts[name] += int((ended & ~is_truncated & is_result).sum())
      status[ended], mover[:] = _ENDED, to_play
    is_complete = bool((status == _ENDED).all())
    if is_complete:
      status[:] = _WAITING  # the next opponent may be the same
    return PastResult(version=int(state["version"]), is_complete=is_complete, **counts)

  def get_state(self) -> State:
    own = {name: value.copy() for name, value in self._state.items()}
    return self._collector.get_state() | prefixed("past", own)

  def set_state(self, state: State) -> int:
    """Restores the state of a collector. If it had no past self, no game in progress is counted."""
    num_new = self._collector.set_state({k: x for k, x in state.items() if not k.startswith("past/")})
    for name, value in part(state, "past").items():
      self._state[name][...] = value
    return num_new

  def reset(self) -> None:
    self._collector.reset()

  def close(self) -> None:
    self._collector.close()

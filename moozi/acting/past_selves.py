"""Acting in which a past self plays one side of some games.

In the last lanes of a worker, past parameters play one side: player 0 in every other one of these lanes,
starting with the first, and player 1 in the rest. The current parameters decide on every position of these
lanes too. Where the past self is to move, its action replaces that of the current parameters. So all policy
targets and values are those of the current parameters. An on-policy algorithm must not learn a policy where
the past self moved (IS_PAST).
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from moozi.acting.collector import TrajectoryCollector
from moozi.acting.lanes import ActingResult, PastResult
from moozi.acting.on_policy import IS_PAST
from moozi.acting.rollout import RolloutCollector
from moozi.agent.agent import Carry, Decision, PureAgent, Temperature, merge_forced
from moozi.core.flat_state import State, part, prefixed
from moozi.core.records import BatchedTimeStep, TrajectorySample
from moozi.core.types import AnyArray
from moozi.ops.signs import player_sign

# Folded into the random key of the search, this gives the key of the past self's search.
_PAST = 2
# The status of a lane in a round: no game has started, one is in progress, one has ended.
_WAITING, _PLAYING, _ENDED = 0, 1, 2


def with_past(agent: PureAgent, num_past: int) -> PureAgent:
  """Returns an agent in which a second set of variables plays one side in the last `num_past` lanes.

  The variables of the returned agent are a pair: those of the current agent and those of the past self.
  """

  def act(
    variables: tuple[PyTree, PyTree],
    carry: Carry,
    timestep: BatchedTimeStep,
    rng_key: Array,
    temperature: Temperature,
    forced: Int[AnyArray, "B"] | None = None,
    position: Any = None,
  ) -> tuple[Carry, Decision]:
    num_own = len(timestep.to_play) - num_past
    lanes, step, at = jax.tree_util.tree_map(lambda x: x[num_own:], (carry, timestep, position))
    past_key = jax.random.fold_in(rng_key, _PAST)
    _, past = agent.act(variables[1], lanes, step, past_key, temperature, None, at)
    is_past = step.to_play == past_seats(num_past)
    moves = jnp.concatenate([jnp.full(num_own, -1), jnp.where(is_past, past.action, -1)])
    forced = merge_forced(forced, moves)
    return agent.act(variables[0], carry, timestep, rng_key, temperature, forced, position)

  def observe(variables: tuple[PyTree, PyTree], *seen: Any) -> Carry:
    return agent.observe(variables[0], *seen)

  return dataclasses.replace(agent, act=act, observe=observe)


def past_seats(num_past: int) -> np.ndarray:
  """Returns the past self's seat in each of the lanes that it plays in."""
  return np.arange(num_past) % 2


class PastCollector:
  """A collector whose last lanes play against a past self.

  Games are counted in rounds. A round counts the first whole game of each of these lanes; if every game
  counted, short games would have more weight. A new round starts with a new opponent, and after a complete
  round.

  A truncated game is its lane's game of the round, but has no result. If the lane waited for another game, a
  round in which every game reaches a limit of steps would never be complete.

  Args:
    collector: acts with an agent of `with_past`.
    num_past: number of lanes in which a past self plays.
  """

  def __init__(self, collector: TrajectoryCollector | RolloutCollector, num_past: int) -> None:
    self._collector, self._num_past = collector, num_past
    self._own_seat = 1 - past_seats(num_past)
    self._past: Any = None
    self._state: dict[str, np.ndarray] = {
      "version": np.array(-1, np.int64),
      "status": np.full(num_past, _WAITING, np.int8),
      "returns": np.zeros(num_past, np.float64),
      "mover": np.zeros(num_past, np.int32),
    }

  def set_opponent(self, variables: Any, version: int) -> None:
    """Sets the past self's variables; keeps them if `version` is that of the present past self.

    Call it before `set_parameters`. Games in progress continue against a new opponent, and are not counted.
    """
    if self._past is None or version != self._state["version"]:
      self._past = jax.device_put(variables)
    if version != self._state["version"]:
      self._state["version"][...] = version
      self._state["status"][:] = _WAITING

  def set_parameters(self, variables: Any, version: int) -> None:
    """Sets the current agent's variables; see `HeldParameters`."""
    assert self._past is not None, "call set_opponent first"
    self._collector.set_parameters((variables, self._past), version)

  def warm_up(self, template: Any) -> None:
    self._collector.warm_up((template, template))

  def run(self, env_steps: int) -> tuple[TrajectorySample, ActingResult]:
    """Acts for one segment, as the collector does; the result includes the games against the past self.

    If the collector keeps the extras of decisions, the result's extras also have IS_PAST.
    """
    segment, result = self._collector.run(env_steps)
    extras = result.extras
    if extras:
      is_past = np.zeros(np.shape(segment.to_play), bool)
      lanes = slice(-self._num_past, None)
      is_past[:, lanes] = np.asarray(segment.to_play)[:, lanes] == past_seats(self._num_past)
      extras = extras | {IS_PAST: is_past}
    return segment, dataclasses.replace(result, past=self._count(segment), extras=extras)

  def look_ahead(self, env_steps: int) -> tuple[BatchedTimeStep, Decision]:
    """Returns the frames after the last segment, and the current agent's decision on them."""
    return self._collector.look_ahead(env_steps)

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
    """Restores the state of a collector. If that collector had no past self, no game in progress counts."""
    num_new = self._collector.set_state({k: x for k, x in state.items() if not k.startswith("past/")})
    for name, value in part(state, "past").items():
      self._state[name][...] = value
    return num_new

  def reset(self) -> None:
    self._collector.reset()

  def close(self) -> None:
    self._collector.close()

"""Environments that replay what was once seen, whatever the agent does: mock environments, and reanalyze's
way in.
"""

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np
from dm_env import StepType, TimeStep

from moozi.core.records import BatchedTimeStep, TrajectorySample
from moozi.core.spec import EnvSpec
from moozi.envs.environment import Environment, Observation, check_action, check_seed
from moozi.envs.vector import blank_step, check_actions, mark_end

_SEEN = tuple(field.name for field in dataclasses.fields(BatchedTimeStep))


class ReplayedEnvironment(Environment):
  """Shows the steps of one trajectory in order; actions are checked, and change nothing.

  Episodes may end and begin inside the trajectory. The step after its last one goes back to its first, if
  the last one ends an episode. The first step is shown as FIRST also where the trajectory begins in the
  middle of an episode: for who looks on, the history starts there.

  Args:
    trajectory: [T, …], one lane, T at least 1.
    spec: the facts of the environment that it was seen in.

  Raises: ValueError: where the trajectory is empty, does not fit the spec, or begins with an end.
  Source: the thesis, 4.3.1 (mock environment). Departures: none.
  """

  def __init__(self, trajectory: TrajectorySample, spec: EnvSpec) -> None:
    self._trajectory = check_trajectory(trajectory, spec)
    if trajectory.is_last[0]:
      raise ValueError("the trajectory begins with the end of an episode, which cannot be shown as FIRST")
    self._spec = spec
    self._index = -1

  @property
  def env_spec(self) -> EnvSpec:
    """The facts of the environment that the trajectory was seen in."""
    return self._spec

  @property
  def index(self) -> int:
    """Which step of the trajectory is shown now; -1 before the first reset."""
    return self._index

  def seed(self, seed: int) -> None:
    """Checks the seed; nothing here is left to chance."""
    check_seed(seed)

  def reset(self) -> TimeStep:
    """Goes back to the first step of the trajectory."""
    self._index = 0
    return self._show()

  def step(self, action: int) -> TimeStep:
    """Shows the next step.

    Raises:
      ValueError: where the action is out of range, or was illegal then; nothing has moved.
      IndexError: where a trajectory that breaks off in the middle of an episode is used up.
    """
    t, trajectory = self._index, self._trajectory
    is_end = t == len(trajectory.action) - 1
    if t < 0 or (is_end and trajectory.is_last[t]):
      return self.reset()
    if not trajectory.is_last[t]:
      check_action(action, trajectory.legal_actions_mask[t, 1:])
    if is_end:
      raise IndexError(f"the trajectory of {t + 1} steps is used up and breaks off inside an episode")
    self._index += 1
    return self._show()

  def _show(self) -> TimeStep:
    t, trajectory = self._index, self._trajectory
    # A life lost before it: the episode begins here, and the history goes on.
    is_continued = bool(t > 0 and trajectory.is_last[t - 1] and not trajectory.is_first[t])
    observation = Observation(
      frame=trajectory.frame[t],
      legal_actions_mask=trajectory.legal_actions_mask[t, 1:],
      to_play=int(trajectory.to_play[t]),
      is_continued=is_continued,
    )
    if t == 0 or trajectory.is_first[t] or is_continued:
      return TimeStep(StepType.FIRST, None, None, observation)
    kind = StepType.LAST if trajectory.is_last[t] else StepType.MID
    return TimeStep(kind, float(trajectory.last_reward[t]), float(trajectory.last_discount[t]), observation)


class VectorReplayedEnvironment:
  """B lanes that replay trajectories out of a buffer which is refilled from outside.

  A lane that comes to the end of its trajectory takes the oldest one in the buffer on the next step, and
  shows its first step as FIRST. Where the buffer is empty then, the lane idles: it shows blank terminal
  frames until a refill. So the loop runs on, with `active` telling which lanes mean anything; drain it by
  stepping until none is active.

  Args:
    num_envs: lanes, B.
    spec: the facts of the environment that the trajectories were seen in.

  Raises: ValueError: where num_envs is below 1.
  Source: the thesis, 4.3.2 (trajectory buffer). Departures: lanes idle where the thesis stops.
  """

  def __init__(self, num_envs: int, spec: EnvSpec) -> None:
    if num_envs < 1:
      raise ValueError(f"num_envs={num_envs}: must be at least 1")
    self._num_envs = num_envs
    self._spec = spec
    self._buffer: collections.deque[tuple[int, TrajectorySample]] = collections.deque()
    self._num_refilled = 0
    self._legal_actions_mask = np.zeros((num_envs, spec.num_actions), bool)
    self._clear_lanes()

  @property
  def num_envs(self) -> int:
    """How many lanes there are, B."""
    return self._num_envs

  @property
  def spec(self) -> EnvSpec:
    """The facts of the environment that the trajectories were seen in."""
    return self._spec

  @property
  def active(self) -> np.ndarray:
    """[B] bool: the lanes that show a step of a trajectory now."""
    return self._trajectory_index >= 0

  @property
  def exhausted(self) -> bool:
    """Whether the buffer is empty and some lane has nothing to show: time to refill, or to drain."""
    return not self._buffer and not self.active.all()

  @property
  def trajectory_index(self) -> np.ndarray:
    """[B] int64: which trajectory each lane shows, counted over all refills from 0; -1 where it idles."""
    return self._trajectory_index.copy()

  @property
  def step_index(self) -> np.ndarray:
    """[B] int64: which step of its trajectory each lane shows; -1 where it idles."""
    return self._step_index.copy()

  def refill(self, trajectories: Sequence[TrajectorySample]) -> None:
    """Adds trajectories, [T, …] each, to the buffer; none of them, and ValueError, where one does not fit."""
    checked = [check_trajectory(t, self._spec) for t in trajectories]
    for trajectory in checked:
      self._buffer.append((self._num_refilled, trajectory))
      self._num_refilled += 1

  def reset(self) -> BatchedTimeStep:
    """Drops what the lanes were showing; each takes a new trajectory from the buffer."""
    self._clear_lanes()
    return self._advance()

  def step(self, actions: np.ndarray) -> BatchedTimeStep:
    """Shows every lane's next step.

    Args:
      actions: [B] integers in the agent's action space; checked as `SyncVectorEnvironment` does, not played;
        not read for the last step of a trajectory.

    Raises: ValueError: where an action for a live frame is the dummy, out of range, or was illegal then.
    """
    check_actions(actions, self._legal_actions_mask, self._discards)
    return self._advance()

  def close(self) -> None:
    """Drops the buffer and what the lanes were showing."""
    self._buffer.clear()
    self._clear_lanes()

  def _clear_lanes(self) -> None:
    self._lanes: list[TrajectorySample | None] = [None] * self._num_envs
    self._trajectory_index = np.full(self._num_envs, -1, np.int64)
    self._step_index = np.full(self._num_envs, -1, np.int64)
    # Lanes whose next action is not read: at an end, at the last step of a trajectory, and idle ones.
    self._discards = np.ones(self._num_envs, bool)

  def _advance(self) -> BatchedTimeStep:
    out = blank_step(self._spec, self._num_envs)
    self._discards = np.ones(self._num_envs, bool)
    for i in range(self._num_envs):
      trajectory = self._next(i)
      if trajectory is None:
        mark_end(out, i, is_truncated=False)
        continue
      t = int(self._step_index[i])
      for name in _SEEN:
        getattr(out, name)[i] = getattr(trajectory, name)[t]
      if t == 0:
        out.is_first[i] = True
        out.last_reward[i] = 0.0
      self._discards[i] = out.is_last[i] or t == len(trajectory.action) - 1
    self._legal_actions_mask = out.legal_actions_mask
    return out

  def _next(self, i: int) -> TrajectorySample | None:
    """Moves lane i on by one step; returns the trajectory it shows now, None where it idles."""
    trajectory = self._lanes[i]
    if trajectory is not None and self._step_index[i] + 1 < len(trajectory.action):
      self._step_index[i] += 1
      return trajectory
    if self._buffer:
      self._trajectory_index[i], self._lanes[i] = self._buffer.popleft()
      self._step_index[i] = 0
    else:
      self._trajectory_index[i], self._lanes[i], self._step_index[i] = -1, None, -1
    return self._lanes[i]


def check_trajectory(trajectory: TrajectorySample, spec: EnvSpec) -> TrajectorySample:
  """Returns the trajectory. Raises ValueError where it is not one lane of at least one step of this
  environment.
  """
  num_steps = len(trajectory.action)
  if num_steps == 0 or np.ndim(trajectory.action) != 1:
    raise ValueError(f"action: shape {np.shape(trajectory.action)}; must be [T], T at least 1")
  shapes: dict[str, tuple[int, ...]] = dict.fromkeys(_SEEN, (num_steps,))
  shapes["frame"] = (num_steps, *spec.frame_shape)
  shapes["legal_actions_mask"] = (num_steps, spec.num_actions)
  for name, shape in shapes.items():
    if np.shape(getattr(trajectory, name)) != shape:
      raise ValueError(
        f"{name}: shape {np.shape(getattr(trajectory, name))}; must be {shape} for {spec.name}"
      )
  if trajectory.frame.dtype != np.dtype(spec.frame_dtype):
    raise ValueError(f"frame: {trajectory.frame.dtype}; must be {spec.frame_dtype} for {spec.name}")
  return trajectory

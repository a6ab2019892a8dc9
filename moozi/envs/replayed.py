"""The thesis's mock environments: they replay recorded trajectories and ignore the agent's actions."""

import dataclasses
import heapq
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from moozi.core.records import BatchedTimeStep, TrajectorySample
from moozi.core.spec import EnvSpec
from moozi.envs.vector import blank_step, check_actions, mark_end

_FIELDS = tuple(field.name for field in dataclasses.fields(BatchedTimeStep))


class ReplayedEnvironment:
  """B lanes that replay trajectories. After each trajectory, a lane takes the next one in order.

  Actions are checked and discarded. A trajectory's first step is shown as FIRST with reward 0, even if the
  trajectory begins in the middle of an episode: the history starts there. When no trajectory is left, a lane
  idles and shows blank terminal frames. Run it as

      step = env.reset()
      while env.active.any():
        step = env.step(actions)

  Args:
    trajectories: each of one lane, [T, …] with T at least 1.
    num_envs: number of lanes, B; with 1 it is the thesis's mock environment.
    spec: the specification of the environment that the trajectories were recorded in.

  Raises: ValueError: a trajectory is empty or does not fit the spec, or num_envs is below 1.
  Source: the thesis, 4.3.1 (mock environment) and 4.3.2 (trajectory buffer). Departures: the constructor
    takes all trajectories, where the thesis refills a buffer; a lane without a trajectory idles.
  """

  def __init__(self, trajectories: Sequence[TrajectorySample], num_envs: int, spec: EnvSpec) -> None:
    if num_envs < 1:
      raise ValueError(f"num_envs={num_envs}: must be at least 1")
    for trajectory in trajectories:
      _check_trajectory(trajectory, spec)
    self.num_envs, self.spec = num_envs, spec
    self._trajectories = trajectories
    self._schedule = _schedule([len(t.action) for t in trajectories], num_envs)
    self._time = -1
    self._legal_actions_mask = np.zeros((num_envs, spec.policy_size), bool)
    # Lanes whose next action is not checked: lanes at an end or at a trajectory's last step, and idle lanes.
    self._is_discarded = np.ones(num_envs, bool)

  @property
  def trajectory_index(self) -> Int[np.ndarray, "B"]:
    """The index of the trajectory that each lane shows; -1 where it idles."""
    return self._now(0)

  @property
  def step_index(self) -> Int[np.ndarray, "B"]:
    """The index of the step that each lane shows in its trajectory; -1 where it idles."""
    return self._now(1)

  @property
  def active(self) -> np.ndarray:
    """[B] bool: the lanes that show a step of a trajectory."""
    return self.trajectory_index >= 0

  def reset(self) -> BatchedTimeStep:
    """Shows the first step of the first B trajectories."""
    self._time = 0
    return self._show()

  def step(self, actions: Int[np.ndarray, "B"]) -> BatchedTimeStep:
    """Shows every lane's next step.

    Args:
      actions: in the agent's action space; checked on live frames, except at a trajectory's last step.

    Raises: ValueError: an action for a live frame is the dummy, out of range or illegal. Then no lane
      advances.
    """
    check_actions(actions, self.spec, self._legal_actions_mask, self._is_discarded)
    self._time += 1
    return self._show()

  def _now(self, row: int) -> Int[np.ndarray, "B"]:
    if 0 <= self._time < self._schedule.shape[1]:
      return self._schedule[row, self._time].copy()
    return np.full(self.num_envs, -1, np.int64)

  def _show(self) -> BatchedTimeStep:
    out = blank_step(self.spec, self.num_envs)
    self._is_discarded = np.ones(self.num_envs, bool)
    for i, (k, t) in enumerate(zip(self.trajectory_index, self.step_index, strict=True)):
      if k < 0:
        mark_end(out, i, is_truncated=False)
        continue
      trajectory = self._trajectories[k]
      for name in _FIELDS:
        getattr(out, name)[i] = getattr(trajectory, name)[t]
      if t == 0:
        out.is_first[i], out.last_reward[i] = True, 0.0
      self._is_discarded[i] = out.is_last[i] or t == len(trajectory.action) - 1
    self._legal_actions_mask = out.legal_actions_mask
    return out


def _schedule(lengths: Sequence[int], num_envs: int) -> Int[np.ndarray, "2 T B"]:
  """Returns the indices of the trajectory and step that each lane shows at each time; -1 where it idles.

  Each trajectory is assigned to the lane that is free first; if several are, to the lowest.
  """
  free = [(0, i) for i in range(num_envs)]
  starts = []
  for length in lengths:
    start, lane = free[0]
    heapq.heapreplace(free, (start + length, lane))
    starts.append((start, lane))
  out = np.full((2, max(free)[0], num_envs), -1, np.int64)
  for k, ((start, lane), length) in enumerate(zip(starts, lengths, strict=True)):
    out[0, start : start + length, lane] = k
    out[1, start : start + length, lane] = np.arange(length)
  return out


def _check_trajectory(trajectory: TrajectorySample, spec: EnvSpec) -> None:
  num_steps = len(trajectory.action)
  if num_steps == 0 or np.ndim(trajectory.action) != 1:
    raise ValueError(f"action: shape {np.shape(trajectory.action)}; must be [T], T at least 1")
  expected = {name: (num_steps, *x.shape[1:]) for name, x in vars(blank_step(spec, 1)).items()}
  for name, shape in expected.items():
    if np.shape(getattr(trajectory, name)) != shape:
      raise ValueError(
        f"{name}: shape {np.shape(getattr(trajectory, name))}; must be {shape} for {spec.name}"
      )
  if trajectory.frame.dtype != np.dtype(spec.frame_dtype):
    raise ValueError(f"frame: {trajectory.frame.dtype}; must be {spec.frame_dtype} for {spec.name}")

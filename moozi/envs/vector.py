"""Many worlds side by side, in the agent's terms: the dummy action, the masks at an end, flat records.

Worlds reset on the step after an end: the LAST frame is seen, the action given to it is discarded, and the
next step shows the first frame of a new episode. So the main loop needs no case for ends.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from dm_env import StepType, TimeStep

from moozi.core.records import BatchedTimeStep
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.envs import registry
from moozi.envs.environment import Environment


class VectorEnvironment:
  """Worlds of one spec, stepped together.

  Args:
    envs: the worlds, all of the same spec.
    next_seed: asked before each reset of world i; an int seeds its new episode, None lets its chance run on.

  A first step that goes on with a game (a life was lost) is no `is_first`: the history is kept.

  Raises: ValueError: where there is no world, or specs differ.
  Source: the thesis, 4.3.1 (algorithm 2) and 4.3.2. Departures: the input b_last is kept inside.
  """

  def __init__(
    self, envs: Sequence[Environment], next_seed: Callable[[int], int | None] | None = None
  ) -> None:
    if not envs:
      raise ValueError("envs is empty: at least one world is needed")
    self._envs = list(envs)
    self._next_seed = next_seed
    self._spec = self._envs[0].world_spec
    for i, env in enumerate(self._envs):
      if env.world_spec != self._spec:
        raise ValueError(f"envs[{i}] is {env.world_spec}; all must be {self._spec}")
    self._legal_actions_mask = np.zeros((self.num_envs, self._spec.num_actions), bool)
    # Before the first reset every world is as at an end: the first step resets them all.
    self._is_last = np.ones(self.num_envs, bool)

  @property
  def num_envs(self) -> int:
    """How many worlds there are, B."""
    return len(self._envs)

  @property
  def spec(self) -> EnvSpec:
    """The facts that all the worlds share."""
    return self._spec

  def reset(self) -> BatchedTimeStep:
    """Starts a new episode in every world."""
    self._is_last = np.ones(self.num_envs, bool)
    return self._advance([0] * self.num_envs, starts_anew=True)

  def step(self, actions: np.ndarray) -> BatchedTimeStep:
    """Steps every world; those whose last frame was an end start a new episode instead.

    Args:
      actions: [B] integers in the agent's action space; read only where the last frame was no end.

    Returns: fresh arrays; nothing in them is written to again.
    Raises: ValueError: where an action for a live frame is the dummy, out of range, or illegal. No world
      has moved then.
    """
    actions = check_actions(actions, self._legal_actions_mask, self._is_last)
    return self._advance(actions.tolist())

  def render(self, i: int) -> np.ndarray | None:
    """World i's own picture of what it shows now, [h, w, 3] uint8; None where it has none."""
    return self._envs[i].render()

  def close(self) -> None:
    """Closes every world."""
    for env in self._envs:
      env.close()

  def _advance(self, actions: list[int], starts_anew: bool = False) -> BatchedTimeStep:
    out = blank_step(self._spec, self.num_envs)
    frame, last_reward, to_play, mask = out.frame, out.last_reward, out.to_play, out.legal_actions_mask
    was_last = self._is_last.tolist()
    for i, env in enumerate(self._envs):
      step = self._begin(i, env, starts_anew) if was_last[i] else env.step(actions[i] - 1)
      frame[i], mask[i, 1:], to_play[i], is_continued = step.observation
      if step.step_type is StepType.MID:
        last_reward[i] = step.reward
      elif step.step_type is StepType.FIRST:
        out.is_first[i] = not is_continued
      else:
        last_reward[i] = step.reward
        mark_end(out, i, is_truncated=bool(step.discount))
    self._legal_actions_mask = mask
    self._is_last = out.is_last
    return out

  def _begin(self, i: int, env: Environment, starts_anew: bool) -> TimeStep:
    seed = None if self._next_seed is None else self._next_seed(i)
    if seed is not None:
      env.seed(seed)
    step = env.reset()
    # The reset after a life lost goes on with the game; one more begins a new one.
    return env.reset() if starts_anew and step.observation.is_continued else step


def make_vector(name: str, kwargs: Mapping[str, Any], num_envs: int, seed: int) -> VectorEnvironment:
  """`num_envs` worlds called `name`, each with a seed of its own that follows from `seed`.

  Where the world's library has a faster way than one by one, this is it, behind the same face.

  Raises: UserError: as `registry.make` does.
  """
  seeds = world_seeds(num_envs, seed)
  fast: VectorEnvironment | None = registry.make_fast_vector(name, seeds, **kwargs)
  if fast is not None:
    return fast
  return VectorEnvironment([registry.make(name, s, **kwargs) for s in seeds])


def world_seeds(num_envs: int, seed: int) -> list[int]:
  """A seed for each of `num_envs` worlds, all following from `seed`."""
  return [int(s) for s in np.random.SeedSequence(seed).generate_state(num_envs, np.uint64)]


def blank_step(spec: EnvSpec, num_envs: int) -> BatchedTimeStep:
  """Live frames in the middle of episodes, all zero, with nothing legal yet: to be filled in."""
  return BatchedTimeStep(
    frame=np.zeros((num_envs, *spec.frame_shape), spec.frame_dtype),
    last_reward=np.zeros(num_envs, np.float32),
    last_discount=np.ones(num_envs, np.float32),
    is_first=np.zeros(num_envs, bool),
    is_last=np.zeros(num_envs, bool),
    is_truncated=np.zeros(num_envs, bool),
    to_play=np.zeros(num_envs, np.int32),
    legal_actions_mask=np.zeros((num_envs, spec.num_actions), bool),
  )


def mark_end(step: BatchedTimeStep, i: int, is_truncated: bool) -> None:
  """Makes row i an end, in place: a terminal frame has discount 0 and the dummy alone legal."""
  step.is_last[i] = True
  if is_truncated:
    step.is_truncated[i] = True
    return
  step.last_discount[i] = 0.0
  step.legal_actions_mask[i] = False
  step.legal_actions_mask[i, DUMMY_ACTION] = True


def check_actions(actions: np.ndarray, legal_actions_mask: np.ndarray, is_last: np.ndarray) -> np.ndarray:
  """Returns the actions as a NumPy array. Raises ValueError where one for a live frame cannot be played."""
  actions = np.asarray(actions)
  num_envs, num_actions = legal_actions_mask.shape
  if actions.shape != (num_envs,) or actions.dtype.kind not in "iu":
    raise ValueError(f"actions: {actions.dtype}{list(actions.shape)}; must be integers of shape [{num_envs}]")
  in_range = (actions >= 0) & (actions < num_actions)
  legal = legal_actions_mask[np.arange(num_envs), np.where(in_range, actions, DUMMY_ACTION)]
  bad = ~is_last & ~(in_range & legal)
  if bad.any():
    i = int(np.flatnonzero(bad)[0])
    legal_here = np.flatnonzero(legal_actions_mask[i]).tolist()
    raise ValueError(
      f"actions[{i}]={int(actions[i])}: cannot be played on a live frame; legal are {legal_here}"
    )
  return actions

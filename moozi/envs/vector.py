"""B environments stepped together, in the agent's terms: the dummy action, masks at an end, flat records.

An environment resets on the step after an end: the LAST frame is shown, the action for it is discarded, and
the next step shows the first frame of a new episode. The main loop therefore needs no special case for ends.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from dm_env import StepType, TimeStep
from jaxtyping import Bool, Float32, Num, Shaped

from moozi.core.errors import ActionError, EnvMakeError, EnvValueError, UserError, one_line
from moozi.core.factors import Intervals
from moozi.core.flat_state import State
from moozi.core.pytree import fields_of
from moozi.core.records import BatchedTimeStep
from moozi.core.seed_streams import SpawnedSeeds
from moozi.core.spec import DUMMY_ACTION, EnvSpec, all_legal
from moozi.envs import registry
from moozi.envs.environment import Environment, VectorEnvironment, stack_positions
from moozi.envs.guard import FAULTS, EnvGuard
from moozi.envs.validation import check_flag, check_step
from moozi.envs.wrappers import RandomStarts
from moozi.ops.pictures import to_picture

_log = logging.getLogger("moozi.envs")

IDLE = -1
"""Returned by `next_seed` for an environment that has no further episode."""

_RESET = -1


class SyncVectorEnvironment(VectorEnvironment):
  """Steps several environments of one spec, one after the other.

  Args:
    envs: the environments, all of the same spec.
    next_seed: called with i before each episode of environment i. Returns the episode's seed; None if the
      environment is not to be seeded; `IDLE` if it is to show a blank terminal frame and not be reset.
    lane_seeds: one seed for each environment, instead of `next_seed`. The seed of game n = 1, 2, … of
      environment i is that of child n of lane_seeds[i] (`SpawnedSeeds`). Without lane_seeds, `set_state`
      starts new games.
    guard: replaces environments that raise or hang. None: errors propagate, and there is no time limit.

  A replacement shows the first frame of a new episode, so a step with `is_first` may follow a frame that is
  not an end. The old episode is cut off at that frame, which the caller marks as truncated (`cut_lanes`).

  A first step that continues a game after a lost life has `is_first` False: the history is kept.

  Raises: ValueError: `envs` is empty, or specs differ.
  Source: the thesis, 4.3.1 (algorithm 2) and 4.3.2. Departures: whether the last step ended the episode
    (`b_last` there) is part of the state, not an input.
  """

  def __init__(
    self,
    envs: Sequence[Environment],
    next_seed: Callable[[int], int | None] | None = None,
    lane_seeds: Sequence[int] | None = None,
    guard: EnvGuard | None = None,
  ) -> None:
    if not envs:
      raise ValueError("envs is empty: at least one environment is needed")
    super().__init__(envs[0].env_spec, len(envs))
    self._envs = list(envs)
    self._next_seed = self._next_game if lane_seeds is not None else next_seed
    self._guard = guard
    self._game_seeds = None if lane_seeds is None else [SpawnedSeeds(seed) for seed in lane_seeds]
    self._watch = contextlib.nullcontext() if guard is None else guard.watched()
    self._picture_fault = ""
    # The player who must be to move after the next step, if there are two.
    self._next_to_play = [1] * len(envs)
    # The number of games started by each environment, and its actions and resets since it was last seeded.
    self._games = np.zeros(len(envs), np.int64)
    self._log: list[list[Any]] = [[] for _ in envs]
    self._reset_entry = np.full(self.spec.action_shape, np.nan) if self.spec.is_continuous else _RESET
    for i, env in enumerate(self._envs):
      if env.env_spec != self.spec:
        raise ValueError(f"envs[{i}] is {env.env_spec}; all must be {self.spec}")

  @property
  def num_faults(self) -> int:
    return 0 if self._guard is None else self._guard.num_faults

  def reset(self) -> BatchedTimeStep:
    self._is_last = np.ones(self.num_envs, bool)
    return self._advance([DUMMY_ACTION] * self.num_envs, is_new_game=True)

  def step(self, actions: Num[np.ndarray, "B *D"]) -> BatchedTimeStep:
    actions = check_actions(actions, self.spec, self._legal_actions_mask, self._is_last)
    return self._advance(list(actions) if self.spec.is_continuous else actions.tolist())

  def positions(self) -> Any:
    # An environment that was never reset idles. It has no position; another one takes its place.
    started = next(env for env, log in zip(self._envs, self._log, strict=True) if log)
    return stack_positions(
      [(env if log else started).position() for env, log in zip(self._envs, self._log, strict=True)]
    )

  def render(self, i: int) -> np.ndarray | None:
    """See `VectorEnvironment.render`. Logs the first failure and draws no pictures after it."""
    if self._picture_fault:
      return None
    try:
      with self._armed(), self._watch:
        return to_picture(self._envs[i].render())
    except FAULTS as error:
      self._picture_fault = f"env.name={self.spec.name}: its picture cannot be drawn: {one_line(error)}"
      _log.warning("%s; its frames are drawn instead", self._picture_fault, exc_info=error)
      return None

  @property
  def picture_fault(self) -> str:
    return self._picture_fault

  def get_state(self) -> State:
    """Returns the actions and resets of each current game, which `set_state` replays.

    Returns: games [B] int64, log [N] int32 (lane by lane), log_lengths [B] int64. A reset is -1 in the log.
      The log of continuous actions is [N, D] float32, in which a reset is NaN.
    """
    shape, dtype = (-1, *self.spec.action_shape), self.spec.action_dtype
    return {
      "games": self._games.copy(),
      "log": np.concatenate([np.array(log, dtype).reshape(shape) for log in self._log]),
      "log_lengths": np.array([len(log) for log in self._log], np.int64),
    }

  def set_state(self, state: State, shown: BatchedTimeStep) -> tuple[BatchedTimeStep, np.ndarray]:
    """Seeds every environment and replays its actions; see `VectorEnvironment.set_state`.

    An environment that fails, or then shows a different step, starts a new game. The guard replaces an
    environment that cannot start one, and interrupts one that hangs.
    """
    if np.shape(state.get("games", ())) != (self.num_envs,) or shown.is_last.shape != (self.num_envs,):
      raise ValueError(f"state: must be of {self.num_envs} environments that step one by one")
    self._games = np.array(state["games"], np.int64)
    logs = np.split(state["log"], np.cumsum(state["log_lengths"])[:-1])
    is_new = np.zeros(self.num_envs, bool)
    steps: list[TimeStep | None] = []
    with self._armed():
      for i, env in enumerate(self._envs):
        step = self._replay(i, env, list(logs[i]) if self.spec.is_continuous else logs[i].tolist())
        if step is None or not _is_row(batched_step(self.spec, [step]), shown, i):
          is_new[i] = True
          step = self._advance_lane(i, DUMMY_ACTION, is_reset=True, is_new_game=True)
        steps.append(step)
    return self._show(steps), is_new

  def close(self) -> None:
    with self._armed():
      for i, env in enumerate(self._envs):
        if self._guard is None:
          env.close()
        else:
          self._guard.close(i, env)

  def _advance(self, actions: Sequence[Any], is_new_game: bool = False) -> BatchedTimeStep:
    was_last = self._is_last.tolist()
    with self._armed():
      steps = [self._advance_lane(i, action, was_last[i], is_new_game) for i, action in enumerate(actions)]
    return self._show(steps)

  def _show(self, steps: Sequence[TimeStep | None]) -> BatchedTimeStep:
    """Returns the environments' current steps, which the next actions follow, as a batch."""
    out = batched_step(self.spec, steps)
    self._legal_actions_mask, self._is_last = out.legal_actions_mask, out.is_last
    self._next_to_play = (1 - out.to_play).tolist()
    return out

  def _armed(self) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if self._guard is None else self._guard.armed()

  def _advance_lane(self, i: int, action: Any, is_reset: bool, is_new_game: bool) -> TimeStep | None:
    """Steps or resets environment i, which the guard replaces if it fails; None: it idles."""
    guard = self._guard
    while True:
      try:
        with self._watch:
          if is_reset:
            step = self._begin(i, is_new_game)
          else:
            self._log[i].append(action)
            step = self._checked(self._envs[i].step(self.spec.to_env(action)), self._next_to_play[i])
        break
      except FAULTS as error:
        # An environment that violates its spec has a replacement that violates it too.
        is_lasting = isinstance(error, UserError) and not isinstance(error, EnvMakeError | EnvValueError)
        if guard is None or is_lasting:
          raise
        self._envs[i] = guard.replace(i, self._envs[i], error)
        is_reset = True
    if guard is not None and (step is None or step.step_type is StepType.LAST):
      guard.episode_ended(i)
    return step

  def _begin(self, i: int, is_new_game: bool) -> TimeStep | None:
    """Resets environment i; returns its first step, or None if it is to idle."""
    seed = None if self._next_seed is None else self._next_seed(i)
    return None if seed == IDLE else self._checked(self._reset_env(i, seed, is_new_game))

  def _checked(self, step: Any, mover: int | None = None) -> TimeStep:
    """Returns a step at which `mover` must be to move; None: the first step of an episode.

    Raises: EnvValueError: the step violates the spec.
    """
    try:
      return check_step(self.spec, step, is_first=mover is None, mover=mover)
    except UserError as error:
      raise EnvValueError(str(error)) from error

  def _next_game(self, i: int) -> int | None:
    """Returns a seed for environment i's next game; None if the current game continues."""
    assert self._game_seeds is not None
    if check_flag(f"env.name={self.spec.name}", "will_continue", self._envs[i].will_continue):
      return None
    self._games[i] += 1
    return self._game_seeds[i].seed(int(self._games[i]))

  def _reset_env(self, i: int, seed: int | None, is_new_game: bool) -> TimeStep:
    env = self._envs[i]
    if seed is not None:
      env.seed(seed)
      self._log[i] = []
    self._log[i].append(self._reset_entry)
    step = self._checked(env.reset())
    *_, is_continued = step.observation
    if not (is_new_game and is_continued):
      return step
    # The first reset continued the game after a lost life; a second one starts a new game.
    self._log[i].append(self._reset_entry)
    return env.reset()

  def _replay(self, i: int, env: Environment, log: list[Any]) -> TimeStep | None:
    """Seeds environment i and replays its log; returns the last step, or None if it cannot be replayed."""
    if self._game_seeds is None or not log:
      return None
    self._log[i] = log
    try:
      with self._watch:
        env.seed(self._game_seeds[i].seed(int(self._games[i])))
      for action in log:
        with self._watch:
          is_reset = np.isnan(action).any() if self.spec.is_continuous else action == _RESET
          step = env.reset() if is_reset else env.step(self.spec.to_env(action))
      return check_step(self.spec, step, is_first=bool(is_reset), mover=None)
    except FAULTS:
      # For example an illegal action, because the game differs from the saved game.
      return None


def make_vector(
  name: str,
  kwargs: Mapping[str, Any],
  num_envs: int,
  seed: int,
  max_faults: int | None = None,
  timeout_s: float | None = None,
  max_random_starts: int = 0,
) -> VectorEnvironment:
  """Makes `num_envs` environments called `name`, whose seeds follow from `seed`.

  Uses the suite's own vectorized environment if there is one. That one has no guard: its errors propagate,
  and there is no time limit.

  Args:
    num_envs, seed: the number of environments, and the seed from which their seeds follow.
    max_faults, timeout_s: arguments of the `EnvGuard`; if max_faults is None, there is no guard.
    max_random_starts: argument of `RandomStarts`; above 0, the suite's own vectorization is not used.

  Raises: UserError: as `registry.make` does.
  """
  seeds = env_seeds(num_envs, seed)
  if max_random_starts and name.startswith("atari:") and kwargs.get("num_threads"):
    _log.warning(
      "%s: workers.max_random_starts=%d: env.kwargs.num_threads has no effect", name, max_random_starts
    )
  vectorized = None if max_random_starts else registry.make_fast_vector(name, seeds, **kwargs)
  if vectorized is not None:
    return vectorized

  def make(seed: int) -> Environment:
    env = registry.make(name, seed, **kwargs)
    return RandomStarts(env, max_random_starts, seed) if max_random_starts else env

  guard = None if max_faults is None else EnvGuard(name, seeds, make, max_faults, timeout_s)
  return SyncVectorEnvironment([make(s) for s in seeds], lane_seeds=seeds, guard=guard)


def env_seeds(num_envs: int, seed: int) -> list[int]:
  """Returns a seed for each of `num_envs` environments, all following from `seed`."""
  return [int(s) for s in np.random.SeedSequence(seed).generate_state(num_envs, np.uint64)]


def _is_row(step: BatchedTimeStep, steps: BatchedTimeStep, i: int) -> bool:
  """Returns whether a batch of one step is row i of `steps`."""
  rows = fields_of(steps)
  return all(np.array_equal(value[0], rows[name][i]) for name, value in fields_of(step).items())


def blank_step(spec: EnvSpec, num_envs: int) -> BatchedTimeStep:
  """Returns a step for the caller to fill: zero frames that are neither first nor last, no legal action."""
  return BatchedTimeStep(
    frame=np.zeros((num_envs, *spec.frame_shape), spec.frame_dtype),
    last_reward=np.zeros(num_envs, np.float32),
    is_first=np.zeros(num_envs, bool),
    is_last=np.zeros(num_envs, bool),
    is_truncated=np.zeros(num_envs, bool),
    to_play=np.zeros(num_envs, np.int32),
    legal_actions_mask=np.zeros((num_envs, spec.policy_size), bool),
  )


def batched_step(spec: EnvSpec, steps: Sequence[TimeStep | None]) -> BatchedTimeStep:
  """Returns steps that `check_step` returned, of one environment each, as a batch in the agent's terms.

  A first step that continues a game has `is_first` False. None: a blank terminal frame.
  """
  out, legal = blank_step(spec, len(steps)), all_legal(spec.mask_size)
  first, last = StepType.FIRST, StepType.LAST
  out.legal_actions_mask[:, 1:] = True
  frames, ends = [], []
  for i, step in enumerate(steps):
    if step is None:
      frames.append(out.frame[i])
      ends.append((i, False))
      continue
    kind, reward, discount, (frame, mask, to_play, is_continued) = step
    frames.append(frame if type(frame) is np.ndarray else np.asarray(frame))
    if mask is not legal:
      out.legal_actions_mask[i, 1:] = mask
    if to_play:
      out.to_play[i] = to_play
    if kind is first:
      out.is_first[i] = not is_continued
      continue
    out.last_reward[i] = reward
    if kind is last:
      ends.append((i, bool(discount)))
  height, *rest = spec.frame_shape
  np.concatenate(frames, out=out.frame.reshape(len(steps) * height, *rest))
  for i, is_truncated in ends:
    mark_end(out, i, is_truncated)
  return out


def live_steps(spec: EnvSpec, frames: Sequence[np.ndarray], legal: Sequence[np.ndarray]) -> BatchedTimeStep:
  """Returns a live step for each frame [H, W, C]; `legal` has their masks [mask_size], without the dummy."""
  out = blank_step(spec, len(frames))
  out.frame[:], out.legal_actions_mask[:, 1:] = frames, legal
  return out


def cut_lanes(before: Any, after: BatchedTimeStep) -> Bool[np.ndarray, "B"]:
  """Returns a mask of the environments that failed between two steps.

  Their episodes are cut off at the earlier step.

  Args:
    before: the earlier step, any record with `is_last`.
  """
  return after.is_first & ~before.is_last


def mark_end(step: BatchedTimeStep, i: int, is_truncated: bool) -> None:
  """Marks row i as an end, in place. A terminal frame gets the dummy as the only legal action."""
  step.is_last[i] = True
  if is_truncated:
    step.is_truncated[i] = True
    return
  step.legal_actions_mask[i] = False
  step.legal_actions_mask[i, DUMMY_ACTION] = True


def check_actions(
  actions: Shaped[np.ndarray, "..."],
  spec: EnvSpec,
  legal_actions_mask: Bool[np.ndarray, "B P"],
  is_last: Bool[np.ndarray, "B"],
) -> Num[np.ndarray, "B *D"]:
  """Returns the actions as a NumPy array.

  Raises: ActionError: an action on a live frame is illegal; a continuous one is out of bounds or not finite.
    ValueError: the actions are not integers [B]; continuous ones are not float32 [B, D].
  """
  actions = np.asarray(actions)
  num_envs = len(legal_actions_mask)
  if spec.intervals is not None:
    return _check_rows(actions, spec.intervals, is_last)
  if actions.shape != (num_envs,) or actions.dtype.kind not in "iu":
    raise ValueError(f"actions: {actions.dtype}{list(actions.shape)}; must be integers of shape [{num_envs}]")
  is_legal = (actions > DUMMY_ACTION) & (actions < spec.num_actions)
  if not spec.is_factored:
    is_legal &= legal_actions_mask[np.arange(num_envs), np.where(is_legal, actions, DUMMY_ACTION)]
  bad = ~is_last & ~is_legal
  if bad.any():
    i = int(np.flatnonzero(bad)[0])
    joint = f"1 to {spec.num_actions - 1}" if spec.is_factored else ""
    legal_actions = joint or np.flatnonzero(legal_actions_mask[i]).tolist()
    raise ActionError(
      f"actions[{i}]={int(actions[i])}: cannot be played on a live frame; must be one of "
      f"{one_line(legal_actions, 80)}; a network whose outputs are not finite can cause it, or a "
      "search (planners.*.algorithm) or an algorithm of your own that ignores which actions are legal"
    )
  return actions


def _check_rows(
  actions: Shaped[np.ndarray, "..."], intervals: Intervals, is_last: Bool[np.ndarray, "B"]
) -> Float32[np.ndarray, "B D"]:
  """Returns continuous actions. Raises ActionError and ValueError as `check_actions`."""
  shape = (len(is_last), len(intervals.low))
  if actions.shape != shape or actions.dtype != np.float32:
    raise ValueError(f"actions: {actions.dtype}{list(actions.shape)}; must be float32{list(shape)}")
  is_within = (actions >= intervals.low) & (actions <= intervals.high)
  bad = ~is_last[:, None] & ~is_within  # also NaN
  if bad.any():
    i, d = np.argwhere(bad)[0].tolist()
    low, high = intervals.values[d]
    raise ActionError(
      f"actions[{i}]={actions[i, d]:g}: cannot be played in {intervals.names[d]}; must be from {low:g} to "
      f"{high:g}; a network whose outputs are not finite can cause it, or a player that does not clip"
    )
  return actions

"""Reads and writes trajectories as NumPy arrays, one record for each episode."""

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int32, Shaped

from moozi.api.run_access import check_real, new_folder, writing
from moozi.core.errors import UserError
from moozi.core.factors import Factors
from moozi.core.pytree import map_fields
from moozi.core.records import TrajectorySample
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.envs.validation import as_array
from moozi.io.trajectory_folder import TrajectoryWriter, open_trajectories
from moozi.io.zoo_files import resolve_run
from moozi.ops.actions import encode_action
from moozi.ops.signs import player_sign
from moozi.replay.validation import check_stored

_PART_BYTES = 16 << 20


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Episode:
  """An episode of T actions and T + 1 frames. E is `EnvSpec.mask_size`.

  `write_trajectories` needs only the first four fields; None is replaced as described.

  Attributes:
    frames: [T + 1, H, W, C] of the spec's dtype, as `moozi.Observation` has them.
    actions: [T] integers, the environment's actions, counted from 0. Where they have dimensions
      (`EnvSpec.factors`), the environment's own actions: an array [T, …], or a dict or tuple of such arrays.
      `write_trajectories` also takes a list of T own actions, and [T] integers unless they are continuous.
    rewards: [T] float32, the reward of each action, for the player who moved.
    is_terminal: whether the last frame is an end of the task. False: a time limit ended the episode, or its
      end is not known.
    is_truncated: whether a time limit ended the episode. An episode that is neither terminal nor truncated is
      unfinished; it is written as truncated.
    is_continued: whether the game continues after a lost life that ended the previous episode.
    legal_actions_mask: [T + 1, E] bool; the last row of a terminal episode is false. None: every action is
      legal.
    to_play: [T + 1] int32, the player to move. None: player 0; with two players, they alternate from 0 on.
    root_values: [T + 1] float32, the search value of each frame, for the player to move; 0 on a terminal
      frame. None: the discounted sum of the episode's rewards from the frame on, for the player to move.
    action_probs: [T + 1, E] float32, the search policy; zeros on a terminal frame. With more than 32 joint
      actions, its marginals in each dimension. None: 1 for the action that was played; on a last frame
      that is not terminal, equal probabilities of the legal actions.
    lane: the lane that holds the episode; ignored when it is written.
    start: index of the first frame in the lane; ignored when it is written.
  """

  frames: Shaped[np.ndarray, "T+1 H W C"]
  actions: Any
  rewards: Float32[np.ndarray, "T"]
  is_terminal: bool
  is_truncated: bool = False
  is_continued: bool = False
  legal_actions_mask: Bool[np.ndarray, "T+1 E"] | None = None
  to_play: Int32[np.ndarray, "T+1"] | None = None
  root_values: Float32[np.ndarray, "T+1"] | None = None
  action_probs: Float32[np.ndarray, "T+1 E"] | None = None
  lane: int = 0
  start: int = 0

  @property
  def length(self) -> int:
    """T, the number of actions."""
    return len(self.rewards)


def read_trajectories(path: str | os.PathLike[str]) -> Iterator[Episode]:
  """Yields the episodes of a run with `trajectories.save=true`, of a folder, or of one trajectory file.

  Episodes of a lane are in time order. An episode also ends where the run lost steps and where a lane's steps
  end; it is then unfinished, and without the action on its last frame, whose reward is missing. A lost life
  ends an episode if it ended one in training. All fields of the records are set. A single file may start
  within an episode.

  Raises: UserError: the path has no trajectories, or a file is damaged, is missing, or breaks a rule.
  """
  store = open_trajectories(resolve_run(os.fspath(path)))
  return _episodes(store)


def _episodes(store: Any) -> Iterator[Episode]:
  open_steps: dict[int, tuple[int, list[TrajectorySample]]] = {}
  after_life: dict[int, bool] = {}

  def finish(lane: int) -> Iterator[Episode]:
    start, parts = open_steps.pop(lane)
    steps = map_fields(lambda *xs: np.concatenate(xs), *parts)
    is_continued = after_life.get(lane, False) and not steps.is_first[0]
    yield _episode(steps, store.spec, lane, start, is_continued)
    after_life[lane] = bool(steps.is_last[-1])

  for stored in store.read():
    span, steps = stored.span, stored.steps
    try:
      check_stored(steps, store.spec)
    except ValueError as error:
      raise UserError(f"trajectories: lane {span.lane}: {error}") from None
    # An episode ends after a last step, and before a first step where steps are missing.
    cuts = np.flatnonzero(steps.is_last[:-1] | steps.is_first[1:]) + 1
    for first, stop in itertools.pairwise([0, *cuts.tolist(), span.num_steps]):
      part = map_fields(lambda x, a=first, b=stop: x[a:b], steps)
      if part.is_first[0] and span.lane in open_steps:
        yield from finish(span.lane)
      open_steps.setdefault(span.lane, (span.start + first, []))[1].append(part)
      if part.is_last[-1]:
        yield from finish(span.lane)
  for lane in sorted(open_steps):
    yield from finish(lane)


def _episode(steps: TrajectorySample, spec: EnvSpec, lane: int, start: int, is_continued: bool) -> Episode:
  is_last, is_truncated = bool(steps.is_last[-1]), bool(steps.is_truncated[-1])
  actions = spec.to_env(steps.action[:-1])
  return Episode(
    frames=steps.frame,
    actions=actions if spec.factors is None else spec.factors.own_actions(actions),
    rewards=steps.last_reward[1:],
    is_terminal=is_last and not is_truncated,
    is_truncated=is_truncated,
    is_continued=is_continued,
    legal_actions_mask=steps.legal_actions_mask[:, 1:],
    to_play=steps.to_play,
    root_values=steps.root_value,
    action_probs=steps.action_probs[:, 1:],
    lane=lane,
    start=start,
  )


def write_trajectories(
  path: str | os.PathLike[str], spec: EnvSpec, episodes: Iterable[Episode], *, discount: float = 0.997
) -> int:
  """Writes episodes to a new folder, from which `offline.trajectories` learns. Returns the number of steps.

  The folder appears only if every episode is valid. All episodes are written to one lane, in order. A step is
  a frame, so an episode of T actions has T + 1 steps.

  Args:
    path: a folder that does not exist.
    spec: the environment's specification, such as `env.env_spec` or `agent.spec`.
    discount: γ of the `root_values` that are None; from 0 to 1.

  Raises: UserError: the folder exists or cannot be written, `spec` or `discount` is invalid, there is no
    episode, or an episode does not fit the specification; then the message names the episode's index and the
    field.
  """
  out = Path(path)
  check_real("discount", discount, 0.0, 1.0)
  if not isinstance(spec, EnvSpec):
    raise UserError(f"spec: a {type(spec).__name__}; must be a moozi.EnvSpec, such as env.env_spec")
  num_steps = 0
  with new_folder("path", out) as temporary, writing("path", out):
    writer = TrajectoryWriter(temporary, spec)
    try:
      for i, episode in enumerate(episodes):
        steps = _steps(f"episodes[{i}]", spec, episode, discount, is_first=i == 0)
        # Parts of limited size, because a file takes whole parts.
        size = max(1, _PART_BYTES // steps.frame[0].nbytes)
        for start in range(0, len(steps.action), size):
          writer.append(map_fields(lambda x, a=start, b=start + size: x[a:b, None], steps), 0)
        num_steps += len(steps.action)
    finally:
      writer.close()
    if not num_steps:
      raise UserError("episodes: there are none; at least one is needed")
  return num_steps


def _steps(where: str, spec: EnvSpec, episode: Episode, discount: float, is_first: bool) -> TrajectorySample:
  """Returns the steps [T + 1, …] of an episode. Raises UserError if it does not fit the environment."""
  if not isinstance(episode, Episode):
    raise UserError(f"{where}: a {type(episode).__name__}; must be a moozi.Episode")
  given, dtype = _numbers(where, spec, episode.actions), spec.action_dtype
  actions = _array(where, "actions", given, (None, *spec.action_shape), dtype)
  length, num_actions = len(actions), spec.num_env_actions
  frames = _array(where, "frames", episode.frames, (length + 1, *spec.frame_shape), spec.frame_dtype)
  rewards = _array(where, "rewards", episode.rewards, (length,), "float32")
  if episode.is_terminal and episode.is_truncated:
    raise UserError(f"{where}: both is_terminal and is_truncated; at most one may be true")
  if episode.is_continued and is_first:
    raise UserError(f"{where}.is_continued: true, but no episode is before it")
  of_actions = (length + 1, spec.mask_size)
  mask = _array_or(where, "legal_actions_mask", episode, of_actions, "bool", np.ones(of_actions))
  alternating = np.arange(length + 1) % spec.num_players
  to_play = _array_or(where, "to_play", episode, (length + 1,), "int32", alternating)
  t = np.arange(length)
  numbers = {} if spec.is_continuous else {"actions": (actions, num_actions)}
  for name, (values, stop) in (numbers | {"to_play": (to_play, spec.num_players)}).items():
    if (bad := np.flatnonzero((values < 0) | (values >= stop))).size:
      raise UserError(f"{where}.{name}[{bad[0]}]={values[bad[0]]}: must be from 0 to {stop - 1}")
  if spec.num_players == 2 and (to_play[1:] == to_play[:-1]).any():
    raise UserError(f"{where}.to_play: a player moves twice in a row; players must alternate strictly")
  if not spec.is_factored and (bad := np.flatnonzero(~mask[t, actions])).size:
    raise UserError(f"{where}.actions[{bad[0]}]={actions[bad[0]]}: illegal by legal_actions_mask")
  signs = player_sign(to_play, 0).astype(np.float64)
  returns = _returns(rewards * signs[:-1], discount) * signs
  values = _array_or(where, "root_values", episode, (length + 1,), "float32", returns.astype(np.float32))
  is_terminal = bool(episode.is_terminal)
  if not is_terminal and not mask[-1].any():
    raise UserError(
      f"{where}.legal_actions_mask: its last row allows no action, though the end is not terminal"
    )
  played = np.zeros(of_actions, np.float32)
  played[:-1] = 1 if spec.is_continuous else encode_action(actions + 1, spec.policy_groups)[:, 1:]
  if not is_terminal:
    played[-1] = _uniform(mask[-1], spec)
  probs = _array_or(where, "action_probs", episode, of_actions, "float32", played)

  def with_dummy(rows: np.ndarray) -> np.ndarray:
    out = np.zeros((length + 1, spec.policy_size), rows.dtype)
    out[:, 1:] = rows
    if is_terminal:
      out[-1] = 0
      out[-1, DUMMY_ACTION] = 1
    return out

  is_end = np.arange(length + 1) == length
  zeros = np.zeros(length + 1, np.int32)
  steps = TrajectorySample(
    frame=frames,
    last_reward=np.concatenate([np.zeros(1, np.float32), rewards]),
    is_first=(np.arange(length + 1) == 0) & (not episode.is_continued),
    is_last=is_end,
    is_truncated=is_end & (not is_terminal),
    to_play=to_play,
    legal_actions_mask=with_dummy(mask),
    root_value=np.where(is_end & is_terminal, 0, values).astype(np.float32),
    action_probs=with_dummy(probs),
    action=np.append(spec.from_env(actions), np.full((1, *spec.action_shape), DUMMY_ACTION), axis=0).astype(
      dtype
    ),
    acted_version=zeros,
    searched_version=zeros,
  )
  try:
    check_stored(steps, spec)
  except ValueError as error:
    raise UserError(f"{where}: {error}") from None
  return steps


def _numbers(where: str, spec: EnvSpec, actions: Any) -> Any:
  """Returns the numbers of own actions of the environment, or the rows of continuous ones.

  Raises: UserError: one does not fit.
  """
  if spec.factors is None:
    return actions
  if not spec.is_continuous and isinstance(actions, list | np.ndarray):
    with contextlib.suppress(ValueError, TypeError):  # rows of different shapes
      array = np.asarray(actions)
      if array.ndim == 1 and array.dtype.kind in "iu":
        return array
  try:
    rows = spec.factors.split(actions)
  except ValueError as error:
    raise UserError(f"{where}.{error}") from None
  read = spec.factors.joint_action if isinstance(spec.factors, Factors) else spec.factors.row
  out: list[Any] = []
  for t, row in enumerate(rows):
    try:
      out.append(read(row))
    except ValueError as error:
      raise UserError(f"{where}.actions[{t}]: {error}") from None
  return np.array(out, np.float32 if spec.is_continuous else np.int64).reshape(-1, *spec.action_shape)


def _uniform(mask: Bool[np.ndarray, "E"], spec: EnvSpec) -> Float32[np.ndarray, "E"]:
  """Returns equal probabilities of the legal actions; of joint actions, of all values in each dimension."""
  if not spec.is_factored:
    return mask / mask.sum()
  return np.concatenate([np.full(size, 1 / size, np.float32) for size in spec.policy_groups[1:]])


def _returns(rewards: Float64[np.ndarray, "T"], discount: float) -> Float64[np.ndarray, "T+1"]:
  """Returns the discounted sum of the rewards from each frame on."""
  out = np.zeros(len(rewards) + 1)
  for t in range(len(rewards) - 1, -1, -1):
    out[t] = rewards[t] + discount * out[t + 1]
  return out


def _array_or(
  where: str, name: str, episode: Episode, shape: tuple[int, ...], dtype: str, default: np.ndarray
) -> np.ndarray:
  value = getattr(episode, name)
  return default.astype(dtype) if value is None else _array(where, name, value, shape, dtype)


def _array(
  where: str, name: str, value: Any, shape: tuple[int | None, ...], dtype: str
) -> Shaped[np.ndarray, "..."]:
  """Returns the value as an array of the dtype.

  Raises: UserError: it has another shape, another kind of numbers, or numbers that the dtype cannot hold.
  """
  array = as_array(f"{where}.{name}", value)
  wanted = f"{dtype}[{', '.join('T' if n is None else str(n) for n in shape)}]"
  fits = array.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
  # Numbers of one kind may differ in size: datasets have int64 actions and float64 rewards.
  kinds = {"f": "fiu", "i": "iu", "u": "u", "b": "b"}[np.dtype(dtype).kind]
  is_frame = name == "frames"
  if not fits or array.dtype.kind not in kinds or (is_frame and array.dtype != np.dtype(dtype)):
    raise UserError(f"{where}.{name}: {array.dtype}{list(array.shape)}; must be {wanted}")
  with np.errstate(over="ignore", invalid="ignore"):
    out = array.astype(dtype)
  if out.dtype.kind == "f" and not np.isfinite(out).all():
    raise UserError(f"{where}.{name}: has numbers that are not finite in {dtype}")
  if out.dtype.kind in "iu" and (out != array).any():
    raise UserError(f"{where}.{name}: has numbers that {dtype} cannot hold")
  return out

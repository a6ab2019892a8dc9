"""The network's input: the last L frames and actions as one image. Runs on NumPy and JAX arrays."""

import numpy as np
from jaxtyping import Bool, Float32, Int, Num, Shaped

from moozi.core.pytree import record
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.core.types import AnyArray
from moozi.ops.actions import Groups, encode_action
from moozi.ops.xp import array_namespace


@record
class HistoryState:
  """The last L frames and actions of B environments, oldest first.

  Attributes:
    frames: o_{t-L+1} … o_t, of the spec's dtype; zero before the episode's start.
    actions: a_{t-L} … a_{t-1}; the dummy before the episode's start. Continuous actions are float32 with an
      axis D.
  """

  frames: Shaped[AnyArray, "B L H W C"]
  actions: Num[AnyArray, "B L *D"]


def init_history(batch_size: int, history_length: int, spec: EnvSpec) -> HistoryState:
  """Returns an empty history (NumPy): zero frames and dummy actions."""
  return HistoryState(
    frames=np.zeros((batch_size, history_length, *spec.frame_shape), dtype=spec.frame_dtype),
    actions=np.full((batch_size, history_length, *spec.action_shape), DUMMY_ACTION, spec.action_dtype),
  )


def history_window(
  *,
  is_first: Bool[AnyArray, "B L"],
  is_last: Bool[AnyArray, "B F"],
  frames: Shaped[AnyArray, "B L+F ..."],
  actions: Num[AnyArray, "B L+F *D"],
) -> tuple[Shaped[AnyArray, "B L+F ..."], Num[AnyArray, "B L+F *D"]]:
  """Returns the agent's input history at step i, followed by the F actions from i on and their next frames.

  This is the definition of a history, in acting and in replay. Entries before the newest `is_first` at or
  before i are blank: zero frames, dummy actions. Frames and actions after the first `is_last` at or after i
  are blank too.

  Args:
    is_first: of steps i-L+1 … i.
    is_last: of steps i … i+F-1; F may be 0.
    frames: o_{i-L+1} … o_{i+F} as stored in the lane, of any dtype (packed bytes too).
    actions: a_{i-L} … a_{i+F-1}.
  Returns: (frames, actions) of the same shapes and dtypes.
  Source: thesis 4.3.3, 4.3.4, 4.3.7. Departures: entries before an episode's start inside a lane are blank.
  """
  xp = array_namespace(frames, actions)
  # starts[:, j] counts the episode starts in steps (i-L+j, i]. An entry before an episode start is blank.
  starts = xp.flip(xp.cumsum(xp.flip(is_first, -1), axis=-1), -1)
  # The frame at i is kept, and so are the next ones up to an end.
  is_shown = xp.concatenate([xp.ones_like(is_first[:, :1]), xp.cumsum(is_last, axis=-1) == 0], axis=-1)
  kept = xp.concatenate([starts == 0, is_shown[:, :-1]], axis=-1)
  frame_kept = xp.concatenate([starts[:, 1:] == 0, is_shown], axis=-1)
  frame_kept = frame_kept.reshape(frame_kept.shape + (1,) * (frames.ndim - 2))
  kept = kept.reshape(kept.shape + (1,) * (actions.ndim - 2))
  return (
    xp.where(frame_kept, frames, xp.zeros((), frames.dtype)),
    xp.where(kept, actions, xp.full((), DUMMY_ACTION, actions.dtype)),
  )


def push_frame(
  state: HistoryState, frame: Shaped[AnyArray, "B H W C"], is_first: Bool[AnyArray, "B"]
) -> HistoryState:
  """Appends o_t; where it is the first of an episode, the older entries are cleared.

  Args:
    state: the history at t − 1, with a_{t-1} already pushed.
    frame: o_t, of the spec's dtype.
    is_first: whether o_t is the first frame of an episode.

  Returns: the history at t, as `history_window` returns it with F = 0.
  """
  xp = array_namespace(state.frames, frame)
  # The entries before earlier starts are blank already.
  before = xp.zeros((len(is_first), state.frames.shape[1] - 1), bool)
  starts = xp.concatenate([before, is_first[:, None]], axis=-1)
  frames, actions = history_window(
    is_first=starts,
    is_last=starts[:, :0],
    frames=xp.concatenate([state.frames[:, 1:], frame[:, None]], axis=1),
    actions=state.actions,
  )
  return HistoryState(frames=frames, actions=actions)


def push_action(state: HistoryState, action: Num[AnyArray, "B *D"]) -> HistoryState:
  """Appends a_t of the agent's action space; the frames do not change."""
  xp = array_namespace(state.actions, action)
  last = xp.astype(action, state.actions.dtype)[:, None]
  return HistoryState(frames=state.frames, actions=xp.concatenate([state.actions[:, 1:], last], axis=1))


def normalize_frame(frames: Shaped[AnyArray, "..."], frame_dtype: str) -> Float32[AnyArray, "..."]:
  """Converts frames to float32: bool to 0 and 1, uint8 scaled by 1/255, float32 unchanged.

  Args:
    frames: […, H, W, C] as stored.

  Raises: ValueError: an unknown dtype.
  """
  if frame_dtype not in ("bool", "uint8", "float32"):
    raise ValueError(f"frame_dtype={frame_dtype!r}: must be bool, uint8 or float32")
  xp = array_namespace(frames)
  out = xp.astype(frames, xp.float32)
  return out * np.float32(1.0 / 255.0) if frame_dtype == "uint8" else out


def stack_history(
  frames: Float32[AnyArray, "*batch L H W C"], actions: Int[AnyArray, "*batch L"], groups: Groups
) -> Float32[AnyArray, "*batch H W Ch"]:
  """Returns the stacked history: L·C frame planes, then L·P planes of encoded actions / P, oldest first.

  P is the number of entries of a policy. With one group it is the number A of actions, and the code is
  one-hot.

  Args:
    frames: o_{t-L+1} … o_t (see `normalize_frame`).
    actions: a_{t-L} … a_{t-1}.
    groups: as in `EnvSpec.policy_groups`.

  Source: thesis 4.3.4. Departures: with several groups, an action has an entry in each dimension.
  """
  xp = array_namespace(frames, actions)
  *lead, length, height, width, channels = frames.shape
  planes = xp.reshape(xp.moveaxis(frames, -4, -2), (*lead, height, width, length * channels))
  size = sum(groups)
  flat = xp.reshape(encode_action(actions, groups) / np.float32(size), (*lead, 1, 1, length * size))
  tiled = xp.broadcast_to(flat, (*lead, height, width, length * size))
  return xp.concatenate([planes, tiled], axis=-1)


def network_input(
  frames: Shaped[AnyArray, "*batch L H W C"], actions: Int[AnyArray, "*batch L"], spec: EnvSpec
) -> Float32[AnyArray, "*batch H W Ch"]:
  """Returns `stack_history` of frames of the spec's dtype: Ch = L·(C + P) channels."""
  return stack_history(normalize_frame(frames, spec.frame_dtype), actions, spec.policy_groups)

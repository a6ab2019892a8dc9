"""The network's input: the last L frames and actions as one image. Runs on NumPy and JAX arrays."""

import numpy as np
from jaxtyping import Bool, Float32, Int, Int32, Shaped

from moozi.core.pytree import record
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.core.types import AnyArray
from moozi.ops.xp import array_namespace


@record
class HistoryState:
  """The last L frames and actions of B environments, oldest first.

  Attributes:
    frames: o_{t-L+1} … o_t, of the spec's dtype; zero before the episode's start.
    actions: a_{t-L} … a_{t-1}; the dummy before the episode's start.
  """

  frames: Shaped[AnyArray, "B L H W C"]
  actions: Int32[AnyArray, "B L"]


def init_history(batch_size: int, history_length: int, spec: EnvSpec) -> HistoryState:
  """Returns an empty history (NumPy): zero frames and dummy actions."""
  return HistoryState(
    frames=np.zeros((batch_size, history_length, *spec.frame_shape), dtype=spec.frame_dtype),
    actions=np.full((batch_size, history_length), DUMMY_ACTION, dtype=np.int32),
  )


def push_frame(
  state: HistoryState, frame: Shaped[AnyArray, "B H W C"], is_first: Bool[AnyArray, "B"]
) -> HistoryState:
  """Appends o_t; where it is the first of an episode, the older entries are cleared.

  Args:
    state: the history at t − 1, with a_{t-1} already pushed.
    frame: o_t, of the spec's dtype.
    is_first: whether o_t is the first frame of an episode.

  Returns: the history at t.
  """
  xp = array_namespace(state.frames, frame)
  past = xp.where(
    is_first[:, None, None, None, None], xp.zeros_like(state.frames[:, 1:]), state.frames[:, 1:]
  )
  actions = xp.where(is_first[:, None], xp.full_like(state.actions, DUMMY_ACTION), state.actions)
  return HistoryState(frames=xp.concatenate([past, frame[:, None]], axis=1), actions=actions)


def push_action(state: HistoryState, action: Int[AnyArray, "B"]) -> HistoryState:
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
  frames: Float32[AnyArray, "*batch L H W C"], actions: Int[AnyArray, "*batch L"], num_actions: int
) -> Float32[AnyArray, "*batch H W L*(C+{num_actions})"]:
  """Returns the stacked history: L·C frame planes, then L·A planes of one-hot actions / A, oldest first.

  Args:
    frames: o_{t-L+1} … o_t (see `normalize_frame`).
    actions: a_{t-L} … a_{t-1}.
    num_actions: A, with the dummy.

  Source: thesis 4.3.4, its nine steps. Departures: none.
  """
  xp = array_namespace(frames, actions)
  *lead, length, height, width, channels = frames.shape
  planes = xp.reshape(xp.moveaxis(frames, -4, -2), (*lead, height, width, length * channels))
  one_hot = xp.astype(actions[..., None] == np.arange(num_actions), xp.float32) / np.float32(num_actions)
  flat = xp.reshape(one_hot, (*lead, 1, 1, length * num_actions))
  tiled = xp.broadcast_to(flat, (*lead, height, width, length * num_actions))
  return xp.concatenate([planes, tiled], axis=-1)


def network_input(
  frames: Shaped[AnyArray, "*batch L H W C"], actions: Int[AnyArray, "*batch L"], spec: EnvSpec
) -> Float32[AnyArray, "*batch H W Ch"]:
  """Returns `stack_history` of frames of the spec's dtype: Ch = L·(C + A) channels."""
  return stack_history(normalize_frame(frames, spec.frame_dtype), actions, spec.num_actions)

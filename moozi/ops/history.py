"""What the network sees: the last L frames and actions as one image. Runs on NumPy and JAX arrays."""

from typing import Any

import numpy as np

from moozi.core.pytree import record
from moozi.core.spec import DUMMY_ACTION, EnvSpec
from moozi.ops.xp import array_namespace

Array = Any


@record
class HistoryState:
  """The last L frames and actions of B environments, oldest first.

  Attributes:
    frames: [B, L, H, W, C] of the spec's dtype: o_{t-L+1} … o_t; zero before the episode's start.
    actions: [B, L] int32: a_{t-L} … a_{t-1}; dummy before the episode's start.
  """

  frames: Array
  actions: Array


def init_history(batch_size: int, history_length: int, spec: EnvSpec) -> HistoryState:
  """An empty history (NumPy): zero frames and dummy actions."""
  return HistoryState(
    frames=np.zeros((batch_size, history_length, *spec.frame_shape), dtype=spec.frame_dtype),
    actions=np.full((batch_size, history_length), DUMMY_ACTION, dtype=np.int32),
  )


def push_frame(state: HistoryState, frame: Array, is_first: Array) -> HistoryState:
  """Puts o_t last; where it is the first of an episode, what lay before is wiped.

  Args:
    state: the history at t − 1, with a_{t-1} already pushed.
    frame: [B, H, W, C] of the spec's dtype.
    is_first: [B] bool.

  Returns: the history at t.
  """
  xp = array_namespace(state.frames, frame)
  past = xp.where(
    is_first[:, None, None, None, None], xp.zeros_like(state.frames[:, 1:]), state.frames[:, 1:]
  )
  actions = xp.where(is_first[:, None], xp.full_like(state.actions, DUMMY_ACTION), state.actions)
  return HistoryState(frames=xp.concatenate([past, frame[:, None]], axis=1), actions=actions)


def push_action(state: HistoryState, action: Array) -> HistoryState:
  """Puts a_t, [B] int32 in the agent's action space, last; the frames stay until `push_frame`."""
  xp = array_namespace(state.actions, action)
  last = xp.astype(action, state.actions.dtype)[:, None]
  return HistoryState(frames=state.frames, actions=xp.concatenate([state.actions[:, 1:], last], axis=1))


def normalize_frame(frames: Array, frame_dtype: str) -> Array:
  """Frames as float32: bool to 0 and 1, uint8 scaled by 1/255, float32 as it is.

  Args:
    frames: […, H, W, C] as stored.
    frame_dtype: the spec's.

  Returns: […, H, W, C] float32.
  Raises: ValueError: a dtype that no spec has.
  """
  if frame_dtype not in ("bool", "uint8", "float32"):
    raise ValueError(f"frame_dtype={frame_dtype!r}: allowed are bool, uint8, float32")
  xp = array_namespace(frames)
  out = xp.astype(frames, xp.float32)
  return out * np.float32(1.0 / 255.0) if frame_dtype == "uint8" else out


def stack_history(frames: Array, actions: Array, num_actions: int) -> Array:
  """The stacked history: L·C frame planes, then L·A planes of one-hot actions divided by A, oldest first.

  Args:
    frames: […, L, H, W, C] float32 (see `normalize_frame`): o_{t-L+1} … o_t.
    actions: […, L] int32: a_{t-L} … a_{t-1}.
    num_actions: A, with the dummy.

  Returns: […, H, W, L·(C + A)] float32.
  Source: the thesis 4.3.4, its nine steps. Departures: none.
  """
  xp = array_namespace(frames, actions)
  *lead, length, height, width, channels = frames.shape
  planes = xp.reshape(xp.moveaxis(frames, -4, -2), (*lead, height, width, length * channels))
  one_hot = xp.astype(actions[..., None] == np.arange(num_actions), xp.float32) / np.float32(num_actions)
  flat = xp.reshape(one_hot, (*lead, 1, 1, length * num_actions))
  tiled = xp.broadcast_to(flat, (*lead, height, width, length * num_actions))
  return xp.concatenate([planes, tiled], axis=-1)

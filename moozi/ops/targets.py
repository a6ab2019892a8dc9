"""Training targets from windows of steps. NumPy and JAX arrays alike."""

from typing import Any

from moozi.core.pytree import record
from moozi.core.spec import DUMMY_ACTION
from moozi.ops.returns import n_step_return
from moozi.ops.xp import array_namespace


@record
class UnrollTargets:
  """The part of a TrainTarget that lies at and after the start index; fields as there.

  Attributes:
    actions: [B, K] int32.
    rewards: [B, K] float32.
    action_probs: [B, K+1, A] float32.
    root_values: [B, K+1] float32.
    n_step_returns: [B, K+1] float32.
    unroll_mask: [B, K+1] float32.
    consistency_mask: [B] float32.
  """

  actions: Any
  rewards: Any
  action_probs: Any
  root_values: Any
  n_step_returns: Any
  unroll_mask: Any
  consistency_mask: Any


def make_targets(
  *,
  last_reward: Any,
  root_value: Any,
  to_play: Any,
  is_last: Any,
  is_truncated: Any,
  action: Any,
  action_probs: Any,
  unroll_steps: int,
  n_step: int,
  discount: float,
) -> UnrollTargets:
  """What K unrolled steps from the window's first step are trained towards.

  Reward index k-1 (u_{i+k}) goes with policy and value index k. At a terminal frame and after it:
  reward 0 (the reward on entering the frame is kept), value 0, return 0, policy and action the dummy;
  these are trained. Past a truncated frame the same values stand, and the mask is 0.

  Args:
    last_reward, root_value: [B, K+n+1] float32, env units, as in StepSample.
    to_play: [B, K+n+1] integer.
    is_last, is_truncated: [B, K+n+1] bool.
    action: [B, K] or longer, int32; the first K are read.
    action_probs: [B, K+1, A] float32.
    unroll_steps: K, at least 1.
    n_step: n.
    discount: γ.
  Returns: UnrollTargets.
  Raises: ValueError: when the window is not K+n+1 steps long.
  Source: thesis 4.3.7. Departures: ends and truncation written out; targets cross segment joins.
  """
  width = unroll_steps + n_step + 1
  if last_reward.shape[-1] != width:
    raise ValueError(f"window of {last_reward.shape[-1]} steps: must be unroll_steps + n_step + 1 = {width}")
  xp = array_namespace(last_reward, action_probs)
  zero, one = xp.float32(0.0), xp.float32(1.0)
  z = n_step_return(last_reward, root_value, to_play, is_last, is_truncated, n_step, discount)
  k = unroll_steps
  last, cut = is_last[:, : k + 1], is_truncated[:, : k + 1]
  ends = xp.cumsum(last, axis=-1)
  past = (ends - last) > 0  # an end lies strictly before step k
  is_first_end = last & ~past
  # Only the first end counts: what a later episode of the same lane did is not ours.
  past_cut = xp.cumsum(is_first_end & cut, axis=-1) - (is_first_end & cut) > 0
  absorbed = past | (last & ~cut)
  dummy = xp.arange(action_probs.shape[-1]) == DUMMY_ACTION
  return UnrollTargets(
    actions=xp.where((past | last)[:, :k], xp.int32(DUMMY_ACTION), action[:, :k]),
    rewards=xp.where(past[:, 1:], zero, last_reward[:, 1 : k + 1]),
    action_probs=xp.where(absorbed[..., None], dummy.astype(xp.float32), action_probs),
    root_values=xp.where(absorbed, zero, root_value[:, : k + 1]),
    n_step_returns=xp.where(absorbed, zero, z),
    unroll_mask=xp.where(past_cut, zero, one),
    consistency_mask=xp.where(last[:, 0], zero, one),
  )


def history_window(*, frames: Any, actions: Any, is_first: Any, is_last: Any) -> tuple[Any, Any]:
  """The history that the worker saw at step i, with one step more for consistency.

  Everything before the newest `is_first` at or before i is blank: frames zero, actions the dummy. The
  frame after i is blank where i is the last of its episode.

  Args:
    frames: [B, L+1, ...] o_{i-L+1} … o_{i+1} as the lane has them, of any dtype (packed bytes too).
    actions: [B, L+1] int32, a_{i-L} … a_i.
    is_first: [B, L] bool, of steps i-L+1 … i.
    is_last: [B] bool, of step i.
  Returns: (frames, actions) of the same shapes and dtypes.
  Source: thesis 4.3.3, 4.3.4, 4.3.7. Departures: blanks at episode starts inside a lane.
  """
  xp = array_namespace(frames, actions)
  # starts[:, j] counts the episode starts in steps (i-L+j, i]: what lies before one of them is blank.
  starts = xp.flip(xp.cumsum(xp.flip(is_first, -1), axis=-1), -1)
  kept = xp.concatenate([starts == 0, xp.ones_like(is_last)[:, None]], axis=-1)
  frame_kept = xp.concatenate([kept[:, 1:], ~is_last[:, None]], axis=-1)
  frame_kept = frame_kept.reshape(frame_kept.shape + (1,) * (frames.ndim - 2))
  return (
    xp.where(frame_kept, frames, xp.zeros((), frames.dtype)),
    xp.where(kept, actions, xp.int32(DUMMY_ACTION)),
  )

"""Training targets from windows of steps. Runs on NumPy and JAX arrays."""

from jaxtyping import Bool, Float, Float32, Int, Int32

from moozi.core.pytree import record
from moozi.core.spec import DUMMY_ACTION
from moozi.core.types import AnyArray
from moozi.ops.returns import n_step_return
from moozi.ops.xp import array_namespace


@record
class UnrollTargets:
  """The fields of a TrainTarget that `make_targets` computes."""

  actions: Int32[AnyArray, "B K"]
  rewards: Float32[AnyArray, "B K"]
  action_probs: Float32[AnyArray, "B K+1 A"]
  root_values: Float32[AnyArray, "B K+1"]
  n_step_returns: Float32[AnyArray, "B K+1"]
  unroll_mask: Float32[AnyArray, "B K+1"]
  consistency_mask: Float32[AnyArray, "B"]


def make_targets(
  *,
  last_reward: Float[AnyArray, "B W"],
  root_value: Float[AnyArray, "B W"],
  to_play: Int[AnyArray, "B W"],
  is_last: Bool[AnyArray, "B W"],
  is_truncated: Bool[AnyArray, "B W"],
  action: Int[AnyArray, "B _"],
  action_probs: Float[AnyArray, "B {unroll_steps}+1 A"],
  unroll_steps: int,
  n_step: int,
  discount: float,
) -> UnrollTargets:
  """Returns the targets of K unrolled steps from the first of the window's W = K + n + 1 steps.

  The reward at index k-1 (u_{i+k}) belongs to the policy and value at index k. At and after a terminal frame,
  value and return are 0, and policy and action are the dummy. The reward on entering the terminal frame is
  kept; later rewards are 0. All of these targets have mask 1. A truncated frame keeps its policy, value and
  return, and its action is the dummy. Steps after it have the targets of a terminal frame with mask 0.

  Args:
    last_reward, root_value: env units, as in StepSample.
    to_play, is_last, is_truncated: as in StepSample.
    action: K steps or more; the first K are read.
    action_probs: search policies of the first K + 1 steps.
    unroll_steps: K; 0 for AlphaZero.
    n_step: n.
    discount: γ.
  Raises: ValueError: the window is not K + n + 1 steps long.
  Source: thesis 4.3.7. Departures: explicit rules for ends and truncation; targets may span segments.
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
  past = (ends - last) > 0  # strictly after an end
  is_first_end = last & ~past
  # Only the first end counts: the lane's later episodes are not part of this target.
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

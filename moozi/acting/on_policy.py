"""A segment as an on-policy algorithm learns from it: the steps with their histories and values."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float32, Num, Shaped

from moozi.agent.agent import Decision
from moozi.core.pytree import fields_of, record
from moozi.core.records import BatchedTimeStep, TrajectorySample
from moozi.core.types import AnyArray
from moozi.ops.signs import player_sign

FRAMES = "frames"
"""Name of the extra of an on-policy agent's decisions that has the frames of its history, [B, L, H, W, C]."""

IS_PAST = "is_past"
"""The extra of a segment with past selves: whether a past self moved, bool [T, B]."""


@record
class Rollout:
  """T vector steps of B environments.

  Attributes:
    frames: o_{t-L+1} … o_t in the spec's dtype; zero before the episode's start.
    legal_actions_mask: the legal actions on frame t.
    action: [*T, B], the action on frame t; the dummy on a last frame. Continuous ones are float32 [*T, B, D].
    value: the agent's value of frame t, 0 on a terminal frame; has one more row, for the frame after the
      segment.
    is_first: whether the agent's history starts at frame t.
    is_live: false on a last frame; the environment discards the action on it, and the sample is masked.
    reward: the reward that follows frame t, in environment units.
    is_last, is_truncated: describe frame t + 1.
    sign: 1 if the same player moves at t and t + 1, else -1.
    extras: the extras of the agent's decisions except FRAMES, [T, B, …] by name.
  """

  frames: Shaped[AnyArray, "*T B L H W C"]
  legal_actions_mask: Bool[AnyArray, "*T B A"]
  action: Num[AnyArray, "..."]
  value: Float32[AnyArray, "*T1 B"]
  is_first: Bool[AnyArray, "*T B"]
  is_live: Bool[AnyArray, "*T B"]
  reward: Float32[AnyArray, "*T B"]
  is_last: Bool[AnyArray, "*T B"]
  is_truncated: Bool[AnyArray, "*T B"]
  sign: Float32[AnyArray, "*T B"]
  extras: dict[str, Shaped[AnyArray, "..."]]


def make_rollout(
  steps: TrajectorySample,
  extras: Mapping[str, Shaped[np.ndarray, "T B ..."]],
  after: BatchedTimeStep,
  decision: Decision,
) -> Rollout:
  """Returns a segment as a Rollout, in NumPy.

  Where an environment failed, its steps end with a truncated frame, and the next episode begins after it
  (`acting.collector.cut_off`). If this frame is the first of the segment, the segment before it has already
  bootstrapped from its value.

  Args:
    steps: T acted steps of B environments.
    extras: the extras of the decisions on these steps, among them FRAMES.
    after, decision: the frames after the segment, and the decision on them.
  """

  def next_(name: str) -> np.ndarray:
    return np.concatenate([getattr(steps, name)[1:], np.asarray(getattr(after, name))[None]])

  return Rollout(
    frames=extras[FRAMES],
    legal_actions_mask=steps.legal_actions_mask,
    action=steps.action,
    value=np.concatenate([steps.root_value, np.asarray(decision.root_value)[None]]),
    is_first=steps.is_first,
    is_live=~steps.is_last,
    reward=next_("last_reward"),
    is_last=next_("is_last"),
    is_truncated=next_("is_truncated"),
    sign=player_sign(steps.to_play, next_("to_play")),
    extras={name: x for name, x in extras.items() if name != FRAMES},
  )


def join_rollouts(parts: Sequence[Rollout]) -> Rollout:
  """Returns the segments [T, B, …] of several workers as one of all their environments, in this order."""
  if len(parts) == 1:
    return parts[0]
  rows = [fields_of(part) for part in parts]
  extras = [row.pop("extras") for row in rows]

  def joined(trees: list[dict[str, AnyArray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([tree[name] for tree in trees], axis=1) for name in trees[0]}

  return Rollout(**joined(rows), extras=joined(extras))


def check_finite(steps: TrajectorySample, after: BatchedTimeStep) -> None:
  """Checks the newest steps, from which an update learns, and the step after them, which has the bootstrap.

  Raises: ValueError: a reward or a frame is not finite.
  """
  for name in ("last_reward", "frame"):
    arrays = [np.asarray(getattr(part, name)) for part in (steps, after)]
    if any(x.dtype.kind == "f" and not np.isfinite(x).all() for x in arrays):
      raise ValueError(f"{name} is not finite")

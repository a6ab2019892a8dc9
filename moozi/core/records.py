"""Records that actors exchange: time steps, acted steps, training targets, searches, and priorities.

Arrays are NumPy at rest and traced inside compiled functions. Axes: B lanes or batch, T time, K unroll,
L history, M positions, A entries of a policy (`EnvSpec.policy_size`), H W C frame. A frame has the dtype of
the environment's spec.
"""

from collections.abc import Sequence

from jaxtyping import Bool, Float32, Int32, Int64, Num, Shaped

from moozi.core.pytree import record
from moozi.core.types import AnyArray


@record
class BatchedTimeStep:
  """The current step of B environments, in the agent's terms: dm_env's TimeStep, flat and batched.

  Attributes:
    frame: the observation.
    last_reward: env units; received on entering this frame, by the player who moved.
    is_first: the agent's history starts at this frame.
    is_last: the action on this frame is discarded, and the next step is a reset.
    is_truncated: the frame is last, but the task has not ended (for example, at a time limit).
    to_play: the player to move.
    legal_actions_mask: the dummy is the only legal action on terminal frames, and illegal on all others.
  """

  frame: Shaped[AnyArray, "B H W C"]
  last_reward: Float32[AnyArray, "B"]
  is_first: Bool[AnyArray, "B"]
  is_last: Bool[AnyArray, "B"]
  is_truncated: Bool[AnyArray, "B"]
  to_play: Int32[AnyArray, "B"]
  legal_actions_mask: Bool[AnyArray, "B A"]


@record
class StepSample:
  """One acted step of B environments: the time step, the result of the search or decision, and the action.

  The first seven fields are BatchedTimeStep's.

  Attributes:
    root_value: env units, for the player to move; 0 on a terminal frame, and with Q-learning on every frame.
    action_probs: the policy of the search or decision; one-hot(dummy) on a terminal frame.
    action: [*T, B], in the agent's action space; the dummy on a last frame. Continuous actions are float32
      [*T, B, D], and the dummy is zeros.
    acted_version: learner step of the parameters that acted.
    searched_version: learner step of the parameters that made root_value and action_probs; with
      reanalyze.search=false, of those that made root_value.
  """

  frame: Shaped[AnyArray, "*T B H W C"]
  last_reward: Float32[AnyArray, "*T B"]
  is_first: Bool[AnyArray, "*T B"]
  is_last: Bool[AnyArray, "*T B"]
  is_truncated: Bool[AnyArray, "*T B"]
  to_play: Int32[AnyArray, "*T B"]
  legal_actions_mask: Bool[AnyArray, "*T B A"]
  root_value: Float32[AnyArray, "*T B"]
  action_probs: Float32[AnyArray, "*T B A"]
  action: Num[AnyArray, "..."]
  acted_version: Int32[AnyArray, "*T B"]
  searched_version: Int32[AnyArray, "*T B"]


SEARCH_FIELDS = ("root_value", "action_probs", "searched_version")
"""The fields of a StepSample that a new search replaces."""


@record
class TrajectorySample(StepSample):
  """StepSamples stacked over time: [T, …] for one lane, [T, B, …] for the lanes of one worker.

  The steps may be an episode, a part of one, or parts of several.
  """


@record
class TrainTarget:
  """The training target of a start index i, batched.

  Attributes:
    frames: o_{i-L+1} … o_{i+F}; zero before the episode's start and after its end. F is 1, or K if the model
      has chance nodes.
    history_actions: a_{i-L} … a_{i+F-1}; the dummy before the episode's start and after its end.
    actions: a_i … a_{i+K-1}; the dummy from the episode's last frame on.
    rewards: u_{i+1} … u_{i+K}; env units, for the player who moved.
    action_probs: search policies at i … i+K; one-hot(dummy) at a terminal frame and after the last frame.
    root_values: v*_i … v*_{i+K}; env units, for the player to move.
    n_step_returns: z_i … z_{i+K}; env units, for the player to move. With `targets.search_value_age`, the
      search values v* of an old start.
    unroll_mask: 0 after a truncation, else 1; entry k masks policy and value k, and the reward u_{i+k}.
    consistency_mask: 0 where i is the last frame of an episode, else 1.
    importance_ratio: ρ of this draw.
    slot: index of the start step in replay.
    sequence: index of the step in its lane. If replay has a higher one in the slot, the step was overwritten.
    acted_version: learner step of the parameters that acted at i.
    searched_version: learner step of the parameters that searched at i.
  """

  frames: Shaped[AnyArray, "B L+F H W C"]
  history_actions: Int32[AnyArray, "B L+F"]
  actions: Int32[AnyArray, "B K"]
  rewards: Float32[AnyArray, "B K"]
  action_probs: Float32[AnyArray, "B K+1 A"]
  root_values: Float32[AnyArray, "B K+1"]
  n_step_returns: Float32[AnyArray, "B K+1"]
  unroll_mask: Float32[AnyArray, "B K+1"]
  consistency_mask: Float32[AnyArray, "B"]
  importance_ratio: Float32[AnyArray, "B"]
  slot: Int64[AnyArray, "B"]
  sequence: Int64[AnyArray, "B"]
  acted_version: Int32[AnyArray, "B"]
  searched_version: Int32[AnyArray, "B"]


@record
class NStepTransition:
  """Stored steps t with the steps t + h from which their n-step returns bootstrap.

  h is n, or the number of steps to the end of the episode if that is less.

  Attributes:
    legal_actions_mask: the legal actions on frame t.
    is_live: false on an episode's last frame, whose action has no effect.
    bootstrap: γ^h s, the factor of the value of step t + h; s is 1 if the same player moves at t and t + h,
      else -1. The factor is 0 if frame t + h is terminal.
    next_frames, next_legal_actions_mask: o_{t+h-L+1} … o_{t+h}, and the legal actions on frame t + h.
  """

  legal_actions_mask: Bool[AnyArray, "M A"]
  is_live: Bool[AnyArray, "M"]
  bootstrap: Float32[AnyArray, "M"]
  next_frames: Shaped[AnyArray, "M L H W C"]
  next_legal_actions_mask: Bool[AnyArray, "M A"]


@record
class SearchRoots:
  """Stored positions to search again, with the results of their newest searches.

  Attributes:
    frames: o_{i-L+1} … o_i; zero before an episode's start.
    history_actions: a_{i-L} … a_{i-1}; the dummy before an episode's start.
    legal_actions_mask, root_value, action_probs, searched_version: as in StepSample.
    slot, sequence: as in TrainTarget.
  """

  frames: Shaped[AnyArray, "M L H W C"]
  history_actions: Int32[AnyArray, "M L"]
  legal_actions_mask: Bool[AnyArray, "M A"]
  root_value: Float32[AnyArray, "M"]
  action_probs: Float32[AnyArray, "M A"]
  searched_version: Int32[AnyArray, "M"]
  slot: Int64[AnyArray, "M"]
  sequence: Int64[AnyArray, "M"]


@record
class RootSpan:
  """Successive steps of a lane, with positions to search again among them.

  Attributes:
    steps: TrajectorySample [T, …]. It starts L steps before the first position, or at the lane's first step
      if there are fewer before it, and ends at the last position.
    at: indices of the positions in `steps`.
    slot, sequence: as in TrainTarget.
  """

  steps: TrajectorySample
  at: Int64[AnyArray, "M"]
  slot: Int64[AnyArray, "M"]
  sequence: Int64[AnyArray, "M"]


def num_roots(positions: SearchRoots | Sequence[RootSpan]) -> int:
  """Returns the number of positions to search."""
  return len(positions.slot) if isinstance(positions, SearchRoots) else sum(len(s.slot) for s in positions)


@record
class SearchedRoots:
  """The results of a new search of stored positions.

  Attributes:
    root_value, action_probs: as in StepSample.
    searched_version: learner step of the parameters that searched.
    slot, sequence: as in TrainTarget.
  """

  root_value: Float32[AnyArray, "M"]
  action_probs: Float32[AnyArray, "M A"]
  searched_version: Int32[AnyArray, "M"]
  slot: Int64[AnyArray, "M"]
  sequence: Int64[AnyArray, "M"]


@record
class Priorities:
  """New priorities of the targets of one or more updates.

  Attributes:
    slot, sequence: as in TrainTarget.
    delta: |value - z|; where it is not finite, replay keeps the old priority.
  """

  slot: Int64[AnyArray, "M"]
  sequence: Int64[AnyArray, "M"]
  delta: Float32[AnyArray, "M"]

"""Records that travel: what an environment shows, what was acted, what the learner needs.

Arrays are NumPy at rest. Axes: B lanes or batch, T time, K unroll, L history, A agent actions,
H W C frame. The first axis or axes of every field are the record's leading axes.
"""

import numpy as np

from moozi.core.pytree import record

Array = np.ndarray


@record
class BatchedTimeStep:
  """What B environments show now, in the agent's terms. dm_env's TimeStep, flat and batched.

  Attributes:
    frame: [B, H, W, C] of the spec's dtype.
    last_reward: [B] float32, env units; received on entering this frame, by the player who moved.
    last_discount: [B] float32; 0 on a terminal frame, else 1 (dm_env's, not the agent's discount).
    is_first: [B] bool; the history starts here.
    is_last: [B] bool; the action given to this frame is discarded, the next step resets.
    is_truncated: [B] bool; last, but not an end of the task (a time limit).
    to_play: [B] int32; the player to move.
    legal_actions_mask: [B, A] bool; on live frames the dummy is illegal, on terminal ones alone legal.
  """

  frame: Array
  last_reward: Array
  last_discount: Array
  is_first: Array
  is_last: Array
  is_truncated: Array
  to_play: Array
  legal_actions_mask: Array


@record
class StepSample:
  """One acted step of B environments: what was seen, and what the search said and did there.

  The first eight fields are BatchedTimeStep's.

  Attributes:
    root_value: [B] float32, env units, for the player to move; 0 on a terminal frame.
    action_probs: [B, A] float32, the search policy; one-hot(dummy) on a terminal frame.
    action: [B] int32 in the agent's action space; dummy on a terminal frame.
    acted_version: [B] int32, learner step of the parameters that acted.
    searched_version: [B] int32, learner step of the parameters that made root_value and action_probs.
  """

  frame: Array
  last_reward: Array
  last_discount: Array
  is_first: Array
  is_last: Array
  is_truncated: Array
  to_play: Array
  legal_actions_mask: Array
  root_value: Array
  action_probs: Array
  action: Array
  acted_version: Array
  searched_version: Array


@record
class TrajectorySample(StepSample):
  """StepSamples stacked over time: [T, …] for one lane, [T, B, …] for the lanes of one worker.

  A whole episode or a segment of one; episodes may end and begin inside.
  """


@record
class TrainTarget:
  """What one start index i needs; every field with a leading batch axis B.

  Attributes:
    frames: [B, L+1, H, W, C] of the spec's dtype: o_{i-L+1} … o_{i+1}; zero before an episode's start.
    history_actions: [B, L+1] int32: a_{i-L} … a_i; dummy before an episode's start.
    actions: [B, K] int32: a_i … a_{i+K-1}; dummy after the end.
    rewards: [B, K] float32: u_{i+1} … u_{i+K}; for the player who moved.
    action_probs: [B, K+1, A] float32: search policies at i … i+K; one-hot(dummy) after the end.
    root_values: [B, K+1] float32: v*_i … v*_{i+K}, for the player to move.
    n_step_returns: [B, K+1] float32: z_i … z_{i+K}, for the player to move.
    unroll_mask: [B, K+1] float32: 0 past a truncation, else 1; entry k masks policy and value k, reward k.
    consistency_mask: [B] float32: 0 where i is the last frame of an episode, else 1.
    importance_ratio: [B] float32: ρ, made at this draw.
    slot: [B] int64: where the start index lies in replay.
    sequence: [B] int64: which writing of that slot this is.
    acted_version: [B] int32: learner step that acted at i.
    searched_version: [B] int32: learner step that searched at i.
  """

  frames: Array
  history_actions: Array
  actions: Array
  rewards: Array
  action_probs: Array
  root_values: Array
  n_step_returns: Array
  unroll_mask: Array
  consistency_mask: Array
  importance_ratio: Array
  slot: Array
  sequence: Array
  acted_version: Array
  searched_version: Array


@record
class SearchRoots:
  """Stored positions to search again, each with what its newest search said.

  Attributes:
    frames: [M, L, H, W, C] of the spec's dtype: o_{i-L+1} … o_i; zero before an episode's start.
    history_actions: [M, L] int32: a_{i-L} … a_{i-1}; dummy before an episode's start.
    legal_actions_mask: [M, A] bool.
    root_value: [M] float32.
    action_probs: [M, A] float32.
    searched_version: [M] int32.
    slot: [M] int64: where each lies in replay.
    sequence: [M] int64: which writing of that slot this is.
  """

  frames: Array
  history_actions: Array
  legal_actions_mask: Array
  root_value: Array
  action_probs: Array
  searched_version: Array
  slot: Array
  sequence: Array


@record
class RootSpan:
  """Successive steps of a lane, some of which are positions to search again.

  Attributes:
    steps: TrajectorySample [T, …]: L steps before the first position (or as many as the lane has) and on to
      the last one.
    at: [M] int64: which of the steps are the positions.
    slot, sequence: [M] int64, as in SearchRoots.
  """

  steps: TrajectorySample
  at: Array
  slot: Array
  sequence: Array


@record
class SearchedRoots:
  """What a new search said of stored positions.

  Attributes:
    root_value: [M] float32.
    action_probs: [M, A] float32.
    searched_version: [M] int32, learner step of the parameters that searched.
    slot, sequence: [M] int64, as in SearchRoots.
  """

  root_value: Array
  action_probs: Array
  searched_version: Array
  slot: Array
  sequence: Array

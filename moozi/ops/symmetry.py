"""Transforms training targets by symmetries of the game. Imports no JAX."""

import numpy as np
from jaxtyping import Int

from moozi.core.pytree import replace
from moozi.core.records import TrainTarget
from moozi.core.symmetry import SymmetryTables


def turn_targets(
  target: TrainTarget, tables: SymmetryTables, number: Int[np.ndarray, "*lead"]
) -> TrainTarget:
  """Returns targets [*lead, …] of the transformed games: symmetry `number[i]` transforms target i.

  Frames, actions and policies of the whole history and unroll are transformed. Rewards, values and masks do
  not change.
  """
  frames = target.frames
  flat = frames.reshape(*frames.shape[: number.ndim + 1], -1)
  actions, policies = tables.actions[number], tables.policies[number]
  turned = np.take_along_axis(flat, tables.entries[number][..., None, :], axis=-1)
  return replace(
    target,
    frames=turned.reshape(frames.shape),
    history_actions=np.take_along_axis(actions, target.history_actions, axis=-1),
    actions=np.take_along_axis(actions, target.actions, axis=-1),
    action_probs=np.take_along_axis(target.action_probs, policies[..., None, :], axis=-1),
  )

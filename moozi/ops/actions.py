"""Actions as entries of a policy (`EnvSpec.policy_groups`).

With one group, each action is an entry. With groups (1, n_1 … n_D), the first entry is the dummy, and a joint
action has an entry in each of D dimensions.
"""

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

from moozi.core.types import AnyArray
from moozi.ops.xp import array_namespace

Groups = tuple[int, ...]


def num_actions(groups: Groups) -> int:
  """Returns the number of actions with the dummy."""
  return groups[0] if len(groups) == 1 else 1 + math.prod(groups[1:])


def action_rows(action: Int[AnyArray, "*batch"], groups: Groups) -> Int[AnyArray, "*batch D"]:
  """Returns the index of a joint action's value in each dimension; of the dummy, those of action 1."""
  xp = array_namespace(action)
  index, out = xp.maximum(action - 1, 0), []
  for size in reversed(groups[1:]):
    out.append(index % size)
    index = index // size
  return xp.stack(out[::-1], axis=-1)


def actions_of_rows(rows: Int[AnyArray, "*batch D"], groups: Groups) -> Int[AnyArray, "*batch"]:
  """Returns the joint actions, in the agent's action space, of rows of value indices."""
  out = rows[..., 0]
  for d, size in enumerate(groups[2:], start=1):
    out = out * size + rows[..., d]
  return out + 1


def encode_action(action: Int[AnyArray, "*batch"], groups: Groups) -> Float[AnyArray, "*batch P"]:
  """Returns float32 codes of actions: 1 at each entry of the action, else 0.

  With several groups, a joint action has an entry in each dimension, and the dummy has entry 0.
  """
  xp = array_namespace(action)
  if len(groups) == 1:
    return xp.astype(action[..., None] == np.arange(groups[0]), xp.float32)
  rows, is_dummy = action_rows(action, groups), action[..., None] == 0
  parts = [is_dummy]
  parts += [(rows[..., d, None] == np.arange(size)) & ~is_dummy for d, size in enumerate(groups[1:])]
  return xp.astype(xp.concatenate(parts, axis=-1), xp.float32)


def split_groups(x: Float[AnyArray, "*batch P"], groups: Groups) -> Iterator[Float[AnyArray, "*batch _"]]:
  """Yields the entries of each dimension of a policy with several groups."""
  at = groups[0]
  for size in groups[1:]:
    yield x[..., at : at + size]
    at += size


def group_sums(probs: Float[np.ndarray, "*batch P"], groups: Groups) -> list[Float[np.ndarray, "*batch"]]:
  """Returns the sum of each distribution of a policy, in float64.

  With several groups, the probability of the dummy is added to the sum of each dimension.
  """
  if len(groups) == 1:
    return [np.asarray(probs.sum(axis=-1, dtype=np.float64))]
  parts = split_groups(probs, groups)
  return [np.asarray(part.sum(axis=-1, dtype=np.float64) + probs[..., 0]) for part in parts]


def joint_probs(
  probs: Float[np.ndarray, "*batch P"], actions: Int[np.ndarray, "*batch E"], groups: Groups
) -> Float[np.ndarray, "*batch E"]:
  """Returns the probabilities of joint actions under a policy with several groups; 0 for the dummy."""
  rows = action_rows(actions, groups)
  out = (actions != 0).astype(probs.dtype)
  for d, part in enumerate(split_groups(probs, groups)):
    out = out * np.take_along_axis(part, rows[..., d], axis=-1)
  return out


def top_actions(
  probs: Float[np.ndarray, "P"], groups: Groups, num: int
) -> tuple[Int[np.ndarray, "E"], Float[np.ndarray, "E"]]:
  """Returns the `num` most probable joint actions of a policy with several groups, and their probabilities.

  E is `num`, or the number of joint actions if that is less. The actions are in increasing order.
  """
  # A beam search over the dimensions. It is exact: each prefix of a top action is a top prefix.
  index, weight = np.zeros(1, np.int64), np.ones(1, np.float64)
  for part in split_groups(probs, groups):
    index = (index[:, None] * len(part) + np.arange(len(part))).ravel()
    weight = (weight[:, None] * part).ravel()
    best = np.argsort(-weight, kind="stable")[:num]
    index, weight = index[best], weight[best]
  order = np.argsort(index)
  return (1 + index[order]).astype(np.int32), weight[order].astype(probs.dtype)

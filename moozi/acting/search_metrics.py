"""What is worth telling about one vector step of acting; on NumPy arrays, or traced inside a rollout."""

from typing import Any

from moozi.agent.planner import SearchOutput
from moozi.core.records import BatchedTimeStep, StepSample
from moozi.ops.xp import array_namespace

Array = Any


def search_metrics(step: BatchedTimeStep | StepSample, output: SearchOutput) -> dict[str, Array]:
  """Scalars by name: what the search did to the prior, means over the frames that are not terminal.

  All arrays of one vector step of B environments. Entropies and divergence are in nats, values in env units.
  Where
  every frame is terminal, the search's figures are 0.
  """
  probs, prior = output.action_probs, output.prior_probs
  xp = array_namespace(probs, prior)
  is_live = ~(step.is_last & ~step.is_truncated)
  num_live = xp.maximum(xp.sum(is_live), 1)

  def mean(x: Array) -> Array:
    return xp.sum(xp.where(is_live, x, 0.0)) / num_live

  def log(x: Array) -> Array:
    return xp.log(xp.maximum(x, 1e-12))

  return {
    "search/policy_entropy": mean(-xp.sum(probs * log(probs), axis=-1)),
    "search/prior_entropy": mean(-xp.sum(prior * log(prior), axis=-1)),
    "search/policy_kl_prior": mean(xp.sum(probs * (log(probs) - log(prior)), axis=-1)),
    "search/policy_max": mean(xp.max(probs, axis=-1)),
    "search/depth_mean": mean(output.depth_mean),
    "search/depth_max": mean(output.depth_max),
    "search/root_value": mean(output.root_value),
    "search/root_value_gain": mean(output.root_value - output.prior_value),
    "train/reward": xp.mean(step.last_reward),
    "train/last_share": xp.mean(step.is_last),
  }

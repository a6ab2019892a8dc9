"""The running normalization of a baseline's observations, by statistics in the training state's `net_state`.

Source: Huang et al. 2022, details 6 and 7 for robotics. Departures:
  - The learner changes the statistics: those of PPO once per round, and those of Q-learning at each update.
    In the source, each step of acting changes them. Until the first update, observations are only clipped.
  - Each frame of a history is normalized by the statistics of the newest frames. Zeros before an episode's
    start are normalized too.
"""

from typing import Any

from jaxtyping import Bool, Shaped

from moozi.core.spec import EnvSpec
from moozi.core.types import AnyArray
from moozi.ops.running_stats import CLIP, initial_stats, standardized, updated

NetState = dict[str, Any]
"""The part of a baseline's variables that gradients do not change: statistics by name."""

OBSERVATIONS = "observations"
"""The name of the statistics of frames, RunningStats [H, W, C]."""


def observation_state(normalizes: bool, spec: EnvSpec) -> NetState:
  """Returns the initial `net_state`, with statistics if observations are normalized."""
  return {OBSERVATIONS: initial_stats(spec.frame_shape)} if normalizes else {}


def normalized(
  net_state: NetState, frames: Shaped[AnyArray, "*batch H W C"], clip: float = CLIP
) -> Shaped[AnyArray, "*batch H W C"]:
  """Returns frames, normalized and clipped to ±clip if `net_state` has statistics of observations."""
  return standardized(frames, net_state[OBSERVATIONS], clip) if OBSERVATIONS in net_state else frames


def observed(
  net_state: NetState, histories: Shaped[AnyArray, "N L H W C"], is_live: Bool[AnyArray, "N"]
) -> NetState:
  """Returns `net_state`; its statistics, if any, are updated by the newest frames of the live histories."""
  if OBSERVATIONS not in net_state:
    return net_state
  return net_state | {OBSERVATIONS: updated(net_state[OBSERVATIONS], histories[:, -1], is_live)}

"""Warnings about learning: collapsed hidden states, and clipped targets."""

from collections.abc import Callable, Mapping

import numpy as np

from moozi.core.config import Config
from moozi.ops.scalar_transform import inverse_transform

# The warning of collapsed hidden states: first learner step, and minimum mean cosine.
_COLLAPSE_STEPS, _COLLAPSE_COSINE = 500, 0.95
# The minimum share of clipped targets for a warning. Early values may be too large, so a few are clipped.
_CLIPPED_SHARE = 0.01


class LearningNotes:
  """Gives each warning once per start or resume of a run.

  Args:
    warn: receives the text of a warning.
  """

  def __init__(self, config: Config, warn: Callable[[str], None]) -> None:
    self._transform, self._warn = config.scalar_transform, warn
    self._given: set[str] = set()

  def observe(self, scalars: Mapping[str, float], learner_steps: int) -> None:
    """Reads the metrics of a tick."""
    cosine = scalars.get("state/cosine", 0.0)
    if learner_steps >= _COLLAPSE_STEPS and cosine >= _COLLAPSE_COSINE:
      self._give(
        "state/cosine",
        f"hidden states are nearly equal: their mean cosine is {cosine:.4f}, so the model cannot distinguish "
        "frames; try network.center_frames=true, a smaller learner.consistency_coef or learner.max_shift=0",
      )
    shares = {
      "rewards": scalars.get("targets/clipped_rewards", 0.0),
      "value targets": scalars.get("targets/clipped_values", 0.0),
    }
    clipped = [f"{share:.0%} of the {what}" for what, share in shares.items() if share >= _CLIPPED_SHARE]
    if clipped:
      self._give("targets/clipped_values", f"{' and '.join(clipped)} are beyond {self._support()}")

  def _support(self) -> str:
    ends = (self._transform.support_min, self._transform.support_max)
    low, high = (float(inverse_transform(np.float32(end), self._transform.epsilon)) for end in ends)
    return (
      f"the support, {low:.4g} … {high:.4g}, and are clipped to its ends; set scalar_transform.support_max "
      f"({ends[1]}) and scalar_transform.support_min ({ends[0]}) to larger magnitudes, or scale the rewards "
      "of the environment down"
    )

  def _give(self, name: str, text: str) -> None:
    if name not in self._given:
      self._given.add(name)
      self._warn(f"{text} (docs/metrics.md, {name})")

"""The scalar transform: scalars in env units to and from categories over an integer support.

Written on the operators that NumPy and JAX arrays share, so it runs on both.
"""

import dataclasses
from typing import Any

import numpy as np

from moozi.ops.xp import array_namespace

Array = Any


def transform(x: Array, epsilon: float = 0.001) -> Array:
  """Contracts scalars: φ(x) = sign(x)(√(|x|+1) − 1) + εx.

  Args:
    x: […] float32, env units.
    epsilon: ε, the slope that is left far from 0; > 0.

  Returns: […] float32, transformed units.
  Source: Pohlen et al. 2018, eq. for h. Departures: √(|x|+1) − 1 is computed as |x| / (√(|x|+1) + 1), which
    keeps the digits of small x.
  """
  xp = array_namespace(x)
  return x / (xp.sqrt(xp.abs(x) + 1.0) + 1.0) + epsilon * x


def inverse_transform(z: Array, epsilon: float = 0.001) -> Array:
  """The inverse of `transform`, in a form that loses no digits in float32.

  With q = √(|x|+1) = u + 1, u solves εu² + (1+2ε)u = |z|; then x = sign(z)(q² − 1) = sign(z) u(u+2).

  Args:
    z: […] float32, transformed units.
    epsilon: ε of the transform; > 0.

  Returns: […] float32, env units.
  Source: Pohlen et al. 2018, proposition for h⁻¹. Departures: rationalised, and solved for q − 1 instead of
    q, so that neither a small ε nor a small z cancels.
  """
  xp = array_namespace(z)
  a = xp.abs(z)
  u = 2.0 * a / (1.0 + 2.0 * epsilon + xp.sqrt(1.0 + 4.0 * epsilon * (a + 1.0 + epsilon)))
  return xp.sign(z) * u * (u + 2.0)


@dataclasses.dataclass(frozen=True)
class ScalarTransform:
  """Φ and its inverse over the support Z = {support_min, …, support_max}, in transformed units.

  Raises: ValueError where the support does not hold 0 (absorbing states could not be expressed).
  Source: the thesis 4.3.6; Schrittwieser et al. 2020, appendix F.
  """

  support_min: int = -30
  support_max: int = 30
  epsilon: float = 0.001

  def __post_init__(self) -> None:
    if not self.support_min <= 0 <= self.support_max or self.support_min == self.support_max:
      raise ValueError(
        f"scalar_transform: support [{self.support_min}, {self.support_max}] must hold 0 and one more integer"
      )

  @property
  def size(self) -> int:
    """|Z|."""
    return self.support_max - self.support_min + 1

  @property
  def support(self) -> np.ndarray:
    """Z, [S] float32."""
    return np.arange(self.support_min, self.support_max + 1, dtype=np.float32)

  @property
  def zero_logits(self) -> np.ndarray:
    """[S] float32 logits whose `to_scalar` is 0."""
    return np.where(self.support == 0, 0.0, -1e9).astype(np.float32)

  def to_probs(self, x: Array) -> Array:
    """Φ: splits φ(x) between its two nearest integers in the support; outside it, the end takes all.

    Args:
      x: […] float32, env units.

    Returns: […, S] float32, sums to 1.
    """
    xp = array_namespace(x)
    z = xp.clip(transform(x, self.epsilon), self.support_min, self.support_max)
    return xp.clip(1.0 - xp.abs(z[..., None] - self.support), 0.0, 1.0)

  def to_scalar(self, logits: Array) -> Array:
    """Φ⁻¹: the softmax's expectation over the support, put through the inverse transform.

    Args:
      logits: […, S] float32.

    Returns: […] float32, env units.
    """
    xp = array_namespace(logits)
    weights = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    z = xp.sum(weights * self.support, axis=-1) / xp.sum(weights, axis=-1)
    return inverse_transform(z, self.epsilon)

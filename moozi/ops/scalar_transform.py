"""The scalar transform: converts scalars in env units to categories over an integer support, and back.

Runs on NumPy and JAX arrays.
"""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Float32

from moozi.core.types import AnyArray
from moozi.ops.xp import array_namespace


def transform(x: Float[AnyArray, "..."], epsilon: float = 0.001) -> Float[AnyArray, "..."]:
  """Contracts scalars: φ(x) = sign(x)(√(|x|+1) − 1) + εx.

  Args:
    x: env units.
    epsilon: ε, the limit of the slope for large |x|; > 0.

  Returns: transformed units.
  Source: Pohlen et al. 2018, eq. for h; thesis 4.3.6. Departures: sign(x)(√(|x|+1) − 1) is
    computed as x / (√(|x|+1) + 1), which keeps the digits of small x.
  """
  xp = array_namespace(x)
  return x / (xp.sqrt(xp.abs(x) + 1.0) + 1.0) + epsilon * x


def inverse_transform(z: Float[AnyArray, "..."], epsilon: float = 0.001) -> Float[AnyArray, "..."]:
  """Inverts `transform`, in a form without cancellation in float32.

  With q = √(|x|+1) = u + 1, u solves εu² + (1+2ε)u = |z|; then x = sign(z)(q² − 1) = sign(z) u(u+2).

  Args:
    z: transformed units.
    epsilon: ε of the transform; > 0.

  Returns: env units.
  Source: Pohlen et al. 2018, proposition for h⁻¹. Departures: the formula is rationalized, and solved for
    q − 1 instead of q, so that no digits cancel for small ε or z.
  """
  xp = array_namespace(z)
  a = xp.abs(z)
  u = 2.0 * a / (1.0 + 2.0 * epsilon + xp.sqrt(1.0 + 4.0 * epsilon * (a + 1.0 + epsilon)))
  return xp.sign(z) * u * (u + 2.0)


_ROUNDING = 1e-3  # of a category


@dataclasses.dataclass(frozen=True)
class ScalarTransform:
  """Φ, which maps scalars to categories over Z = {support_min, …, support_max}, and its inverse.

  The support Z is in transformed units, and scalars are in env units.

  Raises: ValueError: the support lacks 0, which is the value of absorbing states, or has no other integer.
  Source: thesis 4.3.6; Schrittwieser et al. 2020, appendix F.
  """

  support_min: int = -30
  support_max: int = 30
  epsilon: float = 0.001

  def __post_init__(self) -> None:
    if not self.support_min <= 0 <= self.support_max or self.support_min == self.support_max:
      raise ValueError(
        f"scalar_transform: support {self.support_min} … {self.support_max} must hold 0 and another integer"
      )

  @property
  def size(self) -> int:
    """S = |Z|."""
    return self.support_max - self.support_min + 1

  @property
  def support(self) -> Float32[np.ndarray, "S"]:
    return np.arange(self.support_min, self.support_max + 1, dtype=np.float32)

  @property
  def zero_logits(self) -> Float32[np.ndarray, "S"]:
    """Logits whose `to_scalar` is 0."""
    return np.where(self.support == 0, 0.0, -1e9).astype(np.float32)

  def to_probs(self, x: Float[AnyArray, "*batch"]) -> Float[AnyArray, "*batch {self.size}"]:
    """Returns Φ(x): φ(x), clipped to the support, split between its two nearest integers.

    Args:
      x: env units.

    Returns: categories, which sum to 1.
    """
    xp = array_namespace(x)
    z = xp.clip(transform(x, self.epsilon), self.support_min, self.support_max)
    return xp.clip(1.0 - xp.abs(z[..., None] - self.support), 0.0, 1.0)

  def is_clipped(self, x: Float[AnyArray, "*batch"]) -> Bool[AnyArray, "*batch"]:
    """Returns which x, in env units, `to_probs` clips by more than rounding."""
    z = transform(x, self.epsilon)
    return (z < self.support_min - _ROUNDING) | (z > self.support_max + _ROUNDING)

  def to_scalar(self, logits: Float[AnyArray, "*batch {self.size}"]) -> Float[AnyArray, "*batch"]:
    """Returns Φ⁻¹ in env units: the inverse transform of the softmax's expectation over the support."""
    xp = array_namespace(logits)
    weights = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    z = xp.sum(weights * self.support, axis=-1) / xp.sum(weights, axis=-1)
    return inverse_transform(z, self.epsilon)

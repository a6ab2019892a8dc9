"""Prioritized sampling in NumPy: a sum tree, a rank table, an order by priority, importance ratios."""

import numpy as np
from jaxtyping import Float, Float32, Float64, Int, Int64

# An odd constant and its inverse modulo 2^32. Multiplying a slot by the constant is a bijection that scatters
# the slots, so equal priorities are not ordered by lane.
_SCATTER = 2654435769
_GATHER = pow(_SCATTER, -1, 1 << 32)


class SumTree:
  """Stores the weights of `size` leaves, and draws leaves in proportion to them. float64, vectorized.

  Each inner node is exactly the float sum of its two children, so the tree depends on the leaves only, not on
  the order of the updates.

  Source: Schaul et al. 2016, appendix B.2.1. Departures: updates and draws are vectorized.
  """

  def __init__(self, size: int) -> None:
    if size < 1:
      raise ValueError(f"size={size}: must be at least 1")
    self.size = size
    self._base = 1 << max(size - 1, 1).bit_length()
    self._nodes = np.zeros(2 * self._base, np.float64)

  @property
  def total(self) -> float:
    return float(self._nodes[1])

  @property
  def leaves(self) -> Float64[np.ndarray, "{self.size}"]:
    """The weights, as a view that must not be written to."""
    return self._nodes[self._base : self._base + self.size]

  def assign(self, index: Int[np.ndarray, "M"], weight: Float[np.ndarray, "M"] | float) -> None:
    """Sets leaves to weights ≥ 0; where an index occurs twice, the last weight counts."""
    node = index + self._base
    self._nodes[node] = weight
    node = np.unique(node >> 1)
    while node.size and node[0] >= 1:
      left = node << 1
      self._nodes[node] = self._nodes[left] + self._nodes[left + 1]
      node = node >> 1
      if node.size > 1:  # still sorted: siblings have one parent
        node = node[np.append(True, node[1:] != node[:-1])]

  def assign_all(self, weight: Float[np.ndarray, "{self.size}"]) -> None:
    self._nodes[self._base : self._base + self.size] = weight
    low = self._base
    while low > 1:
      children = self._nodes[low : 2 * low]
      low >>= 1
      self._nodes[low : 2 * low] = children[0::2] + children[1::2]

  def find(self, mass: Float[np.ndarray, "*M"]) -> Int64[np.ndarray, "*M"]:
    """Returns the leaf on which each mass in [0, total) falls; never a leaf of weight 0.

    Raises: ValueError: all weights are 0.
    """
    if self.total <= 0:
      raise ValueError("all weights are 0: nothing to draw")
    nodes, mass = self._nodes, np.array(mass, np.float64)
    node = np.ones(mass.shape, np.int64)
    for _ in range(self._base.bit_length() - 1):
      node <<= 1
      left = nodes.take(node)
      # Because of rounding, `mass` can reach the node's total, so a right child of weight 0 must be excluded.
      right = (mass >= left) & (nodes.take(node + 1) > 0)
      mass -= left * right
      node += right
    return node - self._base


def rank_weights(size: int, exponent: float) -> Float64[np.ndarray, "{size}"]:
  """Returns the weights (1/rank)^α of ranks 1 … size.

  Source: Schaul et al. 2016, rank-based variant. Departures: none.
  """
  return np.arange(1, size + 1, dtype=np.float64) ** -exponent


def order_by_priority(
  slot: Int[np.ndarray, "N"], priority: Float32[np.ndarray, "N"], salt: int = 0
) -> Int64[np.ndarray, "N"]:
  """Returns the slots from highest to lowest priority; `salt` determines the scattered order of ties.

  The order is the same on every machine: all sort keys differ, so it does not depend on the sort algorithm.

  Args:
    slot: distinct, below 2^32.
    priority: finite and at least 0.
    salt: below 2^32.
  """
  # The bits of non-negative floats sort like the floats. Inverted bits sort in descending order.
  falling = ~(np.asarray(priority, np.float32) + np.float32(0.0)).view(np.uint32)
  scattered = (slot.astype(np.uint32) ^ np.uint32(salt)) * np.uint32(_SCATTER)
  key = (falling.astype(np.uint64) << np.uint64(32)) | scattered
  key.sort()
  low = key.astype(np.uint32)  # keeps the low 32 bits
  return ((low * np.uint32(_GATHER)) ^ np.uint32(salt)).astype(np.int64)


def importance_ratio(
  probability: Float[np.ndarray, "*batch B"], count: int, exponent: float = 1.0, normalize: bool = False
) -> Float32[np.ndarray, "*batch B"]:
  """Returns ρ = (1 / (N P(i)))^β, divided by the largest of its batch if `normalize`.

  Args:
    probability: P(i) > 0 of each drawn item.
    count: N, the number of items that could have been drawn.
    exponent: β.
    normalize: divide by the maximum over B.
  Source: Schaul et al. 2016, section 3.4; thesis 4.3.14 (β = 1, no normalization). Departures: none.
  """
  ratio = (count * np.asarray(probability, np.float64)) ** -exponent
  if normalize:
    ratio = ratio / ratio.max(axis=-1, keepdims=True)
  return ratio.astype(np.float32)

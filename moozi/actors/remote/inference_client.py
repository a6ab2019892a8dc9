"""Asks an inference server from the process of a training worker."""

import math
import time
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from moozi.actors import cluster

# Time between two attempts to reach a server that was lost.
_RETRY_S = 0.2


class Bits(NamedTuple):
  """A Boolean array with eight values in a byte.

  Attributes:
    packed: [ceil(N / 8)], the N values in the order of their indices; the first one is the highest bit.
    shape: of the array.
  """

  packed: UInt8[np.ndarray, " M"]
  shape: tuple[int, ...]


def pack(tree: Any) -> Any:
  """Returns a tree of NumPy arrays with Bits in place of Boolean arrays.

  Ray passes a small argument with the call, and puts one above 100 KB into its object store.
  """
  import jax

  def leaf(x: Any) -> Any:
    return Bits(np.packbits(x), x.shape) if isinstance(x, np.ndarray) and x.dtype == bool else x

  return jax.tree_util.tree_map(leaf, tree)


def unpack(tree: Any) -> Any:
  """Returns the tree that was packed."""
  import jax

  def leaf(x: Any) -> Any:
    if not isinstance(x, Bits):
      return x
    return np.unpackbits(x.packed, count=math.prod(x.shape)).view(bool).reshape(x.shape)

  return jax.tree_util.tree_map(leaf, tree, is_leaf=lambda x: isinstance(x, Bits))


def connected_ray() -> Any:
  """Returns the `ray` module, which is connected in an actor's process."""
  import ray

  return ray


class RemoteInference:
  """Asks the inference server that has a name in Ray.

  If the server is lost, the driver restarts it under the same name. The request is then asked again; it has
  all that the decision depends on, except the parameters, so no step is lost.

  Args:
    name: the server's name.

  Attributes:
    num_repeated: how often the request for a decision was repeated so far.
  """

  def __init__(self, name: str) -> None:
    self._name, self._ray = name, connected_ray()
    self._server: Any = None
    self.num_repeated = 0

  def warm_up(self, request: Any) -> None:
    """Waits until the server has compiled acting for requests like this one."""
    self._call("warm_up", request)

  def decide(self, request: Any) -> Any:
    """Returns the Answer to a Request. Raises an error of the server's compiled function."""
    return self._call("decide", request)

  def _call(self, method: str, request: Any) -> Any:
    packed = pack(request)
    while True:
      try:
        return self._ray.get(getattr(self._find(), method).remote(packed))
      except cluster.lost_errors(self._ray):
        self._server = None
      # Ray knows the failed server by its name until the driver restarts it.
      self.num_repeated += method == "decide"
      time.sleep(_RETRY_S)

  def _find(self) -> Any:
    """Returns the server's handle; waits while no server has the name."""
    while self._server is None:
      try:
        self._server = self._ray.get_actor(self._name)
      except ValueError:
        time.sleep(_RETRY_S)
    return self._server

"""The devices of the learner: one, or a mesh among which each batch is divided.

Only this module knows the mesh. The state is on every device, and each device has an equal share of a batch's
samples. XLA divides the compiled update accordingly. Sums and means over samples (losses, gradients, batch
norm, metrics) are those of the whole batch, because XLA adds the parts of all devices.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from moozi.core.config import LearnerConfig
from moozi.core.errors import UserError

_DATA = "data"


class OneDevice:
  """JAX's default device."""

  def put(self, state: Any) -> Any:
    """Returns the training state as it is; JAX puts NumPy arrays on the device when they are used."""
    return state

  def put_batch(self, batch: Any, axis: int = 0) -> Any:
    """Returns the batch as it is."""
    return batch

  def compile(self, update: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the compiled update, which donates its first argument."""
    return jax.jit(update, donate_argnums=0)


@dataclasses.dataclass(frozen=True)
class DataMesh:
  """A mesh with one axis, over which the samples of a batch are divided.

  Attributes:
    mesh: the devices.
  """

  mesh: Mesh

  def put(self, state: Any) -> Any:
    """Returns a tree of arrays with a copy on each device."""
    return jax.device_put(state, self._replicated)

  def put_batch(self, batch: Any, axis: int = 0) -> Any:
    """Returns a tree of NumPy arrays, divided over `axis` in order: the first device has the first samples.

    On several hosts, each host would pass the samples of its own devices.

    Raises: ValueError: the number of devices does not divide an array's `axis`.
    """
    sharding = NamedSharding(self.mesh, PartitionSpec(*(None,) * axis, _DATA))
    return jax.tree_util.tree_map(lambda x: jax.make_array_from_process_local_data(sharding, x), batch)

  def compile(self, update: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the compiled update, which donates its first argument. Its results are on every device."""
    return jax.jit(update, donate_argnums=0, out_shardings=self._replicated)

  @property
  def _replicated(self) -> NamedSharding:
    return NamedSharding(self.mesh, PartitionSpec())


Devices: TypeAlias = OneDevice | DataMesh


def devices_of(learner: LearnerConfig) -> Devices:
  """Returns the devices of `learner.num_devices`; with several, JAX's first ones.

  Raises: UserError: JAX has fewer devices.
  """
  count = learner.num_devices
  if count == 1:
    return OneDevice()
  devices = jax.devices()
  check_num_devices(learner, len(devices), devices[0].platform)
  return DataMesh(Mesh(devices[:count], (_DATA,)))


def check_num_devices(learner: LearnerConfig, available: int, platform: str) -> None:
  """Raises UserError if a process with `available` devices of a platform, such as cpu, has too few."""
  if learner.num_devices > available:
    raise UserError(
      f"learner.num_devices={learner.num_devices}: the learner's process has {available} "
      f"{platform.upper()} device{'s' * (available > 1)}; must be at most {available}. With runtime=ray, "
      "ray.learner.num_gpus gives it GPUs"
    )

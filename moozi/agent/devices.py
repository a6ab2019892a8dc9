"""The devices of the learner: one, or a mesh over which each batch is divided.

Only this module uses the mesh. The state is on every device, and each device has an equal share of a batch's
samples. XLA divides the compiled update accordingly. Sums and means over samples (losses, gradients, batch
norm, metrics) are those of the whole batch, because XLA adds the parts of all devices.

A mesh may have the devices of several processes (`jax.distributed`). Each process must then make the same
calls of compiled functions in the same order, with its own samples.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from moozi.core.config import LearnerConfig
from moozi.core.errors import UserError

_DATA = "data"


class OneDevice:
  """JAX's default device.

  Attributes:
    num_hosts: the number of processes that have devices.
  """

  num_hosts = 1

  def connect(self) -> None:
    """Does nothing."""

  def put(self, state: Any) -> Any:
    """Returns the training state as it is; JAX puts NumPy arrays on the device when they are used."""
    return state

  def copy(self, state: Any) -> Any:
    """Returns a copy of a training state that is on the device."""
    return jax.device_put(state, may_alias=False)

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
    num_hosts: the number of processes that have devices.
  """

  mesh: Mesh

  @property
  def num_hosts(self) -> int:
    return 1

  def connect(self) -> None:
    """Does nothing."""

  def put(self, state: Any) -> Any:
    """Returns a tree of arrays with a copy on each device."""
    return jax.device_put(state, self._replicated)

  def copy(self, state: Any) -> Any:
    """Returns a copy of a training state that is on the devices."""
    return jax.device_put(state, may_alias=False)

  def put_batch(self, batch: Any, axis: int = 0) -> Any:
    """Puts a tree of arrays on the devices, divided over `axis`; the first device has the first samples.

    On several hosts, each host passes the samples of its own devices; the first host has the first samples.

    Raises: ValueError: the number of this host's devices does not divide an array's `axis`.
    """
    sharding = NamedSharding(self.mesh, PartitionSpec(*(None,) * axis, _DATA))
    return jax.tree_util.tree_map(lambda x: jax.make_array_from_process_local_data(sharding, x), batch)

  def compile(self, update: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the compiled update, which donates its first argument. Its results are on every device."""
    return jax.jit(update, donate_argnums=0, out_shardings=self._replicated)

  @property
  def _replicated(self) -> NamedSharding:
    return NamedSharding(self.mesh, PartitionSpec())


class HostsMesh(DataMesh):
  """A mesh with the same number of devices of each of several processes."""

  @property
  def num_hosts(self) -> int:
    return jax.process_count()

  def connect(self) -> None:
    """Adds one number of each device, which connects the hosts. All must call it within 30 seconds.

    On CPUs, gloo waits at most 30 seconds for the other hosts in the first sum over these devices, and half
    an hour in later ones. If the first sum were that of an update, a host that compiles longer could be late.
    """
    ones = self.put_batch(np.ones(len(self.mesh.local_devices), np.float32))
    total = jax.jit(jax.numpy.sum, out_shardings=self._replicated)(ones)
    assert int(total) == self.mesh.size

  def put(self, state: Any) -> Any:
    """Returns a tree of arrays with a copy on each device. Each host passes the same values."""
    # `jax.device_put` on the whole mesh would compare the values of the hosts, by a call that all must make.
    return jax.tree_util.tree_map(self._put, state)

  def copy(self, state: Any) -> Any:
    return self.put(state)

  def _put(self, x: Any) -> jax.Array:
    x = np.asarray(x)
    copies = [jax.device_put(x, device, may_alias=False) for device in self.mesh.local_devices]
    return jax.make_array_from_single_device_arrays(x.shape, self._replicated, copies)


Devices: TypeAlias = OneDevice | DataMesh


def devices_of(learner: LearnerConfig) -> Devices:
  """Returns the devices of `learner.num_devices`; with several, JAX's first ones.

  In a process of `jax.distributed`, returns those of all processes: the first ones of each.

  Raises: UserError: this process has fewer devices.
  """
  count = learner.num_devices
  if learner.num_hosts == 1 and count == 1:
    return OneDevice()
  local = jax.local_devices()
  check_num_devices(learner, len(local), local[0].platform)
  num_hosts = jax.process_count()
  if num_hosts == 1:
    return OneDevice() if count == 1 else DataMesh(Mesh(local[:count], (_DATA,)))
  devices = [d for host in range(num_hosts) for d in jax.local_devices(host)[:count]]
  return HostsMesh(Mesh(devices, (_DATA,)))


def check_num_devices(learner: LearnerConfig, available: int, platform: str) -> None:
  """Raises UserError if a process with `available` devices of a platform, such as cpu, has too few."""
  if learner.num_devices > available:
    raise UserError(
      f"learner.num_devices={learner.num_devices}: the learner's process has {available} "
      f"{platform.upper()} device{'s' * (available > 1)}; must be at most {available}. With runtime=ray, "
      "ray.learner.num_gpus gives it GPUs"
    )

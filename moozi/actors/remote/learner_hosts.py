"""A learner on several hosts: the parameter server's process is the first, and it calls the others.

Each process has a `Learner` whose devices are those of all hosts. All processes must make the same collective
computations in the same order. The parameter server calls the other processes through this module only, in
the order in which it calls its own learner.
"""

import contextlib
import functools
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from moozi.actors import cluster
from moozi.actors.remote import process
from moozi.actors.remote.inference_client import connected_ray
from moozi.core.config import Config
from moozi.core.errors import NotFiniteError, one_line
from moozi.core.pytree import map_fields
from moozi.core.spec import EnvSpec
from moozi.io.jax_process import HostOf, join
from moozi.io.machine import free_port

# Maximum time to wait for nodes for all hosts, the time between two messages that there is no room, and the
# time between two checks whether a node answers.
_ROOM_TIMEOUT_S, _ROOM_S, _ANSWER_S = 600.0, 30.0, 2.0
_log = logging.getLogger("moozi.parameter_server")


class LearnerHost(process.Actor):
  """The process of a learner on another host than that of the parameter server, which alone calls it.

  Args:
    config, setup: as in `process.Actor`.
    spec, state, learner_step: as in `ParameterServer`.
    address: host:port at which the parameter server's process listens for the others.
    index: the number of the host, from 1.
  """

  def __init__(
    self,
    config: Config,
    spec: EnvSpec,
    state: Any,
    learner_step: int,
    address: str,
    index: int,
    *,
    setup: process.Setup,
  ) -> None:
    host = _place(config, address, own_address(), index)
    super().__init__(config, setup._replace(join=functools.partial(join, host)))
    from moozi.agent.devices import devices_of
    from moozi.run import build

    devices_of(config.learner).connect()
    self._learner = build.build_learner(config, spec)
    self._learner.start_from(state, learner_step)
    self._log.info("ready at learner step %d", self._learner.learner_step)

  def warm_up(self) -> None:
    """Compiles the updates."""
    self._learner.warm_up()

  def update(self, discount: float, time_share: float, own: Any) -> None:
    """Makes U updates.

    Args:
      discount, time_share: as in `ParameterServer.update`.
      own: the targets of this host, a TrainTarget [U, B / number of hosts, …].
    """
    self._learner.set_discount(discount)
    self._learner.set_time_share(time_share)
    # The parameter server finds the same updates, and raises the error.
    with contextlib.suppress(NotFiniteError):
      self._learner.advance(own, own.slot.size)

  def roll_back(self, state: Any) -> None:
    """Continues from an older TrainingState, as in `Learner.roll_back`."""
    self._learner.roll_back(state)


class LearnerHosts:
  """The other hosts of a learner, as the parameter server calls them; none if it learns alone.

  No host can compute without the others. If a call of one fails, or JAX raises in this process, this process
  ends. The others then end too, because Ray ends actors with the one that made them, and the driver restarts
  the parameter server.

  Args:
    ray: the connected `ray` module.
    handles: the handle of each LearnerHost, in order.
    end: ends this process.
  """

  def __init__(
    self,
    ray: Any = None,
    handles: Sequence[Any] = (),
    end: Callable[[int], Any] = os._exit,
  ) -> None:
    self._ray, self._handles, self._end = ray, handles, end
    # The results of the calls of each host, for which a thread waits: in a collective computation, the main
    # thread may wait forever for a host that has failed.
    self._results: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in handles]
    for index, (handle, results) in enumerate(zip(handles, self._results, strict=True), start=1):
      results.put(handle.__ray_ready__.remote())
      threading.Thread(target=self._watch, args=(index, results), daemon=True).start()

  @contextlib.contextmanager
  def calling(self, method: str, *shared: Any, batch: Any = None) -> Iterator[Any]:
    """Calls a method of each other host, and yields the batch of this host for its own call in the block.

    Args:
      shared: arguments of the calls.
      batch: a record of arrays [U, B, …], of which each host gets an equal part of B, in order, as its last
        argument; None: the calls have no further argument.
    """
    if not self._handles:
      yield batch
      return
    parts: list[tuple[Any, ...]] = [()] * (1 + len(self._handles))
    if batch is not None:
      parts = [(part,) for part in divided(batch, len(parts))]
    for handle, results, part in zip(self._handles, self._results, parts[1:], strict=True):
      results.put(getattr(handle, method).remote(*shared, *part))
    import jax

    try:
      yield parts[0][0] if batch is not None else None
    except jax.errors.JaxRuntimeError as error:
      self._end_with(f"JAX raised in {method}: {one_line(error)}")
      raise

  def _watch(self, index: int, results: "queue.SimpleQueue[Any]") -> None:
    """Waits for the results of a host's calls; ends this process if a call fails."""
    while True:
      try:
        self._ray.get(results.get())
      except Exception as error:
        self._end_with(f"host {index} failed: {one_line(error)}")
        return

  def _end_with(self, reason: str) -> None:
    _log.error("%s; this process ends, because no host can learn alone", reason)
    self._end(1)


def start_hosts(
  config: Config,
  spec: EnvSpec,
  state: Any,
  learner_step: int,
  group: Any,
  setup: process.Setup,
) -> tuple[LearnerHosts, HostOf]:
  """Starts the processes of the other hosts; returns them, and the place of this process.

  They wait until this process has joined them.

  Args:
    config, spec, state, learner_step, setup: those of the parameter server.
    group: the placement group of the hosts (`cluster.host_group`).

  Raises: RuntimeError: the cluster has no room for the hosts, on nodes that answer, for ten minutes.
  """
  ray, own, num_hosts = connected_ray(), own_address(), config.learner.num_hosts
  _wait_for_room(ray, group, num_hosts)
  address, given = f"{own}:{free_port(own)}", ray.put(state)
  handles = []
  for index in range(1, num_hosts):
    options = cluster.options(config.ray.learner) | cluster.on_host(ray, group, index)
    handles.append(
      ray.remote(**options)(LearnerHost).remote(
        config, spec, given, learner_step, address, index, setup=setup._replace(name=f"{setup.name}_{index}")
      )
    )
  return LearnerHosts(ray, handles), _place(config, address, own, 0)


def _wait_for_room(ray: Any, group: Any, num_hosts: int) -> None:
  """Waits until each host has room on a node that answers. Raises: RuntimeError: as `start_hosts`."""
  end_s = time.monotonic() + _ROOM_TIMEOUT_S
  while time.monotonic() < end_s:
    # After a node has failed, Ray finds another one for its host, but first it has to notice the failure.
    if not group.wait(_ROOM_S):
      _log.warning(
        "no room yet for the learner's %d hosts, each on a node with ray.learner's resources", num_hosts
      )
    elif cluster.nodes_answer(ray, group):
      return
    else:
      _log.warning("a node of the learner's %d hosts does not answer", num_hosts)
      time.sleep(_ANSWER_S)
  raise RuntimeError(
    f"learner.num_hosts={num_hosts}: the cluster had no room for each host's ray.learner resources, on nodes "
    f"that answer, for {_ROOM_TIMEOUT_S / 60:g} minutes; add a machine, or resume with fewer hosts"
  )


def _place(config: Config, address: str, own: str, index: int) -> HostOf:
  return HostOf(address, own, index, config.learner.num_hosts, config.ray.heartbeat_timeout_s)


def own_address() -> str:
  """Returns the address of this process's node in the cluster."""
  address: str = connected_ray().util.get_node_ip_address()
  return address


def divided(batch: Any, count: int) -> list[Any]:
  """Returns `count` equal parts of a record of arrays [U, B, …], in the order of B."""

  def part(index: int) -> Any:
    def of(x: Any) -> Any:
      # Ray passes a contiguous array without a copy.
      return np.ascontiguousarray(x[:, index * x.shape[1] // count : (index + 1) * x.shape[1] // count])

    return map_fields(of, batch)

  return [part(index) for index in range(count)]

"""Starts Ray or connects to a cluster.

A cluster that this module starts listens on loopback only and has no dashboard.
"""

import logging
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from moozi.actors.watched_ray import WatchedRay
from moozi.core.config import ActorResources, RayConfig
from moozi.core.errors import UserError, one_line
from moozi.core.text import shell_command
from moozi.run import signals

_CONNECT_TIMEOUT_S = 5.0
# The concurrency group of Ray in which an actor answers heartbeats beside its other calls.
HEARTBEAT = "heartbeat"
_log = logging.getLogger("moozi.driver")


def lost_errors(ray: Any) -> tuple[type[Exception], ...]:
  """Returns Ray's errors of a call whose actor or result was lost.

  OutOfMemoryError is that of an actor that Ray's memory monitor has killed. It does not name the actor.
  """
  exceptions = ray.exceptions
  return exceptions.RayActorError, exceptions.ObjectLostError, exceptions.OutOfMemoryError


def describe_failure(ray: Any, error: Exception) -> str:
  """Returns the text of Ray's error about a lost actor or object as one line."""
  text = str(error).strip()
  if isinstance(error, ray.exceptions.OutOfMemoryError):
    return one_line(text.partition("\n")[0])  # the other lines are about the node
  # Ray has the traceback of a failed constructor as text, whose last line is the error.
  return one_line(text.splitlines()[-1] if getattr(error, "actor_init_failed", False) else text)


@contextmanager
def started(config: RayConfig) -> Iterator[Any]:
  """Connects Ray and yields the `ray` module as a `WatchedRay`.

  On exit, disconnects from the cluster, or shuts down the cluster that it started.

  Raises: UserError: Ray is not installed, already initialized or cannot start, or no cluster answers or
    accepts the connection. ProcessLostError: as `WatchedRay.check`, while the block called Ray.
  """
  # On Linux, Ray listens on all addresses by default. This variable, which Ray reads at import, restricts Ray
  # to this machine, as on Windows and macOS; a test lists the listeners. Without the variable, Ray also
  # replaces 127.0.0.1 in an address with this machine's external address.
  is_local = config.address in (None, "local")
  if is_local or _host(str(config.address)) in ("127.0.0.1", "localhost"):
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
  # By default Ray starts its processes at niceness 15. The configured niceness is added to this value;
  # the maximum is 19.
  os.environ.setdefault("RAY_worker_niceness", "0")
  # Without this setting, Ray's control store records the last 100,000 calls and grows by 2.5 MiB per minute.
  os.environ.setdefault("RAY_task_events_report_interval_ms", "0")
  os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
  os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
  try:
    import ray
  except ModuleNotFoundError as e:
    if e.name != "ray":
      raise
    raise UserError(
      "runtime=ray: the package ray is not installed; use runtime=local, or run "
      + shell_command("pip", "install", "ray>=2.50")
    ) from None

  if ray.is_initialized():
    raise UserError("runtime=ray: Ray is already initialized in this process; call ray.shutdown() first")
  common: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
  if not is_local:
    _check_reachable(str(config.address))
  try:
    with signals.blocked(), warnings.catch_warnings():
      # Ray starts processes by fork and exec, which JAX's threads do not disturb.
      warnings.filterwarnings("ignore", message=r"os\.fork", category=RuntimeWarning)
      if is_local:
        ray.init(
          # Always starts a new cluster: does not connect to RAY_ADDRESS or to a cluster on this machine.
          address="local",
          num_cpus=config.num_cpus,
          num_gpus=config.num_gpus,
          object_store_memory=config.object_store_mib * 2**20,
          include_dashboard=False,
          _node_ip_address="127.0.0.1",
          **common,
        )
      else:
        ray.init(address=config.address, **common)
  except Exception as error:
    # Ray raises errors of many classes here: those of its settings, of its processes and of the system.
    raise UserError(_describe_start_error(config, error)) from error
  watched = WatchedRay(ray, ray._private.worker._global_node if is_local else None)
  try:
    with _messages_to_log(ray):
      yield watched
  except ray.exceptions.RayError as error:
    # Ray's calls that do not wait raise errors of many kinds if a process of Ray has ended.
    if watched.lost() is not None:
      raise watched.error() from error
    raise
  finally:
    ray.shutdown()


@contextmanager
def _messages_to_log(ray: Any) -> Iterator[None]:
  """Writes the messages that Ray would print in this process to the driver's log.

  When a process fails, Ray prints the end of that process's log, also with `log_to_driver=False`. The
  function that prints is private; `tests/actors/test_cluster.py` checks that Ray still has it.
  """
  worker = ray._private.worker
  before = worker.print_to_stdstream

  def log(data: dict[str, Any], ignore_prefix: bool = False) -> None:
    _log.warning("Ray (%s): %s", data["pid"], "\n".join(data["lines"]))

  worker.print_to_stdstream = log
  try:
    yield
  finally:
    worker.print_to_stdstream = before


def _describe_start_error(config: RayConfig, error: Exception) -> str:
  """Returns the error of Ray's start as one line: the setting that it concerns, and what to do next."""
  text = one_line(error)
  # The texts of Ray's own classes say what happened; those of the others often do not.
  reason = text if type(error) in (ValueError, ConnectionError) else f"{type(error).__name__}: {text}"
  if config.address not in (None, "local"):
    return (
      f"ray.address={config.address!r}: the Ray cluster refused the connection ({reason}); "
      "a cluster with token authentication, such as one of `ray start`, needs RAY_AUTH_MODE=token; "
      "runtime=local trains without Ray"
    )
  if "AF_UNIX" in text:
    # Ray reads RAY_TMPDIR first.
    name = next((name for name in ("RAY_TMPDIR", "TMPDIR") if os.environ.get(name)), "TMPDIR")
    return (
      f"{name}={os.environ.get(name, '')}: too long for the paths of Ray's sockets ({text}); "
      f"set {name} to a shorter path, such as /tmp, or use runtime=local"
    )
  if "object store" in text or "object_store" in text:
    return (
      f"ray.object_store_mib={config.object_store_mib}: Ray cannot start with it ({reason}); "
      "choose another size, or use runtime=local"
    )
  return f"runtime=ray: Ray cannot start ({reason}); use runtime=local, which trains without Ray"


def _host(address: str) -> str:
  """Returns the host of `host:port` or `scheme://host:port`; an empty string for other forms."""
  return address.rpartition("://")[2].rpartition(":")[0]


def _check_reachable(address: str) -> None:
  """Raises UserError if no process listens at `host:port`, or if it does not answer as Ray's do.

  Ray itself would try for minutes. Other forms (`auto`) are not checked. With RAY_USE_TLS, the answer is not
  checked.
  """
  host, port = _host(address), address.rpartition(":")[2]
  if not host or not port.isdigit():
    return
  try:
    with socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT_S) as connection:
      is_ray = os.environ.get("RAY_USE_TLS", "0") != "0" or _speaks_http2(connection)
  except (OSError, OverflowError) as error:
    raise UserError(f"ray.address={address!r}: no Ray cluster answers at this address ({error})") from error
  if not is_ray:
    raise UserError(
      f"ray.address={address!r}: what listens at this address is not a Ray cluster; "
      "the port of `ray start` is 6379 by default, and not that of its dashboard"
    )


def _speaks_http2(connection: socket.socket) -> bool:
  """Returns whether the server answers the preface of HTTP/2, as Ray's servers do over gRPC (RFC 9113, 3.4).

  Raises: OSError: no answer arrives within the connection's timeout.
  """
  is_settings, frame_header_size, type_at = 4, 9, 3
  try:
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, is_settings, 0, 0, 0, 0, 0]))
    header = connection.recv(frame_header_size, socket.MSG_WAITALL)
  except (ConnectionResetError, BrokenPipeError):
    return False
  return len(header) == frame_header_size and header[type_at] == is_settings


def options(resources: ActorResources, is_spread: bool = False) -> dict[str, Any]:
  """Returns Ray's options for an actor with these resources.

  With `is_spread`, Ray places such actors in turn on the nodes that have room. Else it prefers the driver's
  node, as long as less than half of the node is reserved, and then the node with the smallest reserved share.
  """
  out: dict[str, Any] = {"num_cpus": resources.num_cpus, "num_gpus": resources.num_gpus}
  return out | {"scheduling_strategy": "SPREAD"} if is_spread else out


def host_group(ray: Any, resources: ActorResources, num_hosts: int) -> Any:
  """Returns a placement group, which reserves these resources once for each of several hosts.

  Each host is on a node of its own if the cluster has enough nodes with these resources. The group ends with
  the run.
  """
  # Ray refuses a bundle without resources.
  bundle = {"CPU": max(resources.num_cpus, 0.001)}
  bundle |= {"GPU": resources.num_gpus} if resources.num_gpus else {}
  return ray.util.placement_group([bundle] * num_hosts, strategy="SPREAD")


def is_placed(ray: Any, group: Any) -> bool:
  """Returns whether a `host_group` has its resources now; false while Ray replaces a node that failed."""
  placed: bool = ray.util.placement_group_table(group)["state"] == "CREATED"
  return placed


def nodes_answer(ray: Any, group: Any) -> bool:
  """Returns whether each node of a placed `host_group` accepts a connection, within five seconds.

  Ray notices some time after a node has failed that it has, and until then starts actors on it, which fail.
  """
  nodes = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
  for node_id in set(ray.util.placement_group_table(group)["bundles_to_node_id"].values()):
    if node_id not in nodes:
      return False
    address = nodes[node_id]["NodeManagerAddress"], nodes[node_id]["NodeManagerPort"]
    try:
      socket.create_connection(address, timeout=_CONNECT_TIMEOUT_S).close()
    except OSError:
      return False
  return True


def on_host(ray: Any, group: Any, index: int) -> dict[str, Any]:
  """Returns Ray's option that places an actor on a host of a `host_group`."""
  strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
  return {"scheduling_strategy": strategy(group, placement_group_bundle_index=index)}


def leaving_nodes(ray: Any) -> set[str]:
  """Returns the ids of the nodes that will leave the cluster: Ray starts no actor on them.

  A node is announced to leave by `ray drain-node`, or by Ray's autoscaler before it removes an idle node.
  Only a private function of Ray reports it; the integration tests check that Ray still has it.
  """
  return set(ray._private.state.state.get_draining_nodes())


def node_of(ray: Any, handle: Any) -> str:
  """Returns the id of the node of an actor; an empty string if Ray does not know the actor any more."""
  found: str = ray._private.state.actors(handle._actor_id.hex()).get("Address", {}).get("NodeID", "")
  return found


def has_ended(ray: Any, handle: Any) -> bool:
  """Returns whether Ray knows that an actor has ended, which may be before a call of the actor raises."""
  return bool(ray._private.state.actors(handle._actor_id.hex()).get("State") == "DEAD")


def node_resources(ray: Any) -> list[dict[str, float]]:
  """Returns the resources of each node that does not leave the cluster."""
  leaving = leaving_nodes(ray)
  return [n["Resources"] for n in ray.nodes() if n["Alive"] and n["NodeID"] not in leaving]

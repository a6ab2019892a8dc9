"""Checks that a cluster has the resources of a run's actors."""

import collections
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from moozi.actors import cluster
from moozi.actors.roles import actors_of, roles_of
from moozi.core.actor_report import SERVER, WORKER
from moozi.core.config import ActorResources, Config
from moozi.core.errors import UserError

# Names of each resource in Ray and in the configuration.
SHARES = (("CPU", "num_cpus"), ("GPU", "num_gpus"))


def text_of(resources: ActorResources) -> str:
  """Returns the resources in words, such as "4 CPUs and 2 GPUs"."""
  return amounts_text({resource: getattr(resources, field) for resource, field in SHARES})


def amounts_text(amounts: Mapping[str, float]) -> str:
  """Returns amounts of Ray's resources in words, CPUs and GPUs only."""
  found = [(resource, amounts.get(resource, 0.0)) for resource, _ in SHARES]
  parts = [f"{amount:g} {resource}{'s' * (amount != 1)}" for resource, amount in found if amount]
  return " and ".join(parts) or "no CPUs"


@contextmanager
def connected(config: Config) -> Iterator[Any]:
  """Connects Ray for a training run; see `cluster.started`.

  Raises: as `cluster.started`. UserError: also as `check_resources` and `check_nodes`.
  """
  with cluster.started(config.ray) as ray:
    check_resources(config, ray.cluster_resources())
    check_nodes(config, cluster.node_resources(ray))
    yield ray


def demands(config: Config) -> dict[str, tuple[int, ActorResources]]:
  """Returns the number of processes of each role and the resources of one process, by config key."""
  return {
    x.key: (len(actors_of(role, config)) * x.num_hosts(config), x.resources(config))
    for role, x in roles_of(config).items()
  }


def num_fitting(config: Config, nodes: Sequence[Mapping[str, float]]) -> int:
  """Returns how many training workers have room beside the other actors, at most `config.max_workers`.

  The number is an upper bound: the function does not know on which nodes the other actors are.

  Args:
    config: the run's configuration.
    nodes: the resources of each node.
  """
  others = demands(config)
  _, worker = others.pop(roles_of(config)[WORKER].key)
  shares = {resource: (field, getattr(worker, field)) for resource, field in SHARES if getattr(worker, field)}
  if not shares:
    return config.max_workers
  left = {
    resource: sum(node.get(resource, 0.0) for node in nodes)
    - sum(n * getattr(x, field) for n, x in others.values())
    for resource, (field, _) in shares.items()
  }
  in_all = min(math.floor(left[resource] / share + 1e-9) for resource, (_, share) in shares.items())
  return max(0, int(min(_num_on_nodes(worker, nodes), in_all, config.max_workers)))


def _num_on_nodes(resources: ActorResources, nodes: Sequence[Mapping[str, float]]) -> float:
  """Returns for how many actors with these resources otherwise empty nodes have room."""
  shares = {name: getattr(resources, field) for name, field in SHARES if getattr(resources, field)}
  if not shares:
    return math.inf
  return sum(
    min(_num_parts(name, node.get(name, 0.0), share) for name, share in shares.items()) for node in nodes
  )


def _num_parts(resource: str, total: float, share: float) -> int:
  """Returns how many shares a node has; a share of a GPU must be on one GPU."""
  if resource == "GPU" and share < 1:
    return math.floor(total + 1e-9) * math.floor(1 / share + 1e-9)
  return math.floor(total / share + 1e-9)


def check_resources(config: Config, available: dict[str, float]) -> None:
  """Raises UserError if the actors request more resources than the cluster has: Ray would wait forever.

  Of the training workers, only `Config.min_workers` must have room.

  Args:
    config: the run's configuration.
    available: Ray's `cluster_resources()`.
  """
  needed = _demands_at_start(config)
  for resource, field in SHARES:
    parts = {key: count * getattr(share, field) for key, (count, share) in needed.items()}
    total, has = sum(parts.values()), available.get(resource, 0.0)
    if total > has + 1e-9:
      listing = ", ".join(f"{key}.{field}: {value:g}" for key, value in parts.items() if value)
      more = "add nodes to the cluster"
      if config.ray.address in (None, "local"):
        # Ray's cores are only counted, so that actors can share a core.
        more = f"set ray.{field}={math.ceil(total)}"
        more += ", with which they share the cores" if resource == "CPU" else " if the machine has them"
      raise UserError(
        f"the actors request {total:g} {resource}s ({listing}); the Ray cluster has {has:g}; "
        f"{more}, or use runtime=local"
      )


def check_nodes(config: Config, nodes: Sequence[Mapping[str, float]]) -> None:
  """Raises UserError if the nodes lack room for the processes of a role, each of which must be on one node.

  A learner on several hosts has several processes. Whether different roles have room together is not checked.

  Args:
    config: the run's configuration; of the training workers, only `Config.min_workers` must have room.
    nodes: the resources of each node.
  """
  for key, (count, share) in _demands_at_start(config).items():
    fitting = _num_on_nodes(share, nodes)
    if count > fitting:
      kinds = collections.Counter(map(amounts_text, nodes))
      listing = ", ".join(f"{number} × {text}" for text, number in kinds.items())
      has_hosts = key == roles_of(config)[SERVER].key and count > 1
      wanted, fewer = (f"learner.num_hosts={count}", " or learner.num_hosts") if has_hosts else (count, "")
      more = "" if config.ray.address in (None, "local") else "add nodes, or "
      raise UserError(
        f"{key}: each process needs {text_of(share)} on one node; the nodes of the Ray cluster have room for "
        f"{fitting} of {wanted} ({listing}); {more}use a smaller {key}{fewer}"
      )


def _demands_at_start(config: Config) -> dict[str, tuple[int, ActorResources]]:
  """Returns the `demands` of a run that starts with `Config.min_workers` training workers."""
  needed, worker_key = demands(config), roles_of(config)[WORKER].key
  needed[worker_key] = config.min_workers, needed[worker_key][1]
  return needed


def idle_gpu_note(config: Config, available: dict[str, float]) -> str | None:
  """Returns a note for the user if the cluster has GPUs and no actor requests a share; else None.

  Args:
    config, available: as in `check_resources`.
  """
  num_gpus = available.get("GPU", 0.0)
  if not num_gpus or any(count * share.num_gpus for count, share in demands(config).values()):
    return None
  return f"GPUs that no actor uses: {num_gpus:g}; with ray.learner.num_gpus=1 learning uses one (docs/faq.md)"

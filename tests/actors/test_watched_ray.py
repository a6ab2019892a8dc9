"""Tests that the driver notices the end of Ray's own processes, with a fake `ray` module."""

import types

import pytest

from moozi.actors.watched_ray import WatchedRay
from moozi.core.errors import ProcessLostError


class Node:
  """Ray's record of its processes: `ended` holds the names of those that have ended."""

  def __init__(self, *ended):
    self.ended = list(ended)

  def dead_processes(self):
    return [(name, None) for name in self.ended]


class Ray:
  """Results arrive, one a wait, in the order in which they are asked for; `on_wait` is called before each."""

  def __init__(self, on_wait=lambda: None, num_ready=10**9):
    self.timeouts, self._on_wait, self._num_ready = [], on_wait, num_ready

  def wait(self, references, num_returns=1, timeout=None):
    assert len(set(references)) == len(references), "Ray refuses the same reference twice"
    self._on_wait()
    self.timeouts.append(timeout)
    ready = references[: min(num_returns, self._num_ready)]
    return ready, [reference for reference in references if reference not in ready]

  def get(self, references, timeout=None):
    self.timeouts.append(timeout)
    return [f"value {r}" for r in references] if isinstance(references, list) else f"value {references}"

  def put(self, value):
    return f"put {value}"


def test_results_are_those_of_ray():
  watched = WatchedRay(Ray(), Node())
  assert watched.get("a") == "value a"
  assert watched.get(["a", "b", "a"]) == ["value a", "value b", "value a"]
  assert watched.get([]) == []
  assert watched.wait(["a", "b"], num_returns=1, timeout=3.0) == (["a"], ["b"])
  assert watched.put(1) == "put 1"


def test_timeout_is_passed_to_ray_which_raises_its_own_error():
  ray = Ray(num_ready=0)
  WatchedRay(ray, Node()).get("a", timeout=0.0)
  assert ray.timeouts == [0.0, 0]


@pytest.mark.parametrize(
  ("name", "text"), [("raylet", "scheduler (raylet)"), ("gcs_server", "control store (gcs_server)")]
)
def test_process_that_ends_during_an_endless_wait_ends_the_wait(name, text):
  node = Node()
  ray = Ray(on_wait=lambda: node.ended.append(name) if len(ray.timeouts) == 3 else None, num_ready=0)
  with pytest.raises(ProcessLostError) as caught:
    WatchedRay(ray, node).get("a")
  assert str(caught.value) == f"runtime=ray: Ray's {text} ended unexpectedly"
  assert len(ray.timeouts) == 4
  assert max(ray.timeouts) <= 1


def test_error_of_the_process_comes_before_results_that_it_caused():
  """The actors of a scheduler that has ended end too, and would be restarted in vain."""
  with pytest.raises(ProcessLostError):
    WatchedRay(Ray(), Node("raylet")).wait(["a"], timeout=1.0)


def test_last_state_can_be_taken_without_the_control_store_only():
  node = Node("gcs_server")
  watched = WatchedRay(Ray(), node)
  with pytest.raises(ProcessLostError, match="control store"):
    watched.get("a")
  assert watched.get("a", timeout=30.0) == "value a"
  node.ended.append("raylet")
  for _ in range(2):
    with pytest.raises(ProcessLostError, match="scheduler"):
      watched.get("a", timeout=30.0)


def test_other_processes_and_joined_clusters_are_not_watched():
  assert WatchedRay(Ray(), Node("log_monitor")).get("a") == "value a"
  assert WatchedRay(Ray(), None).get("a") == "value a"


def test_ray_has_the_private_names_that_are_used():
  import ray._private.node
  import ray._private.worker

  assert ray._private.worker._global_node is None
  assert callable(ray._private.node.Node.dead_processes)
  assert types.FunctionType is type(ray._private.worker.print_to_stdstream)
  names = vars(ray._private.node.ray_constants)
  assert (names["PROCESS_TYPE_RAYLET"], names["PROCESS_TYPE_GCS_SERVER"]) == ("raylet", "gcs_server")

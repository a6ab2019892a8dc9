"""Maps a function over many arguments in Ray worker processes, outside training runs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from moozi.actors import cluster
from moozi.actors.remote import process
from moozi.core.config import ActorResources, RayConfig, uses
from moozi.core.errors import RunError, UserError

T = TypeVar("T")
R = TypeVar("R")

_WORKER = ActorResources(num_cpus=0, num_threads=1)


class Worker:
  """Ray actor that calls the function in one process.

  Args:
    index: the worker's index.
    make: returns the function.
    functions: the user's registered functions, pickled; see `process.Setup`.
  """

  def __init__(self, index: int, make: Callable[[], Callable[[Any], Any]], functions: bytes) -> None:
    process.prepare(process.Setup(f"worker_{index}", _WORKER, functions=functions))
    self._function = make()

  def call(self, argument: Any) -> Any:
    """Returns the function's result."""
    return self._function(argument)


def map_unordered(
  make: Callable[[], Callable[[T], R]], arguments: Sequence[T], num_workers: int
) -> Iterator[R]:
  """Yields `make()(argument)` for each argument, in the order of completion.

  Args:
    make: called once in each process; sent to it by pickle.
    num_workers: number of processes, each with one XLA thread.

  Raises: UserError: as `cluster.started`, or a call raised it. RunError: a process ended unexpectedly, or
    `make` raised. Another error of a call is raised as Ray's RayTaskError.
  """
  functions = uses.registered_functions()
  with cluster.started(RayConfig()) as ray:
    pickled = ray.cloudpickle.dumps(functions) if functions else b""
    actor = ray.remote(Worker)
    workers = [actor.options(**cluster.options(_WORKER)).remote(i, make, pickled) for i in range(num_workers)]
    todo = list(reversed(arguments))
    calls = {worker.call.remote(todo.pop()): worker for worker in workers[: len(todo)]}
    while calls:
      (done,), _ = ray.wait(list(calls), num_returns=1)
      worker = calls.pop(done)
      try:
        result = ray.get(done)
      except cluster.lost_errors(ray) as error:
        reason = cluster.describe_failure(ray, error)
        raise RunError(f"a worker process failed: {reason}; run the command again to continue") from None
      except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, UserError) else error) from None
      if todo:
        calls[worker.call.remote(todo.pop())] = worker
      yield result

"""Tracks the actor calls in flight, each with the functions for its result and for its failure."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from moozi.actors import cluster
from moozi.core.actor_report import ActorId
from moozi.core.errors import NotFiniteError, ProcessLostError
from moozi.run.events import Event


def _no_events(_: Any) -> list[Event]:
  return []


@dataclasses.dataclass(frozen=True)
class Call:
  """A call of an actor whose result is expected.

  Attributes:
    actor: the actor that works for the result; None if the result does not show that an actor works, such as
      that of a restarted actor before its first work.
    on_result: takes the result and returns the events to yield.
    on_failure: takes the error, or None if the call was cancelled, and returns the events to yield.
  """

  actor: ActorId | None
  on_result: Callable[[Any], Iterable[Event]]
  on_failure: Callable[[Any], Iterable[Event]] = _no_events


class Calls:
  """The actor calls in flight, by the reference of their result.

  Args:
    ray: the connected `ray` module.
  """

  def __init__(self, ray: Any) -> None:
    self._ray = ray
    self._calls: dict[Any, Call] = {}
    self._watched: dict[Any, Call] = {}

  def __bool__(self) -> bool:
    return bool(self._calls)

  def expect(
    self,
    reference: Any,
    actor: ActorId | None,
    on_result: Callable[[Any], Iterable[Event]] = _no_events,
    on_failure: Callable[[Any], Iterable[Event]] = _no_events,
  ) -> None:
    """Registers a call whose result is `reference`."""
    self._calls[reference] = Call(actor, on_result, on_failure)

  def watch(self, reference: Any, on_failure: Callable[[Any], Iterable[Event]]) -> None:
    """Registers a call that ends only with its actor. The run does not wait for it."""
    self._watched[reference] = Call(None, _no_events, on_failure)

  def discard(self, reference: Any) -> None:
    """Stops waiting for a call; neither `on_result` nor `on_failure` is called."""
    self._calls.pop(reference, None)

  def cancel(self, *roles: str) -> Iterator[Event]:
    """Treats all calls of the actors of some roles as lost."""
    for reference, call in list(self._calls.items()):
      if call.actor is not None and call.actor.role in roles:
        del self._calls[reference]
        yield from call.on_failure(None)

  def completed(self, timeout_s: float) -> Iterator[tuple[Call, Any, Exception | None]]:
    """Waits up to `timeout_s` for a call to complete; yields (call, result, error) of each completed call.

    The error is None if the call succeeded, a Ray error if the actor or the result was lost, or a
    NotFiniteError of the parameter server. Without any call, waits 10 ms and yields nothing.

    Raises: any other exception of an actor, and ProcessLostError as `WatchedRay.check`.
    """
    references = [*self._calls, *self._watched]
    if not references:
      time.sleep(0.01)
      return
    ready, _ = self._ray.wait(references, num_returns=1, timeout=timeout_s)
    if ready:
      done = {*ready, *self._ray.wait(references, num_returns=len(references), timeout=0.0)[0]}
      ready = [reference for reference in references if reference in done]
    for reference, result in zip(ready, self._results(ready), strict=True):
      call = self._calls.pop(reference, None) or self._watched.pop(reference, None)
      if call is None:
        continue  # the reaction to another result discarded this call
      yield call, *(self._result(reference) if result is None else result)

  def _results(self, references: list[Any]) -> list[tuple[Any, None] | None]:
    """Returns the result of each call; if a call has failed, None for every call.

    One request of all results is cheaper than a request of each.
    """
    try:
      return [(value, None) for value in self._ray.get(references)]
    except ProcessLostError:
      raise
    except Exception:
      return [None for _ in references]

  def _result(self, reference: Any) -> tuple[Any, Exception | None]:
    try:
      return self._ray.get(reference), None
    except cluster.lost_errors(self._ray) as error:
      return None, error
    except NotFiniteError as error:
      # Ray wraps an error of another process and adds the traceback as text.
      return None, getattr(error, "cause", error)

"""Calls in flight: what to do when each comes back, and what to put right where its actor died."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

from moozi.core.errors import NotFiniteError
from moozi.run.events import Event


def _nothing(_: Any) -> list[Event]:
  return []


@dataclasses.dataclass(frozen=True)
class Call:
  """One call.

  Attributes:
    actor: name of the one that was called.
    react: takes the result; returns the events to tell.
    undo: puts the books right where there will be no result; takes the error.
  """

  actor: str
  react: Callable[[Any], list[Event]]
  undo: Callable[[Any], list[Event]] = _nothing


class Calls:
  """The calls in flight.

  Args:
    ray: the module, connected.
  """

  def __init__(self, ray: Any) -> None:
    self._ray = ray
    self._calls: dict[Any, Call] = {}

  def __bool__(self) -> bool:
    return bool(self._calls)

  def expect(
    self,
    reference: Any,
    actor: str,
    react: Callable[[Any], list[Event]] = _nothing,
    undo: Callable[[Any], list[Event]] = _nothing,
  ) -> None:
    """Notes a call whose result is to come as `reference`."""
    self._calls[reference] = Call(actor, react, undo)

  def forget(self, reference: Any) -> None:
    """Leaves a call's result where it is."""
    self._calls.pop(reference, None)

  def give_up(self, actors: tuple[str, ...]) -> Iterator[Event]:
    """Waits no more for calls of actors whose names begin so, and puts the books right."""
    for reference, call in list(self._calls.items()):
      if call.actor.startswith(actors):
        del self._calls[reference]
        yield from call.undo(None)

  def come(self, timeout_s: float) -> Iterator[tuple[Call, Any, Exception | None]]:
    """Waits for some calls; yields each with its result, or with the error in place of one.

    Errors are those of a lost actor or object, and NotFiniteError; what else an actor raised is raised.
    """
    if not self._calls:
      time.sleep(0.01)
      return
    ray, references = self._ray, list(self._calls)
    ready, _ = ray.wait(references, num_returns=1, timeout=timeout_s)
    if ready:
      done = {*ready, *self.ready(references, timeout_s=0.0)}
      ready = [reference for reference in references if reference in done]
    for reference in ready:
      call = self._calls.pop(reference, None)
      if call is None:
        continue  # forgotten by the reaction to another one
      yield call, *self._result(reference)

  def ready(self, references: list[Any], timeout_s: float) -> list[Any]:
    """Those of the references whose results have come, all of them or by then."""
    found: list[Any] = self._ray.wait(references, num_returns=len(references), timeout=timeout_s)[0]
    return found

  def settle(self, reference: Any) -> list[Event]:
    """Takes the result of one call, and returns what its reaction tells."""
    call = self._calls.pop(reference)
    value, error = self._result(reference)
    return call.react(value) if error is None else call.undo(error)

  def _result(self, reference: Any) -> tuple[Any, Exception | None]:
    exceptions = self._ray.exceptions
    try:
      return self._ray.get(reference), None
    except (exceptions.RayActorError, exceptions.ObjectLostError, NotFiniteError) as lost:
      return None, lost

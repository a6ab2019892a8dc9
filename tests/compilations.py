"""Counts JAX's compilations, including those that are read from a cache."""

import contextlib
from collections.abc import Callable, Iterator

import jax

_ends: list[None] = []
jax.monitoring.register_event_duration_secs_listener(
  lambda event, *_, **__: _ends.append(None) if event.endswith("backend_compile_duration") else None
)


@contextlib.contextmanager
def num_compilations() -> Iterator[Callable[[], int]]:
  """Yields a function that returns the number of compilations since the start of the block."""
  begin = len(_ends)
  yield lambda: len(_ends) - begin

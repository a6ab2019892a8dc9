"""Type checks by jaxtyping's import hook: in each test, the first calls of each function are checked.

Checks of every call would take a third of the time of the quick tests. The checker is beartype, which accepts
an int for a float (PEP 484).
"""

import collections
import functools
import inspect
import threading
import types
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
_NUM_CHECKED = 3
_num_calls: collections.Counter[types.CodeType] = collections.Counter()
_jaxtyped = jaxtyping.jaxtyped


class _Checker:
  """Checks the calls of all functions that have the same code.

  Functions that are defined in functions are made often, and to make a checker takes milliseconds.
  """

  def __init__(self, function: Any, typechecker: Any) -> None:
    self._called = threading.local()

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
      latest, self._called.function = self._called.function, None
      return latest(*args, **kwargs)

    self._checked = _jaxtyped(call, typechecker=typechecker)

  def __call__(self, function: Any, *args: Any, **kwargs: Any) -> Any:
    self._called.function = function
    return self._checked(*args, **kwargs)


_checkers: dict[types.CodeType, _Checker] = {}


def begin_test() -> None:
  """Checks the next calls of each function again."""
  _num_calls.clear()


def _sampled(function: Any = None, *, typechecker: Any) -> Any:
  """Replaces `jaxtyping.jaxtyped`, which checks every call."""
  if function is None:
    return functools.partial(_sampled, typechecker=typechecker)
  if not inspect.isfunction(function):
    return _jaxtyped(function, typechecker=typechecker)
  code = function.__code__

  @functools.wraps(function)
  def call(*args: Any, **kwargs: Any) -> Any:
    if _num_calls[code] >= _NUM_CHECKED:
      return function(*args, **kwargs)
    _num_calls[code] += 1
    if code not in _checkers:
      _checkers[code] = _Checker(function, typechecker)
    return _checkers[code](function, *args, **kwargs)

  return call


jaxtyping.jaxtyped = _sampled  # type: ignore[assignment]

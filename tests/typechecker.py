"""Type checks by jaxtyping's import hook: in each test, the first calls of each function are checked.

Checks of every call would take a third of the time of the quick tests. The checker is beartype, which accepts
an int for a float (PEP 484).
"""

import collections
import functools
import inspect
import types
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
_NUM_CHECKED = 3
_num_calls: collections.Counter[types.CodeType] = collections.Counter()
_jaxtyped = jaxtyping.jaxtyped


def begin_test() -> None:
  """Checks the next calls of each function again."""
  _num_calls.clear()


def _sampled(function: Any = None, *, typechecker: Any) -> Any:
  """Replaces `jaxtyping.jaxtyped`, which checks every call."""
  if function is None:
    return functools.partial(_sampled, typechecker=typechecker)
  if not inspect.isfunction(function):
    return _jaxtyped(function, typechecker=typechecker)
  checked, code = None, function.__code__

  @functools.wraps(function)
  def call(*args: Any, **kwargs: Any) -> Any:
    nonlocal checked
    if _num_calls[code] >= _NUM_CHECKED:
      return function(*args, **kwargs)
    _num_calls[code] += 1
    # Functions that are defined in functions are made often and called rarely.
    checked = checked or _jaxtyped(function, typechecker=typechecker)
    return checked(*args, **kwargs)

  return call


jaxtyping.jaxtyped = _sampled  # type: ignore[assignment]

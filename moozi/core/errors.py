"""Errors for the user, and the text of other errors as one line.

The message of a UserError is one line.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any


class UserError(Exception):
  """An error for the user, such as invalid input. The command line prints it and exits with status 2."""

  def __init__(self, message: str) -> None:
    super().__init__(" ".join(message.split()))


class RunError(UserError):
  """A run, or other work that has begun, cannot continue; its files are kept."""


class ProcessLostError(RunError):
  """A process of Ray without which the run cannot continue has ended; the run can be resumed."""


class NotFiniteError(RunError):
  """Losses or gradients were not finite in too many consecutive updates.

  Attributes:
    counts: numbers of the call's skipped updates by kind of fault, as in the event Faulted.
  """

  def __init__(self, message: str, counts: Mapping[str, int] | None = None) -> None:
    super().__init__(message)
    self.counts = dict(counts or {})


class SegmentError(RunError):
  """Too many consecutive segments of a worker were refused."""


class ActionError(RunError, ValueError):
  """A player or a search chose an action that cannot be played; no environment has moved."""


class CodeExitError(Exception):
  """Code of the user raised something other than an Exception: `sys.exit`, or a panic of compiled code."""


class EnvError(RunError):
  """An environment failed and is not replaced, or a player failed; the message has the text of the error."""


# Derived from BaseException, because an environment may catch every Exception.
class EnvHung(BaseException):
  """An environment did not return in time."""


class EnvMakeError(UserError):
  """An environment could not be made or seeded; a guard may replace it."""


class EnvValueError(UserError):
  """An environment returned a non-finite number or a malformed step; a guard may replace the environment."""


@contextlib.contextmanager
def as_exceptions(keeps_exit: bool = False) -> Iterator[None]:
  """Raises CodeExitError for what a user's code raises besides Exceptions.

  KeyboardInterrupt and EnvHung pass. With `keeps_exit`, SystemExit passes too, because a handler of signals
  may raise it.
  """
  kept = (Exception, KeyboardInterrupt, EnvHung, *((SystemExit,) if keeps_exit else ()))
  try:
    yield
  except kept:
    raise
  except BaseException as error:
    raise CodeExitError(f"{type(error).__name__}: {one_line(error)}") from error


def reason_of(error: Exception) -> str:
  """Returns an error's reason as one line; that of an OSError without its number and path."""
  return one_line(getattr(error, "strerror", None) or error)


def one_line(thing: Any, limit: int = 300) -> str:
  """Returns the text of an object as one line without terminal colors, cut after `limit` characters.

  The text of an object that has none is the name of its class. Half of a surrogate pair, which UTF-8 cannot
  encode, is escaped.
  """
  try:
    text = str(thing)
  except KeyboardInterrupt:
    raise
  except BaseException:  # a class of the user's code has no text
    text = ""
  text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())
  text = text.encode("utf-8", "backslashreplace").decode("utf-8") or type(thing).__name__
  return text if len(text) <= limit else f"{text[:limit]}…"

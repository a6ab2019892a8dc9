"""Describes errors of JAX and of the system that no command expects, in one line."""

import errno
import re
import sys
import traceback

from moozi.core import errors
from moozi.core.errors import one_line

# Limits of the system that the start of a run may exceed.
_LIMITS = {
  errno.EMFILE: "raise the number of open files (ulimit -n)",
  errno.ENFILE: "close other programs: the system has no free file entries",
  errno.EAGAIN: "raise the number of processes (ulimit -u)",
  errno.ENOMEM: "close other programs, or use smaller settings",
}
# The text after the last place of a traceback.
_CALLBACK = re.compile(r".*error calling callback: Traceback .*\n  File [^\n]*\n(.*)", re.DOTALL)
# A function that was called before raises a ValueError, whose text begins with XLA's status.
_STATUS = re.compile(r"(INTERNAL|RESOURCE_EXHAUSTED|INVALID_ARGUMENT|UNKNOWN|UNIMPLEMENTED|ABORTED): ")
_SMALLER = "learner.batch_size, workers.num_envs, network.* or replay.capacity"


def describe(error: BaseException) -> str | None:
  """Returns an error of JAX or the system as one line, where possible with what to do next; None for others.

  Args:
    error: an error of this process, or one of another process that Ray has wrapped.
  """
  error = getattr(error, "cause", error)
  text = one_line(error)
  if isinstance(error, MemoryError):
    return f"out of memory ({text}); lower {_SMALLER}"
  if isinstance(error, OSError) and error.errno in _LIMITS:
    return f"{text}; {_LIMITS[error.errno]}"
  if isinstance(error, RuntimeError) and "can't start new thread" in text:
    return f"{text}; {_LIMITS[errno.EAGAIN]}"
  if _is_of_jax(error):
    if "RESOURCE_EXHAUSTED" in text:
      return f"JAX: out of memory ({text}); lower {_SMALLER}, or run on the CPU with JAX_PLATFORMS=cpu"
    # A function of Python that a compiled one calls: XLA has its traceback as text.
    if callback := _CALLBACK.search(str(error)):
      kind, _, message = callback[1].partition(": ")
      # A message of this program is printed without its class.
      return one_line(message if hasattr(errors, kind.rpartition(".")[2]) else callback[1])
    return f"JAX: {text}"
  if isinstance(error, ValueError) and _raised_in(error).endswith("/jax/_src/config.py"):
    return f"JAX refuses its environment variables: {text}; correct or unset the variable"
  return None


def _is_of_jax(error: BaseException) -> bool:
  """Returns whether the error is one of XLA's. Without JAX loaded, there is none."""
  of_jax = sys.modules.get("jax.errors")
  if of_jax is None:
    return False
  has_status = type(error) is ValueError and _STATUS.match(str(error)) is not None
  return has_status or isinstance(error, of_jax.JaxRuntimeError)


def _raised_in(error: BaseException) -> str:
  """Returns the path of the file whose code raised the error."""
  frames = traceback.extract_tb(error.__traceback__)
  return frames[-1].filename if frames else ""

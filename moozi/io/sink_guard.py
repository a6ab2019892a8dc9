"""What a run writes beside its work may fail: it is told, and the run goes on."""

import contextlib
import logging
from collections.abc import Callable, Iterator

_log = logging.getLogger("moozi.driver")


class SinkGuard:
  """Lets OSErrors of sinks pass by: a full disk ends no run.

  Each kind of sink is told of when it begins to fail, and when it works again; failures are counted.

  Args:
    tell: shows a line to the user.
  """

  def __init__(self, tell: Callable[[str], None]) -> None:
    self._tell = tell
    self._failing: set[str] = set()
    self.num_failures = 0

  @contextlib.contextmanager
  def writing(self, what: str) -> Iterator[None]:
    """A sink at work. An OSError inside it is told and goes no further."""
    try:
      yield
    except OSError as error:
      self.num_failures += 1
      if what in self._failing:
        return
      self._failing.add(what)
      reason = error.strerror or str(error)
      _log.exception("%s cannot be written", what)
      self._tell(f"{what} cannot be written: {reason}; the run goes on, and tries again")
    else:
      if what in self._failing:
        self._failing.discard(what)
        _log.info("%s can be written again", what)
        self._tell(f"{what} can be written again")

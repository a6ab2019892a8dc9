"""Learner steps as the driver counts them: versions of the parameters, of which none comes twice."""


class Versions:
  """Where the parameters go back, learner steps go on; the ones in between are skipped, no update is theirs.

  Args:
    start: the learner step that the run begins at.
    updates_per_call: of the parameter server.
    calls_in_flight: at the parameter server, at most.

  Attributes:
    now: the newest learner step that was told.
  """

  def __init__(self, start: int, updates_per_call: int, calls_in_flight: int) -> None:
    self.now = start
    self._updates_per_call = updates_per_call
    self._to_skip = (calls_in_flight + 1) * updates_per_call
    # Where the parameters of now began to be made: at the run's start, or when they went back last.
    self._since = start

  @property
  def free(self) -> int:
    """The first learner step from here on that no worker can have seen."""
    return self.now + self._to_skip

  def add_call(self) -> None:
    """A call of the parameter server was told."""
    self.now += self._updates_per_call

  def go_back(self, found: int) -> int:
    """Goes on from `free`, with parameters of learner step `found`.

    Returns: updates that were told and are lost: those since `found`, less what was lost before.
    """
    lost = max(0, self.now - max(found, self._since))
    self.now = self._since = self.free
    return lost

"""Errors whose message is for the user: one line with the key, the value, and what is allowed."""


class UserError(Exception):
  """Invalid input of the user. The command line prints the message and exits with status 2."""

  def __init__(self, message: str) -> None:
    super().__init__(" ".join(message.split()))


class RunError(UserError):
  """A started run cannot continue; its folder is kept."""


class NotFiniteError(RunError):
  """Losses or gradients were not finite in more consecutive updates than allowed."""


class SegmentError(RunError):
  """More consecutive segments of a worker were rejected than allowed."""


class EnvError(RunError):
  """An environment raised or hung more often than allowed; the message has its last error's type and text."""

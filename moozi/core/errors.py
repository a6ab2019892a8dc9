"""Errors for the user. Each message is one line with the key, the value, and the allowed values."""


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
  """An environment raised or hung too often; the message has the type and text of the last error."""

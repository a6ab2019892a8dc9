"""Errors whose message is meant for the user: one line, with the key, the value, and what is allowed."""


class UserError(Exception):
  """What the user gave cannot be used. The command line prints the message and exits with status 2."""

  def __init__(self, message: str) -> None:
    super().__init__(" ".join(message.split()))


class RunError(UserError):
  """A run that has begun cannot go on. What its folder holds stays."""


class NotFiniteError(RunError):
  """Losses or gradients were not finite so many times in a row that it is no accident."""


class SegmentError(RunError):
  """What a worker sends is refused so many times in a row that it is no accident."""


class EnvError(RunError):
  """An environment raised, or hung, more often than is allowed; the message has its own error's type and
  text.
  """

"""Errors for the user. Each message is one line with the key, the value, and the allowed values."""

import re
from typing import Any


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


def one_line(thing: Any, limit: int = 300) -> str:
  """An error or a spec in one line of at most `limit` characters, without terminal colors."""
  text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(thing)).split())
  text = text or type(thing).__name__
  return text if len(text) <= limit else f"{text[:limit]}…"

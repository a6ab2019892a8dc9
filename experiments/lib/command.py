"""The command lines of experiments: errors of the user, and types of arguments."""

import argparse
import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

from moozi.core.errors import UserError

P = ParamSpec("P")


def command(main: Callable[P, int]) -> Callable[P, int]:
  """Makes a command print a UserError or an OSError as `error: …` on stderr, and return the exit status 2."""

  @functools.wraps(main)
  def run(*args: P.args, **kwargs: P.kwargs) -> int:
    try:
      return main(*args, **kwargs)
    except (UserError, OSError) as error:
      print(f"error: {error}", file=sys.stderr)
      return 2

  return run


def positive_int(text: str) -> int:
  """Returns an argument as an integer. Raises ArgumentTypeError: it is less than 1."""
  if (value := int(text)) < 1:
    raise argparse.ArgumentTypeError(f"{text}: must be at least 1")
  return value

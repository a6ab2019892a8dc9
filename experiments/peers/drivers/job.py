"""The job of a driver, and the line of results that a driver prints.

This module needs only the standard library, because it runs in the environment of every system.
"""

import json
import os
import time
from collections.abc import Callable
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

VARIABLE = "PEERS_JOB"
"""The environment variable with the job: a `work.Work` as JSON, with `simulations` and `steps`."""

MARK = "PEERS_RESULT "
"""The start of the line with the result; everything else that a system prints is ignored."""


def read_job() -> SimpleNamespace:
  return SimpleNamespace(**json.loads(os.environ[VARIABLE]))


def print_result(packages: tuple[str, ...], **figures: Any) -> None:
  """Prints the result: rates per second, parameter counts, and the versions of the packages."""
  versions = {name: version(name) for name in packages}
  print(MARK + json.dumps({"versions": versions, **figures}), flush=True)


def rate_of(call: Callable[[], Any], seconds: float, finish: Callable[[], Any] = lambda: None) -> float:
  """Returns the calls per second, after three calls; `finish` waits until all calls are computed."""
  for _ in range(3):
    call()
  finish()
  count, start = 0, time.perf_counter()
  while time.perf_counter() - start < seconds:
    call()
    count += 1
  finish()
  return count / (time.perf_counter() - start)


def steps_per_second(stamps: list[float], warm: int) -> float:
  """Returns the steps per second from step `warm` to the last one."""
  return (len(stamps) - 1 - warm) / (stamps[-1] - stamps[warm])

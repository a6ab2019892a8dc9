"""A short run of the local loop that the tests of this folder share."""

import pytest

from moozi.io.config import load_config
from moozi.run import build, local
from moozi.run.session import RunInputs
from tests.tiny_run import TINY

# All short periods are in steps: with a period in seconds, a checkpoint could be at any step.
SCHEDULES = (
  "evaluation.period_env_steps=128",
  "checkpoint.milestones_env_steps=160",
  "checkpoint.period_s=1e9",
  "checkpoint.first_s=null",
  "replay.sampling=rank",
)


def start(*overrides, **inputs):
  """A run with SCHEDULES, as a generator."""
  config = load_config(None, [*TINY, *SCHEDULES, *overrides])
  return local.run(RunInputs(config, build.env_spec(config), **inputs))


def local_run(*overrides, **inputs):
  """The events of a run with SCHEDULES."""
  return list(start(*overrides, **inputs))


@pytest.fixture(scope="session")
def events():
  """A whole run of 320 steps."""
  return local_run()

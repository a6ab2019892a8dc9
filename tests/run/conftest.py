"""A short run in one process, shared by the tests of this folder."""

import copy

import pytest

from moozi.io.config import load_config
from moozi.run import build, local
from moozi.run.session import RunInputs
from tests.tiny_run import TINY

# The periods are in steps or very long, so that each run saves its checkpoints at the same steps.
SCHEDULES = (
  "evaluation.period_env_steps=128",
  "checkpoint.milestones_env_steps=160",
  "checkpoint.period_s=1e9",
  "checkpoint.first_s=null",
  "replay.sampling=rank",
)


def start(*overrides, **inputs):
  """Returns the generator of a run with SCHEDULES."""
  config = load_config(None, [*TINY, *SCHEDULES, *overrides])
  # A run takes the blocks of replay out of its state, which other tests may use too.
  return local.run(RunInputs(config, build.env_spec(config), **copy.deepcopy(inputs)))


def local_run(*overrides, **inputs):
  """Returns the events of a run with SCHEDULES."""
  return list(start(*overrides, **inputs))


@pytest.fixture(scope="session")
def events():
  """Returns the events of a run of 320 steps."""
  return local_run()

"""Fixtures of the tests of experiments."""

import functools

import pytest

from experiments.lib import pictures, tables
from experiments.lib import results as experiments_results
from moozi.experiments import results
from moozi.experiments.jobs import Job
from moozi.io.run_directory import read_run_config


@pytest.fixture(scope="module")
def configurations_are_read_once():
  """Most of the time is that of reading configurations, and several tests and tables read the same ones."""
  read = functools.cache(read_run_config)
  with pytest.MonkeyPatch.context() as patch:
    for module in (results, experiments_results, tables, pictures):
      patch.setattr(module, "read_run_config", read)
    patch.setattr(Job, "load_config", functools.cache(Job.load_config))
    yield

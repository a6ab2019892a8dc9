"""Tests what the committed runs on several devices and hosts show."""

import numpy as np
import pytest

from experiments.lib.tables import read_runs
from experiments.several_devices.table import HERE, training_returns


@pytest.mark.parametrize(("several", "one"), [("four_devices", "one_device"), ("two_hosts", "one_host")])
def test_catch_is_learned_as_on_one(several, one):
  """The best return is 1; at each step the means differ by less than the seeds of one variant do."""
  runs = read_runs(HERE)
  assert len(runs[several]) == len(runs[one]) > 1
  assert all(run.summary["test_return_mean"] >= 0.95 for run in (*runs[several], *runs[one]))
  ours, theirs = (np.array([training_returns(run) for run in runs[name]]) for name in (several, one))
  ranges = np.maximum(np.ptp(ours, axis=0), np.ptp(theirs, axis=0))
  assert np.all(np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < ranges)

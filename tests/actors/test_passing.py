"""Tests that the calls around a segment and around a batch are those of a run."""

import contextlib

from moozi.actors import cluster, passing
from moozi.io.config import load_config
from tests.actors import in_process_ray


def test_objects_take_the_ways_of_a_run(monkeypatch):
  """A segment goes from a worker to replay; targets go to the learner, and priorities come back."""
  taken, given = [], []

  class Passer(passing.Passer):
    def take(self, *received):
      taken.append(received)
      return super().take(*received)

    def give(self, *received):
      given.append(received)
      return super().give(*received)

  ray = in_process_ray.Ray()
  monkeypatch.setattr(passing, "Passer", Passer)
  monkeypatch.setattr(cluster, "started", lambda config: contextlib.nullcontext(ray))
  segments, batches = passing.measure_passing(load_config(None), "segment", "targets", "priorities", 0.0)
  assert set(taken) == {("segment", 0, 0), ("priorities",)}
  assert set(given) == {(("segment", 0), 0), ("targets",)}
  assert len(taken) == len(given)
  for cost in (segments, batches):
    assert cost.driver_s >= 0
    assert cost.total_s >= 0

"""Tests that the calls around a segment and around a batch are those of a run."""

import contextlib
import types

import pytest

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
  config, objects = load_config(None), ("segment", "targets", "priorities")
  passed = passing.measure_passing(config, *objects, 0.0)
  assert set(taken) == {("segment", 0, 0), ("priorities",)}
  assert set(given) == {(("segment", 0), 0), ("targets",)}
  assert len(taken) == len(given)
  assert passed.idle_cores >= 0
  for cost in (passed.segment, passed.batch):
    assert 0 <= cost.driver_s <= cost.total_s


@pytest.mark.parametrize(("pause_s", "in_flight"), [(0.0, 4), (0.5, 1)])
def test_idle_processes_are_no_part_of_a_passage(monkeypatch, pause_s, in_flight):
  """Passages with pauses are made one by one; a passage takes 2 s of processors and the pause none."""
  clock, most = {"s": 0.0, "idle_s": 0.0, "work_s": 0.0}, []

  def sleep(seconds):
    clock["s"] += seconds
    clock["idle_s"] += 0.1 * seconds

  def pass_some(calls, begin, count):
    most.append(count)
    clock["work_s"] += 2.0 * count
    clock["s"] += 1.0
    clock["idle_s"] += 0.1
    return count

  times = types.SimpleNamespace(
    monotonic=lambda: clock["s"], sleep=sleep, process_time=lambda: 0.25 * clock["work_s"]
  )
  monkeypatch.setattr(passing, "time", times)
  monkeypatch.setattr(passing, "_total", lambda: clock["work_s"] + clock["idle_s"])
  monkeypatch.setattr(passing, "_pass_some", pass_some)
  monkeypatch.setattr(cluster, "started", lambda config: contextlib.nullcontext(in_process_ray.Ray()))
  passed = passing.measure_passing(load_config(None), 1, 2, 3, 10.0, (pause_s, pause_s))
  assert passed.idle_cores == pytest.approx(0.1)
  for cost in (passed.segment, passed.batch):
    assert cost == pytest.approx((0.5, 2.0))
  assert set(most[2:]) == {in_flight}

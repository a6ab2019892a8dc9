"""A run in which training workers come and go, with a fake `ray` module: no environment step is lost or
counted twice.
"""

import pytest

from moozi.actors import driver, elastic
from moozi.core.actor_report import WORKER
from moozi.io.config import load_config
from moozi.run import build
from moozi.run.events import Acted, Faulted, Finished, StateReady
from moozi.run.session import RunInputs
from tests.actors import in_process_ray
from tests.actors.ray_nodes import RayWithNodes
from tests.tiny_run import TINY

CONFIG = load_config(
  None,
  [
    *(*TINY, "max_env_steps=3200", "timeline.seconds=0", "logging.histogram_period_updates=null"),
    *("checkpoint.period_s=1e9", "checkpoint.first_s=null", "evaluation.period_env_steps=1000000"),
    *("ray.address=auto", "ray.learner.num_cpus=0.5", "ray.replay.num_cpus=0.25"),
    *("evaluation.resources.num_cpus=0.25", "workers.resources.num_cpus=1"),
    *("workers.num_workers=2", "ray.min_workers=1", "ray.max_workers=3"),
    "learner.samples_per_step=0.25",  # learning does not hold back any worker
  ],
)
SEGMENT = 32


@pytest.mark.slow
def test_steps_are_exact_while_workers_come_and_go(monkeypatch):
  monkeypatch.setattr(elastic, "_PERIOD_S", 0.0)
  ray, told, events, numbers = RayWithNodes({"head": {"CPU": 2.0}}), [], [], []
  changes = {
    10: lambda: ray.add_node("a", CPU=1.0),
    30: lambda: ray.add_node("b", CPU=1.0),
    50: lambda: ray.leaving.update(a=0),  # with notice
    70: lambda: ray.end_node("b"),  # without
  }
  with in_process_ray.connected(ray):
    for event in driver.run(RunInputs(CONFIG, build.env_spec(CONFIG), on_phase=told.append)):
      events.append(event)
      if isinstance(event, Acted):
        numbers.append(event.metrics["system/training_workers"])
        changes.pop(len(numbers), lambda: None)()
  assert isinstance(events[-1], Finished)
  (final,) = [event for event in events if isinstance(event, StateReady) and event.is_final]
  faults = [event for event in events if isinstance(event, Faulted)]

  def total(kind):
    return sum(event.counts.get(kind, 0) for event in faults)

  assert not changes
  assert set(numbers) == {1, 2, 3}
  assert numbers[0] == numbers[-1] == 1, numbers
  # One worker failed, with the segments that were in flight; the worker with notice lost none.
  assert total(WORKER) == 1
  assert total("dropped_steps") in (SEGMENT, 2 * SEGMENT)
  assert events[-1].env_steps == final.env_steps == len(numbers) * SEGMENT == CONFIG.max_env_steps
  assert final.env_steps == final.state.replay.head["counter/added"] + total("lost_steps")
  shortage, *rest = [text for text in told if "training_worker" in text or "has room" in text]
  assert shortage.startswith("the cluster has room for 1 of 2 training workers")
  assert [text.split()[1].rstrip(";") for text in rest[:3]] == ["joined", "joined", "was"]

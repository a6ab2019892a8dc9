"""Tests of the driver's view of shards: which are drawn, and that lost steps are counted once, by shard."""

import numpy as np
import pytest

from moozi.actors.ledger import Ledger
from moozi.actors.shard_ledger import ShardLedger, ShardReport
from moozi.core.flat_state import Snapshot
from moozi.io.config import load_config
from moozi.replay.protocol import Supply
from moozi.run.state import RunState

CONFIG = load_config(
  None,
  [
    *("workers.num_workers=5", "workers.num_envs=2", "ray.replay_shards=2", "replay.min_steps_to_learn=100"),
    *("learner.batch_size=50", "learner.updates_per_call=4"),
  ],
)
ALONE = load_config(None, ["learner.batch_size=50", "replay.min_steps_to_learn=100"])


def report(num_steps, mass):
  return ShardReport(can_sample=num_steps > 0, supply=Supply(num_steps, num_steps // 2, mass))


@pytest.fixture
def shards():
  out = ShardLedger(CONFIG, None, 0)
  out.hear(0, report(60, 3.0))
  assert not out.can_sample  # of 100 steps, 60 are stored
  out.hear(1, report(90, 1.0))
  assert out.can_sample
  return out


def test_workers_are_divided(shards):
  assert [shards.of(worker) for worker in range(5)] == [0, 0, 1, 1, 1]
  assert [list(shards.workers(shard)) for shard in (0, 1)] == [[0, 1], [2, 3, 4]]


def test_rows_are_drawn_by_mass(shards):
  plan = shards.plan()
  rows = np.sort(np.concatenate([request.rows for request in plan.values()]))
  np.testing.assert_array_equal(rows, np.arange(200))
  assert {shard: (x.share, x.num_drawable) for shard, x in plan.items()} == {0: (0.75, 75), 1: (0.25, 75)}
  assert 100 < len(plan[0].rows) < 200
  shards.hear(0, report(60, 0.0))
  assert shards.plan().keys() == {1}


def test_shards_to_reanalyze_are_drawn_by_their_steps(shards):
  assert np.mean([shards.choose() for _ in range(400)]) == pytest.approx(90 / 150, abs=0.1)


def test_a_restarted_shard_is_drawn_from_when_it_reports(shards):
  shards.hear(0, report(120, 3.0))
  assert shards.restart(1, num_added=0) == 0
  assert shards.can_sample
  assert shards.plan().keys() == {0}
  assert {shards.choose() for _ in range(20)} == {0}
  shards.restart(0, num_added=0)
  assert not shards.can_sample
  shards.hear(1, report(100, 1.0))
  assert shards.can_sample
  assert shards.plan().keys() == {1}
  assert shards.epochs == [1, 1]


def test_replay_without_shards_answers_itself():
  shards = ShardLedger(ALONE, None, 0)
  assert shards.plan() == {0: None}
  assert shards.choose() == 0
  shards.hear(0, ShardReport(can_sample=True, supply=Supply(0, 0, 0.0)))
  assert shards.can_sample
  shards.restart(0, num_added=0)
  assert not shards.can_sample


def test_lost_steps_are_counted_once_and_by_shard(shards):
  for _ in range(4):
    shards.store(0, num_steps=16, num_lost=0)
    shards.store(1, num_steps=16, num_lost=5)
  assert [shards.steps_ahead(shard) for shard in (0, 1)] == [0, -20]
  assert shards.restart(0, num_added=24) == 40
  assert [shards.steps_ahead(shard) for shard in (0, 1)] == [-40, -20]
  shards.store(0, num_steps=16, num_lost=0)
  assert shards.restart(0, num_added=24) == 16
  assert shards.restart(1, num_added=0) == 44
  assert [shards.steps_ahead(shard) for shard in (0, 1)] == [-56, -64]


def test_a_resumed_run_continues_the_counts():
  """30 of the run's 180 steps were lost before."""
  parts = (100, (0, 0, 0, 49)), (50, (9, 9, 9, 9, 9, -1))
  head = {}
  for shard, (added, newest) in enumerate(parts):
    head |= {f"shard/{shard}/counter/added": added, f"shard/{shard}/storage/newest": np.array(newest)}
  state = RunState(
    training=type("Training", (), {"learner_step": 0}),
    progress={"pacer/env_steps": 180} | Ledger(CONFIG).get_state() | {"pacer/env_steps": 180},
    replay=Snapshot(head=head, generations=np.ones(128, np.int64)),
  )
  ledger = Ledger(CONFIG, state)
  assert sum(ledger.shards.steps_ahead(shard) for shard in (0, 1)) == 150 - 180
  assert ledger.restart_replay(num_added=40, shard=1) == 10
  assert ledger.restart_replay(num_added=0, shard=0) == 100


def test_metrics_are_those_of_the_shards_that_have_reported(shards):
  assert shards.merged_stats() == {}
  names = "steps", "fill", "eligible", "delta_mean", "delta_max"
  shards.stats[1] = dict(zip((f"replay/{name}" for name in names), (10.0, 0.5, 5.0, 1.0, 2.0), strict=True))
  assert shards.merged_stats() == shards.stats[1]
  shards.stats[0] = dict(zip((f"replay/{name}" for name in names), (20.0, 1.0, 15.0, 3.0, 9.0), strict=True))
  # Shard 0 has four lanes, and shard 1 has six.
  expected = {"steps": 30.0, "fill": 0.7, "eligible": 20.0, "delta_mean": 2.5, "delta_max": 9.0}
  assert shards.merged_stats() == pytest.approx({f"replay/{name}": x for name, x in expected.items()})

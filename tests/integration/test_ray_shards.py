"""Tests of runs with Ray whose replay is in shards: one is killed, and the run is resumed with one buffer."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from moozi.io.checkpoints import list_checkpoints
from moozi.io.state_file import read_state
from tests.integration.runs import (
  ENDLESS,
  actors,
  faults,
  finish,
  popen,
  start,
  ticks,
  wait_for,
  wait_for_progress,
  wait_for_start,
)

pytestmark = pytest.mark.slow

# The checkpoint period is long enough for steps that are not yet in a snapshot.
OPTIONS = (
  *("workers.num_workers=2", "ray.replay_shards=2", "reanalyze.ratio=0.3", "reanalyze.batch_size=16"),
  *("workers.resources.num_cpus=0.5", "replay.sampling=proportional", "checkpoint.period_s=15"),
)


def end(process, run: Path, added: tuple[str, ...]) -> dict:
  """Ends a run; asserts that each environment step is counted by one shard, or reported as lost."""
  os.killpg(process.pid, signal.SIGTERM)
  _, err = finish(process, 120)
  assert process.returncode == 0, err
  newest = list_checkpoints(run / "resume")[-1]
  summary = json.loads((run / "summary.json").read_text())
  state = read_state(newest.path, newest.digest)
  names = {name for name in state if name.startswith("replay/") and name.endswith("counter/added")}
  assert names == set(added)
  num_added = sum(int(state[name]) for name in added)
  assert newest.env_steps == summary["env_steps"] == num_added + summary["faults"]["lost_steps"]
  return summary


def searched(run: Path) -> int:
  return sum("reanalyze/ratio" in tick for tick in ticks(run))


def test_a_shard_killed_and_refilled(tmp_path):
  process, run = start(tmp_path, *ENDLESS, *OPTIONS), tmp_path / "one"
  wait_for_start(process, run)
  wait_for_progress(process, run, "steps that no snapshot has")
  assert len(actors(process, "ReplayActor")) == 2
  actors(process, "ReplayActor")[0].kill()
  wait_for(process, lambda: faults(run, "replay_buffer") == 1, "the fault")
  count = searched(run)
  wait_for_progress(process, run, "steps after it")
  wait_for(process, lambda: searched(run) > count, "a search after it")
  summary = end(process, run, ("replay/shard/0/counter/added", "replay/shard/1/counter/added"))
  assert summary["faults"]["replay_buffer"] == 1
  log = (run / "logs" / "driver.log").read_text()
  found = re.findall(r"(replay_buffer_\d) failed and was restarted from .*'lost_steps': (\d+)", log)
  assert len(found) == 1
  # The workers of the other shard lose nothing: its steps are all stored.
  assert int(found[0][1]) <= summary["faults"]["lost_steps"]
  assert int(found[0][1]) > 0
  logs = {path.stem for path in (run / "logs").iterdir()}
  assert {"replay_buffer_0", "replay_buffer_1"} <= logs
  assert "replay_buffer" not in logs

  again = popen("train", "--resume", run, "ray.replay_shards=1")
  env_steps = ticks(run)[-1]["env_steps"]
  wait_for(again, lambda: ticks(run)[-1]["env_steps"] > env_steps, "steps of the resumed run")
  wait_for_progress(again, run, "updates of the resumed run")
  end(again, run, ("replay/counter/added",))

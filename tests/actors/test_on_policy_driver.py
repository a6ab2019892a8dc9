"""Tests of on-policy runs of the driver, with a fake `ray` module: they equal those of one process."""

import numpy as np
import pytest

from moozi.actors import driver
from moozi.baselines.ppo import algorithm as ppo
from moozi.core.errors import RunError
from moozi.io.config import load_config
from moozi.run import build
from moozi.run.events import Acted, Evaluated, Faulted, Finished, StateReady, Updated
from moozi.run.session import RunInputs
from tests.actors import in_process_ray
from tests.baselines.ppo.conftest import TINY
from tests.run_events import assert_equal_trees, final_state

pytestmark = pytest.mark.slow

NIM = "env.name=tests.envs.environments:make_nim"
CASES = {
  "one": (),
  "two": ("workers.num_workers=2",),
  "past": ("workers.num_workers=2", NIM, "opponents.past_share=0.5", "opponents.period_updates=8"),
  "lstm": ("workers.num_workers=2", "ppo.network.lstm_size=5"),
  "normalized": (
    *("workers.num_workers=2", "env.name=gymnasium:CartPole-v1", "ppo.normalize_rewards=true"),
    *("ppo.normalize_observations=true", "evaluation.max_random_starts=0"),
  ),
}


def configure(*overrides):
  return load_config(None, [*TINY, *overrides, "runtime=ray"])


def run_with_ray(*overrides, ray=None, until=None, saves=True, **inputs):
  """Returns (events, the fake cluster) of a run."""
  ray, events, saved = ray or in_process_ray.Ray(), [], []
  config = configure(*overrides)
  with in_process_ray.connected(ray):
    given = {
      "should_stop": lambda: until is not None and bool(events) and events[-1].env_steps >= until,
      "latest": lambda with_replay=False: saved[-1] if saved else None,
    }
    for event in driver.run(RunInputs(config, build.env_spec(config), **given, **inputs), ppo.PARTS):
      events.append(event)
      if saves and isinstance(event, StateReady):
        saved.append(event.state)
  return events, ray


def counts(events):
  """Returns the faults of a run by kind."""
  out = {}
  for event in events:
    for name, count in event.counts.items() if isinstance(event, Faulted) else ():
      out[name] = out.get(name, 0) + count
  return out


@pytest.mark.parametrize("case", CASES)
def test_run_equals_that_of_one_process(case):
  if case == "normalized":
    pytest.importorskip("gymnasium")
  config = configure(*CASES[case])
  local = list(ppo.run(RunInputs(config, build.env_spec(config))))
  events, ray = run_with_ray(*CASES[case])
  assert_equal_trees(final_state(local).training, final_state(events).training)
  timed = ("train/env_share", "train/worker_steps_per_s")
  found = []
  for run in (local, events):
    acted = [e for e in run if isinstance(e, Acted)]
    found.append(
      [
        (e.env_steps, e.episode_returns.tolist(), {k: x for k, x in e.metrics.items() if k not in timed})
        for e in acted
      ]
    )
  assert found[0] == found[1]
  updates = [
    [(e.env_steps, e.learner_steps, e.num_samples) for e in r if isinstance(e, Updated)]
    for r in (local, events)
  ]
  assert updates[0] == updates[1]
  # Every evaluation that the driver makes is the one of the same step in one process.
  tests = [
    {e.result.env_steps: e.result.returns.tolist() for e in r if isinstance(e, Evaluated)}
    for r in (local, events)
  ]
  assert max(tests[1]) == events[-1].env_steps
  assert all(tests[0][at] == returns for at, returns in tests[1].items())
  assert (events[-1].reason, events[-1].sample_reuse) == ("max_env_steps", 2.0)
  names = [name for name, _ in ray.made]
  num_workers = config.workers.num_workers
  assert names == ["OnPolicyServer", *["RolloutWorker"] * num_workers, "TestingWorker"]
  text = "1 training worker" if num_workers == 1 else "2 training workers"
  assert events[0].message == f"PPO, {text}{config.past_selves_text}"
  saved, other = final_state(events).progress, final_state(local).progress
  if case == "past":
    assert len(saved["past_selves/versions"]) > 1
  for name in (name for name in other if name.startswith(("past_selves/", "env_steps"))):
    np.testing.assert_array_equal(saved[name], other[name], name)


def test_lost_segments_are_collected_again():
  ray = in_process_ray.Ray({("RolloutWorker", "run"): {4, 7}})
  events, _ = run_with_ray("workers.num_workers=2", ray=ray)
  assert counts(events) == {"dropped_steps": 64, "training_worker": 2}
  last = events[-1]
  assert (last.env_steps, last.learner_steps) == (320, 20)
  assert [e.env_steps for e in events if isinstance(e, Acted)] == list(range(32, 321, 32))
  made = [args[2:4] for name, args in ray.made if name == "RolloutWorker"]
  assert len(made) == 4
  assert len(set(made)) == 4  # a replacement has seeds of its own
  assert final_state(events).env_steps == 320


def test_failed_server_restarts_from_the_checkpoint():
  ray = in_process_ray.Ray({("OnPolicyServer", "learn"): {4}})
  events, _ = run_with_ray("workers.num_workers=2", ray=ray)
  at = next(i for i, e in enumerate(events) if isinstance(e, Faulted) and "parameter_server" in e.counts)
  saved = [e for e in events[:at] if isinstance(e, StateReady) and not e.is_best][-1]
  done = [e for e in events[:at] if isinstance(e, Updated)][-1].learner_steps
  assert 0 < saved.learner_steps < done == 12
  assert counts(events) == {
    "lost_steps": 64,
    "parameter_server": 1,
    "lost_updates": done - saved.learner_steps,
  }
  assert f"from learner step {saved.learner_steps:,}" in events[at].message
  # The fourth round has no update, and versions do not repeat.
  assert [e.env_steps for e in events if isinstance(e, Updated)] == [64, 128, 192, 320]
  assert [e.learner_steps for e in events if isinstance(e, Updated)] == [4, 8, 12, 17]
  (first,), (training, learner_step) = (args[2:] for name, args in ray.made if name == "OnPolicyServer")
  assert first is None
  assert learner_step == 13
  assert_equal_trees(training.params, saved.state.training.params)
  assert events[-1].env_steps == 320


def test_stopped_run_resumes():
  events, _ = run_with_ray("workers.num_workers=2", until=128)
  assert (events[-1].reason, events[-1].env_steps) == ("stopped", 128)
  state = final_state(events)
  assert (state.env_steps, state.learner_steps) == (128, 8)
  again, _ = run_with_ray("workers.num_workers=2", state=state)
  assert isinstance(again[-1], Finished)
  assert (again[-1].env_steps, again[-1].learner_steps) == (320, 20)
  rates = [e.metrics["update/learning_rate"] for e in again if isinstance(e, Updated)]
  np.testing.assert_allclose(rates, 2.5e-4 * np.array([0.6, 0.4, 0.2]), rtol=1e-5)
  # The state also resumes in one process, with other workers.
  config = load_config(None, [*TINY, "workers.num_workers=4"])
  local = list(ppo.run(RunInputs(config, build.env_spec(config), state=state)))
  assert "all environments are reset" in local[0].message
  assert local[-1].env_steps == 320


def test_run_without_resources_for_a_worker_ends():
  class Small(in_process_ray.Ray):
    def cluster_resources(self):
      return {"CPU": 1.5 if self._counts["RolloutWorker", "run"] > 3 else 1000.0}

  seen = []
  ray = Small({("RolloutWorker", "run"): {4}})
  config = configure("workers.num_workers=2")
  with in_process_ray.connected(ray), pytest.raises(RunError, match=r"resume the run with fewer workers\."):
    seen.extend(driver.run(RunInputs(config, build.env_spec(config)), ppo.PARTS))
  assert isinstance(seen[-1], StateReady)
  assert seen[-1].env_steps == 64

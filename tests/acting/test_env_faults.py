"""Tests of environments that raise: training truncates their episodes at the last valid frame."""

import itertools

import numpy as np
import pytest

from moozi.core.errors import EnvError
from moozi.core.pytree import replace
from moozi.io.config import load_config
from moozi.run import build, local
from moozi.run.events import Faulted, Finished, StateReady, Updated
from moozi.run.session import RunInputs
from tests.acting.parameters import random_parameters
from tests.replay.replay_lanes import assert_valid
from tests.tiny_run import TINY

FAULTY = "env.name=tests.envs.faulty:make_env"
LENGTH = 8


@pytest.fixture(scope="module", params=[6, *(pytest.param(p, marks=pytest.mark.slow) for p in (5, 7))])
def collected(request):
  """Collects five segments from environments that fail in the second episode.

  The parameter places the failure in the middle, at the end or at the start of a segment. Frames 0 … 9 are a
  complete episode; frames 10 … 9 + step are a truncated one.
  """
  config = load_config(None, [*TINY, FAULTY, f"env.kwargs.step={request.param}", "targets.history_length=3"])
  spec = build.env_spec(config)
  collector = build.build_collector(config, spec, worker=0)
  collector.set_parameters(random_parameters(config, spec), 0)
  results = [collector.run(0) for _ in range(5)]
  return config, spec, 9 + request.param, results


def test_failure_truncates_the_episode(collected):
  _, _, cut, results = collected
  steps = {
    name: np.concatenate([getattr(segment, name) for segment, _ in results])
    for name in (
      "is_first",
      "is_last",
      "is_truncated",
      "action",
      "action_probs",
    )
  }
  assert np.flatnonzero(steps["is_truncated"][:, 0])[0] == cut
  assert steps["is_truncated"][cut].all()
  assert steps["is_last"][cut].all()
  assert (steps["action"][cut] == 0).all()
  # The search's policy on the truncated frame is kept: the dummy action has probability 0.
  assert (steps["action_probs"][cut][:, 0] == 0).all()
  assert steps["is_first"][cut + 1].all()
  assert steps["is_last"][9].all()
  assert not steps["is_truncated"][9].any()


def test_replay_accepts_every_segment(collected):
  config, spec, cut, results = collected
  replay = build.build_replay(config, spec)
  for segment, _ in results:
    assert replay.add_or_refuse(segment, 0, 4, 4 * LENGTH).num_lost == 0
  assert_valid(replay)
  assert replay.stats()["replay/cut"] == 0
  assert replay.storage.trajectory(2, cut, cut + 1).is_truncated[0]
  assert np.isfinite(replay.sample(64).n_step_returns).all()


@pytest.mark.slow
def test_faults_of_a_reset_between_segments_are_counted():
  config = load_config(None, [*TINY, FAULTY, "env.kwargs.step=0"])
  spec = build.env_spec(config)
  collector = build.build_collector(config, spec, worker=0)
  collector.set_parameters(random_parameters(config, spec), 0)
  assert "faults/env_errors" not in collector.run(0)[1].metrics
  collector.reset()
  assert collector.run(0)[1].metrics["faults/env_errors"] == config.workers.num_envs


def test_faults_are_counted_and_cut_episodes_have_no_return(collected):
  _, _, _, results = collected
  assert sum(acted.metrics.get("faults/env_errors", 0) for _, acted in results) >= 4
  assert "faults/env_errors" not in results[0][1].metrics
  returns = np.concatenate([acted.episode_returns for _, acted in results])
  assert len(returns) >= 8
  assert (returns == 9).all()


@pytest.mark.slow
def test_a_refused_segment_resets_the_environments(monkeypatch):
  """The second segment has NaN. Without the reset, each lane would drop further steps too."""
  config = load_config(None, [*TINY, "replay.min_steps_to_learn=4072", "max_env_steps=320"])
  build_collector = build.build_collector

  def spoiled_collector(*args):
    collector, calls = build_collector(*args), itertools.count()
    run = collector.run

    def spoiled(env_steps):
      segment, acted = run(env_steps)
      if next(calls) == 1:
        segment = replace(segment, root_value=np.full_like(segment.root_value, np.nan))
      return segment, acted

    collector.run = spoiled
    return collector

  monkeypatch.setattr(build, "build_collector", spoiled_collector)
  events = list(local.run(RunInputs(config, build.env_spec(config))))
  (fault,) = [e for e in events if isinstance(e, Faulted)]
  assert fault.counts == {"refused_segments": 1, "lost_steps": 32}
  head = [e for e in events if isinstance(e, StateReady)][-1].state.replay.head
  assert (head["counter/added"], head["counter/cut"]) == (320 - 32, 4)


@pytest.mark.slow
def test_a_failed_run_leaves_a_state_to_resume_from():
  """Each environment raises in the fifth step of its second episode, which is in the second segment."""
  options = [*TINY, FAULTY, "workers.max_env_faults=1", "evaluation.final_episodes=1", "max_env_steps=320"]
  config, events = load_config(None, options), []
  with pytest.raises(EnvError, match="the environment's own error"):
    events.extend(local.run(RunInputs(config, build.env_spec(config))))
  last = events[-1]
  assert isinstance(last, StateReady)
  assert last.is_final
  assert last.env_steps == last.state.replay.head["counter/added"] == 32
  assert last.state.collectors == ()
  sound = load_config(None, [*options, "env.kwargs.episode=999999"])
  again = list(local.run(RunInputs(sound, build.env_spec(sound), state=last.state)))
  assert again[0].message == "one process; all environments are reset; replay holds 32 steps"
  assert isinstance(again[-1], Finished)
  updated = [e for e in again if isinstance(e, Updated)][-1]
  assert updated.metrics["replay/cut"] == 4

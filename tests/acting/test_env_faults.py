"""Environments that raise in training: their episodes are cut off at the last sound frame, nothing else
changes.
"""

import numpy as np
import pytest

from moozi.core.errors import EnvError
from moozi.core.pytree import replace
from moozi.io.config import load_config
from moozi.run import build, local
from moozi.run.events import Evaluated, Faulted, Finished, StateReady, Updated
from moozi.run.session import RunInputs
from tests.tiny_run import TINY

FAULTY = "env.name=tests.envs.faulty:make_env"
LENGTH = 8


@pytest.fixture(scope="module", params=[5, 6, 7])
def collected(request):
  """Five segments of environments that fail in the second episode; amid, at the end and at the start of a
  segment.

  Frames 0 … 9 are an episode, 10 … 9 + step one that is cut off.
  """
  config = load_config(None, [*TINY, FAULTY, f"env.kwargs.step={request.param}", "targets.history_length=3"])
  spec = build.env_spec(config)
  collector = build.build_collector(config, spec, worker=0)
  collector.set_parameters(*build.build_learner(config, spec).parameters())
  results = [collector.run(0) for _ in range(5)]
  return config, spec, 9 + request.param, results


def test_the_episode_is_truncated_at_its_last_sound_frame(collected):
  _, _, cut, results = collected
  steps = {
    name: np.concatenate([getattr(segment, name) for segment, _ in results])
    for name in (
      "is_first",
      "is_last",
      "is_truncated",
      "action",
      "last_discount",
      "action_probs",
    )
  }
  assert np.flatnonzero(steps["is_truncated"][:, 0])[0] == cut
  assert steps["is_truncated"][cut].all()
  assert steps["is_last"][cut].all()
  assert (steps["action"][cut] == 0).all()
  assert (steps["last_discount"][cut] == 1).all()
  # Its search is kept, as at any truncation: the value is the bootstrap.
  assert (steps["action_probs"][cut][:, 0] == 0).all()
  assert steps["is_first"][cut + 1].all()
  assert steps["is_last"][9].all()
  assert not steps["is_truncated"][9].any()


def test_replay_takes_every_segment(collected):
  config, spec, cut, results = collected
  replay = build.build_replay(config, spec)
  for segment, _ in results:
    assert replay.take(segment, 0, 4, 4 * LENGTH).num_lost == 0
  replay.check_valid()
  assert replay.stats()["replay/cut"] == 0
  assert replay.trajectory(2, cut, cut + 1).is_truncated[0]
  assert np.isfinite(replay.sample(64).n_step_returns).all()


def test_faults_are_counted_and_what_was_cut_off_is_no_return(collected):
  _, _, _, results = collected
  assert sum(acted.metrics.get("faults/env_errors", 0) for _, acted in results) >= 4
  assert "faults/env_errors" not in results[0][1].metrics
  returns = np.concatenate([acted.episode_returns for _, acted in results])
  assert len(returns) >= 8
  assert (returns == 9).all()


def test_an_evaluation_whose_env_fails_is_told_and_the_run_goes_on(monkeypatch):
  config = load_config(None, [*TINY, "evaluation.period_env_steps=100", "max_env_steps=320"])
  evaluators, real = [], build.build_evaluator

  def build_evaluator(*args):
    evaluators.append(real(*args))
    run = evaluators[-1].run
    calls = iter(range(100))

    def failing(*args, **kwargs):
      if next(calls) == 0:
        raise EnvError("env.name=x: ValueError: once")
      return run(*args, **kwargs)

    evaluators[-1].run = failing
    return evaluators[-1]

  monkeypatch.setattr(build, "build_evaluator", build_evaluator)
  events = list(local.run(RunInputs(config, build.env_spec(config))))
  (fault,) = [e for e in events if isinstance(e, Faulted)]
  assert fault.counts == {"env_errors": 1}
  assert fault.message == "testing_worker: no evaluation: env.name=x: ValueError: once"
  assert len([e for e in events if isinstance(e, Evaluated)]) == 3
  assert isinstance(events[-1], Finished)


def test_a_test_env_that_raises_fails_its_evaluation_with_its_own_error():
  # One that fails in its first episode would be refused: what is told of it is that of a sound one.
  spec = build.env_spec(load_config(None, [*TINY, FAULTY]))
  config = load_config(None, [*TINY, FAULTY, "env.kwargs.episode=0", "evaluation.max_random_starts=0"])
  params, net_state, _ = build.build_learner(config, spec).parameters()
  evaluator = build.build_evaluator(config, spec)
  with pytest.raises(EnvError, match=r"ArithmeticError: the environment's own error in step 5$"):
    evaluator.run(params, net_state, num_episodes=2)


def test_after_a_refused_segment_the_worker_begins_new_games_and_nothing_more_is_lost(monkeypatch):
  """Games of ten frames, segments of eight: without, each lane would drop four more."""
  config = load_config(None, [*TINY, "evaluation.final_episodes=1", "max_env_steps=320"])
  real = build.build_collector

  def build_collector(*args):
    collector, calls = real(*args), iter(range(100))
    run = collector.run

    def spoiled(env_steps):
      segment, acted = run(env_steps)
      if next(calls) == 1:
        segment = replace(segment, root_value=np.full_like(segment.root_value, np.nan))
      return segment, acted

    collector.run = spoiled
    return collector

  monkeypatch.setattr(build, "build_collector", build_collector)
  events = list(local.run(RunInputs(config, build.env_spec(config))))
  (fault,) = [e for e in events if isinstance(e, Faulted)]
  assert fault.counts == {"refused_segments": 1, "lost_steps": 32}
  last = [e for e in events if isinstance(e, Updated)][-1]
  assert last.metrics["replay/added"] == 320 - 32
  assert last.metrics["replay/cut"] == 4


@pytest.mark.slow
def test_an_env_that_cannot_go_on_leaves_a_last_state_to_go_on_from():
  """The second game of each environment fails in its fifth step, the fifteenth of all: amid the second
  segment.
  """
  options = [*TINY, FAULTY, "workers.max_env_faults=1", "evaluation.final_episodes=1", "max_env_steps=320"]
  config, told = load_config(None, options), []
  with pytest.raises(EnvError, match="the environment's own error"):
    told.extend(local.run(RunInputs(config, build.env_spec(config))))
  last = told[-1]
  assert isinstance(last, StateReady)
  assert last.is_final
  assert last.env_steps == last.state.replay.num_added == 32
  assert last.state.collectors == ()
  sound = load_config(None, [*options, "env.kwargs.episode=999999"])
  again = list(local.run(RunInputs(sound, build.env_spec(sound), state=last.state)))
  assert again[0].message == "one process; all environments are reset; replay holds 32 steps"
  assert isinstance(again[-1], Finished)
  updated = [e for e in again if isinstance(e, Updated)][-1]
  assert updated.metrics["replay/cut"] == 4, "the games that were under way are cut off"

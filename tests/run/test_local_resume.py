"""A run that is taken up goes on to the bit: N and N more steps give what 2N give."""

import jax
import numpy as np
import pytest

from moozi.io.config import load_config
from moozi.run import build, local
from moozi.run.events import Acted, Evaluated, Started, StateReady, Updated
from moozi.run.session import RunInputs
from tests.tiny_run import TINY

PERIODS = ("evaluation.period_env_steps=64", "checkpoint.milestones_env_steps=160", "checkpoint.period_s=1e9")


def whole_run(*overrides, **kwargs):
  config = load_config(None, [*TINY, *PERIODS, "replay.sampling=rank", *overrides])
  return list(local.run(RunInputs(config, build.env_spec(config), **kwargs)))


def told(events):
  """What happened, in plain values, but for times and for replay's own memory."""
  out = []
  for e in events:
    here = (type(e).__name__, e.env_steps, e.learner_steps)
    if isinstance(e, Acted):
      here += (e.episode_returns.tolist(), e.episode_lengths.tolist(), sorted(e.metrics))
    if isinstance(e, Updated):
      here += (
        e.metrics["loss/total"],
        e.metrics["replay/renewed"],
        e.metrics["replay/added"],
        e.sample_reuse,
      )
    if isinstance(e, Evaluated):
      here += (e.result.returns.tolist(),)
    out.append(here)
  return out


def assert_same_tree(a, b):
  for x, y in zip(jax.tree_util.tree_leaves(a), jax.tree_util.tree_leaves(b), strict=True):
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
  "env",
  [
    "env.name=tiny:catch",
    pytest.param("env.name=minatar:breakout", marks=pytest.mark.slow),
    pytest.param("env.name=gymnasium:CartPole-v1", marks=pytest.mark.slow),
    pytest.param("env.name=gymnax:CartPole-v1", marks=pytest.mark.slow),
  ],
)
def test_a_run_taken_up_goes_on_to_the_bit(env):
  events = whole_run(env)
  at = next(i for i, e in enumerate(events) if isinstance(e, StateReady) and not e.is_best)
  state = events[at].state
  assert 0 < events[at].env_steps < events[-1].env_steps
  again = whole_run(env, state=state)
  assert isinstance(again[0], Started)
  assert again[0].message == "one process; replay holds 160 steps"
  assert told(again[1:]) == told(events[at + 1 :])
  ends = [next(e.state for e in x if isinstance(e, StateReady) and e.is_final) for x in (events, again)]
  assert_same_tree(ends[0].training, ends[1].training)
  for name, value in ends[0].collectors[0].items():
    np.testing.assert_array_equal(value, ends[1].collectors[0][name], err_msg=name)


@pytest.mark.slow
def test_a_run_that_was_stopped_in_an_evaluation_makes_it_first():
  config = load_config(None, [*TINY, *PERIODS])
  stop = [False]
  events = []
  for e in local.run(RunInputs(config, build.env_spec(config), should_stop=lambda: stop[0])):
    events.append(e)
    stop[0] = stop[0] or (isinstance(e, Updated) and e.env_steps >= 128)
  assert not any(isinstance(e, Evaluated) and e.env_steps >= 128 for e in events)
  last = next(e for e in events if isinstance(e, StateReady) and e.is_final)
  again = whole_run(state=last.state)
  assert isinstance(again[1], Evaluated)
  assert again[1].env_steps == last.env_steps


def test_a_run_that_was_stopped_in_its_last_evaluation_makes_it_then():
  config = load_config(None, [*TINY, *PERIODS])
  stop, events = [False], []
  for e in local.run(RunInputs(config, build.env_spec(config), should_stop=lambda: stop[0])):
    events.append(e)
    stop[0] = stop[0] or (isinstance(e, StateReady) and e.is_final)
  assert events[-1].env_steps == config.max_env_steps
  assert events[-1].reason == "stopped"
  last = next(e for e in events if isinstance(e, StateReady) and e.is_final)
  again = list(local.run(RunInputs(config, build.env_spec(config), state=last.state)))
  assert not any(isinstance(e, (Acted, Updated)) for e in again)
  assert [e.is_final for e in again if isinstance(e, Evaluated)] == [True]
  assert again[-1].reason == "max_env_steps"
  assert again[-1].learner_steps == events[-1].learner_steps


@pytest.mark.slow
def test_other_workers_begin_new_games_and_keep_the_steps():
  events = whole_run()
  state = next(e.state for e in events if isinstance(e, StateReady) and not e.is_best)
  again = whole_run("workers.num_workers=2", "workers.num_envs=3", state=state)
  assert "all environments are reset" in again[0].message
  assert "replay holds" in again[0].message
  assert again[-1].env_steps >= events[-1].env_steps
  end = next(e.state for e in again if isinstance(e, StateReady) and e.is_final)
  assert end.progress["envs_began_at"] == 160
  # What is taken up once more has those environments' seeds.
  third = whole_run("workers.num_workers=2", "workers.num_envs=3", "max_env_steps=400", state=end)
  assert "reset" not in third[0].message


def test_the_best_evaluation_leaves_its_state():
  events = whole_run()
  best = [e for e in events if isinstance(e, StateReady) and e.is_best]
  assert best
  means = [e.result.returns.mean() for e in events if isinstance(e, Evaluated)]
  last = next(i for i, e in enumerate(events) if e is best[-1])
  before = [e.result.returns.mean() for e in events[:last] if isinstance(e, Evaluated)]
  assert before[-1] == max(means)

"""Tests of Q-learning's runs: events, exact resume, checkpoints, and refused settings."""

import dataclasses
import json
import re

import jax
import numpy as np
import pytest
import safetensors.numpy

import moozi
from moozi.baselines.q_learning import algorithm as q_algorithm
from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.io.config import load_config
from moozi.run import build
from moozi.run.events import Acted, Evaluated, Event, Finished, Started, Updated
from moozi.run.session import RunInputs
from tests.baselines.q_learning.conftest import TABLE, TINY
from tests.envs.environments import NIM_SPEC
from tests.run_events import assert_equal_trees, final_state, first_checkpoint


def configure(*overrides: str) -> Config:
  return load_config(None, [*TINY, *overrides])


def run(*overrides: str, **kwargs) -> list[Event]:
  config = configure(*overrides)
  return list(q_algorithm.run(RunInputs(config, build.env_spec(config), **kwargs)))


@pytest.fixture(scope="module")
def events() -> list[Event]:
  return run(TABLE)


def test_events(events):
  kinds = [type(e) for e in events if not getattr(e, "is_best", False)]
  assert kinds[0] is Started
  assert events[0].message == "Q-learning, one process"
  assert kinds.count(Acted) == 10
  last = events[-1]
  assert isinstance(last, Finished)
  assert (last.env_steps, last.reason) == (320, "max_env_steps")
  assert last.sample_reuse == 4.0
  assert last.learner_steps == 64  # 256 steps after learning starts, 4 samples per step, 16 per update
  (final,) = (e for e in events if isinstance(e, Evaluated) and e.is_final)
  assert len(final.result.returns) == 5
  table = final_state(events).training.params
  assert table.visits.sum() > 0
  assert np.isfinite(table.values).all()


def test_metrics(events):
  found = next(e.metrics for e in reversed(events) if isinstance(e, Updated))
  assert 0 < found["q_learning/table_fill"] < 1
  assert found["q_learning/table_lost_share"] == 0
  assert 0 < found["q_learning/live_share"] < 1
  assert np.isfinite(list(found.values())).all()


def resumed_equals(whole: list[Event], *options: str) -> None:
  at = first_checkpoint(whole)
  assert 0 < whole[at].env_steps < whole[-1].env_steps
  again = run(*options, state=whole[at].state)
  assert_equal_trees(final_state(whole).training, final_state(again).training)
  rest = [[(type(e), e.env_steps, e.learner_steps) for e in x] for x in (whole[at + 1 :], again[1:])]
  assert rest[0] == rest[1]


@pytest.mark.slow
def test_table_resumes_to_the_bit(events):
  resumed_equals(events, TABLE)


@pytest.mark.slow
def test_network_resumes_to_the_bit():
  options = ("q_learning.dueling=true", "learner.target_update_period=5", "replay.sampling=proportional")
  whole = run(*options)
  resumed_equals(whole, *options)
  training = final_state(whole).training
  pairs = zip(*(jax.tree_util.tree_leaves(x) for x in (training.params, training.target_params)), strict=True)
  assert any((a != b).any() for a, b in pairs)


def test_epsilon_is_annealed():
  options = configure(
    "q_learning.epsilon_start=0.9", "q_learning.epsilon_end=0.1", "q_learning.epsilon_decay_steps=200"
  ).q_learning
  found = [q_algorithm.epsilon_at(options, steps) for steps in (0, 50, 200, 9999)]
  np.testing.assert_allclose(found, [0.9, 0.7, 0.1, 0.1])


def test_unsupported_environments_are_refused():
  hidden = dataclasses.replace(NIM_SPEC, is_perfect_information=False)
  with pytest.raises(UserError, match="algorithm=q_learning: self-play needs a game without hidden"):
    q_algorithm.check_env(configure(), hidden)
  with pytest.raises(UserError, match=r"q_learning\.network\.kind=nature_conv: .* 36×36.* 10×5"):
    q_algorithm.check_env(configure("q_learning.network.kind=nature_conv"), build.env_spec(configure()))
  table = configure("q_learning.kind=table", "q_learning.network.kind=nature_conv")
  q_algorithm.check_env(table, build.env_spec(table))  # a table has no network
  config = configure()
  with pytest.raises(UserError, match=r"--simulations=9: this run's algorithm is q_learning, which does not"):
    q_algorithm.build_evaluator(config, build.env_spec(config), 9)


@pytest.mark.parametrize(
  ("override", "error_text"),
  [
    ("q_learning.step_size=0", "q_learning.step_size=0: must be greater than 0"),
    ("q_learning.epsilon=1", "q_learning.epsilon"),
    (
      "evaluation.network=target",
      "evaluation.network=target: q_learning.kind=table has no target network; must be online",
    ),
    ("workers.network=target", "workers.network=target: q_learning.kind=table"),
    ("targets.unroll_steps=0", "targets.unroll_steps=0: must be at least 1 with algorithm=q_learning"),
    ("learner.symmetries=true", "learner.symmetries=true needs algorithm="),
    ("reanalyze.ratio=0.5", "reanalyze.ratio=0.5 needs algorithm=muzero"),
  ],
)
def test_invalid_settings_are_refused(override, error_text):
  with pytest.raises(UserError, match=re.escape(error_text)):
    configure(TABLE, override)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  """Returns the folder of a table's run, trained through the API."""
  folder = tmp_path_factory.mktemp("q")
  moozi.train(configure(TABLE, f"run.dir={folder}", "run.name=table", "logging.progress=none"))
  return folder / "table"


@pytest.mark.slow
def test_checkpoint_has_plain_arrays(trained):
  """A checkpoint is a file of safetensors, which cannot hold code."""
  arrays = safetensors.numpy.load_file(trained / "checkpoints" / "step_000000320.safetensors")
  assert {name: arrays[f"params/{name}"].shape for name in ("keys", "values", "visits")} == {
    "keys": (512, 2),
    "values": (512, 4),
    "visits": (512, 4),
  }


@pytest.mark.slow
def test_agent_plays_and_evaluates(trained, refused):
  agent = moozi.load(trained)
  env = agent.make_env()
  assert agent.act(env.reset()) in range(3)
  summary = json.loads((trained / "summary.json").read_text())
  assert agent.evaluate(5).summary()["return_mean"] == summary["test_return_mean"]
  assert "has no search" in refused("inspect", trained)
  text = refused("train", "--resume", trained, "q_learning.capacity=64", "max_env_steps=640")
  assert "q_learning.capacity=64: a run cannot change it (it began with 512)" in text

"""Tests of what `moozi train` does after a run: it compares the result with random play."""

import types

import pytest

from moozi.commands.train import _compare_with_random_play
from moozi.io.config import load_config
from moozi.io.run_directory import RANDOM_RETURN, SUMMARY_KEYS, RunDirectory

SUMMARY = dict.fromkeys(SUMMARY_KEYS, 0) | {"test_episodes": 20, "reason": "max_env_steps"}


@pytest.mark.parametrize(
  ("has_summary", "override", "is_recorded"),
  [
    (True, "seed=0", True),
    (False, "seed=0", False),  # the last checkpoint could not be saved
    (True, "env.name=tests.envs.environments:missing", False),  # the environment no longer starts
  ],
)
def test_return_of_random_play_is_recorded(tmp_path, capsys, has_summary, override, is_recorded):
  run = RunDirectory.create(load_config("tiny/catch", [f"run.dir={tmp_path}", "run.name=one"]))
  if has_summary:
    run.write_summary(SUMMARY)
  config = load_config("tiny/catch", [override])
  training = types.SimpleNamespace(config=config, run=types.SimpleNamespace(directory=run))
  _compare_with_random_play(training, SUMMARY)
  assert "random play:   " in capsys.readouterr().out
  assert run.summary_path.exists() == has_summary
  if has_summary:
    found = run.read_summary()
    assert (RANDOM_RETURN in found) == is_recorded
    assert -1 <= found.get(RANDOM_RETURN, 0) < 0.5
    assert {key: found[key] for key in SUMMARY} == SUMMARY


@pytest.mark.parametrize(
  ("kind", "message"),
  [
    ("unbounded", "Box(-inf, inf, (2,), float32), without finite bounds; bound them by a wrapper"),
    ("half", "Box(0.0, inf, (2,), float32), without finite bounds"),
    ("nan", "without finite bounds"),
    ("empty", "from 1 to 1; low must be below high"),
    ("text", "must be Discrete, Box, MultiDiscrete, MultiBinary, or a Dict or Tuple of these"),
    ("many", "13,841,287,201 joint actions of 12 dimensions, must be at most 2,147,483,646"),
  ],
)
def test_action_spaces_that_cannot_be_used(refused, tmp_path, kind, message):
  pytest.importorskip("gymnasium")
  name = "env.name=tests.envs.suites.user_fakes:make_actions"
  arguments = (name, f"env.kwargs.kind={kind}", "network.kind=mlp", f"run.dir={tmp_path}")
  line = refused("train", "tiny/catch", *arguments)
  assert message in line
  assert "its actions are " in line
  assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("override", ["algorithm=q_learning", "planners.train.algorithm=stochastic"])
def test_more_joint_actions_than_an_algorithm_supports(refused, tmp_path, override):
  arguments = ("env.name=tiny:point", override, f"run.dir={tmp_path}")
  line = refused("train", "tiny/catch", *arguments, *(["chance.codes=4"] if "stochastic" in override else []))
  assert "has 49 joint actions; up to 32 are supported" in line
  assert "env.kwargs.action_bins" in line
  assert list(tmp_path.iterdir()) == []

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

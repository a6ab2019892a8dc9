"""Tests of the measured times of a search and of an update, outside a run."""

import json

import pytest

from moozi.io.machine import describe_machine
from moozi.training import speed


@pytest.mark.slow
@pytest.mark.parametrize("part", ["act", "learn"])
@pytest.mark.parametrize("config", ["tiny/catch", "ppo/minatar/breakout"])
def test_prints_seconds_and_the_device(capsys, monkeypatch, part, config):
  monkeypatch.setenv("NPROC", "1")
  small = ["learner.batch_size=16", "workers.num_envs=4", "ppo.num_envs=4", "ppo.segment_length=16"]
  speed.main([part, config, *small, "ppo.num_minibatches=2", "--seconds", "0.01"])
  found = json.loads(capsys.readouterr().out)
  assert 0 < found["seconds"] < 1
  assert (found["threads"], found["device"]) == (1, describe_machine()["cpu"])


def test_calls_are_timed_after_a_warm_up():
  calls = []
  mean, fastest = speed.call_seconds(lambda: calls.append(1), min_s=0.0, min_calls=3)
  assert (len(calls), 0 <= fastest <= mean) == (5, True)


@pytest.mark.slow
def test_refuses_to_measure_the_search_of_alphazero():
  with pytest.raises(SystemExit, match="error: act: cannot be measured for algorithm=alphazero"):
    speed.main(["act", "alphazero/boards/tic_tac_toe"])

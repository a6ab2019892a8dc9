"""Tests of the command that prints an agent's tactics."""

import json

import pytest

from experiments.boards import tactics

pytest.importorskip("pyspiel")


def test_bad_arguments(capsys):
  with pytest.raises(SystemExit):
    tactics.main(["runs/one", "--positions", "0"])
  assert "--positions=0: must be at least 1" in capsys.readouterr().err
  assert tactics.main(["runs/nowhere"]) == 2
  assert capsys.readouterr().err.startswith("error: runs/nowhere")


@pytest.mark.slow
def test_zoo_agent(capsys):
  assert tactics.main(["zoo:boards/tic_tac_toe", "--positions", "20", "--json"]) == 0
  found = json.loads(capsys.readouterr().out)
  assert found["positions"] == {"win": 20, "block": 20}
  for kind in ("win", "block"):
    assert found["random"][kind] < 0.5 < found["search"][kind]
  assert found["reward_other"] < 0.2 < 0.8 < found["reward_win"]

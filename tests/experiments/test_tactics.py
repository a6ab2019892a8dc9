"""Tests of the command that prints an agent's tactics."""

import json

import pytest

from experiments.boards import tactics
from tests.commands.conftest import make_run

pytest.importorskip("pyspiel")


@pytest.mark.slow
def test_zoo_agent(capsys):
  assert tactics.main(["zoo:boards/tic_tac_toe", "--positions", "20", "--json"]) == 0
  found = json.loads(capsys.readouterr().out)
  assert found["positions"] == {"win": 20, "block": 20}
  for kind in ("win", "block"):
    assert found["random"][kind] < 0.5 < found["search"][kind]
  assert found["reward_other"] < 0.2 < 0.8 < found["reward_win"]


@pytest.mark.slow
def test_search_with_true_rules_finds_what_its_untrained_network_does_not(tmp_path, capsys):
  # Below a win: the values of an untrained network are larger otherwise.
  values = [f"scalar_transform.{key}" for key in ("support_min=-1", "support_max=1", "epsilon=0.6")]
  game = ("env.name=open_spiel:tic_tac_toe", *values)
  run = make_run(tmp_path, "az", "algorithm=alphazero", "targets.unroll_steps=0", *game)
  assert tactics.main([str(run), "--positions", "10", "--simulations", "100", "--json"]) == 0
  found = json.loads(capsys.readouterr().out)
  assert found["prior"]["win"] < found["search"]["win"] == 1
  assert found["prior"]["block"] < found["search"]["block"]
  assert "reward_win" not in found

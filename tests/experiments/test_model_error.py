"""Tests of the command that prints how far a model is from the rules."""

import json

import pytest

from experiments.boards import model_error
from tests.commands.conftest import make_run

pytest.importorskip("pyspiel")


@pytest.mark.parametrize(
  ("overrides", "message"),
  [
    (("env.name=open_spiel:kuhn_poker",), "must have neither chance nor hidden information"),
    (
      ("env.name=open_spiel:tic_tac_toe", "algorithm=alphazero", "targets.unroll_steps=0"),
      "algorithm=alphazero has no model",
    ),
  ],
)
def test_runs_without_a_model_of_a_board_game_are_refused(tmp_path, capsys, overrides, message):
  assert model_error.main([str(make_run(tmp_path, "run", *overrides))]) == 2
  assert message in capsys.readouterr().err


@pytest.mark.slow
def test_zoo_agent(capsys):
  assert model_error.main(["zoo:boards/tic_tac_toe", "--positions", "40"]) == 0
  found = json.loads(capsys.readouterr().out)
  assert found["positions"] == 40
  assert found["q_error"] < found["q_spread"]
  assert 0.5 < found["q_correlation"] <= 1

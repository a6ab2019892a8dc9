"""Tests of the arguments of the commands for runs of board games."""

import pytest

from experiments.boards import exploitability, labels, mcts_bots, model_error, perfect_play, tactics
from tests.commands.conftest import make_run

pytest.importorskip("pyspiel")
SELF_PLAY = (model_error, perfect_play, tactics)


@pytest.mark.parametrize("command", [model_error, tactics])
def test_bad_number_of_positions(capsys, command):
  with pytest.raises(SystemExit):
    command.main(["runs/one", "--positions", "0"])
  assert "argument --positions: 0: must be at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("command", [*SELF_PLAY, exploitability])
def test_unknown_run(capsys, command):
  assert command.main(["runs/nowhere"]) == 2
  assert capsys.readouterr().err.startswith("error: runs/nowhere")


def test_bots_in_cpp_and_python_play_both_seats():
  found = mcts_bots.compare("tic_tac_toe", 300, 8)
  assert found["games"] == 8
  assert found["score_of_cpp"] == 0.5  # both solve the game, and each opening is played with both seatings
  assert found["seconds_per_move"].keys() == {"cpp", "python"}


def test_labels_in_a_file(tmp_path, capsys):
  (tmp_path / "file").touch()
  assert labels.main(["--folder", str(tmp_path / "file")]) == 2
  assert capsys.readouterr().err == f"error: [Errno 17] File exists: '{tmp_path / 'file'}'\n"


@pytest.mark.parametrize(
  ("override", "commands", "message"),
  [
    ("env.name=tiny:catch", SELF_PLAY, "must be one of open_spiel, learned in self-play of two players"),
    ("env.name=tiny:catch", (exploitability,), "must be one of open_spiel\n"),
    pytest.param(
      *("env.kwargs={seat: random}", SELF_PLAY, "learned in self-play of two players"),
      marks=pytest.mark.slow,
    ),
  ],
)
def test_runs_of_other_games_are_refused(tmp_path, capsys, override, commands, message):
  run = make_run(tmp_path, "run", "env.name=open_spiel:tic_tac_toe", override)
  for command in commands:
    assert command.main([str(run)]) == 2
    assert message in capsys.readouterr().err

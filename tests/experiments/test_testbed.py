"""Tests of experiments/testbed."""

import json

import pytest

from experiments.lib.results import read_result, sweep_of
from experiments.testbed import arena, table
from experiments.testbed.table import HERE
from tests.experiments.sample_results import make_result


def test_the_readme_compares_the_speeds_in_go():
  results = [read_result(HERE / "results" / f"{name}_go_5x5_seed0") for name in ("alphazero", "muzero")]
  assert len({result.processor for result in results}) == 1
  alphazero, muzero = (result.job["env_steps"] / result.job["wall_s"] for result in results)
  assert alphazero / muzero == pytest.approx(0.5, abs=0.1)
  assert "AlphaZero makes half as many steps per second" in (HERE / "README.md").read_text("utf-8")


def test_players_are_complete_runs(tmp_path, monkeypatch):
  """A run that was stopped before its limit has a summary too."""
  complete = {"ppo_uno_seed0": True, "muzero_uno_seed0": False, "ppo_uno_4_seed0": True}
  monkeypatch.setattr(arena, "progress_of", lambda job, folder: (1000, complete.get(job.name, False)))
  assert arena.players("uno", tmp_path) == {"ppo": tmp_path / "ppo_uno_seed0"}
  assert arena.players("uno_4", tmp_path) == {"ppo": tmp_path / "ppo_uno_4_seed0"}


def test_arena_of_stored_games_keeps_the_other_tasks(tmp_path, monkeypatch):
  row = {"rating": 3.2, "low": -0.3, "high": 9.8, "score": 0.5, "score_low": 0.25, "score_high": 0.75}
  old = [
    {"task": "uno", "name": "old", "minutes": 30, **row},
    {"task": "simplest", "name": "a", "minutes": 1, **row},
  ]
  (tmp_path / "table.json").write_text(json.dumps(old))
  new = {"task": "uno", "name": "new", "minutes": 29.6, **row}
  monkeypatch.setattr(arena, "play", lambda task, games, runs, out: [new])
  assert arena.main(["uno"], tmp_path, tmp_path) == 0
  assert json.loads((tmp_path / "table.json").read_text()) == [old[1], new]
  assert table.table(tmp_path).splitlines()[2:] == [
    "| simplest | a | 3 [0, 10] | 0.500 [0.250, 0.750] | – | 1.0 |",
    "| uno | new | 3 [0, 10] | 0.500 [0.250, 0.750] | – | 29.6 |",
  ]


def test_exploitability_of_another_game_is_left_out(tmp_path):
  rows = [
    {"run": f"runs/ppo_{game}_seed0", "played": 1.0, "uniform": 2.0} for game in ("kuhn_poker", "leduc_poker")
  ]
  path = tmp_path / "exploitability" / "kuhn_poker.jsonl"
  path.parent.mkdir()
  rows[1]["played"] = 9.0
  path.write_text("".join(json.dumps(row) + "\n" for row in rows))
  assert table.read_exploitability("kuhn_poker", tmp_path) == {"ppo": 1.0, "random": 2.0}


def test_boards_table_of_finished_jobs(tmp_path):
  evaluations = [
    {"opponent": "mcts:1000", "score": 0.9025, "wins": 180, "draws": 1, "losses": 19},
    {"opponent": "mcts:100", "score": 1.0, "wins": 200, "draws": 0, "losses": 0},
  ]
  folder = make_result(tmp_path, "alphazero_go_5x5_seed0", evaluations, config="alphazero/boards/go_5x5")
  (folder / "job.json").write_text('{"wall_s": 7199.0, "env_steps": 1500160}')
  assert table.boards_table(tmp_path).splitlines()[2:] == [
    "| go_5x5 | alphazero | 0 | 120 | 1,500,160 | 1.000 (200-0-0) | 0.902 (180-1-19) |"
  ]


def test_a_result_without_its_run_keeps_its_row(tmp_path, monkeypatch, capsys):
  """The arena is refused, unless the zoo has the agent."""
  monkeypatch.setattr(arena, "progress_of", lambda job, runs: (1000, job.name == "ppo_uno_seed0"))
  (tmp_path / "q_learning_uno_seed0").mkdir()
  (tmp_path / "q_learning_uno_seed0/summary.json").write_text('{"env_steps": 5}')
  assert arena.main(["uno"], tmp_path, tmp_path) == 2
  assert "uno: q_learning_uno_seed0: has a result but no complete run in" in capsys.readouterr().err
  for name, agent in (
    ("muzero_go_5x5_seed0", "zoo:boards/go_5x5"),
    ("q_learning_tic_tac_toe_seed0", None),
    ("muzero_othello_seed0", None),
  ):
    job = sweep_of(HERE).job(name)
    assert arena.from_zoo(job, table.HERE / "results" / name) == agent


def test_errors(tmp_path, capsys):
  assert arena.main(["chess"], tmp_path, tmp_path) == 2
  assert "chess: unknown task; choose from" in capsys.readouterr().err
  assert arena.main(["uno"], tmp_path, tmp_path) == 2
  assert "uno: no complete run" in capsys.readouterr().err

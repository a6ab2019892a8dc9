"""Tests of experiments/testbed."""

import json

from experiments.lib.results import read_result
from experiments.testbed import boards, table
from experiments.testbed.sweep import APPROACHES, BOARDS, HERE, TASKS, jobs
from tests.experiments.sample_results import make_result


def test_each_approach_learns_its_tasks_in_the_time_of_the_task(tmp_path):
  configs = {job.name: job.load_config(tmp_path) for job in jobs()}
  for task, seconds in TASKS.items():
    trained = [name for name in APPROACHES if f"{name}_{task}_seed0" in configs]
    if task in BOARDS:
      assert trained == ["muzero", "alphazero"]
    elif task == "tic_tac_toe":
      assert trained == list(APPROACHES)
    else:  # hidden cards or pieces, or in Simplest only one seat that learns: AlphaZero cannot search
      assert trained == ["muzero", "ppo", "q_learning"]
    for name in trained:
      config = configs[f"{name}_{task}_seed0"]
      limit = 2700 if (name, task) == ("alphazero", "connect_four") else seconds
      assert (config.algorithm, config.max_wall_s) == (name, limit)


def test_the_readme_has_the_rates_and_processors_of_go():
  results = [read_result(HERE / "results" / f"{name}_go_5x5_seed0") for name in ("alphazero", "muzero")]
  (processor,) = {result.processor for result in results}
  rates = [result.job["env_steps"] / result.job["wall_s"] for result in results]
  text = " ".join((HERE / "README.md").read_text("utf-8").split())
  assert (
    "Both ran on an {}, AlphaZero at {:.0f} steps/s and MuZero at {:.0f}:".format(processor, *rates) in text
  )


def test_players_are_complete_runs(tmp_path, monkeypatch):
  """A run that was stopped before its limit has a summary too."""
  complete = {"ppo_uno_seed0": True, "muzero_uno_seed0": False, "ppo_uno_4_seed0": True}
  monkeypatch.setattr(table, "progress_of", lambda job, folder: (1000, complete.get(job.name, False)))
  assert table.players("uno", tmp_path) == {"ppo": tmp_path / "ppo_uno_seed0"}
  assert table.players("uno_4", tmp_path) == {"ppo": tmp_path / "ppo_uno_4_seed0"}


def test_arena_of_stored_games_keeps_the_other_tasks(tmp_path, monkeypatch, capsys):
  row = {"rating": 3.2, "low": -0.3, "high": 9.8, "score": 0.5, "score_low": 0.25, "score_high": 0.75}
  old = [
    {"task": "uno", "name": "old", "minutes": 30, **row},
    {"task": "simplest", "name": "a", "minutes": 1, **row},
  ]
  (tmp_path / "table.json").write_text(json.dumps(old))
  new = {"task": "uno", "name": "new", "minutes": 29.6, **row}
  monkeypatch.setattr(table, "play", lambda task, games, runs, out: [new])
  assert table.main(["uno"], tmp_path, tmp_path) == 0
  assert json.loads((tmp_path / "table.json").read_text()) == [old[1], new]
  assert capsys.readouterr().out.splitlines()[2:] == [
    "| simplest | a | 3 [0, 10] | 0.500 [0.250, 0.750] | – | 1.0 |",
    "| uno | new | 3 [0, 10] | 0.500 [0.250, 0.750] | – | 29.6 |",
  ]


def test_readme_gets_the_stored_table_without_an_arena(tmp_path, monkeypatch, capsys):
  readme = tmp_path / "README.md"
  marks = [f"<!-- {name}: begin -->\nold\n<!-- {name}: end -->\n" for name in ("testbed", "walk")]
  readme.write_text(f"before\n{''.join(marks)}after\n")
  monkeypatch.setattr(table, "README", readme)
  monkeypatch.setattr(table, "play", None)
  assert table.main(["--readme"], tmp_path, table.HERE / "results") == 0
  text = readme.read_text()
  assert (text[:7], text[-7:]) == ("before\n", "\nafter\n")
  assert "| kuhn_poker | random |" in text
  assert "old" not in text
  assert table.main(["uno", "--readme"], tmp_path, tmp_path) == 2
  assert "--readme: writes the figures of all tasks" in capsys.readouterr().err


def test_readme_has_the_tables_of_the_committed_results():
  readme, results = table.README.read_text(), table.HERE / "results"
  rows = table.table(json.loads((results / "table.json").read_text()), results)
  assert "| kuhn_poker | random | 0 [0, 0] | 0.368 [0.343, 0.392] | 0.46 | – |" in rows.splitlines()
  for name, text in (
    ("testbed", rows),
    ("walk", table.walk_table(results)),
    ("boards", boards.table(results)),
  ):
    assert f"<!-- {name}: begin -->\n\n{text}\n\n<!-- {name}: end -->" in readme


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
  assert boards.table(tmp_path).splitlines()[2:] == [
    "| go_5x5 | alphazero | 0 | 120 | 1,500,160 | 1.000 (200-0-0) | 0.902 (180-1-19) |"
  ]


def test_a_result_without_its_run_keeps_its_row(tmp_path, monkeypatch, capsys):
  """The arena is refused, unless the zoo has the agent."""
  monkeypatch.setattr(table, "progress_of", lambda job, runs: (1000, job.name == "ppo_uno_seed0"))
  (tmp_path / "q_learning_uno_seed0").mkdir()
  (tmp_path / "q_learning_uno_seed0/summary.json").write_text('{"env_steps": 5}')
  assert table.main(["uno"], tmp_path, tmp_path) == 2
  assert "uno: q_learning_uno_seed0: has a result but no complete run in" in capsys.readouterr().err
  for name, agent in (
    ("muzero_go_5x5_seed0", "zoo:boards/go_5x5"),
    ("q_learning_tic_tac_toe_seed0", None),
    ("muzero_othello_seed0", None),
  ):
    (job,) = [job for job in jobs() if job.name == name]
    assert table.from_zoo(job, table.HERE / "results" / name) == agent


def test_errors(tmp_path, capsys):
  assert table.main(["chess"], tmp_path, tmp_path) == 2
  assert "chess: unknown task; choose from" in capsys.readouterr().err
  assert table.main(["uno"], tmp_path, tmp_path) == 2
  assert "uno: no complete run" in capsys.readouterr().err

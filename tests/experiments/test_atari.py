"""Tests of the jobs and the table of experiments/atari."""

import json

import numpy as np
import pytest

import moozi
from experiments.atari import simulations
from experiments.atari.table import COLUMNS, HERE, table_of
from moozi.core.errors import EnvError
from moozi.experiments.results import write_json
from tests.experiments.sample_results import evaluation, make_result


def test_table(tmp_path):
  assert table_of(tmp_path).splitlines()[0] == f"| {' | '.join(COLUMNS)} |"
  figures = evaluation(1000, [18.0, 20.0]) | {"human_normalized": 1.13}
  path = make_result(tmp_path, "muzero_pong_seed0", [figures], game="atari:Pong")
  write_json(path / "job.json", {"env_steps": 1000, "wall_s": 120.0})
  assert len(table_of(tmp_path).splitlines()) == 3
  assert "| muzero_pong_seed0 | 19.0 | 16 | 18, 20 | 1.13 | 1,000 | 2 | " in table_of(tmp_path)


# --- more search in evaluation


class FakeAgent:
  """Returns as many points per game as the search has simulations."""

  checkpoint = type("Info", (), {"name": "step_000001000"})

  def __init__(self):
    self.played = []

  def evaluate(self, episodes, simulations):
    self.played.append(simulations)
    if simulations == 64:
      raise EnvError("the environment failed")
    returns = np.asarray([simulations - 1.0, simulations + 1.0] * (episodes // 2))
    return type("Result", (), {"returns": returns, "summary": lambda _: {"distinct_episodes": 5}})()


def test_simulations_keep_what_was_played(tmp_path, monkeypatch):
  agent = FakeAgent()
  monkeypatch.setattr(moozi, "load", lambda run: agent)
  with pytest.raises(EnvError):
    simulations.play("runs/boxing", (32, 64), tmp_path)
  assert simulations.play("runs/boxing", (8, 32), tmp_path) == tmp_path / "boxing.json"
  assert agent.played == [32, 64, 8]
  assert list(json.loads((tmp_path / "boxing.json").read_text())) == ["8", "32"]
  # Five distinct games: a standard deviation of 1, not corrected for its bias, is a standard error of 0.5.
  row = simulations.table_of(tmp_path).splitlines()[-1]
  assert row == "| boxing | 8.0 ± 0.5 |  | 32.0 ± 0.5 |  | 5 |"


def test_the_first_column_has_the_games_of_the_results():
  for name in ("boxing", "breakout"):
    played = json.loads((simulations.RESULTS / f"muzero_{name}_seed1.json").read_text())
    (evaluated,) = json.loads((HERE / "results" / f"muzero_{name}_seed1" / "evaluations.json").read_text())
    assert played["8"]["returns"] == evaluated["returns"]

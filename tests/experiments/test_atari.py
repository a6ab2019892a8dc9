"""Tests of the jobs and the table of experiments/atari."""

import json

import numpy as np
import pytest

import moozi
from experiments.atari import simulations
from experiments.atari.sweep import HERE, HOURS, OWN, STEPS_PER_HOUR, jobs
from experiments.atari.table import COLUMNS, table_of
from experiments.lib.results import write_json
from moozi.core.errors import EnvError
from moozi.experiments.jobs import differences
from moozi.io.config import load_config
from tests.experiments.sample_results import evaluation, make_result


def test_games_have_one_configuration(tmp_path):
  """Each game has a job without settings of its own. They differ only in Boxing's held actions."""
  plain = [job for job in jobs() if job.name not in OWN]
  first = {game: next(job for job in plain if job.name.startswith(f"muzero_{game}")) for game in HOURS}
  configs = {game: job.load_config(tmp_path) for game, job in first.items()}
  for game, config in configs.items():
    assert config.max_wall_s == 3600 * HOURS[game]
    changed = differences(configs["pong"], config)
    own = {key for key in changed if not key.startswith(("env.", "max_wall_s", "max_env_steps", "seed"))}
    assert own == ({"workers.num_holding_envs"} if game == "boxing" else set()), game


def test_learning_rates_end_with_the_time(tmp_path):
  """The last step, at which the learning rate has its final value, is one that fits into the time."""
  summary = json.loads((HERE / "results" / "muzero_pong_seed0" / "summary.json").read_text())
  for found in jobs():
    config = found.load_config(tmp_path)
    if config.algorithm == "ppo":
      assert config.ppo.anneal_learning_rate
      agent = found.name.rsplit("_", 2)[0]
      assert config.max_env_steps == STEPS_PER_HOUR[agent] * config.max_wall_s / 3600
      continue
    assert config.learner.learning_rate.decay_steps == "budget"
    # The rate of the first hardly fell, as the README says; the second ran on a slower machine.
    if found.name in ("muzero_pong_seed0", "muzero_boxing_seed1"):
      continue
    ratio = config.max_env_steps / (config.max_wall_s * summary["env_steps_per_s"])
    assert config.max_env_steps == 100_000 or 0.9 < ratio < 1.2, found.name


def test_configurations_have_the_budget_of_their_time():
  for game in HOURS:
    config = load_config(f"atari/{game}")
    assert 440 < config.max_env_steps / config.max_wall_s < 500


def test_every_job_loads(tmp_path):
  found = {job.name: job.load_config(tmp_path) for job in jobs()}
  assert found["muzero_pong_seed1"].seed == 1
  assert found["muzero_100k_pong_seed0"].max_env_steps == 100_000
  assert found["muzero_100k_pong_seed0"].max_wall_s == 3 * 3600
  assert found["ppo_pong_seed0"].env.name == "atari:Pong"
  assert found["ppo_pong_seed0"].algorithm == "ppo"
  assert "frame_size" not in found["ppo_pong_seed0"].env.arguments  # 84 by default
  assert found["ppo_42_pong_seed0"].env.arguments["frame_size"] == 42


def test_the_table_is_in_the_readme():
  assert table_of(HERE / "results") in (HERE / "README.md").read_text("utf-8")


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


def test_the_table_of_simulations_is_in_the_readme():
  assert simulations.table_of() in (HERE / "README.md").read_text("utf-8")
  for name in ("boxing", "breakout"):
    played = json.loads((simulations.RESULTS / f"muzero_{name}_seed1.json").read_text())
    (evaluated,) = json.loads((HERE / "results" / f"muzero_{name}_seed1" / "evaluations.json").read_text())
    assert played["8"]["returns"] == evaluated["returns"]

"""Tests of the jobs and the table of experiments/atari."""

import json

from experiments.atari.sweep import HERE, HOURS, OWN, STEPS_PER_HOUR, jobs
from experiments.atari.table import COLUMNS, table_of
from experiments.lib.results import write_json
from moozi.experiments.jobs import differences
from moozi.io.config import load_config
from tests.experiments.sample_results import evaluation, make_result


def test_games_have_one_configuration(tmp_path):
  """Each game has a job without settings of its own."""
  plain = [job for job in jobs() if job.name not in OWN]
  first = {game: next(job for job in plain if job.name.startswith(f"muzero_{game}")) for game in HOURS}
  configs = {game: job.load_config(tmp_path) for game, job in first.items()}
  for game, config in configs.items():
    assert config.max_wall_s == 3600 * HOURS[game]
    changed = differences(configs["pong"], config)
    assert {key.split(".")[0] for key in changed} <= {"env", "max_wall_s", "max_env_steps", "seed"}, game


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
    if found.name == "muzero_pong_seed0":  # the README says that its rate hardly fell
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
  assert "| muzero_pong_seed0 | 19.0 | 18, 20 | 1.13 | 1,000 | 2 | " in table_of(tmp_path)

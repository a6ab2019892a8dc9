"""Tests of the tuning of PPO: its variants and the chosen configuration."""

import pytest

from experiments.ppo_tuning import ablation
from moozi.io.config import config_to_dict, load_config

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")


def test_variants_are_valid_and_differ(tmp_path):
  tuning = ablation.ABLATION
  jobs = [tuning.job(variant, 0, tuning.steps) for variant in tuning.variants]
  settings = [job.load_config(tmp_path).ppo for job in jobs]
  assert len({setting.model_dump_json() for setting in settings}) == len(jobs)


@pytest.mark.parametrize("game", GAMES)
def test_games_differ_only_in_the_environment(game):
  """Environments are those of config/ppo/minatar; all other settings are the same for every game."""
  tuned = config_to_dict(load_config(f"ppo/minatar_tuned/{game}"))
  common = config_to_dict(load_config("ppo/minatar_tuned/breakout"))
  assert tuned.pop("env") == config_to_dict(load_config(f"ppo/minatar/{game}"))["env"]
  common.pop("env")
  assert tuned == common


def test_the_configuration_is_the_chosen_variant(tmp_path):
  job = ablation.ABLATION.job(ablation.CHOSEN, 0, ablation.ABLATION.steps)
  assert load_config("ppo/minatar_tuned/breakout").ppo == job.load_config(tmp_path).ppo


def test_the_table_is_in_the_readme():
  table = ablation.ABLATION.table(ablation.ABLATION.steps)
  assert len(table.splitlines()) > 2
  assert table in (ablation.HERE / "README.md").read_text("utf-8")


def test_late_returns():
  curve = [
    {"env_steps": 1.0},
    *({"test/at_env_steps": n // 2, "test/return_mean": n // 2} for n in range(12)),
  ]
  assert ablation.late(curve) == 3.0
  assert ablation.late(curve[:7]) != ablation.late(curve[:7])

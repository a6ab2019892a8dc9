"""Tests that the variants of an experiment differ in what its question asks, and of single columns."""

import json
import re

import numpy as np
import pytest

from experiments.chance import random_play
from experiments.corridor.table import best_share
from experiments.first_look import table as first_look
from experiments.lib.results import ROOT, sweep_of
from experiments.lib.tables import EXPERIMENTS, ablation_table
from experiments.ppo_check.table import table_of
from experiments.ppo_tuning.table import late
from experiments.value_lag.table import growth, last_value
from moozi.core.errors import UserError
from moozi.experiments.jobs import differences
from moozi.io.config import config_to_dict, load_config
from tests.experiments.sample_results import evaluation, make_result

NODES = ["chance.codes", "planners.test.algorithm", "planners.train.algorithm"]
MINATAR = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")


def configs_of(experiment: str, folder, seed: int = 0):
  jobs = sweep_of(EXPERIMENTS / experiment).jobs
  return {job.variant: job.load_config(folder) for job in jobs if job.seed == seed}


@pytest.mark.parametrize(
  ("first", "second", "changed"),
  [
    ("2048_stochastic_gumbel", "2048_gumbel_8", NODES),
    ("2048_stochastic", "2048_puct", NODES),
    ("breakout_stochastic_gumbel", "breakout_gumbel", NODES),
  ],
)
def test_a_control_of_chance_nodes_differs_in_them_only(tmp_path, first, second, changed):
  configs = configs_of("chance", tmp_path)
  assert differences(configs[first], configs[second]) == changed


def test_past_selves_differ_in_opponents_only(tmp_path):
  plain, past = configs_of("past_selves", tmp_path, seed=1).values()
  assert differences(plain, past) == ["opponents.past_share", "opponents.period_updates"]


def test_the_tuned_ppo_is_the_chosen_variant_for_every_game(tmp_path):
  chosen = configs_of("ppo_tuning", tmp_path)["layer_norm_huber"]
  tuned = load_config("ppo/minatar_tuned/breakout")
  assert not [key for key in differences(tuned, chosen) if key.startswith("ppo.")]
  common = config_to_dict(load_config("ppo/minatar_tuned/breakout")) | {"env": None}
  for game in MINATAR:
    tuned = config_to_dict(load_config(f"ppo/minatar_tuned/{game}"))
    assert tuned["env"] == config_to_dict(load_config(f"ppo/minatar/{game}"))["env"]
    assert tuned | {"env": None} == common


def test_the_age_of_acting_parameters_is_the_only_difference(tmp_path):
  configs = configs_of("openai_five", tmp_path)
  changed = differences(configs["age_0"], configs["age_2048"])
  assert changed == ["learner.target_update_period", "workers.network"]


@pytest.mark.parametrize(
  ("variant", "changed"),
  [
    ("age_0", ["evaluation.network", "learner.target_decay"]),
    ("newest_262144", ["replay.window_share"]),
    ("reuse_8", ["learner.samples_per_step"]),
    ("batch_1024", ["learner.batch_size", "learner.updates_per_call", "ray.publish_period_updates"]),
    ("short_horizon", ["targets.discount"]),
    ("growing_horizon", ["targets.discount", "targets.discount_schedule"]),
  ],
)
def test_a_variant_of_openai_five_differs_in_its_question_only(tmp_path, variant, changed):
  configs = configs_of("openai_five", tmp_path)
  assert differences(configs["default"], configs[variant]) == changed


def test_atari_games_have_one_configuration(tmp_path):
  """They differ only in Boxing's held actions."""
  pong = configs_of("atari", tmp_path, seed=1)["muzero_pong"]
  for game in ("freeway", "boxing"):
    changed = differences(pong, configs_of("atari", tmp_path)[f"muzero_{game}"])
    own = {key for key in changed if not key.startswith(("env.", "max_wall_s", "seed"))}
    assert own == ({"workers.num_holding_envs"} if game == "boxing" else set()), game


def test_the_offline_run_has_the_trajectories_of_the_online_run(tmp_path):
  online, offline = configs_of("offline", tmp_path).values()
  assert online.trajectories.save
  assert offline.offline.trajectories == "runs/offline/online"
  half = online.max_env_steps // 2
  assert offline.offline.max_env_steps == online.checkpoint.milestones_env_steps == half


def test_first_look_is_make_train(tmp_path):
  """README has the range of its returns and steps, and of its returns at fewer steps."""
  plain = load_config("minatar/breakout_short")
  config = configs_of("first_look", tmp_path)["breakout_short"]
  assert set(differences(plain, config)) <= {"evaluation.gif"}
  rows = [[cell.strip() for cell in line.split("|")] for line in first_look.table().splitlines()[2:]]
  printed = [float(row[2]) for row in rows]
  assert min(printed) >= 12
  steps = [round(int(row[4].replace(",", "")), -4) for row in rows]
  text = " ".join((ROOT / "README.md").read_text("utf-8").split())
  span = f"{min(printed):.1f} to {max(printed):.1f} (five seeds"
  assert f"made {min(steps):,} to {max(steps):,} steps, and its agent returned {span}" in text
  curve = (ROOT / "config" / "minatar" / "breakout_short.yaml").read_text("utf-8").partition("# Curve: ")[2]
  (earlier,) = re.findall(r"(\d+ to \d+) after 400,000", curve)
  assert f"after 400,000 steps the five agents returned {earlier}." in text


def test_the_curve_of_make_train_is_in_its_configuration():
  at = {}
  for path in (EXPERIMENTS / "first_look" / "results").glob("*/metrics.jsonl"):
    for tick in map(json.loads, path.read_text().splitlines()):
      steps = tick.get("test/at_env_steps", 0)
      if steps and steps % 100_000 < 10_000:  # an evaluation in a run's course, not that at its end
        at.setdefault(round(steps, -5), []).append(tick["test/return_mean"])
  config = (ROOT / "config" / "minatar" / "breakout_short.yaml").read_text("utf-8")
  (header,) = [line for line in config.splitlines() if line.startswith("# Curve: ")]
  found = re.findall(r"([0-9]+) to ([0-9]+) after ([0-9,]+)", header)
  assert len(found) == 4
  for low, high, count in found:
    returns = at[int(count.replace(",", ""))]
    assert (low, high, len(returns)) == (f"{min(returns):.0f}", f"{max(returns):.0f}", 5)


@pytest.mark.slow
def test_random_play_of_2048_is_measured_and_stated(tmp_path):
  assert random_play.main(["--episodes", "2", "--results", str(tmp_path)]) == 0
  folder = EXPERIMENTS / "chance"
  small = json.loads((tmp_path / "random_play.json").read_text())
  committed = json.loads((folder / "results" / "random_play.json").read_text())
  assert (small["num_episodes"], committed["num_episodes"]) == (2, random_play.NUM_EPISODES)
  assert small["evaluation"] == committed["evaluation"]
  mean = committed["mean"]
  assert f"| random play | {mean:,.0f} |" in (ROOT / "README.md").read_text("utf-8")
  page = (folder / "README.md").read_text("utf-8")
  assert f"(results/random_play.json), 1,000 games here | | {mean:,.0f} |" in page
  config = (ROOT / "config" / "pgx" / "2048.yaml").read_text("utf-8")
  assert f"Random play returns about {round(mean, -2):,.0f}." in config


def test_growth_of_values_starts_at_the_full_buffer():
  rising = [{"env_steps": s, "search/root_value": 1.0 + s / 50_000} for s in range(300_000, 700_000, 100_000)]
  before = {"env_steps": 200_000, "search/root_value": -1000.0}
  without_search = {"env_steps": 650_000}
  curve = [before, *rising, without_search]
  assert growth(curve) == pytest.approx(5.0)
  assert last_value(curve) == pytest.approx(13.0)
  assert np.isnan([growth([before, rising[0]]), last_value([before])]).all()


def test_shares_and_means_of_the_last_evaluations():
  curve = [{"test/return_mean": mean} for mean in (1.0, 0.0, *(1.0,) * 7, 0.1, 0.0)] + [{"loss/total": 1.0}]
  assert best_share(curve) == 70.0
  curve = [{"test/at_env_steps": n // 2, "test/return_mean": n // 2} for n in range(12)]
  assert late(curve) == 3.0
  assert np.isnan(late(curve[:6]))


def test_an_ablation_refuses_a_run_that_was_not_evaluated_at_its_end(tmp_path, monkeypatch):
  folder = tmp_path / "small"
  folder.mkdir()
  (tmp_path / "config.yaml").write_text("env: {name: 'tiny:catch'}\n")
  (folder / "small.yaml").write_text(
    "config: ../config.yaml\nseeds: [0]\nresults: results\nvariants: {one: {}}\n"
    "overrides: {max_env_steps: 1000}\n"
  )
  assert ablation_table(folder).count("\n") == 1
  config = folder.parent / "config.yaml"
  own = make_result(folder / "results", "one-seed0", [], overrides=["max_env_steps=1000"], config=config)
  job = {"env_steps": 1000, "wall_s": 1.0, "evaluations": []}
  (own / "job.json").write_text(json.dumps(job))
  summary = {"env_steps": 1000, "test_at_env_steps": 1000, "test_episodes": 100, "test_return_mean": 3.0}
  summary |= {"test_return_std": 2.0, "wall_s": 10.0, "learner_steps": 4000}
  (own / "metrics.jsonl").write_text('{"env_steps": 1000, "train/return_mean": 2.5}\n')
  (own / "summary.json").write_text(json.dumps(summary))
  assert "| one | 1,000 | 2.5 (mean 2.5) | 3.0 ± 0.4 (mean 3.0) | 10 |" in ablation_table(folder)
  assert "| one | 1,000 | 4,000 | 2.5 (mean" in ablation_table(folder, counts={"updates": "learner_steps"})
  for wrong, message in (
    ({"test_at_env_steps": 900}, "not evaluated at its end"),
    ({"env_steps": 700, "test_at_env_steps": 700}, "made with 700 steps instead of 1,000"),
  ):
    (own / "summary.json").write_text(json.dumps(summary | wrong))
    with pytest.raises(UserError, match=message):
      ablation_table(folder)


def test_the_table_of_learning_rates_has_a_line_for_each_rate_and_bias(tmp_path):
  from experiments.lib.results import read_results

  common = ("algorithm=ppo", "evaluation.noise_free=false")
  for name, rate, bias, seed, level in (
    ("a", "1e-3", 0, 0, 20.0),
    ("b", "1e-3", 0, 1, 30.0),
    ("d", "5e-4", 0.05, 0, 17.0),
  ):
    own = (*common, f"ppo.learning_rate={rate}", f"ppo.initial_bias={bias}", f"seed={seed}")
    figures = [evaluation(steps, [level + steps / 2_000_000] * 164) for steps in (1_000_000, 10_000_000)]
    make_result(tmp_path, name, figures[: 1 + (name != "d")], overrides=own)
  assert table_of(read_results(tmp_path)).splitlines()[2:] == [
    "| learning rate 0.001, 2 seeds | **25.5** [20.5, 30.5] | **30.0** [25.0, 35.0] |",
    "| gymnax's, learning rate 0.001 | 20.3 | 43.4 |",
    "| learning rate 0.0005, biases from 0 to 0.05 at first, 1 seed | **17.5** [17.5, 17.5] | – |",
    "| gymnax's, learning rate 0.0005 | 16.6 | 22.9 |",
  ]
  with pytest.raises(UserError, match="no results"):
    table_of([])

"""Tests of what a card says: conditions, commands and results."""

import shlex

import pytest

from moozi.io.card import _conditions, _evaluation, _train_command, make_card
from moozi.io.config import load_config
from moozi.io.run_directory import RANDOM_RETURN, SUMMARY_KEYS, RunDirectory
from moozi.vis.card_page import _result, card_markdown, result_text


def test_training_command_is_valid_shell():
  texts = {"runtime": ("ray", "local"), "run.name": ("a", "null"), "env.name": ("b", "@x")}
  differences = texts | {"ppo.network.hidden_sizes": ([128], [64, 64]), "seed": (0, 3)}
  command = _train_command("ppo/minatar/breakout", differences)
  assert shlex.split(command) == [
    *("moozi", "train", "ppo/minatar/breakout"),
    *("runtime=local", 'run.name="null"', 'env.name="@x"'),
    *("ppo.network.hidden_sizes=[64, 64]", "seed=3"),
  ]


@pytest.mark.parametrize(
  ("override", "limit"),
  [
    ("max_episode_steps=500", "max_episode_steps=500; in evaluation at most 300 steps"),
    ("max_episode_steps=null", "the environment's own; in evaluation at most 300 steps"),
  ],
)
def test_a_card_states_both_limits_of_an_episode(override, limit):
  pytest.importorskip("minatar")
  config = load_config("minatar/asterix", [f"env.kwargs.{override}", "evaluation.max_episode_steps=300"])
  assert _conditions(config, num_players=1)["episode limit"] == limit


@pytest.mark.parametrize(
  ("episodes", "low", "text"), [(1, None, "12.00"), (4, pytest.approx(12 - 1.96), "12.00 [10.04, 13.96]")]
)
def test_one_episode_has_no_interval(episodes, low, text):
  summary = {"return_mean": 12.0, "return_std": 2.0, "episodes": episodes, "at_env_steps": 64}
  summary = {f"test_{key}": value for key, value in summary.items()}
  evaluation = _evaluation(load_config("tiny/catch"), summary, [], num_players=1)
  assert evaluation.low == low
  assert result_text(evaluation) == text
  assert ("interval" in _result(evaluation).split(". ")[0]) == (episodes > 1)


@pytest.mark.parametrize(
  ("fraction", "random_return", "texts"),
  [
    (
      1.0,
      None,
      ["| environment steps | none acted; learned from trajectories on disk, for the updates of 640 steps"],
    ),
    (0.5, 0.0, ["| environment steps | 640 |", "Random play returns 0.00 in as many episodes."]),
    (None, -0.6, ["| environment steps | 640 |", "Random play returns -0.60 in as many episodes."]),
    (None, "x", ["| environment steps | 640 |"]),
  ],
)
def test_card_states_acted_steps_and_random_play(tmp_path, fraction, random_return, texts):
  offline = [] if fraction is None else [f"offline.trajectories={tmp_path}", f"offline.fraction={fraction}"]
  config = load_config("tiny/catch", [f"run.dir={tmp_path}", "run.name=one", *offline])
  run = RunDirectory.create(config)
  tested = {"test_return_mean": 1.0, "test_return_std": 0.0, "test_episodes": 4, "test_at_env_steps": 640}
  summary = dict.fromkeys(SUMMARY_KEYS, 1.0) | tested | {"env_steps": 640, "reason": "max_env_steps"}
  run.write_summary(summary if random_return is None else summary | {RANDOM_RETURN: random_return})
  page = card_markdown(make_card(run), has_curve=False, has_gif=False)
  assert [text for text in texts if text not in page] == []
  assert ("Random play" in page) == isinstance(random_return, float)

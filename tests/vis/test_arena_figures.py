"""Tests of the pictures of an arena."""

import json

import pytest

from moozi.vis.arena_figures import arena_figure
from tests.experiments.sample_results import ROOT

ARENA = json.loads((ROOT / "experiments/testbed/results/arena/uno_4/arena.json").read_text())


def rows_of(figure):
  return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def test_cross_table_names_players_by_number():
  figure = arena_figure(ARENA)
  assert rows_of(figure)[0] == "muzero_uno_4_seed0@step_002000384  1"
  assert rows_of(figure)[-1] == "random  4"
  assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["1", "2", "3", "4"]
  assert "random is 0" in figure.axes[1].get_title()


@pytest.mark.parametrize(
  ("names", "labels"),
  [
    (["run:a/one@last", "prior:a/one@last"], ["one@last", "prior:one@last"]),
    (["run:a/one@last", "run:b/one@last"], ["run:a/one@last", "run:b/one@last"]),
    (["zoo:boards/go_5x5", "mcts:100"], ["zoo:go_5x5", "mcts:100"]),
  ],
)
def test_folders_are_left_out_if_names_still_differ(names, labels):
  data = json.loads(json.dumps(ARENA))
  for player, name in zip(data["players"], names, strict=False):
    player["name"] = name
  assert rows_of(arena_figure(data))[:2] == [f"{label}  {i}" for i, label in enumerate(labels, 1)]

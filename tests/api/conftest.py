"""Fixtures: runs with untrained networks and a history of several frames."""

from pathlib import Path

import pytest

from tests.commands.conftest import PPO, make_run

OVERRIDES = {
  "catch": ("targets.history_length=3",),
  "board": ("env.name=open_spiel:tic_tac_toe", "targets.history_length=2"),
  "chance": (
    *("env.name=tiny:coin", "targets.history_length=2", "chance.codes=4"),
    *("planners.train.algorithm=stochastic", "planners.test.algorithm=stochastic"),
  ),
  "alphazero": (
    *("algorithm=alphazero", "env.name=open_spiel:tic_tac_toe"),
    *("targets.history_length=2", "targets.unroll_steps=0"),
  ),
  "ppo": (*PPO, "ppo.history_length=2"),
  "lstm": (*PPO, "env.name=open_spiel:tic_tac_toe", "ppo.network.lstm_size=8"),
  "point": ("env.name=tiny:point", "targets.history_length=2", "planners.test.num_sampled_actions=6"),
  "dials": (*PPO, "ppo.history_length=2", "env.name=tiny:dials"),
  # The search is noisy and actions are sampled, so decisions depend on the random key.
  "noisy": (
    *("targets.history_length=3", "evaluation.noise_free=false", "planners.test.algorithm=puct"),
    *("planners.test.temperature=1.0", "planners.test.dirichlet_fraction=0.3"),
  ),
}


class Runs(dict[str, Path]):
  """Maps names to run directories, which are created on first use."""

  def __init__(self, folder: Path) -> None:
    super().__init__()
    self._folder = folder

  def __missing__(self, name: str) -> Path:
    self[name] = make_run(self._folder, name, *OVERRIDES[name])
    return self[name]


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Runs:
  return Runs(tmp_path_factory.mktemp("api_runs"))

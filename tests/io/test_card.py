"""Tests of the commands on a card."""

import shlex

from moozi.io.card import _train_command


def test_training_command_is_valid_shell():
  texts = {"runtime": ("ray", "local"), "run.name": ("a", "null"), "env.name": ("b", "@x")}
  differences = texts | {"ppo.network.hidden_sizes": ([128], [64, 64]), "seed": (0, 3)}
  command = _train_command("ppo/minatar/breakout", differences)
  assert shlex.split(command) == [
    *("moozi", "train", "ppo/minatar/breakout"),
    *("runtime=local", 'run.name="null"', 'env.name="@x"'),
    *("ppo.network.hidden_sizes=[64, 64]", "seed=3"),
  ]

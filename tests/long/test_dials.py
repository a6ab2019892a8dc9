"""Trains where each action has dimensions with more than 32 joint actions, and the best return is known."""

import pytest

from moozi.io.config import load_config
from moozi.run.build import env_spec
from moozi.run.events import Evaluated
from moozi.run.session import RunInputs
from moozi.training.algorithms import algorithm_of


@pytest.mark.learning
@pytest.mark.parametrize("name", ["tiny/dials", "ppo/tiny/dials"])
def test_the_best_return_is_reached_within_two_percent(name):
  config = load_config(name, ["runtime=local", "evaluation.period_env_steps=1000000"])
  spec = env_spec(config)
  assert spec.is_factored
  *_, final = (e for e in algorithm_of(config).run(RunInputs(config, spec)) if isinstance(e, Evaluated))
  assert final.is_final
  assert final.result.returns.mean() >= 0.98

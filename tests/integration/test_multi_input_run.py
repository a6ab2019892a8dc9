"""Runs with observations of an image and a vector."""

import pytest

from moozi.core.errors import UserError
from moozi.io.config import load_config
from moozi.run import build
from moozi.training.algorithms import algorithm_of
from moozi.training.checks import check_players


@pytest.mark.parametrize(
  ("settings", "key"),
  [
    (("network.kind=multi_input",), r"^network\.kind"),
    (("algorithm=ppo", "ppo.network.kind=multi_input"), r"^ppo\.network\.kind"),
    (("algorithm=q_learning", "q_learning.network.kind=multi_input"), r"^q_learning\.network\.kind"),
  ],
)
def test_a_run_whose_observations_are_one_array_does_not_start(settings, key):
  config = load_config(None, ["env.name=tiny:catch", *settings])
  spec = build.env_spec(config)
  check = check_players if config.searches else algorithm_of(config).check
  with pytest.raises(
    UserError, match=key + r"=multi_input: needs a Dict or Tuple .*name=tiny:catch are images"
  ):
    check(config, spec)

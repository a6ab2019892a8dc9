"""Tests that the baselines act with both collectors, save trajectories and play against past selves."""

import jax
import numpy as np
import pytest

from moozi.baselines.ppo import algorithm as ppo_algorithm
from moozi.baselines.q_learning import algorithm as q_algorithm
from moozi.core.pytree import fields_of
from moozi.core.records import TrajectorySample
from moozi.io.config import load_config
from moozi.replay.validation import check_segment
from moozi.run import build
from moozi.run.events import Acted, Collected
from moozi.run.session import RunInputs
from moozi.training.algorithms import algorithm_of
from tests.acting.parameters import random_parameters
from tests.baselines.ppo.conftest import TINY as TINY_PPO
from tests.baselines.q_learning.conftest import TABLE
from tests.baselines.q_learning.conftest import TINY as TINY_Q
from tests.envs.environments import need

PPO, Q_NETWORK, Q_TABLE = TINY_PPO, TINY_Q, (*TINY_Q, TABLE)
LSTM = (*PPO, "ppo.network.lstm_size=5")
EACH = pytest.mark.parametrize(
  "settings", [PPO, LSTM, Q_NETWORK, Q_TABLE], ids=["ppo", "lstm", "network", "table"]
)


@pytest.mark.slow
@EACH
def test_scan_equals_step(settings):
  """The segments, the extras that the learner reads, and the step after them."""
  need("gymnax")
  found = []
  for rollout in ("step", "scan"):
    options = ("env.name=gymnax:Catch-bsuite", f"workers.rollout={rollout}", "workers.num_workers=1")
    config = load_config(None, [*settings, *options])
    spec = build.env_spec(config)
    if config.algorithm == "ppo":
      collector = ppo_algorithm.build_collector(config, spec, 0, 0)
    else:
      (collector,) = q_algorithm.build_collectors(config, spec, None).workers
    variables = random_parameters(config, spec)
    if settings is Q_TABLE:
      variables = jax.device_get(algorithm_of(config).initial_training_state(config, spec)).variables
    collector.set_parameters(variables, 3)
    for _ in range(3):
      segment, result = collector.run(50)
      after, decision = collector.look_ahead(50)
      arrays = {**fields_of(segment), **result.extras, "returns": result.episode_returns}
      arrays |= {f"after/{name}": x for name, x in {**fields_of(after), **decision.extras}.items()}
      found.append((rollout, arrays, result.metrics["train/temperature"]))
  assert sum(len(arrays["returns"]) for _, arrays, _ in found) > 10
  for (_, a, temperature), (_, b, same) in zip(found[:3], found[3:], strict=True):
    assert a.keys() == b.keys()
    assert temperature == pytest.approx(same)
    for name, x in a.items():
      # On some processors the two programs of XLA round differently.
      np.testing.assert_allclose(np.float64(x), np.float64(b[name]), rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [PPO, LSTM, Q_TABLE], ids=["ppo", "lstm", "q_learning"])
def test_trajectories_are_saved(settings):
  config = load_config(None, [*settings, "trajectories.save=true", "workers.num_workers=1"])
  spec = build.env_spec(config)
  events = list(algorithm_of(config).run(RunInputs(config, spec)))
  saved = [event for event in events if isinstance(event, Collected)]
  acted = [event for event in events if isinstance(event, Acted)]
  assert len(saved) == len(acted) > 4
  assert all(event.follows and event.first_lane == 0 for event in saved)
  parts = [fields_of(event.segment) for event in saved]
  whole = TrajectorySample(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
  check_segment(whole, spec)
  assert whole.action.size == events[-1].env_steps
  assert bool(whole.root_value.any()) == (config.algorithm == "ppo")
  # The numbers of updates before each segment.
  versions = whole.acted_version[:: len(parts[0]["action"]), 0]
  assert versions[0] == 0 < versions[-1]
  assert (np.diff(versions) >= 0).all()


@pytest.mark.slow
def test_q_learning_plays_against_past_selves():
  nim = "env.name=tests.envs.environments:make_nim"
  options = ("opponents.past_share=0.5", "opponents.period_updates=4", "workers.num_workers=1")
  config = load_config(None, [*Q_TABLE, nim, *options])
  events = list(q_algorithm.run(RunInputs(config, build.env_spec(config))))
  acted = [event.metrics for event in events if isinstance(event, Acted)]
  assert sum(metrics["past/games"] for metrics in acted) > 10
  assert max(metrics["past/pool_size"] for metrics in acted) > 1

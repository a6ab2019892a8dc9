"""Tests of the measures of what codes encode in 2048."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import moozi
from experiments.chance import codes, expectimax
from experiments.chance.codes import entropies, entropy, information
from moozi.core.errors import UserError
from moozi.io.config import load_config
from moozi.run.build import build_model
from tests.tiny_run import TINY

pytest.importorskip("pgx")


def test_measures_by_hand():
  code, side = np.array([0, 0, 2, 2]), np.array([5, 5, 7, 9])
  assert entropy(code) == pytest.approx(np.log(2))
  assert entropy(side) == pytest.approx(1.5 * np.log(2))
  assert information(code, side) == pytest.approx(np.log(2))
  assert information(code, np.array([1, 2, 1, 2])) == pytest.approx(0)
  np.testing.assert_allclose(entropies(np.array([[0.5, 0.5], [1.0, 0.0]])), [np.log(2), 0])


@pytest.mark.slow
def test_agents_are_measured(tmp_path, monkeypatch):
  """A code of the action says nothing about the outcome; a random function of the transition does."""
  quiet = ("runtime=local", "logging.progress=none", "evaluation.gif=false", "logging.tensorboard=false")
  options = [*TINY, *quiet, "env.name=pgx:2048", "env.kwargs={}", "targets.history_length=1"]
  chance = ["chance.codes=8", "planners.train.algorithm=stochastic", "planners.test.algorithm=stochastic"]
  for name, own in (("with", chance), ("without", [])):
    moozi.train(load_config(None, [*options, *own, f"run.dir={tmp_path}", f"run.name={name}"]))
  agent = moozi.load(tmp_path / "with")

  def measure_with(encode):
    def build(config, spec):
      model = build_model(config, spec)
      return dataclasses.replace(model, chance=dataclasses.replace(model.chance, encode=encode))

    monkeypatch.setattr(expectimax, "build_model", build)
    return codes.measure(agent, num_games=16, num_moves=20)

  def by_action(params, net_state, transition, is_training):
    return jnp.pad(transition[:, 0, 0, -5:], ((0, 0), (0, 3))), net_state  # the last planes are the action

  def at_random(params, net_state, transition, is_training):
    flat = transition.reshape(transition.shape[0], -1)
    return flat @ jax.random.normal(jax.random.PRNGKey(0), (flat.shape[1], 8)), net_state

  found = measure_with(by_action)
  assert found["transitions"] == 16 * 4
  assert found["code_entropy_given_move"] == pytest.approx(0, abs=1e-6)
  assert found["code_entropy"] > 0.1
  assert found["prediction_kl"] > 0.1
  found = measure_with(at_random)
  assert 1 < found["code_entropy"] <= np.log(8)
  assert 0.1 < found["code_entropy_given_move"] < found["outcome_entropy"]
  assert 0.02 < found["information_cell"] < found["code_entropy"]
  monkeypatch.undo()
  with pytest.raises(UserError, match=r"must play pgx:2048 with chance\.codes"):
    codes.measure(moozi.load(tmp_path / "without"))

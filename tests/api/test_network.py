"""Tests of the network as pure functions, and of a checkpoint's arrays without MooZi."""

import jax
import numpy as np
import pytest
import safetensors.numpy
from numpy.testing import assert_allclose, assert_array_equal

import moozi
from moozi.core.errors import UserError


@pytest.mark.parametrize("source", ["run", "zoo"])
def test_arrays_of_a_checkpoint_without_moozi(runs, source):
  """The names of docs/api.md, in a checkpoint and in one that has the parameters only."""
  agent = moozi.load(runs["catch"] if source == "run" else "zoo:tiny/catch")
  arrays = safetensors.numpy.load_file(agent.checkpoint.path / "arrays.safetensors")
  prefix = ".params" if source == "run" else "['params']"
  assert agent.config.evaluation.network == "online"
  assert len(agent.network.parameters) > 10
  for name, value in agent.network.parameters.items():
    module, last = name.removeprefix("params/").rsplit("/", 1)
    assert_array_equal(arrays[f"{prefix}['{module}']['{last}']"], value, strict=True)
    assert value.dtype == np.float32
  assert sum(name.startswith(prefix) for name in arrays) == len(agent.network.parameters)


@pytest.mark.slow
def test_root_agrees_with_the_search(runs):
  agent = moozi.load(runs["catch"])
  network = agent.network
  step = agent.make_env(seed=3).reset()
  length, shape = network.history_length, agent.spec.frame_shape
  frames = np.zeros((5, length, *shape), agent.spec.frame_dtype)
  frames[:, -1] = step.observation.frame
  frames[1:, -1] = np.random.default_rng(0).random((4, *shape)) < 0.3
  actions = np.zeros((5, length), np.int32)
  root = jax.device_get(jax.jit(network.root)(network.parameters, frames, actions))
  search = agent.search(step)
  logits = root.policy_logits[0, 1:]
  assert_allclose(np.exp(logits) / np.exp(logits).sum(), search.prior, rtol=1e-4)
  assert root.value[0] == pytest.approx(search.prior_value, rel=1e-4, abs=1e-6)
  assert not root.reward.any()

  after = network.recurrent(network.parameters, root.hidden_state, np.ones(5, np.int32))
  assert after.hidden_state.shape == root.hidden_state.shape
  assert np.abs(after.hidden_state - root.hidden_state).max() > 1e-3


def test_only_searching_algorithms_have_this_network(runs):
  with pytest.raises(UserError, match=r"algorithm=ppo has no search; Agent.network needs"):
    moozi.load(runs["ppo"]).network  # noqa: B018

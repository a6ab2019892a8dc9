"""Tests of the network as pure functions, of its export, and of a checkpoint's arrays without MooZi."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from numpy.testing import assert_allclose, assert_array_equal

import moozi
from moozi.api.network import Network, NetworkOutput
from moozi.core.errors import UserError


@pytest.mark.parametrize("source", ["run", "zoo"])
def test_arrays_of_a_checkpoint_without_moozi(runs, source):
  """The names of docs/api.md, in a checkpoint and in one that has the parameters only."""
  agent = moozi.load(runs["catch"] if source == "run" else "zoo:tiny/catch")
  arrays = safetensors.numpy.load_file(agent.checkpoint.path)
  assert agent.config.evaluation.network == "online"
  assert len(agent.network.parameters) > 10
  for name, value in agent.network.parameters.items():
    assert_array_equal(arrays[name], value, strict=True)
    assert value.dtype == np.float32
  assert sum(name.startswith(("params/", "net_state/")) for name in arrays) == len(agent.network.parameters)


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


# Runs the exported functions where MooZi cannot be imported.
LOADER = """
import sys
sys.modules["moozi"] = None
import numpy as np
import safetensors.numpy
from jax import export

folder, out = sys.argv[1:]
inputs = np.load(f"{folder}/../inputs.npz")
parameters = safetensors.numpy.load_file(f"{folder}/parameters.safetensors")
found = {}
for name in ("root", "recurrent"):
  if f"{name}_0" not in inputs:
    continue
  with open(f"{folder}/{name}.stablehlo", "rb") as file:
    function = export.deserialize(file.read())
  for size in (1, 5):
    outputs = function.call(parameters, inputs[f"{name}_0"][:size], inputs[f"{name}_1"][:size])
    found |= {f"{name}_{size}_{field}": np.asarray(value) for field, value in outputs.items()}
np.savez(out, **found)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["catch", "chance", "alphazero"])
def test_export_runs_without_moozi(runs, name, tmp_path):
  """Root and recurrent outputs of the exported functions are the agent's, for two batch sizes."""
  network = moozi.load(runs[name]).network
  rng = np.random.default_rng(0)
  shape = (5, network.history_length)
  frames = rng.random((*shape, *network.spec.frame_shape)) < 0.3
  frames = frames.astype(network.spec.frame_dtype)
  actions = rng.integers(0, network.spec.num_actions, shape, np.int32)
  expected = {"root": jax.device_get(network.root(network.parameters, frames, actions))}
  inputs = {"root_0": frames, "root_1": actions}
  assert (network.recurrent is None) == (name == "alphazero")
  if network.recurrent is not None:
    hidden, action = expected["root"].hidden_state, 1 + np.arange(5, dtype=np.int32) % 3
    inputs |= {"recurrent_0": hidden, "recurrent_1": action}
    expected["recurrent"] = jax.device_get(network.recurrent(network.parameters, hidden, action))
    assert np.ptp(expected["recurrent"].reward) > 1e-3

  folder = network.export(tmp_path / "exported")
  names = {"network.json", "parameters.safetensors"} | {f"{part}.stablehlo" for part in expected}
  assert {path.name for path in folder.iterdir()} == names
  np.savez(tmp_path / "inputs.npz", **inputs)
  out = tmp_path / "outputs.npz"
  subprocess.run([sys.executable, "-c", LOADER, folder, out], check=True, timeout=300)
  with np.load(out) as file:
    found = dict(file)
  assert len(found) == 8 * len(expected)
  for part, output in expected.items():
    for size in (1, 5):
      for field in ("policy_logits", "value", "reward", "hidden_state"):
        value = getattr(output, field)[:size]
        assert_allclose(found[f"{part}_{size}_{field}"], value, rtol=1e-4, atol=1e-5, err_msg=field)
  facts = json.loads((folder / "network.json").read_text())
  assert facts["hidden_state_shape"] == list(expected["root"].hidden_state.shape[1:])
  assert facts["hidden_state_dtype"] == "float32"
  assert (facts["history_length"], facts["num_actions"]) == (shape[1], network.spec.num_actions)
  assert facts["env"] == json.loads(json.dumps(network.spec.to_dict()))


def _own_network(root) -> Network:
  spec = moozi.EnvSpec(name="own", frame_shape=(1, 1, 4), frame_dtype="float32", num_env_actions=2)
  return Network({"w": jnp.full((4, 3), 0.5)}, root, None, 1, spec)


def _linear(parameters, frames, actions) -> NetworkOutput:
  logits = frames[:, -1, 0, 0] @ parameters["w"]
  zeros = jnp.zeros(frames.shape[0])
  return NetworkOutput(policy_logits=logits, value=zeros, reward=zeros, hidden_state=logits)


def _of_one_batch_size(parameters, frames, actions) -> NetworkOutput:
  return _linear(parameters, frames.reshape(8, 1, 1, 1, 4), actions)


def _calls_python(parameters, frames, actions) -> NetworkOutput:
  shape = jax.ShapeDtypeStruct((4, 3), jnp.float32)
  return _linear({"w": jax.pure_callback(np.asarray, shape, parameters["w"])}, frames, actions)


def test_exported_parameters_may_be_those_of_training_in_jax(tmp_path):
  """Arrays of JAX, also one whose memory is in another order; an existing folder is never overwritten."""
  network = _own_network(_linear)
  network.parameters["w"] = jnp.arange(12.0).reshape(3, 4).T
  folder = network.export(f"{tmp_path}/own/")
  arrays = safetensors.numpy.load_file(folder / "parameters.safetensors")
  assert_array_equal(arrays["w"], np.arange(12, dtype=np.float32).reshape(3, 4).T, strict=True)
  for path in (folder, tmp_path, folder / "network.json"):
    with pytest.raises(UserError, match=r"^path=.*: exists and is not overwritten; choose another name$"):
      network.export(path)
  assert [path.name for path in tmp_path.iterdir()] == ["own"]


@pytest.mark.parametrize("root", [_of_one_batch_size, _calls_python])
def test_a_network_of_your_own_that_cannot_be_exported(root, tmp_path):
  with pytest.raises(
    UserError, match=r"^Network.export: the network cannot be exported.*must not call Python$"
  ):
    _own_network(root).export(tmp_path / "exported")
  assert not list(tmp_path.iterdir())


def test_export_where_it_cannot_be_written(tmp_path, monkeypatch):
  (tmp_path / "link").symlink_to("nowhere")
  (tmp_path / "file").touch()
  for name, reason in (
    ("link", "exists and is not overwritten"),
    ("missing/exported", "cannot be written: No such file or directory"),
    ("file/exported", "cannot be written: Not a directory"),
    ("x" * 300, "cannot be written: File name too long"),
  ):
    with pytest.raises(UserError, match=f"^path=.*{name}: {reason}"):
      _own_network(_linear).export(tmp_path / name)
  with pytest.raises(UserError, match=r"^path='.*a\\x00b': has a NUL character; choose another path$"):
    _own_network(_linear).export(f"{tmp_path}/a\0b")
  monkeypatch.setitem(sys.modules, "flatbuffers", None)
  with pytest.raises(UserError, match=r"flatbuffers is not installed; run pip install 'moozi\[export\]'$"):
    _own_network(_linear).export(tmp_path / "exported")
  assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]

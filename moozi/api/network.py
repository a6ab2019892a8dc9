"""An agent's network as pure functions of named parameters, and its export to StableHLO."""

import dataclasses
import importlib.util
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from jax import export
from jaxtyping import Array, Float, Int32, Shaped

from moozi.api.run_access import new_folder, writing
from moozi.core.config import Config
from moozi.core.errors import UserError, reason_of
from moozi.core.flat_state import tree_state
from moozi.core.pytree import record, register_records
from moozi.core.spec import EnvSpec
from moozi.core.text import missing_package
from moozi.core.types import AnyArray
from moozi.nn.model import ModelOutput
from moozi.ops.history import network_input
from moozi.run import build

_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


@record
class NetworkOutput:
  """The network's output for B frames or hidden states.

  Attributes:
    policy_logits: over the A actions of the agent; index 0 is the dummy action, and action i of the
      environment is at i + 1. Illegal actions are not masked. With more than 32 joint actions, the entries
      are the dummy and the values of each dimension (`EnvSpec.policy_groups`); each dimension has a
      distribution.
    value: env units, for the player to move.
    reward: env units, for the player who moved; 0 at the root.
    hidden_state: of the network's own shape; the argument of `Network.recurrent`.
  """

  policy_logits: Float[Array, "B P"]
  value: Float[Array, "B"]
  reward: Float[Array, "B"]
  hidden_state: Float[Array, "B ..."]


@dataclasses.dataclass(frozen=True)
class Network:
  """A network of MuZero or AlphaZero as pure functions of its parameters, which can be compiled and traced.

  Attributes:
    parameters: float32 arrays by name, `params/MODULE/…/NAME`. With batch norm, `network.center_frames` or
      `network.normalize_observations`, also the running averages, `net_state/MODULE/…/NAME`; with
      `targets.discount_schedule`, also γ, `net_state/discount`.
    root: (parameters, frames, actions) → NetworkOutput. `frames` [B, L, H, W, C] are the last L frames, the
      newest last, of the spec's dtype, and zeros before the episode's start. `actions` [B, L] int32 are the
      actions before each of these frames, in the agent's action space; before the episode's start they are
      the dummy, 0.
    recurrent: (parameters, hidden_state, action [B] int32 of the agent's action space) → NetworkOutput after
      the action. With chance nodes, after the most probable outcome. None if the network has no model
      (AlphaZero).
    history_length: L.
    spec: the environment's specification.
  """

  parameters: Mapping[str, Float[np.ndarray, "..."]]
  root: Callable[..., NetworkOutput]
  recurrent: Callable[..., NetworkOutput] | None
  history_length: int
  spec: EnvSpec

  def export(self, path: str | os.PathLike[str]) -> Path:
    """Writes the network to a new folder, for use without MooZi. Returns its path.

    `root.stablehlo` and `recurrent.stablehlo` are functions for `jax.export.deserialize`, for any batch
    size B, compiled for CPU, CUDA, ROCm or TPU when they are called. Their arguments are those of `root` and
    `recurrent`; the first is a dict of the parameters. They return a dict of the fields of `NetworkOutput`.
    `parameters.safetensors` has the parameters by name, and `network.json` the shapes and the names of the
    actions. A network without a model has no `recurrent.stablehlo`.

    Raises: UserError: the folder exists or cannot be written, the package flatbuffers is not installed, or a
      network of your own cannot be traced for any batch size or calls Python.
    """
    if importlib.util.find_spec("flatbuffers") is None:
      raise missing_package("Network.export", "flatbuffers", "export")
    with new_folder("path", Path(path)) as folder:
      files = self._files()
      with writing("path", Path(path)):
        for name, data in files.items():
          (folder / name).write_bytes(data)
    return Path(path)

  def _files(self) -> dict[str, bytes]:
    """Returns the contents of the exported files by name."""
    arrays = {name: np.asarray(x) for name, x in self.parameters.items()}
    (batch,) = export.symbolic_shape("B")
    parameters = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in arrays.items()}
    frame_shape, length = self.spec.frame_shape, self.history_length
    frames = jax.ShapeDtypeStruct((batch, length, *frame_shape), np.dtype(self.spec.frame_dtype))
    actions = jax.ShapeDtypeStruct((batch, length), jnp.int32)
    files = {"root.stablehlo": _stablehlo(self.root, parameters, frames, actions)}
    hidden = jax.eval_shape(self.root, parameters, frames, actions).hidden_state
    if self.recurrent is not None:
      action = jax.ShapeDtypeStruct((batch,), jnp.int32)
      files["recurrent.stablehlo"] = _stablehlo(self.recurrent, parameters, hidden, action)
    facts = {
      "env": self.spec.to_dict(),
      "num_actions": self.spec.num_actions,
      "history_length": length,
      "hidden_state_shape": list(hidden.shape[1:]),
      "hidden_state_dtype": str(hidden.dtype),
    }
    files["network.json"] = (json.dumps(facts, indent=1) + "\n").encode()
    files["parameters.safetensors"] = safetensors.numpy.save(arrays)
    return files


def make_network(config: Config, spec: EnvSpec, params: Any, net_state: Any) -> Network:
  """Returns the network of a run with `algorithm=muzero` or `alphazero`, with these parameters."""
  register_records()
  model, transform = build.build_model(config, spec), build.scalar_transform(config)
  tree = {"params": params, "net_state": net_state}
  named, structure = tree_state(tree), jax.tree_util.tree_structure(tree)

  def variables(parameters: Mapping[str, Any]) -> tuple[Any, Any]:
    out = jax.tree_util.tree_unflatten(structure, [parameters[name] for name in named])
    return out["params"], out["net_state"]

  def output(found: ModelOutput) -> NetworkOutput:
    return NetworkOutput(
      policy_logits=found.policy_logits,
      value=transform.to_scalar(found.value_logits),
      reward=transform.to_scalar(found.reward_logits),
      hidden_state=found.hidden_state,
    )

  def root(
    parameters: Mapping[str, Any], frames: Shaped[AnyArray, "B L H W C"], actions: Int32[AnyArray, "B L"]
  ) -> NetworkOutput:
    stacked = network_input(jnp.asarray(frames), jnp.asarray(actions), spec)
    return output(model.root_inference(*variables(parameters), stacked, False)[0])

  def recurrent(
    parameters: Mapping[str, Any], hidden_state: Float[AnyArray, "B ..."], action: Int32[AnyArray, "B"]
  ) -> NetworkOutput:
    hidden_state, action = jnp.asarray(hidden_state), jnp.asarray(action)
    return output(model.recurrent_inference(*variables(parameters), hidden_state, action, False)[0])

  return Network(
    parameters=named,
    root=root,
    recurrent=recurrent if config.has_model else None,
    history_length=config.targets.history_length,
    spec=spec,
  )


def _stablehlo(function: Callable[..., NetworkOutput], *arguments: Any) -> bytes:
  """Returns the serialized function, which returns a dict: without MooZi, NetworkOutput is unknown.

  Raises: UserError: the function cannot be traced for these arguments, or calls Python.
  """

  def plain(*given: Any) -> dict[str, Array]:
    out = function(*given)
    return {field.name: getattr(out, field.name) for field in dataclasses.fields(NetworkOutput)}

  try:
    exported = export.export(jax.jit(plain), platforms=_PLATFORMS)(*arguments)
    # JAX exports a reshape to a fixed size, which then fails for batches of another size.
    if any(x.shape[:1] != arguments[-1].shape[:1] for x in exported.out_avals):
      raise ValueError(f"outputs of shapes {[x.shape for x in exported.out_avals]}")
    return bytes(exported.serialize())
  except Exception as error:
    raise UserError(
      f"Network.export: the network cannot be exported for every batch size: {reason_of(error)}; a network "
      "of your own must not depend on the size of the batch, and must not call Python"
    ) from error

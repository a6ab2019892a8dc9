"""Compares the outputs of the networks before and after a surgery on the same inputs."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moozi.baselines.observations import OBSERVATIONS
from moozi.core.config import Config
from moozi.core.flat_state import State, part, tree_of_state
from moozi.core.spec import EnvSpec
from moozi.nn.model import AfterstateOutput, Model, ModelOutput
from moozi.ops.actions import num_actions
from moozi.ops.history import network_input
from moozi.ops.policy import log_policy
from moozi.run import build
from moozi.surgery.baseline_outputs import baseline_outputs
from moozi.surgery.networks import NamedNetwork
from moozi.surgery.plan import Plan

TOLERANCE = 1e-5
"""Largest difference of an output of a preserved network, relative to the output where that is above 1."""
_NUM_STEPS = 2
# Statistics that normalize observations: of MuZero and AlphaZero, of PPO and Q-learning.
_STATISTICS = ("net_state/observation_norm/stats", f"net_state/{OBSERVATIONS}")


@dataclasses.dataclass(frozen=True)
class Differences:
  """The largest differences of outputs, each relative to the output where that is above 1, by output."""

  values: dict[str, float]

  @property
  def largest(self) -> float:
    """Infinite if an output is not finite."""
    worst = max(self.values.values())
    return worst if np.isfinite(worst) else np.inf

  def __str__(self) -> str:
    return ", ".join(f"{name} {value:.1e}" for name, value in self.values.items())


def compare(plan: Plan, old: State, new: State, num_inputs: int = 32, seed: int = 0) -> Differences:
  """Returns how far two networks' outputs differ on random histories.

  MuZero's outputs are compared at the root and after each of two actions, AlphaZero's at the root. If both
  networks have chance nodes, the outputs of their afterstates and of their encoders are compared too. The
  outputs of PPO and Q-learning are compared at the root and after each of two more frames, through which an
  LSTM carries its state.

  The histories have planes and actions of both environments only: new planes are 0, and new actions are never
  taken. If the old network has running statistics of observations, the planes have their mean and variance.
  The outputs are values and rewards in env units, the probabilities of the actions of both (of PPO with
  continuous actions, the parameters of the distributions), the action values of Q-learning, and the
  projection of MuZero's hidden state at the root, unit by unit.

  Args:
    old, new: the leaves of the two training states.
  """
  rng = np.random.default_rng(seed)
  length, searches = max(plan.old.length, plan.new.length), plan.new.config.searches
  has_chance = bool(plan.old.config.chance.codes and plan.new.config.chance.codes)
  shared = [(source, i) for i, source in enumerate(plan.pairs.actions) if source is not None]
  # A transition begins with one step more than the network's input.
  histories = _inputs(plan, old, rng, num_inputs, length, 1 if searches else _NUM_STEPS, shared)
  outputs = [
    _outputs(network, state, has_chance, *inputs) if searches else baseline_outputs(network, state, inputs[0])
    for network, state, inputs in zip((plan.old, plan.new), (old, new), histories, strict=True)
  ]
  columns = [[0, *(1 + pair[side] for pair in shared)] for side in (0, 1)]
  found: dict[str, float] = {}
  for before, after in zip(*outputs, strict=True):
    for name in before:
      a, b = before[name], after[name]
      if name in ("policy", "action values"):
        a, b = a[:, columns[0]], b[:, columns[1]]
      elif name == "projection":
        a = a[..., np.arange(b.shape[-1]) % a.shape[-1]]  # the units of a wider state repeat the old ones
      difference = np.abs(a - b) / np.maximum(np.abs(a), 1)
      worst = float(difference.max()) if np.isfinite(difference).all() else np.inf
      found[name] = max(found.get(name, 0.0), worst)
  return Differences(found)


def _inputs(
  plan: Plan,
  old: State,
  rng: np.random.Generator,
  batch: int,
  length: int,
  more: int,
  shared: list[tuple[int, int]],
) -> list[tuple[np.ndarray, np.ndarray, list[np.ndarray]]]:
  """Returns for the old and the new network: frames, actions of the history, and actions to unroll.

  The histories have `more` steps more than the network's input.
  """
  length += more
  specs = plan.old.spec, plan.new.spec
  frames = _scaled(_random_frames(specs[1], rng, (batch, length)), plan, old)
  kept = np.array([source is not None for source in plan.pairs.planes])
  frames = np.where(kept, frames, np.zeros((), frames.dtype))
  if specs[1].player_planes is not None:  # whose plane of the mover is constant over the board
    mover = specs[1].player_planes[2]
    frames[..., mover] = frames[..., :1, :1, mover]
  before = np.zeros((batch, length, *specs[0].frame_shape), frames.dtype)
  for i, source in enumerate(plan.pairs.planes):
    if source is not None:
      before[..., source] = frames[..., i]
  if specs[1].is_factored:
    size = num_actions(specs[1].policy_groups)
    drawn = rng.integers(0, size, (batch, length + _NUM_STEPS)).astype(np.int32)
    both = drawn, drawn
  else:
    pairs = np.array([(0, 0), *((j + 1, i + 1) for j, i in shared)], np.int32)
    drawn = pairs[rng.integers(0, len(pairs), (batch, length + _NUM_STEPS))]
    both = drawn[..., 0], drawn[..., 1]
  out = []
  for network, planes, actions in zip((plan.old, plan.new), (before, frames), both, strict=True):
    recent = slice(length - network.length - more, length)
    unrolled = [actions[:, length + k] for k in range(_NUM_STEPS)]
    out.append((planes[:, recent], actions[:, recent], unrolled))
  return out


def _random_frames(spec: EnvSpec, rng: np.random.Generator, lead: tuple[int, ...]) -> np.ndarray:
  shape = (*lead, *spec.frame_shape)
  if spec.frame_dtype == "bool":
    return rng.random(shape) < 0.3
  if spec.frame_dtype == "uint8":
    return rng.integers(0, 256, shape, np.uint8)
  return rng.normal(size=shape).astype(np.float32)


def _scaled(frames: np.ndarray, plan: Plan, old: State) -> np.ndarray:
  """Gives normal frames the mean and variance of the old network's statistics of observations, if it has any.

  Frames of another scale could all be clipped to the same values, which would hide a difference of the
  networks.
  """
  for where in _STATISTICS:
    if f"{where}/mean" not in old:
      continue
    mean, deviation = np.asarray(old[f"{where}/mean"]), np.sqrt(old[f"{where}/variance"])
    frames = np.array(frames)
    for i, source in enumerate(plan.pairs.planes):
      if source is not None:
        frames[..., i] = mean[..., source] + deviation[..., source] * frames[..., i]
  return frames


def _outputs(
  network: NamedNetwork,
  state: State,
  has_chance: bool,
  frames: np.ndarray,
  actions: np.ndarray,
  unrolled: list[np.ndarray],
) -> list[dict[str, np.ndarray]]:
  """Returns the outputs at the root and after each action."""
  stacked = network_input(frames[:, 1:], actions[:, 1:], network.spec)
  transition = network_input(frames, actions, network.spec) if has_chance else None
  return make_outputs(network.config, network.spec)(state, stacked, transition, unrolled)


def make_outputs(config: Config, spec: EnvSpec) -> Callable[..., list[dict[str, np.ndarray]]]:
  """Returns a function (state, stacked history [B, H, W, Ch], transition, actions) → outputs.

  The outputs are those at the root and after each of the actions, a list of [B] int32, computed in 64 bits.
  A transition is an input of `ChanceModel.encode`; None leaves out the outputs of chance
  nodes. The function compiles once for inputs of one form.
  """
  model, has_model = build.build_model(config, spec), config.has_model
  template = build.variables_template(config, spec)

  @jax.jit
  def run(variables: Any, stacked: Any, transition: Any, unrolled: Any) -> list[dict[str, Any]]:
    output, _ = model.root_inference(*variables, stacked, False)
    found = [_scalars(model, output)]
    if has_model:
      found[0]["projection"], _ = model.project(*variables, output.hidden_state, False)
    if transition is not None:
      assert model.chance is not None
      found[0]["encoder"], _ = model.chance.encode(*variables, transition, False)
    for action in unrolled if has_model else ():
      if transition is not None:
        assert model.chance is not None
        after, _ = model.chance.afterstate(*variables, output.hidden_state, action, False)
        found.append(_afterstate_scalars(model, after))
      output, _ = model.recurrent_inference(*variables, output.hidden_state, action, False)
      found.append(_scalars(model, output))
    return found

  def outputs(state: State, stacked: Any, transition: Any, unrolled: Any) -> list[dict[str, np.ndarray]]:
    parts = zip(template, ("params", "net_state"), strict=True)
    variables = tuple(tree_of_state(like, part(state, name)) for like, name in parts)
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
      floats = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), (variables, stacked, transition))
      return jax.device_get(run(*floats, unrolled))  # type: ignore[no-any-return]

  return outputs


def _scalars(model: Model, output: ModelOutput) -> dict[str, Any]:
  return {
    "value": model.transform.to_scalar(output.value_logits),
    "reward": model.transform.to_scalar(output.reward_logits),
    "policy": jnp.exp(log_policy(output.policy_logits, model.policy_groups)),
  }


def _afterstate_scalars(model: Model, output: AfterstateOutput) -> dict[str, Any]:
  found = {
    "afterstate value": model.transform.to_scalar(output.value_logits),
    "chance": jax.nn.softmax(output.chance_logits),
  }
  if output.reward_logits is not None:
    found["afterstate reward"] = model.transform.to_scalar(output.reward_logits)
  return found

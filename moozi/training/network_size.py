"""The size of a run's network: its parameters, and the multiply-adds of its computations.

JAX traces the computations with shapes in place of arrays; nothing is compiled or computed. A multiply-add is
a multiplication in a matrix product or a convolution, with the addition of its product. Other operations,
such as norms and activations, are not counted.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from moozi.core.config import Config
from moozi.core.spec import EnvSpec
from moozi.envs.vector import blank_step
from moozi.io import jax_process
from moozi.training.algorithms import ALGORITHMS, find_algorithm

if TYPE_CHECKING:
  from jax.extend.core import Jaxpr, JaxprEqn

REPRESENTATION, SIMULATION, DECISION, UPDATE = "representation", "simulation", "decision", "update"

# The modules of MuZero's networks in the order in which they compute; others follow.
_FIRST = "representation", "dynamics", "afterstate", "outcome", "prediction", "projection"


@dataclasses.dataclass(frozen=True)
class NetworkSize:
  """The size of a network.

  Attributes:
    parameters: the number of parameters by module, such as `representation` and `dynamics`; all layers of a
      baseline's trunk are one module. Of a table, the number of its values.
    multiply_adds: by computation, each for one position. With a search: `representation`; `simulation`, which
      is dynamics and prediction, and with true rules representation and prediction; without one:
      `decision`. Also `update`, if it was counted: an update divided by its samples. Empty for a table.
  """

  parameters: Mapping[str, int]
  multiply_adds: Mapping[str, int]

  @property
  def num_parameters(self) -> int:
    return sum(self.parameters.values())

  def describe(self) -> str:
    """Returns the number of parameters and the multiply-adds of acting as one line."""
    if not self.multiply_adds:
      return f"table: {self.num_parameters:,} values"
    name = SIMULATION if SIMULATION in self.multiply_adds else DECISION
    number = self.multiply_adds[name]
    return f"network: {self.num_parameters:,} parameters, {number:,} multiply-adds in a {name}"


_Traced = tuple[Callable[..., Any], tuple[Any, ...], int]
"""A function, its arguments or their shapes, and the number of positions or samples in them."""


def network_size(config: Config, spec: EnvSpec, with_update: bool = True) -> NetworkSize | None:
  """Returns the size of the run's network; None for a user's algorithm, whose state is not known.

  Args:
    with_update: whether to count an update too, which takes longer to trace.

  Raises: UserError: a network, search or loss term of the user fails.
  """
  if config.algorithm not in ALGORITHMS:
    return None
  computations = {"ppo": _ppo, "q_learning": _q_learning}.get(config.algorithm, _muzero)
  algorithm = find_algorithm(config)
  with jax_process.on_cpu():
    state = algorithm.training_state_template(config, spec)
    traced = computations(config, spec, state)
    if not with_update:
      traced.pop(UPDATE, None)
    multiply_adds = {name: count(f, *arguments) // number for name, (f, arguments, number) in traced.items()}
  return NetworkSize(parameter_counts(state.params), multiply_adds)


def parameter_counts(params: Any) -> dict[str, int]:
  """Returns the number of parameters by module; `params` are arrays or their shapes, by module and name."""
  import jax

  counts: Counter[str] = Counter()
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    if np.issubdtype(leaf.dtype, np.floating):  # a table also has keys and counts
      module = jax.tree_util.keystr(path, simple=True, separator="/").partition("/")[0]
      before, trunk, _ = module.partition("trunk")
      counts[before + trunk] += math.prod(leaf.shape)
  return {name: counts.pop(name) for name in _FIRST if name in counts} | dict(counts)


def _muzero(config: Config, spec: EnvSpec, state: Any) -> dict[str, _Traced]:
  import jax

  from moozi.agent.symmetry_average import averaged
  from moozi.agent.update import make_update
  from moozi.learning.learner import zero_targets
  from moozi.ops.history import init_history, network_input
  from moozi.run.build import build_model

  model, history = build_model(config, spec), init_history(1, config.targets.history_length, spec)
  stacked = jax.eval_shape(lambda: network_input(history.frames, history.actions, spec))

  def represent(variables: Any, stacked: Any) -> Any:
    return model.represent(*variables, stacked, False)[0]

  def recur(variables: Any, hidden_state: Any, action: Any) -> Any:
    return model.recurrent_inference(*variables, hidden_state, action, False)[0]

  def evaluate(variables: Any, stacked: Any) -> Any:
    searched = averaged(model, config.planners.train, config.targets, spec)
    return searched.root_inference(*variables, stacked, False)[0]

  variables, num = state.variables, config.learner.batch_size
  found: dict[str, _Traced] = {REPRESENTATION: (represent, (variables, stacked), 1)}
  if config.plans_with_rules:
    found[SIMULATION] = evaluate, (variables, stacked), 1
  else:
    hidden_state = jax.eval_shape(represent, variables, stacked)
    found[SIMULATION] = recur, (variables, hidden_state, np.zeros(1, np.int32)), 1
  update = make_update(model, config, spec)
  return found | {UPDATE: (update, (state, zero_targets(config, spec, (num,))), num)}


def _ppo(config: Config, spec: EnvSpec, state: Any) -> dict[str, _Traced]:
  import jax

  from moozi.baselines.ppo.algorithm import network_of
  from moozi.baselines.ppo.lstm import Memory
  from moozi.baselines.ppo.optimization import PPOBatch, make_loss

  network, shape = network_of(config, spec), (1, config.ppo.history_length, *spec.frame_shape)
  frames, number, is_true = np.zeros(shape, spec.frame_dtype), np.zeros(1, np.float32), np.ones(1, bool)
  memory = None
  if network.state_shape is not None:
    memory = Memory(state=np.zeros((1, *network.state_shape), np.float32), is_first=is_true)
  batch = PPOBatch(
    frames=frames,
    legal_actions_mask=blank_step(spec, 1).legal_actions_mask,
    action=np.zeros((1, *spec.action_shape), spec.action_dtype),
    log_prob=number,
    value=number,
    advantage=number,
    target=number,
    is_live=is_true,
    memory=memory,
  )
  gradient = jax.grad(make_loss(network, config.ppo), has_aux=True)
  return {DECISION: (network.apply, (state.params, frames), 1), UPDATE: (gradient, (state.params, batch), 1)}


def _q_learning(config: Config, spec: EnvSpec, state: Any) -> dict[str, _Traced]:
  import jax

  from moozi.baselines.q_learning.update import QBatch, make_loss
  from moozi.baselines.q_learning.values import make_q_function
  from moozi.learning.learner import zero_targets

  if config.q_learning.kind == "table":
    return {}
  q_function, drawn = make_q_function(config, spec), zero_targets(config, spec, (1,))
  frames, mask = drawn.frames[:, : config.targets.history_length], blank_step(spec, 1).legal_actions_mask
  batch = QBatch(
    frames=frames,
    legal_actions_mask=mask,
    action=np.zeros(1, np.int32),
    reward=np.zeros(1, np.float32),
    bootstrap=np.zeros(1, np.float32),
    next_frames=frames,
    next_legal_actions_mask=mask,
    is_live=np.ones(1, bool),
    importance_ratio=drawn.importance_ratio,
    slot=drawn.slot,
    sequence=drawn.sequence,
    acted_version=drawn.acted_version,
    searched_version=drawn.searched_version,
  )
  gradient = jax.grad(make_loss(q_function, config), has_aux=True)
  return {
    DECISION: (q_function.apply, (state.params, frames, mask), 1),
    UPDATE: (gradient, (state.params, state.target_params, batch), 1),
  }


# --- counting -----------------------------------------------------------------------------------------------


def count(function: Callable[..., Any], *arguments: Any) -> int:
  """Returns the multiply-adds of `function(*arguments)`, of which only the shapes and dtypes are read.

  Multiplications with the padding of a convolution, or with the zeros between dilated entries, are not
  counted. The body of a `scan` is counted once for each step, that of a `while` once, and of the branches of
  a `cond` only the largest. Products whose result is not used are counted too.

  XLA's `cost_analysis` is not used, because it counts the body of a `scan` once, and all other operations.
  """
  import jax

  return _count_all(jax.make_jaxpr(function)(*arguments).jaxpr)


def _count_all(jaxpr: "Jaxpr") -> int:
  return sum(_count(equation) for equation in jaxpr.eqns)


def _count(equation: "JaxprEqn") -> int:
  from jax.extend.core import jaxprs_in_params

  name, params = equation.primitive.name, equation.params
  if name == "dot_general":
    (contracted, _), _ = params["dimension_numbers"]
    shape = _shape(equation.invars[0])
    return math.prod(_shape(equation.outvars[0])) * math.prod(shape[axis] for axis in contracted)
  if name == "conv_general_dilated":
    return _count_convolution(equation)
  inner = [_count_all(jaxpr) for jaxpr in jaxprs_in_params(params)]
  if name == "cond":
    return max(inner)
  return sum(inner) * (params["length"] if name == "scan" else 1)


def _shape(variable: Any) -> tuple[int, ...]:
  shape: tuple[int, ...] = variable.aval.shape
  return shape


def _count_convolution(equation: "JaxprEqn") -> int:
  inputs, kernel, out = map(_shape, (*equation.invars, *equation.outvars))
  params = equation.params
  dimensions = params["dimension_numbers"]
  batch, features, *out_axes = dimensions.out_spec
  # A kernel has the input features of one group.
  pairs = out[batch] * out[features] * kernel[dimensions.rhs_spec[1]]
  axes = zip(dimensions.lhs_spec[2:], dimensions.rhs_spec[2:], out_axes, strict=True)
  for i, (input_axis, kernel_axis, out_axis) in enumerate(axes):
    starts = np.arange(out[out_axis])[:, None] * params["window_strides"][i] - params["padding"][i][0]
    at = starts + np.arange(kernel[kernel_axis]) * params["rhs_dilation"][i]
    dilation = params["lhs_dilation"][i]
    is_entry = (at >= 0) & (at <= (inputs[input_axis] - 1) * dilation) & (at % dilation == 0)
    pairs *= int(np.sum(is_entry))
  return pairs

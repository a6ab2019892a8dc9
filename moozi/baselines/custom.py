"""A user's own algorithm: its results checked when traced, and its parts for the loop of `run.on_policy`."""

import dataclasses
import functools
import re
from collections.abc import Callable, Generator, Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PyTree, Shaped, UInt32

from moozi.acting.on_policy import FRAMES, Rollout
from moozi.agent.agent import Decision, PureAgent, Temperature, make_agent
from moozi.agent.finite import ALL_FINITE
from moozi.agent.update import TrainingState, UpdateOutput
from moozi.baselines.checks import check_players, make_evaluator
from moozi.core import plugins
from moozi.core.config import Config
from moozi.core.errors import UserError, one_line
from moozi.core.flat_state import leaves_of
from moozi.core.pytree import register_records, replace
from moozi.core.records import BatchedTimeStep
from moozi.core.seeds import child_seed
from moozi.core.spec import EnvSpec
from moozi.core.types import AnyArray
from moozi.core.user_code import Plugin, split_call
from moozi.envs.vector import blank_step
from moozi.evaluation.evaluator import Evaluator
from moozi.learning.learner import Learner
from moozi.learning.non_finite import guard_of
from moozi.ops.history import HistoryState, init_history
from moozi.run import on_policy
from moozi.run.events import Event
from moozi.run.session import RunInputs

__all__ = ["AlgorithmMaker", "OwnAlgorithm", "check_players"]

TERMS = ("algorithm/state",)
"""What must be finite after an update; otherwise the update is skipped."""

_METRIC = re.compile(r"(?!faults/)[\w.-]+(/[\w.-]+)+")


class OwnAlgorithm(Protocol):
  """An algorithm for one environment. JAX traces its methods, so they must be pure functions of arrays."""

  def init(self, rng_key: UInt32[Array, "2"], frames: Shaped[Array, "1 L H W C"]) -> PyTree:
    """Returns the initial state: a pytree of arrays with all that learning changes.

    Args:
      frames: an example of `HistoryState.frames`, with zeros.
    """

  def decide(
    self,
    state: PyTree,
    history: HistoryState,
    timestep: BatchedTimeStep,
    rng_key: UInt32[Array, "2"],
    temperature: Temperature,
  ) -> Decision:
    """Returns the decision on B frames; see `agent.agent.Decide`. The value is for the player to move.

    Args:
      history: ends with the current frames.
      temperature: 1 in training, and in evaluation with noise; 0 in evaluation without noise, in which the
        action should be the most probable one.
    """

  def update(
    self, state: PyTree, rollout: Rollout, rng_key: UInt32[Array, "2"]
  ) -> tuple[PyTree, Mapping[str, Array]]:
    """Learns from the newest segment, [T, B, …]. Returns the new state, and scalars by name as metrics."""


AlgorithmMaker = Callable[..., OwnAlgorithm]
"""make(spec, **arguments) → OwnAlgorithm: what the key `algorithm` names, with the arguments of its value."""


@dataclasses.dataclass(frozen=True)
class CheckedAlgorithm:
  """A user's algorithm. Its errors, and results of a wrong form, become a UserError of one line."""

  plugin: Plugin
  own: OwnAlgorithm
  spec: EnvSpec
  history_length: int

  def init(self, rng_key: UInt32[Array, "2"]) -> PyTree:
    frames = jnp.asarray(init_history(1, self.history_length, self.spec).frames)
    with self.plugin.errors("init failed"):
      state = self.own.init(rng_key, frames)
    with self.plugin.errors("the state that init returns cannot be read"):
      for name, leaf in leaves_of(state).items():
        if not _is_array(leaf):
          found = f"{_describe(leaf)}{f' as {name}' if name else ''}"
          raise UserError(
            f"{self.plugin.where}: init returns a state with {found}; must be a pytree of arrays of numbers"
          )
      return jax.tree_util.tree_map(jnp.asarray, state)

  def decide(
    self,
    variables: tuple[PyTree, PyTree],
    history: HistoryState,
    timestep: BatchedTimeStep,
    rng_key: Array,
    temperature: Temperature,
    position: Any,
  ) -> Decision:
    """A `Decide`, whose extras have FRAMES too."""
    del position
    with self.plugin.errors("decide failed"):
      decision = self.own.decide(variables[0], history, timestep, rng_key, temperature)
    batch, num_actions = timestep.legal_actions_mask.shape
    with self.plugin.errors("the result of decide cannot be read"):
      if not isinstance(decision, Decision):
        raise UserError(f"{self.plugin.where}: decide returns {_describe(decision)}; must be a Decision")
      for name, shape, kind in (
        ("action", (batch,), jnp.integer),
        ("action_probs", (batch, num_actions), jnp.floating),
        ("root_value", (batch,), jnp.floating),
      ):
        found = getattr(decision, name)
        is_alike = _is_array(found) and np.shape(found) == shape
        if not is_alike or not jnp.issubdtype(jnp.result_type(found), kind):
          raise UserError(
            f"{self.plugin.where}: decide returns {_describe(found)} as {name}; must be "
            f"{kind.__name__}{list(shape)}"
          )
      for name, found in decision.extras.items():
        is_name = isinstance(name, str) and name != FRAMES
        if not is_name or not _is_array(found) or np.shape(found)[:1] != (batch,):
          raise UserError(
            f"{self.plugin.where}: decide returns {_describe(found)} in extras as {name!r}; must be an array "
            f"[{batch}, …], under another name than {FRAMES!r}"
          )
      return replace(
        decision,
        action_probs=jnp.asarray(decision.action_probs, jnp.float32),
        root_value=jnp.asarray(decision.root_value, jnp.float32),
        extras={**decision.extras, FRAMES: history.frames},
      )

  def update(self, state: PyTree, rollout: Rollout, rng_key: Array) -> tuple[PyTree, dict[str, Array]]:
    with self.plugin.errors("update failed"):
      out = self.own.update(state, rollout, rng_key)
    with self.plugin.errors("the result of update cannot be read"):
      if not isinstance(out, tuple) or len(out) != 2 or not isinstance(out[1], Mapping):
        raise UserError(f"{self.plugin.where}: update returns {_describe(out)}; must be (state, metrics)")
      new, metrics = out
      if difference := _first_difference(state, new):
        raise UserError(f"{self.plugin.where}: update returns another state than init: {difference}")
      for name, value in metrics.items():
        if not (isinstance(name, str) and _METRIC.fullmatch(name) and np.shape(value) == ()):
          raise UserError(
            f"{self.plugin.where}: update returns {_describe(value)} as metric {name!r}; must be one number, "
            "under a name such as loss/policy"
          )
      return new, {name: jnp.asarray(value, jnp.float32) for name, value in metrics.items()}


def _is_array(value: Any) -> bool:
  if isinstance(value, int | float):
    return True
  is_array = isinstance(value, jax.Array | np.ndarray | np.generic)
  # A typed random key has another kind of dtype, and checkpoints cannot store bfloat16.
  return is_array and isinstance(value.dtype, np.dtype) and value.dtype.kind in "biuf"


def _describe(value: Any) -> str:
  is_array = hasattr(value, "dtype") and hasattr(value, "shape")
  return f"{value.dtype}{list(value.shape)}" if is_array else one_line(type(value).__name__)


def _first_difference(old: PyTree, new: PyTree) -> str | None:
  """Describes the first difference between the structures, shapes and dtypes of two states."""
  before, after = leaves_of(old), leaves_of(new)
  for name in (*before, *after):
    if name not in before or name not in after:
      return f"{name or 'the state'} is {'missing' if name in before else 'not expected'}"
    if not _is_array(after[name]) or _shape_of(before[name]) != _shape_of(after[name]):
      return f"{name or 'the state'} is {_describe(after[name])}; must be {_describe(before[name])}"
  structures = [str(jax.tree_util.tree_structure(state)) for state in (old, new)]
  if structures[0] != structures[1]:
    return "its containers have other types"
  return None


def _shape_of(leaf: Any) -> tuple[Any, ...]:
  return jnp.shape(leaf), jnp.result_type(leaf)


def make_algorithm(config: Config, spec: EnvSpec) -> CheckedAlgorithm:
  """Loads and makes the algorithm that `config.algorithm` names.

  Raises: UserError: it cannot be imported or made, or lacks a method.
  """
  register_records()
  name, arguments = split_call(config.algorithm)
  plugin = plugins.ALGORITHMS.get(name)
  own = plugin(spec, **arguments)
  with plugin.errors("what it returns cannot be read"):
    for method in ("init", "decide", "update"):
      if not callable(getattr(own, method, None)):
        has = f"{_describe(own)} without a method {method}"
        raise UserError(f"{plugin.where}: returns {has}; must have init, decide and update")
  return CheckedAlgorithm(plugin, own, spec, config.targets.history_length)


def run(inputs: RunInputs) -> Generator[Event, None, None]:
  """Trains, and yields events in order; see `run.on_policy.run`."""
  parts = on_policy.OnPolicyParts(inputs.config.algorithm, build_learner, build_collector, build_evaluator)
  yield from on_policy.run(inputs, parts)


def initial_training_state(config: Config, spec: EnvSpec) -> TrainingState:
  """Returns the TrainingState before the first update. The user's state is its `params`."""
  rng_key, init_key = jax.random.split(jax.random.PRNGKey(child_seed(config.seed, "learner")))
  return TrainingState(
    params=make_algorithm(config, spec).init(init_key),
    target_params=None,
    net_state={},
    opt_state=(),
    learner_step=jnp.zeros((), jnp.int32),
    rng_key=rng_key,
  )


def build_agent(config: Config, spec: EnvSpec) -> PureAgent:
  return make_agent(make_algorithm(config, spec).decide, spec, config.targets.history_length)


def build_evaluator(config: Config, spec: EnvSpec, num_simulations: int | None = None) -> Evaluator:
  """Builds an evaluator at temperature 0, or 1 if `evaluation.noise_free` is false.

  Raises: UserError: `num_simulations` is given; the algorithm does not search.
  """
  return make_evaluator(build_agent(config, spec), 1.0, config, spec, num_simulations)


def build_learner(config: Config, spec: EnvSpec) -> Learner:
  update, guard = make_update(make_algorithm(config, spec)), guard_of(config.learner, TERMS)
  return Learner(initial_training_state(config, spec), update, guard, config, spec)


def build_collector(config: Config, spec: EnvSpec, worker: int, began_at: int) -> on_policy.Collector:
  """Returns the only collector, in `workers.num_envs` environments."""
  return on_policy.build_collector(config, build_agent(config, spec), worker, began_at)


UpdateFn = Callable[[TrainingState, Rollout], tuple[TrainingState, UpdateOutput]]


def make_update(algorithm: CheckedAlgorithm) -> UpdateFn:
  """Returns update(state, rollout) -> (state, UpdateOutput), one update from a segment.

  The function is compiled and donates the state. If the new state is not finite, the update is skipped.
  """

  @functools.partial(jax.jit, donate_argnums=0)
  def update(state: TrainingState, rollout: Rollout) -> tuple[TrainingState, UpdateOutput]:
    # As in MuZero's update, so that a resumed run draws as the uninterrupted run would.
    rng_key = jax.random.fold_in(state.rng_key, state.learner_step)
    params, metrics = algorithm.update(state.params, rollout, rng_key)
    is_finite = jnp.array(True)
    for leaf in jax.tree_util.tree_leaves(params):
      is_finite &= jnp.all(jnp.isfinite(leaf))
    metrics["faults/skipped_updates"] = 1.0 - is_finite.astype(jnp.float32)
    params = optax.tree.where(is_finite, params, state.params)
    bad_term = jnp.where(is_finite, ALL_FINITE, 0)[None]
    state = replace(state, params=params, learner_step=state.learner_step + 1)
    return state, UpdateOutput(metrics=metrics, value_error=None, bad_term=bad_term)

  return update


def rollout_shapes(config: Config, spec: EnvSpec) -> Rollout:
  """Returns the shapes and dtypes of a segment of the run."""
  length, width = config.workers.segment_length, config.workers.num_envs
  agent = build_agent(config, spec)

  def act(step: BatchedTimeStep) -> Decision:
    variables = initial_training_state(config, spec).variables
    return agent.act(variables, agent.init(width), step, jax.random.PRNGKey(0), 1.0)[1]

  step = blank_step(spec, width)
  decision = jax.eval_shape(act, step)

  def rows(like: AnyArray, num_rows: int = length) -> Any:
    return jax.ShapeDtypeStruct((num_rows, *like.shape), like.dtype)

  extras = {name: rows(x) for name, x in decision.extras.items()}
  return Rollout(
    frames=extras.pop(FRAMES),
    legal_actions_mask=rows(step.legal_actions_mask),
    action=rows(decision.action),
    value=rows(decision.root_value, length + 1),
    is_first=rows(step.is_first),
    is_live=rows(step.is_last),
    reward=rows(step.last_reward),
    is_last=rows(step.is_last),
    is_truncated=rows(step.is_truncated),
    sign=rows(step.last_reward),
    extras=extras,
  )

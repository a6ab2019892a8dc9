"""The learner: holds the training state on its devices, and runs the compiled updates. Does not use Ray.

Source: thesis 4.3.9, 4.3.15.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from moozi.agent.devices import devices_of
from moozi.agent.update import TrainingState, UpdateOutput
from moozi.core.config import Config
from moozi.core.config.budget import takes_time_share
from moozi.core.histogram import Histogram, histogram_of
from moozi.core.pytree import replace
from moozi.core.records import Priorities, TrainTarget
from moozi.core.spec import EnvSpec
from moozi.learning.non_finite import NonFiniteGuard
from moozi.nn.horizon import DISCOUNT


class Learner:
  """Holds the TrainingState and updates it.

  Args:
    state: the initial state.
    update_many: a compiled function of U updates, such as a result of `agent.update.make_update_many`. It
      donates the state. With `takes_time_share(config)` its third argument is `time_share`.
    guard: counts the skipped updates.
    config: the run's configuration.
    spec: the environment's specification.

  Raises: UserError: as `devices_of`.
  """

  def __init__(
    self,
    state: TrainingState,
    update_many: Callable[..., tuple[TrainingState, UpdateOutput]],
    guard: NonFiniteGuard,
    config: Config,
    spec: EnvSpec,
  ) -> None:
    self._devices = devices_of(config.learner)
    self._state = self._devices.put(state)
    self._rolled_back_at = 0
    self._target_update_period = config.learner.target_update_period
    self._update_many = update_many
    self._guard = guard
    self._has_histograms = config.logging.parameter_histograms
    self._config, self._spec = config, spec
    self._further: tuple[Any, ...] = ()  # arguments of `update_many` after the batch
    self.set_time_share(0.0)

  @property
  def learner_step(self) -> int:
    """The version of the parameters; see `TrainingState`."""
    return int(self._state.learner_step)

  def advance(self, batch: Any, num_samples: int) -> tuple[UpdateOutput, dict[str, float]]:
    """Makes the U updates of one call.

    Args:
      batch: the second argument of `update_many`.
      num_samples: number of samples from which the updates learn.

    Returns:
      The output, in NumPy, and metrics: those of the output, `learner/samples_per_s`, and those of
      `NonFiniteGuard.count`.

    Raises: NotFiniteError: the guard allows no more consecutive skipped updates. Skipped updates do not
      change the parameters.
    """
    start, first_step = time.perf_counter(), self.learner_step
    self._state, output = self._update_many(self._state, batch, *self._further)
    output = jax.device_get(output)
    elapsed = time.perf_counter() - start
    metrics = {name: float(value) for name, value in output.metrics.items()}
    metrics["learner/samples_per_s"] = num_samples / elapsed
    return output, metrics | self._guard.count(output.bad_term, first_step)

  def update(self, targets: Any, own: Any = None) -> tuple[Priorities, dict[str, float]]:
    """Makes U updates from targets of replay.

    Args:
      targets: U batches of B targets, [U, B, …]: a TrainTarget, or the targets of another algorithm with the
        same fields `slot`, `sequence`, `importance_ratio`, `acted_version` and `searched_version`.
      own: on several hosts, the targets of this host, [U, B / number of hosts, …]; None: all targets.

    Returns: new priorities of all U·B targets, and the metrics of `advance` and of the targets' versions.
    Raises: NotFiniteError: as `advance`.
    """
    first_step = self.learner_step
    age = first_step - targets.acted_version.astype(np.float64)
    search_age = first_step - targets.searched_version.astype(np.float64)
    output, metrics = self.advance(targets if own is None else own, targets.slot.size)
    metrics |= {
      "replay/target_age_updates": float(age.mean()),
      "replay/search_age_updates": float(search_age.mean()),
      "replay/searched_again_share": float(np.mean(targets.searched_version != targets.acted_version)),
    }
    delta = np.asarray(output.value_error, np.float32).reshape(-1)
    return Priorities(
      slot=targets.slot.reshape(-1), sequence=targets.sequence.reshape(-1), delta=delta
    ), metrics

  def warm_up(self) -> None:
    """Compiles the updates by one call with a copy of the state and zero targets; discards the result."""
    learner = self._config.learner
    lead = learner.updates_per_call, learner.batch_size // self._devices.num_hosts
    targets = zero_targets(self._config, self._spec, lead)
    jax.block_until_ready(self._update_many(self._devices.copy(self._state), targets, *self._further))

  def parameters(self, network: str = "online") -> tuple[Any, int]:
    """Returns (variables, version) of the network `online` or `target`, in NumPy; see `agent.agent.Act`."""
    is_target = network == "target"
    params = self._state.target_params if is_target else self._state.params
    variables = to_numpy((params, self._state.net_state))
    return variables, self.target_version if is_target else self.learner_step

  @property
  def has_averages(self) -> bool:
    """Whether the variables, also the target network's, have a state, such as running averages.

    A γ that the variables carry is part of this state.
    """
    return bool(jax.tree_util.tree_leaves(self._state.net_state))

  @property
  def target_version(self) -> int:
    """Learner step of the last update or rollback that changed the target network."""
    step, period = self.learner_step, self._target_update_period
    if self._config.learner.target_decay > 0 or step < period:
      return step
    return max(step - step % period, self._rolled_back_at)

  def histograms(self) -> dict[str, Histogram]:
    """Returns a histogram of each parameter array by name; empty without `logging.parameter_histograms`."""
    if not self._has_histograms:
      return {}
    found = {
      f"params/{jax.tree_util.keystr(path, simple=True, separator='/')}": histogram_of(leaf)
      for path, leaf in jax.tree_util.tree_leaves_with_path(self._state.params)
    }
    return {name: histogram for name, histogram in found.items() if histogram is not None}

  def set_discount(self, discount: float) -> None:
    """Sets the γ that the variables carry (`nn.horizon`); without one, does nothing."""
    net_state, gamma = self._state.net_state, np.float32(discount)
    if isinstance(net_state, Mapping) and DISCOUNT in net_state and np.asarray(net_state[DISCOUNT]) != gamma:
      changed = {**net_state, DISCOUNT: self._devices.put(to_jax(gamma))}
      self._state = replace(self._state, net_state=changed)

  def set_time_share(self, share: float) -> None:
    """Sets the share of max_wall_s that has passed, from 0 to 1, for the learning rate of the next updates.

    Does nothing without `takes_time_share`. On several hosts, all must set the same share.
    """
    if takes_time_share(self._config):
      self._further = (self._devices.put(np.float32(share)),)

  def get_state(self) -> TrainingState:
    """Returns a copy of the TrainingState as NumPy arrays."""
    return to_numpy(self._state)

  def start_from(self, state: TrainingState | None, learner_step: int) -> None:
    """Continues from a state and, if `learner_step` is not 0, under this learner step.

    Args:
      state: the TrainingState of NumPy arrays; None: the present one.
      learner_step: as in `roll_back`, a learner step that no collector or reanalyzer has seen as a version.
    """
    if state is not None:
      self.set_state(state)
    if learner_step:
      self.roll_back(replace(self.get_state(), learner_step=np.int32(learner_step)))

  def set_state(self, state: TrainingState) -> None:
    """Restores a TrainingState of NumPy arrays, and resets the count of consecutive skipped updates."""
    self._guard.reset()
    self._rolled_back_at = 0
    # A copy: the next update donates the state's buffers, but the caller's arrays must stay valid.
    self._state = self._devices.put(to_jax(state))

  def roll_back(self, state: TrainingState) -> None:
    """Restores a state whose learner step no collector or reanalyzer has seen as a version.

    The step is also the version of the restored target network. The learner step at which that network was
    last copied may be the version of the discarded one, which collectors would then keep.
    """
    self.set_state(state)
    self._rolled_back_at = self.learner_step


def zero_targets(config: Config, spec: EnvSpec, lead: tuple[int, ...]) -> TrainTarget:
  """Returns zero targets with the leading axes `lead`, in the shapes and dtypes that replay samples."""
  targets = config.targets
  K, A = targets.unroll_steps, spec.policy_size
  num_frames = targets.history_length + config.frames_ahead
  return TrainTarget(
    frames=np.zeros((*lead, num_frames, *spec.frame_shape), spec.frame_dtype),
    history_actions=np.zeros((*lead, num_frames), np.int32),
    actions=np.zeros((*lead, K), np.int32),
    rewards=np.zeros((*lead, K), np.float32),
    action_probs=np.zeros((*lead, K + 1, A), np.float32),
    root_values=np.zeros((*lead, K + 1), np.float32),
    n_step_returns=np.zeros((*lead, K + 1), np.float32),
    unroll_mask=np.zeros((*lead, K + 1), np.float32),
    consistency_mask=np.zeros(lead, np.float32),
    importance_ratio=np.zeros(lead, np.float32),
    slot=np.zeros(lead, np.int64),
    sequence=np.zeros(lead, np.int64),
    acted_version=np.zeros(lead, np.int32),
    searched_version=np.zeros(lead, np.int32),
  )


def to_jax(tree: Any) -> Any:
  """Returns a copy of a tree as JAX arrays, without shared buffers: updates donate those of the copy."""
  # `jnp.array` would compile a copy for each shape.
  return jax.device_put(tree, may_alias=False)


def to_numpy(tree: Any) -> Any:
  """Returns a copy of a tree as NumPy arrays. A view would share buffers that the next update donates."""
  return jax.tree_util.tree_map(lambda x: np.array(x), tree)

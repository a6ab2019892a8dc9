"""Surgery on a training state: what is planned, whether it preserves the outputs, and the converted state."""

import dataclasses
from pathlib import Path
from typing import Any

from moozi.core.config import Config
from moozi.core.config.uses import code_keys
from moozi.core.errors import UserError, one_line
from moozi.core.flat_state import State, tree_of_state, tree_state
from moozi.core.spec import EnvSpec
from moozi.envs import registry
from moozi.io.checkpoints import CheckpointInfo, expected_of, load_checkpoint
from moozi.io.config import config_from_dict
from moozi.surgery.check import TOLERANCE, Differences, compare
from moozi.surgery.pairing import correspond
from moozi.surgery.plan import Plan, make_plan
from moozi.surgery.transform import transform
from moozi.training.algorithms import algorithm_of, complete_state


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operation:
  """A planned surgery on one training state.

  Attributes:
    plan: how each array is made.
    state: the leaves of the converted training state by path.
    differences: of the outputs before and after.
    lost: what is not preserved, one line each; those of `plan` come first.
  """

  plan: Plan
  state: State
  differences: Differences
  lost: tuple[str, ...]

  @property
  def changes(self) -> tuple[str, ...]:
    """The settings that change, one line each."""
    return tuple(f"{key}: {one_line(a, 60)} → {one_line(b, 60)}" for key, a, b in self.plan.changes)

  def convert(self, training: Any) -> Any:
    """Returns another training state of the same network, converted as a pytree of NumPy arrays."""
    return as_tree(self.plan, transform(tree_state(training), self.plan))

  def check(self, is_lossy: bool, how: str) -> None:
    """Raises UserError, whose message ends with `how`, if something is lost and `is_lossy` is false."""
    if self.lost and not is_lossy:
      more = f" (and {len(self.lost) - 1} more)" if len(self.lost) > 1 else ""
      raise UserError(f"surgery does not preserve the network: {self.lost[0]}{more}; {how}")


def as_tree(plan: Plan, state: State) -> Any:
  """Returns the training state of the new configuration as a pytree."""
  config, spec = plan.new.config, plan.new.spec
  return tree_of_state(algorithm_of(config).training_state_template(config, spec), state)


def plan_operation(
  training: Any, old: tuple[Config, EnvSpec], new: tuple[Config, EnvSpec], mapping: Path | None
) -> Operation:
  """Plans a surgery, converts the state, and compares the outputs.

  Args:
    training: the training state, a pytree of NumPy arrays.
    old, new: configuration and environment specification.
    mapping: file of `surgery.pairing.correspond`.

  Raises: UserError: as `correspond` and `make_plan`.
  """
  plan = make_plan(*old, *new, correspond(old[1], new[1], mapping))
  before = tree_state(training)
  state = transform(before, plan)
  differences = compare(plan, before, state)
  lost = list(plan.lost)
  if differences.largest > TOLERANCE:
    lost.append(f"outputs on the same inputs differ by more than {TOLERANCE:g}: {differences}")
  return Operation(plan=plan, state=state, differences=differences, lost=tuple(lost))


def operate_on(info: CheckpointInfo, config: Config, spec: EnvSpec) -> Operation:
  """Plans the surgery of `checkpoint.surgery` on the checkpoint that a new run starts from.

  Raises: UserError: the checkpoint is damaged, or has no configuration that this version accepts; it names
    code; or as `plan_operation`.
  """
  old = config_of(info, config)
  old_spec = spec if old.env == config.env else registry.env_spec(old.env.name, **old.env.arguments)
  template = algorithm_of(old).training_state_template(old, old_spec)
  training = load_checkpoint(info.path, template, expected_of(old, old_spec))
  if info.has_parameters_only:
    training = complete_state(old, old_spec, training)
  mapping = config.checkpoint.mapping
  return plan_operation(training, (old, old_spec), (config, spec), Path(mapping) if mapping else None)


def config_of(info: CheckpointInfo, user: Config) -> Config:
  """Returns the configuration in a checkpoint's header.

  Args:
    user: the configuration of the user's new run. If its environment or kind of network differs from that of
      the checkpoint, the checkpoint must not name code.

  Raises: UserError: there is no configuration, this version does not accept it, or it names code.
  """
  data = info.meta.get("config")
  if not isinstance(data, dict):
    raise UserError(f"{info.path}: has no configuration, which surgery needs")
  config = config_from_dict(data, str(info.path))
  is_users = (config.env, config.network.kind) == (user.env, user.network.kind)
  if (keys := code_keys(config)) and not is_users:
    raise UserError(
      f"{info.path}: {', '.join(keys)} imports a Python module; `moozi surgery --allow-code` may do that"
    )
  return config


def check_operation(info: CheckpointInfo, config: Config, spec: EnvSpec) -> Operation:
  """Plans as `operate_on`. Raises UserError if `checkpoint.surgery` does not allow what is lost."""
  operation = operate_on(info, config, spec)
  operation.check(config.checkpoint.surgery == "lossy", "checkpoint.surgery=lossy accepts that")
  return operation

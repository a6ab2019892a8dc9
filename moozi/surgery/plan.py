"""The plan of a surgery: for each array, what it is made of; what cannot be preserved; what is refused."""

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from moozi.baselines.ppo.reward_scaling import RETURNS
from moozi.core.config import Config
from moozi.core.errors import UserError
from moozi.core.flat_state import State, leaves_of, tree_state
from moozi.core.spec import EnvSpec
from moozi.nn.horizon import DISCOUNT
from moozi.surgery.axes import Axis, AxisMap, map_axis
from moozi.surgery.fresh_state import initial_training_state
from moozi.surgery.layers import ArrayAxes, Declared
from moozi.surgery.networks import NamedNetwork, declare
from moozi.surgery.pairing import Correspondence, correspond

_OF_SEARCHES = (
  "network.kind",
  "network.norm",
  "network.mover_view",
  "network.normalize_observations",
  "network.center_frames",
  "chance.codes",
  "chance.reward_from",
)
_FIXED = {
  "muzero": _OF_SEARCHES,
  "alphazero": _OF_SEARCHES,
  "ppo": (
    *("ppo.network.kind", "ppo.network.sharing", "ppo.network.activation"),
    *("ppo.layer_norm", "ppo.conv_stride", "ppo.scale_frames"),
    *("ppo.normalize_observations", "ppo.observation_clip", "ppo.normalize_rewards"),
  ),
  "q_learning": (
    *("q_learning.kind", "q_learning.dueling", "q_learning.normalize_observations"),
    *("q_learning.network.kind", "q_learning.network.sharing", "q_learning.network.activation"),
    "q_learning.conv_stride",
  ),
}
"""Settings by algorithm that surgery cannot change, if the old network depends on them (`_has_effect`)."""
_STRIDED = ("conv", "multi_input")
"""Kinds of a baseline's network that have a stride."""
_SEARCH_SECTIONS = ("env", "network", "chance", "scalar_transform", "targets")
_SECTIONS = {
  "muzero": _SEARCH_SECTIONS,
  "alphazero": _SEARCH_SECTIONS,
  "ppo": ("env", "ppo", "scalar_transform"),
  "q_learning": ("env", "q_learning", "targets"),
}
"""Sections by algorithm whose changes are listed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArrayPlan:
  """How an array of the new network is made.

  Attributes:
    path: in `params` or `net_state`.
    source: the path of the old array; None for a new one.
    shape, source_shape: of the new and of the old array.
    passed: number of units that a new array passes on; None: it passes on nothing.
    how: in words.
    maps: for each axis, what its entries are made of; of a new array that passes on its input, those of the
      identity; empty for every other new array.
    declared: its axes.
  """

  path: str
  source: str | None
  shape: tuple[int, ...]
  source_shape: tuple[int, ...] | None
  how: str
  maps: tuple[AxisMap, ...]
  declared: ArrayAxes
  passed: int | None = None

  @property
  def is_copy(self) -> bool:
    """Whether the new array equals the old one."""
    return self.source is not None and all(axis.is_identity for axis in self.maps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
  """The plan of a surgery.

  Attributes:
    old, new: the networks.
    pairs: which planes and actions correspond.
    arrays: by path.
    lost: what is not preserved, one line each.
    changes: the settings and sizes that differ, as `_changes` lists them: (name, old value, new value).
    fresh: the initial training state of the new configuration, for what is new.
  """

  old: NamedNetwork
  new: NamedNetwork
  pairs: Correspondence
  arrays: dict[str, ArrayPlan]
  lost: tuple[str, ...]
  changes: tuple[tuple[str, Any, Any], ...]
  fresh: State

  @property
  def is_identity(self) -> bool:
    """Whether all arrays stay as they are, and nothing is lost."""
    return all(array.is_copy for array in self.arrays.values()) and not self.lost


def make_plan(
  old_config: Config,
  old_spec: EnvSpec,
  new_config: Config,
  new_spec: EnvSpec,
  pairs: Correspondence | None = None,
) -> Plan:
  """Returns the plan that converts a run's network to that of another configuration.

  Args:
    pairs: which planes and actions correspond; None: as `correspond` finds without a file.

  Raises: UserError: the surgery is refused: an algorithm or a setting has no conversion, a layer becomes
    narrower, or the environments are not of one kind.
  """
  _check_settings(old_config, new_config)
  pairs = pairs or correspond(old_spec, new_spec)
  _check_planes(new_config, old_spec, new_spec, pairs)
  planes = pairs.plane_names(old_spec.frame_shape[2])
  entries = pairs.entry_names(old_spec.policy_size - 1)
  old = NamedNetwork(config=old_config, spec=old_spec, planes=planes[0], entries=entries[0])
  new = NamedNetwork(config=new_config, spec=new_spec, planes=planes[1], entries=entries[1])
  template = jax.eval_shape(lambda: initial_training_state(old_config, old_spec))
  fresh = tree_state(jax.device_get(initial_training_state(new_config, new_spec)))
  declared = _declare(old, leaves_of(template)), _declare(new, fresh)
  if not old.has_known_axes:
    _check_own(old, new, *declared)
  arrays, lost = _match(*declared)
  lost = [*_lost_settings(old, new), *lost]
  return Plan(
    old=old,
    new=new,
    pairs=pairs,
    arrays=arrays,
    lost=tuple(dict.fromkeys(lost)),
    changes=_changes(old, new),
    fresh=fresh,
  )


def shapes_of(state: dict[str, Any]) -> dict[str, tuple[int, ...]]:
  """Returns the shapes of a training state's network arrays by path.

  γ (`nn.horizon`) and the running returns of PPO are left out.
  """
  parts, others = ("params/", "net_state/"), (f"net_state/{DISCOUNT}", f"net_state/{RETURNS}/")
  arrays = {
    name: x
    for name, x in state.items()
    if name.startswith(parts) and name != others[0] and not name.startswith(others[1])
  }
  return {name.partition("/")[2]: tuple(np.shape(x)) for name, x in arrays.items()}


def _declare(network: NamedNetwork, state: dict[str, Any]) -> Declared:
  try:
    return declare(network, shapes_of(state))
  except ValueError as error:
    raise UserError(f"{network.kind_text}: has no surgery: {error}") from None


def _check_settings(old: Config, new: Config) -> None:
  if old.algorithm != new.algorithm:
    raise UserError(
      f"algorithm={new.algorithm}: the state is of {old.algorithm}, which surgery cannot change"
    )
  if new.algorithm not in _FIXED:
    raise UserError(f"algorithm={new.algorithm}: has no surgery; only {', '.join(_FIXED)} have")
  for key in _FIXED[new.algorithm]:
    before, after = (operator.attrgetter(key)(config) for config in (old, new))
    if before != after and _has_effect(key, old):
      raise _cannot_change(key, before, after)
  if new.algorithm == "ppo":
    kinds: dict[str, Callable[[Any], bool]] = {
      "ppo.value_loss": lambda loss: loss == "categorical",
      "ppo.network.lstm_size": lambda size: size > 0,
    }
    for key, kind_of in kinds.items():
      before, after = (operator.attrgetter(key)(config) for config in (old, new))
      if kind_of(before) != kind_of(after):
        raise _cannot_change(key, before, after)


def _has_effect(key: str, old: Config) -> bool:
  """Returns whether the old network depends on a setting; those before it in `_FIXED` have not changed."""
  if key.startswith("chance."):
    return bool(old.chance.codes)
  if key == "ppo.conv_stride":
    return old.ppo.network.kind in _STRIDED
  if key == "q_learning.conv_stride":
    return old.q_learning.kind == "network" and old.q_learning.network.kind in _STRIDED
  if key == "ppo.observation_clip":
    return old.ppo.normalize_observations
  if key.startswith("q_learning.network.") or key == "q_learning.dueling":
    return old.q_learning.kind == "network"
  return True


def _cannot_change(key: str, before: object, after: object) -> UserError:
  now, then = (str(x).lower() if isinstance(x, bool) else x for x in (after, before))
  return UserError(f"{key}={now}: the state has {then}, which surgery cannot change")


def _check_planes(config: Config, old: EnvSpec, new: EnvSpec, pairs: Correspondence) -> None:
  """Raises UserError if what the network does with certain planes or actions would change."""
  if config.searches and config.network.mover_view:
    sources = tuple(pairs.planes[plane] for plane in new.player_planes or ())
    if sources != (old.player_planes or ()):
      raise UserError("network.mover_view=true: the planes of the players must correspond to those of before")
  if config.searches and new.num_places and pairs.actions[: new.num_places] != tuple(range(new.num_places)):
    raise UserError(f"env.name={new.name}: actions with a place must keep their numbers")
  if new.is_factored and pairs.actions != tuple(range(new.policy_size - 1)):
    raise UserError(f"env.name={new.name}: the values of joint actions must keep their numbers")


def _check_own(old: NamedNetwork, new: NamedNetwork, before: Declared, after: Declared) -> None:
  """Raises UserError if arrays whose axes have no known meaning would change."""
  shapes = [{array.path: array.shape for array in one.arrays.values()} for one in (before, after)]
  is_same = (old.planes, old.entries, old.length) == (new.planes, new.entries, new.length)
  is_same &= not new.has_categories or old.bins == new.bins
  if shapes[0] != shapes[1] or not is_same:
    raise UserError(f"{new.kind_text}: has no surgery: the axes of its arrays are not known")


def _match(old: Declared, new: Declared) -> tuple[dict[str, ArrayPlan], list[str]]:
  """Returns the plan of each array, and what is lost."""
  arrays: dict[str, ArrayPlan] = {}
  lost: dict[str, list[str]] = {}  # the arrays, by what is lost
  used = set()
  for key, array in new.arrays.items():
    found = key if key in old.arrays else array.instead if array.instead in old.arrays else None
    if found is None:
      arrays[array.path] = _new_array(array, old)
      continue
    used.add(found)
    source = old.arrays[found]
    if len(source.axes) != len(array.axes):
      raise UserError(f"{array.path}: has other axes than before")
    maps = tuple(map_axis(a, b) for a, b in zip(source.axes, array.axes, strict=True))
    _check_widths(source, array)
    for text in _lost_entries(array, maps):
      lost.setdefault(text, []).append(array.path)
    arrays[array.path] = ArrayPlan(
      path=array.path,
      source=source.path,
      shape=array.shape,
      source_shape=source.shape,
      how=_describe(array, maps, source.path),
      maps=maps,
      declared=array,
    )
  for key, array in old.arrays.items():
    if key not in used:
      lost.setdefault("is dropped", []).append(array.path)
  for key, reason in new.additions.items():
    if key not in old.additions and reason is not None:
      lost.setdefault(reason, []).append(key)
  return arrays, [_at(paths, text) for text, paths in lost.items()]


def _at(paths: list[str], text: str) -> str:
  more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
  return f"{paths[0]}{more}: {text}"


def _new_array(array: ArrayAxes, old: Declared) -> ArrayPlan:
  how = "new"
  if array.starts_at_zero:
    # A dense layer has a bias of 0 even where it adds something.
    how = "new, 0" if array.path.endswith("/b") else "new, 0: its module adds nothing at first"
  plan = ArrayPlan(
    path=array.path, source=None, shape=array.shape, source_shape=None, how=how, maps=(), declared=array
  )
  passed = _passed(array, old) if array.passes_on else None
  if passed is None:
    return plan
  identity = dataclasses.replace(array, axes=(passed, passed))
  _check_widths(identity, array)
  maps = tuple(map_axis(passed, axis) for axis in array.axes)
  how = "new, the identity: its module passes on its input at first"
  return dataclasses.replace(plan, maps=maps, how=how, passed=len(passed))


def _passed(array: ArrayAxes, old: Declared) -> Axis | None:
  """Returns the units of the old network that a new layer passes on: those that its next layer reads."""
  ((layer, _),) = array.axes[0].layers()
  read = [other.axes[other.reads] for other in old.arrays.values() if other.reads is not None]
  found = [axis for axis in read if dict(axis.layers()).keys() == {layer}]
  return found[-1] if found else None


def _check_widths(old: ArrayAxes, new: ArrayAxes) -> None:
  for before, after in zip(old.axes, new.axes, strict=True):
    sizes = dict(before.layers())
    for layer, size in after.layers():
      if size < sizes.get(layer, 0):
        raise UserError(f"{new.path}: {size} units of {sizes[layer]}: surgery cannot make a layer narrower")


def _lost_entries(array: ArrayAxes, maps: tuple[AxisMap, ...]) -> list[str]:
  out = []
  for axis in maps:
    if axis.dropped:
      groups = dict.fromkeys(" ".join(map(str, _named(label.group))) for label in axis.dropped)
      out.append(f"{len(axis.dropped)} entries are dropped ({', '.join(list(groups)[:3])})")
  if array.even is not None:
    last = maps[-1]
    if len(set(last.shares.tolist())) > 1:
      out.append(f"{array.even} changes, because units are not repeated equally often")
  return out


def _named(group: tuple[object, ...]) -> list[object]:
  return [part for part in group if not isinstance(part, int)]


def _describe(array: ArrayAxes, maps: tuple[AxisMap, ...], source: str) -> str:
  parts = []
  for i, axis in enumerate(maps):
    num_new, most = int(axis.is_new.sum()), int(axis.shares.max(initial=1))
    if num_new:
      parts.append(f"{num_new} new {'inputs' if i == array.reads else 'entries'}: {_value_of_new(array, i)}")
    if most > 1:
      shares = "their weights divided" if i == array.reads else "copied"
      parts.append(f"units repeated up to {most} times, {shares}")
    if (axis.factors != 1).any():
      parts.append("scaled for inputs of another size")
    order = axis.source[axis.source >= 0]
    if most == 1 and (np.diff(order) < 0).any():
      parts.append("in another order")
    if axis.dropped:
      parts.append(f"{len(axis.dropped)} entries dropped")
  text = "; ".join(parts) or "copied"
  return text if source == array.path else f"{text}, from {source}"


def _value_of_new(array: ArrayAxes, i: int) -> str:
  """Returns what the new entries of an axis are at first, in words; `transform` sets them."""
  if array.is_state:
    return "as in a new network"
  if array.below is None or i == array.reads:
    return "0"
  return f"{array.below:g} below the mean of the others" if array.below else "the mean of the others"


def _lost_settings(old: NamedNetwork, new: NamedNetwork) -> list[str]:
  lost = []
  before, after = old.config.scalar_transform, new.config.scalar_transform
  if new.has_categories and before.epsilon != after.epsilon:
    lost.append(
      f"scalar_transform.epsilon: {before.epsilon:g} to {after.epsilon:g}: every category stands for another "
      "value"
    )
  return lost


def _changes(old: NamedNetwork, new: NamedNetwork) -> tuple[tuple[str, Any, Any], ...]:
  """Returns the settings of `_SECTIONS` and of the optimizer, and the environments' sizes, that differ."""
  out: list[tuple[str, Any, Any]] = []
  for section in _SECTIONS[new.config.algorithm]:
    before, after = (getattr(network.config, section).model_dump(mode="json") for network in (old, new))
    for data in (before, after):
      data |= {f"network.{key}": x for key, x in data.pop("network", {}).items()}
    out += [(f"{section}.{key}", before[key], after[key]) for key in after if before[key] != after[key]]
  for key in ("optimizer", "max_grad_rms"):
    before, after = (getattr(network.config.learner, key) for network in (old, new))
    if before != after and new.config.algorithm != "ppo":
      out.append((f"learner.{key}", before, after))
  for name, a, b in (
    ("frame planes", old.spec.frame_shape[2], new.spec.frame_shape[2]),
    ("actions", old.spec.num_env_actions, new.spec.num_env_actions),
  ):
    if a != b:
      out.append((name, a, b))
  return tuple(out)

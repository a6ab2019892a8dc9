"""Converts training states and variables by a plan. Pure functions of flat states, in NumPy."""

import hashlib
import re
from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float, Shaped

from moozi.core.flat_state import State
from moozi.nn.horizon import DISCOUNT
from moozi.surgery.axes import AxisMap
from moozi.surgery.plan import ArrayPlan, Plan

_MOMENT = re.compile(r"(opt_state/.+?/|opt_state/)(mu|nu)/(.+)")
_NETWORKS = ("params", "target_params", "net_state")
# The weights that read a unit repeated n times are 1/n of the old ones, times 1 plus at most ± 2 · this. With
# equal weights, the gradients of the repeated units would be equal too, and so would the units for ever.
_UNEVENNESS = 0.5


def transform(state: State, plan: Plan) -> State:
  """Returns a training state of the new configuration.

  Parameters, those of the target network and the network's statistics are converted array by array. The
  moments of the optimizer are carried where a parameter keeps its meaning, in the units of its new gradient.
  Those of new weights are set by `_fill_second_moments`; their first moments are 0. The other leaves, such as
  the learner step, keep their values; those of the optimizer and of `net_state` that the old state lacks, or
  has in another shape, are new.

  Args:
    state: the leaves of a TrainingState of the old configuration by path.

  Raises: ValueError: a leaf is missing or has another shape.
  """
  out: State = {}
  # By part of the optimizer, and by array, which second moments are carried.
  is_carried: dict[str, dict[str, np.ndarray]] = {}
  for name, fresh in plan.fresh.items():
    part, _, path = name.partition("/")
    moment = _MOMENT.fullmatch(name)
    if name == f"net_state/{DISCOUNT}":
      out[name] = np.array(state.get(name, fresh))
    elif part in _NETWORKS and path in plan.arrays:
      out[name] = _array(state, part, plan.arrays[path], fresh)
    elif moment is not None and _has_moment(state, moment, plan):
      out[name], mask = _moment(state, moment[1], moment[2], plan.arrays[moment[3]], fresh)
      if moment[2] == "nu":
        is_carried.setdefault(moment[1], {})[name] = mask
    elif name in state and np.shape(state[name]) == np.shape(fresh):
      out[name] = np.array(state[name])
    elif part in ("opt_state", "net_state"):
      out[name] = np.array(fresh)  # of an optimizer that keeps more; running returns of other environments
    else:
      raise ValueError(f"{name} is missing")
  for masks in is_carried.values():
    _fill_second_moments(out, masks)
  return out


def _fill_second_moments(out: State, is_carried: Mapping[str, Bool[np.ndarray, "..."]]) -> None:
  """Sets new second moments: to the mean of the carried ones of the array, or else of all arrays.

  The mean is of those above 0. A moment of 0 is of a weight that never had a gradient, such as one of an
  input that is always 0.

  Adam's count is carried, so moments that begin at 0 are not corrected. With a second moment of 0
  and a constant gradient, the steps of a new weight would rise to 6.6 times the learning rate.

  Args:
    is_carried: for each array of second moments, which entries are carried.
  """
  carried = {name: out[name][mask] for name, mask in is_carried.items()}
  carried = {name: x[x > 0] for name, x in carried.items()}
  overall = _mean(np.concatenate(list(carried.values())), 0.0)
  for name, mask in is_carried.items():
    if not mask.all():
      typical = _mean(carried[name], overall)
      out[name] = np.where(mask, out[name], np.asarray(typical, out[name].dtype))


def _mean(x: Float[np.ndarray, "N"], otherwise: float) -> float:
  return float(np.mean(x, dtype=np.float64)) if x.size else otherwise


def transform_variables(state: State, plan: Plan) -> State:
  """Returns the variables (params, net_state) of the new network, whose names begin with 0/ and 1/."""
  out: State = {}
  for name, fresh in plan.fresh.items():
    part, _, path = name.partition("/")
    if name == f"net_state/{DISCOUNT}":
      out[f"1/{DISCOUNT}"] = np.array(state.get(f"1/{DISCOUNT}", fresh))
    elif part in ("params", "net_state"):
      number = "0" if part == "params" else "1"
      known = np.asarray(state.get(f"{number}/{path}", fresh))
      if path in plan.arrays:
        out[f"{number}/{path}"] = _array(state, number, plan.arrays[path], fresh)
      else:
        out[f"{number}/{path}"] = np.array(known if known.shape == np.shape(fresh) else fresh)
  return out


def _array(
  state: State, part: str, array: ArrayPlan, fresh: Shaped[np.ndarray, "..."]
) -> Shaped[np.ndarray, "..."]:
  if array.source is not None:
    old = _leaf(state, f"{part}/{array.source}", array)
  elif array.passed is not None:
    old = np.eye(array.passed, dtype=fresh.dtype)
  else:
    return np.zeros_like(fresh) if array.declared.starts_at_zero else np.array(fresh)
  out = _gather(old, array.maps)
  for i, axis in enumerate(array.maps):
    reads = i == array.declared.reads
    if reads:
      out = _along(out, i, axis.factors) if (axis.factors != 1).any() else out
      if (axis.shares > 1).any():
        out = out * _shares(axis, i, out.shape, array.path)
    if axis.is_new.any():
      out = _fill(out, fresh, array, i, axis)
  return np.asarray(out, fresh.dtype)


def _has_moment(state: State, moment: re.Match[str], plan: Plan) -> bool:
  """Returns whether a moment follows from the old state: the old optimizer kept its kind of moments."""
  kind = f"{moment[1]}{moment[2]}/"
  return moment[3] in plan.arrays and any(name.startswith(kind) for name in state)


def _moment(
  state: State, prefix: str, kind: str, array: ArrayPlan, fresh: Shaped[np.ndarray, "..."]
) -> tuple[Shaped[np.ndarray, "..."], Bool[np.ndarray, "..."]]:
  """Returns a moment: 0 for new entries and copies made `instead`, else that of the source for the new
  gradient.

  Also returns which entries are carried.

  Where w' = c w, the gradient is g' = g / c. Each repetition of a unit that is repeated n times has about 1/n
  of its gradient, and each weight that reads it the whole.
  """
  if array.source is None:
    return np.zeros_like(fresh), np.zeros(np.shape(fresh), bool)
  power, is_carried = 1 if kind == "mu" else 2, np.ones(np.shape(fresh), bool)
  out = _gather(_leaf(state, f"{prefix}{kind}/{array.source}", array), array.maps)
  for i, axis in enumerate(array.maps):
    scale = axis.is_exact & ~axis.is_new
    is_carried = _along(is_carried, i, scale)
    if i == array.declared.reads:
      factors = scale / axis.factors
    else:
      factors = scale / np.maximum(axis.shares, 1)
    if (factors != 1).any():
      out = _along(out, i, factors**power)
  return np.asarray(out, fresh.dtype), is_carried


def _leaf(state: State, name: str, array: ArrayPlan) -> Float[np.ndarray, "..."]:
  if name not in state:
    raise ValueError(f"{name} is missing")
  leaf = np.asarray(state[name])
  if leaf.shape != array.source_shape:
    raise ValueError(f"{name} has the shape {leaf.shape}; must be {array.source_shape}")
  return leaf


def _gather(old: Shaped[np.ndarray, "..."], maps: tuple[AxisMap, ...]) -> Shaped[np.ndarray, "..."]:
  """Returns the old entries at their new places, and 0 for new ones."""
  out = np.array(old)
  for i, axis in enumerate(maps):
    if axis.is_identity:
      continue
    out = np.take(out, np.maximum(axis.source, 0), axis=i) if out.shape[i] else out
    if axis.is_new.any():
      out = _along(out, i, (~axis.is_new).astype(out.dtype))
  return out


def _along(
  array: Shaped[np.ndarray, "..."], axis: int, factors: Shaped[np.ndarray, "N"]
) -> Shaped[np.ndarray, "..."]:
  """Multiplies an array by one factor for each entry of an axis."""
  shape = [1] * array.ndim
  shape[axis] = len(factors)
  return array * factors.reshape(shape)


def _shares(axis: AxisMap, i: int, shape: tuple[int, ...], name: str) -> Float[np.ndarray, "..."]:
  """Returns the share of each repeated unit in the old weight: uneven, with a sum of 1 over its repetitions.

  The shares follow from the array's name, so that a surgery can be repeated.
  """
  seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
  noise = np.moveaxis(np.random.default_rng(seed).uniform(-1, 1, shape), i, 0)
  kept = axis.source >= 0
  size = int(axis.source.max()) + 1
  sums = np.zeros((size, *noise.shape[1:]))
  np.add.at(sums, axis.source[kept], noise[kept])
  counts = np.maximum(axis.shares, 1).reshape(-1, *[1] * (noise.ndim - 1))
  # Centred over the repetitions of each unit; a unit that is not repeated has 0.
  noise = noise - sums[np.maximum(axis.source, 0)] / counts
  return np.moveaxis((1 + _UNEVENNESS * noise) / counts, 0, i)


def _fill(
  out: Float[np.ndarray, "..."],
  fresh: Float[np.ndarray, "..."],
  array: ArrayPlan,
  i: int,
  axis: AxisMap,
) -> Float[np.ndarray, "..."]:
  """Sets the new entries of an axis that are not 0: those of statistics, and of outputs with `below`."""
  if array.declared.is_state:
    # A variance of 0 would make every value of a new plane other than 0 the largest that the norm passes on.
    shape = [1] * out.ndim
    shape[i] = len(axis.is_new)
    return np.where(axis.is_new.reshape(shape), fresh, out)
  below = array.declared.below
  if i != len(array.maps) - 1 or below is None:
    return out
  out = np.array(out)
  labels = array.declared.axes[i].labels
  for group in dict.fromkeys(labels[n].group for n in np.flatnonzero(axis.is_new)):
    own = np.array([label.group == group for label in labels])
    known = own & ~axis.is_new
    mean = out[..., known].mean(axis=-1, keepdims=True)
    is_bias = out.ndim == 1
    shift = below + np.log((own & axis.is_new).sum()) if is_bias and below else 0.0
    out[..., own & axis.is_new] = mean - shift
  return out

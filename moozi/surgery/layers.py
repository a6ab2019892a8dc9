"""Declares the arrays of the layers that networks share: what each axis means, and what a new layer does."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from moozi.core.config import NetworkConfig
from moozi.surgery.axes import Axis, Label, units

UNLIKELY_BIN, UNLIKELY_ACTION = 24.0, 12.0
"""How far the logit of a new entry is below the mean of the old ones, besides the logarithm of the number of
new entries. All new categories together then have a probability below 1e-10, and all new actions below
1e-5."""


class Where(NamedTuple):
  """A module or an array.

  Attributes:
    path: in `params` or `net_state`.
    key: the key by which its counterpart in another network is found.
    instead: the key of what it is copied from if the other network lacks `key`.
  """

  path: str
  key: str
  instead: str | None = None

  def __truediv__(self, name: str) -> "Where":
    instead = None if self.instead is None else f"{self.instead}/{name}"
    return Where(f"{self.path}/{name}", f"{self.key}/{name}", instead)


def module(path: str, key: str | None = None, instead: str | None = None) -> Where:
  return Where(path, key or path, instead)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArrayAxes:
  """An array of a network.

  Attributes:
    path: in `params` or `net_state` of the training state, such as `representation/conv/w`.
    axes: one for each axis of the array; none if their meaning is not known.
    unknown: the shape if the meaning of the axes is not known; only an array of the same shape is made of it.
    reads: index of the axis along which the array's module sums its inputs; None: no such axis.
    below: how far new entries of the last axis are below the mean of the old ones, as `UNLIKELY_BIN`; 0: they
      are the mean, as new action values are; None: they are 0.
    starts_at_zero: whether the array is 0 if the module is new.
    passes_on: whether the array is the identity if the module is new. Both axes are units of one layer, of
      which the old network has a part.
    even: what computes joint statistics of the entries of the last axis; each old one must be repeated
      equally often, or the statistics change. None: nothing does.
    is_state: whether the array is in `net_state`.
    instead: as in `Where`.
  """

  path: str
  axes: tuple[Axis, ...]
  instead: str | None = None
  reads: int | None = None
  below: float | None = None
  starts_at_zero: bool = False
  passes_on: bool = False
  even: str | None = None
  is_state: bool = False
  unknown: tuple[int, ...] = ()

  @property
  def shape(self) -> tuple[int, ...]:
    return self.unknown or tuple(map(len, self.axes))


class Declared:
  """The arrays of a network by key, and the layers that a surgery can add.

  Attributes:
    arrays: by key.
    additions: keys of layers that pass on their input when they are new. The value is None, or the reason why
      the layer changes its input.
  """

  def __init__(self, shapes: Mapping[str, tuple[int, ...]], norm: str) -> None:
    """Declares nothing; `shapes` has the shape of each array by path, from which flattened sizes follow."""
    self._shapes, self._norm = shapes, norm
    self.arrays: dict[str, ArrayAxes] = {}
    self.additions: dict[str, str | None] = {}

  def add(self, where: Where, *axes: Axis, **attributes: object) -> None:
    made = ArrayAxes(path=where.path, axes=axes, instead=where.instead, **attributes)  # type: ignore[arg-type]
    self.arrays[where.key] = made

  def num_cells(self, where: Where, axis: Axis) -> int:
    """Returns how often an axis is repeated in the inputs of a linear layer."""
    return self._shapes[f"{where.path}/w"][0] // len(axis)

  def has(self, where: Where) -> bool:
    """Returns whether the network has a module with weights at this path."""
    return f"{where.path}/w" in self._shapes

  def linear(
    self,
    where: Where,
    inputs: Axis,
    outputs: Axis,
    *,
    below: float | None = None,
    starts_at_zero: bool = False,
    has_bias: bool = True,
    even: str | None = None,
  ) -> None:
    kind = {"below": below, "starts_at_zero": starts_at_zero}
    self.add(where / "w", inputs, outputs, reads=0, **kind)
    if has_bias:
      self.add(where / "b", outputs, even=even, **kind)

  def conv(
    self, where: Where, side: int, inputs: Axis, outputs: Axis, *, starts_at_zero: bool = False
  ) -> None:
    kernel = fixed("kernel", side)
    self.add(where / "w", kernel, kernel, inputs, outputs, reads=2, starts_at_zero=starts_at_zero)
    self.add(where / "b", outputs, starts_at_zero=starts_at_zero)

  def norm(self, where: Where, axis: Axis, *, starts_at_zero: bool = False) -> None:
    if self._norm == "none":
      return
    inner = where / f"{self._norm}_norm"
    even = "a layer norm" if self._norm == "layer" else None
    for name in ("scale", "offset"):
      self.add(inner / name, axis, starts_at_zero=starts_at_zero, even=even)
    if self._norm == "batch":
      for name in ("mean", "variance"):
        self.add(inner / name, axis, is_state=True)

  def residual_dense(self, where: Where, stream: Axis, extra: Axis | None = None) -> None:
    """Declares x + W₂ relu(norm(W₁x)); a new one has W₂ = 0, and passes x on."""
    middle = units(f"{where.key}/middle", len(stream))
    self.linear(where / "dense_0", stream if extra is None else stream + extra, middle)
    self.norm(where / "norm", middle)
    self.linear(where / "dense_1", middle, stream, starts_at_zero=True)

  def residual_conv(self, where: Where, stream: Axis, is_rectified: bool) -> None:
    """Declares relu(x + norm(conv(relu(norm(conv(x)))))); a new one adds 0 to x.

    With a norm, the scale of the last norm is 0, not the convolution: a layer norm would scale
    the outputs of small initial weights to a variance of 1.
    """
    middle, has_norm = units(f"{where.key}/middle", len(stream)), self._norm != "none"
    self.conv(where / "conv_0", 3, stream, middle)
    self.norm(where / "norm_0", middle)
    self.conv(where / "conv_1", 3, middle, stream, starts_at_zero=not has_norm)
    self.norm(where / "norm_1", stream, starts_at_zero=True)
    # The block applies a relu to what it passes on.
    text = "a new residual block with no block before it, so that its relu changes the input"
    self.additions[where.key] = None if is_rectified else text

  def heads(
    self, where: Where, inputs: Axis, config: NetworkConfig, **sizes: tuple[Axis, float | None]
  ) -> None:
    """Declares heads with one hidden layer; each size is the axis of the head's outputs, and its `below`.

    If the heads are copied from others (`instead`), those may lack a head. The hidden units of this head are
    then copies of the last head's, so that the joint layer norm has the same statistics.
    """
    *_, last = sizes
    hidden, joined = {}, Axis(())
    for name in sizes:
      is_shared = where.instead is not None and name == last
      hidden[name] = units(f"{name} of {where.instead if is_shared else where.key}", config.head_size)
      if where.instead is not None and not is_shared:
        (group,) = {label.group for label in hidden[name].labels}
        hidden[name] = dataclasses.replace(hidden[name], instead={group: (f"{last} of {where.instead}",)})
      joined = joined + hidden[name]
    self.linear(where / "hidden", inputs, joined)
    self.norm(where / "norm", joined)
    for name, (outputs, below) in sizes.items():
      self.linear(where / name, hidden[name], outputs, below=below)


def fixed(name: str, size: int) -> Axis:
  """Returns an axis whose entries correspond by number to those of an axis of this name and size."""
  return Axis(tuple(Label((name, size), i) for i in range(size)))

"""What the entries of an array's axes mean, and how the entries of two networks correspond.

An axis is a tuple of labels. Two entries with one label have one meaning, wherever they are in their arrays:
a plane of the newest frame, an action, a category of the support. The label of a layer's unit has its number;
in a wider layer, unit i is made of unit i modulo the old width.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

Group = tuple[object, ...]
NEW = -1


class Label(NamedTuple):
  """The meaning of an entry: its group, such as ("plane", "age 0") of the newest frame, and its name in it.

  If `is_unit`, the name is the number of a unit of a layer.
  """

  group: Group
  name: object
  is_unit: bool = False

  @property
  def layer(self) -> Group:
    """The group without the cell number that `per_cell` puts before it."""
    return tuple(part for part in self.group if not isinstance(part, int))


@dataclasses.dataclass(frozen=True)
class Axis:
  """The labels of an axis.

  Attributes:
    labels: one for each entry, all different.
    factors: what the network multiplies each input by before an array reads it; empty: all 1.
    instead: for a group that the other network lacks, the group whose entries are copied.
  """

  labels: tuple[Label, ...]
  factors: tuple[float, ...] = ()
  instead: Mapping[Group, Group] = dataclasses.field(default_factory=dict)

  def __len__(self) -> int:
    return len(self.labels)

  def __add__(self, other: "Axis") -> "Axis":
    """Returns the axis of the concatenated entries."""
    factors = self.all_factors + other.all_factors
    return Axis(self.labels + other.labels, factors, {**self.instead, **other.instead})

  @property
  def all_factors(self) -> tuple[float, ...]:
    return self.factors or (1.0,) * len(self.labels)

  def per_cell(self, num_cells: int) -> "Axis":
    """Returns the axis of flattened cells, each with this axis's entries."""
    labels = (
      Label((cell, *label.group), label.name, label.is_unit)
      for cell in range(num_cells)
      for label in self.labels
    )
    return Axis(tuple(labels), self.all_factors * num_cells)

  def layers(self) -> Iterator[tuple[Group, int]]:
    """Yields each layer of units, and its number of units; cells are not counted."""
    sizes: dict[Group, int] = {}
    for label in self.labels:
      if label.is_unit:
        sizes[label.layer] = max(sizes.get(label.layer, 0), int(label.name) + 1)  # type: ignore[call-overload]
    yield from sizes.items()


def units(name: str, size: int) -> Axis:
  """Returns the axis of a layer's units."""
  return Axis(tuple(Label((name,), i, True) for i in range(size)))


def names(group: Group, labels: tuple[object, ...], factor: float = 1.0) -> Axis:
  """Returns the axis of a group's named entries, all with one factor."""
  return Axis(tuple(Label(group, name) for name in labels), (factor,) * len(labels))


@dataclasses.dataclass(frozen=True)
class AxisMap:
  """For each entry of a new axis, what it is made of.

  Attributes:
    source: index of the old entry, or NEW.
    shares: number of new entries with this source; 0 without a source.
    factors: old factor / new factor, where there is a source.
    is_exact: whether the entry has the label of its source, or repeats its unit; false for a copy made
      `instead`.
    dropped: the labels of the old entries of which no new entry is made.
  """

  source: Int[np.ndarray, "N"]
  shares: Int[np.ndarray, "N"]
  factors: Float[np.ndarray, "N"]
  is_exact: Bool[np.ndarray, "N"]
  dropped: tuple[Label, ...]

  @property
  def is_identity(self) -> bool:
    """Whether the axes are equal, entry by entry."""
    same = np.array_equal(self.source, np.arange(len(self.source)))
    return same and not self.dropped and bool((self.factors == 1).all())

  @property
  def is_new(self) -> Bool[np.ndarray, "N"]:
    return self.source == NEW


def map_axis(old: Axis, new: Axis) -> AxisMap:
  """Returns how the entries of `new` are made of those of `old`."""
  at = {label: i for i, label in enumerate(old.labels)}
  sizes = dict(old.layers())
  source, is_exact = np.full(len(new), NEW, np.int64), np.ones(len(new), bool)
  for i, wanted in enumerate(new.labels):
    label, exact = wanted, True
    while (found := _find(label, at, sizes)) is None and label.group in new.instead:
      label, exact = label._replace(group=new.instead[label.group]), False
    if found is not None:
      source[i], is_exact[i] = found, exact
  counts = np.bincount(source[source != NEW], minlength=len(old))
  old_factors, new_factors = np.array(old.all_factors), np.array(new.all_factors)
  kept = source != NEW
  factors = np.ones(len(new))
  factors[kept] = old_factors[source[kept]] / new_factors[kept]
  return AxisMap(
    source=source,
    shares=np.where(kept, counts[source], 0),
    factors=factors,
    is_exact=is_exact,
    dropped=tuple(label for label, count in zip(old.labels, counts, strict=True) if not count),
  )


def _find(label: Label, at: Mapping[Label, int], sizes: Mapping[Group, int]) -> int | None:
  """Returns the index of the old entry of a label; of a unit, that of its number modulo the old width."""
  if label.is_unit and label.layer in sizes:
    label = label._replace(name=int(label.name) % sizes[label.layer])  # type: ignore[call-overload]
  return at.get(label)
